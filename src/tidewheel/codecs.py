"""Codecs of payloads: what the bytes of a message mean, for `Stream.decode` and for the sinks that send messages.

>>> from tidewheel import codecs
>>> codecs.json().decode(b'{"user": "ada"}')
{'user': 'ada'}
"""

from tidewheel._codecs.avro import avro
from tidewheel._codecs.base import PayloadCodec
from tidewheel._codecs.json import json
from tidewheel._codecs.protobuf import protobuf
from tidewheel._codecs.raw import raw

__all__ = ["PayloadCodec", "avro", "json", "protobuf", "raw"]
