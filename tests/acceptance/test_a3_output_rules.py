"""A3: an output message has its input's key, and a timestamp above the last epoch; else an error names both."""

from __future__ import annotations

import pytest

from tidewheel import Message
from tidewheel.errors import StepError
from tidewheel.sinks import collect


def failing(runner, function):
    job = runner.job()
    numbers = runner.source(job, "numbers", [7])
    numbers.key_by("each", lambda number: number).stateful_op("rogue", function, default=0).sink("out", collect())
    with pytest.raises(StepError) as caught:
        runner.run(job)
    return str(caught.value)


def test_a3_another_key_is_refused(runner):
    text = failing(runner, lambda message, state, output: output.send(Message(8, "other")))
    assert "'rogue'" in text
    assert "Message(key=8, value='other'" in text
    assert "the key of its input, 7" in text


def test_a3_a_result_other_than_a_message_is_refused(memory_runner):
    text = failing(memory_runner, lambda message, state, output: output.send("text"))
    assert "'rogue'" in text
    assert "takes a Message, not str" in text


def test_a3_a_timestamp_at_the_last_epoch_is_refused():
    from tidewheel._operators.keyed.output_buffer import OutputBuffer

    output = OutputBuffer("rogue", last_epoch=10)
    output.current = Message("k", 1, 11)
    output.send(Message("k", 1, 11))
    with pytest.raises(StepError, match="after the last epoch, 10"):
        output.send(Message("k", 1, 10))
