"""Codecs of payloads: what the bytes of a message mean, for `Stream.decode` and for the sinks that send messages.

>>> from tidewheel.sources import codecs
>>> codecs.json().decode(b'{"user": "ada"}')
{'user': 'ada'}
"""

from tidewheel.sources.codecs.avro import avro
from tidewheel.sources.codecs.base import PayloadCodec, payload_codec
from tidewheel.sources.codecs.json import json
from tidewheel.sources.codecs.protobuf import protobuf
from tidewheel.sources.codecs.raw import raw

__all__ = ["PayloadCodec", "avro", "json", "payload_codec", "protobuf", "raw"]
