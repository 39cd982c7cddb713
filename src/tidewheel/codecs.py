"""Codecs: what the bytes of a message mean, for `Stream.decode` and for sinks that send messages; and how state is stored.

>>> from tidewheel import codecs
>>> codecs.json().decode(b'{"user": "ada"}')
{'user': 'ada'}
>>> codecs.msgpack_codec(tuple[int, str]).decode(codecs.msgpack_codec(tuple[int, str]).encode((1, "a")))
(1, 'a')
"""

from tidewheel._codecs.avro import avro
from tidewheel._codecs.base import PayloadCodec
from tidewheel._codecs.debezium import Change, debezium
from tidewheel._codecs.json import json
from tidewheel._codecs.protobuf import protobuf
from tidewheel._codecs.raw import raw
from tidewheel._state.codec import StateCodec, msgpack_codec, pickle_codec, register_codec

__all__ = [
    "Change",
    "PayloadCodec",
    "StateCodec",
    "avro",
    "debezium",
    "json",
    "msgpack_codec",
    "pickle_codec",
    "protobuf",
    "raw",
    "register_codec",
]
