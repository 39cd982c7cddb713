"""Codecs of payloads: what the bytes of a message mean, for `Stream.decode` and for the sinks that send messages.

>>> from tidewheel import codecs
>>> codecs.json().decode(b'{"user": "ada"}')
{'user': 'ada'}
"""

from tidewheel.codecs.avro import avro
from tidewheel.codecs.base import PayloadCodec, payload_codec
from tidewheel.codecs.json import json
from tidewheel.codecs.protobuf import protobuf
from tidewheel.codecs.raw import raw

__all__ = ["PayloadCodec", "avro", "json", "payload_codec", "protobuf", "raw"]
