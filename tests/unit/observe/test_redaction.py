"""What is stored or logged shows no password."""

from __future__ import annotations

import pytest

from tidewheel._observe.redaction import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kafka://ada:s3cret@one:9092,two:9092/orders", "kafka://one:9092,two:9092/orders"),
        ("postgresql://ada:s3cret@db/orders?sslpassword=x", "postgresql://db/orders"),
        (
            'sinks.postgres("postgresql://ada:s3cret@db/orders", table="t")',
            'sinks.postgres("postgresql://db/orders", table="t")',
        ),
        ("password='two words' and more", "password=*** and more"),
        ('{"sasl.password": "s3cret", "group": "a"}', '{"sasl.password": ***, "group": "a"}'),
        ("aws_secret_access_key=abc/def region=eu", "aws_secret_access_key=*** region=eu"),
        ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer ***"),
        ("TOKEN: abc, next", "TOKEN: ***, next"),
        ("file:///data/state and s3://bucket/prefix stay", "file:///data/state and s3://bucket/prefix stay"),
        ("operator 'total', key 'ada': KeyError: 'cents'", "operator 'total', key 'ada': KeyError: 'cents'"),
    ],
)
def test_secrets_are_taken_out_and_the_rest_stays(text, shown):
    assert without_secrets(text) == shown
