"""stateful_op: any number of messages out, epochs and schedules, with a state per key."""

from __future__ import annotations

import pytest

from tidewheel import Message, StatefulLogic
from tidewheel.errors import GraphError
from unit.operators.running import failure, run


def keyed(logic, **options):
    return lambda s: s.key_by("k", lambda n: n % 2).stateful_op("op", logic, **options)


class Tally(StatefulLogic[int]):
    """Counts, and tells at the end."""

    def on_data(self, message, state, output):
        return state + 1

    def on_epoch(self, epoch, states, output):
        for key, count in states.items():
            output.send(Message(key, count))
        states.clear()


def test_none_one_or_many_messages_come_out():
    def repeat(message, state, output):
        for _ in range(message.value):
            output.emit(message.value)
        return state + message.value

    ran = run(keyed(repeat, default=0), [0, 1, 2], [3])
    assert ran.by_key() == {1: [1, 3, 3, 3], 0: [2, 2]}
    assert ran.states == {"op": {1: 4, 0: 2}}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_epoch_gets_every_state_and_may_drop_it(parallelism):
    ran = run(keyed(Tally(), default=0), [1, 2, 3], [5], parallelism=parallelism, flush=True)
    assert ran.by_key() == {1: [3], 0: [1]}
    assert ran.states == {}


def test_a_schedule_comes_once_for_each_shard_and_batch():
    class Ticking(StatefulLogic[int]):
        def on_data(self, message, state, output):
            return 0

        def on_schedule(self, states, output):
            for key in states:
                states[key] += 1

    assert run(keyed(Ticking(), default=0), [1], [], [2]).states == {"op": {1: 3, 0: 1}}


def test_an_equal_key_of_another_type_does_not_replace_the_inputs_key():
    def swap(message, state, output):
        output.send(Message(bool(message.key), message.value))
        return 1

    ran = run(keyed(swap), [1, 2])
    assert [type(record["key"]) for record in ran.records] == [int, int]


def test_keys_that_do_not_belong_are_refused():
    class Rogue(StatefulLogic[int]):
        def on_data(self, message, state, output):
            return 1

        def on_epoch(self, epoch, states, output):
            output.send(Message("elsewhere", 1))

    text = failure(lambda s: s.key_by("k", lambda n: n).stateful_op("op", Rogue(), default=0), range(20), flush=True)
    assert "step 'op', shard" in text
    assert "does not belong to the shard" in text


def test_setting_the_state_of_a_key_of_another_shard_is_refused():
    class Rogue(StatefulLogic[int]):
        def on_data(self, message, state, output):
            return 1

        def on_epoch(self, epoch, states, output):
            states["elsewhere"] = 1

    text = failure(lambda s: s.key_by("k", lambda n: n).stateful_op("op", Rogue(), default=0), range(20), flush=True)
    assert "the key 'elsewhere' does not belong to the shard" in text


def test_emit_without_an_input_is_refused_with_the_right_call():
    class Rogue(StatefulLogic[int]):
        def on_data(self, message, state, output):
            return 1

        def on_epoch(self, epoch, states, output):
            output.emit(1)

    assert "output.emit needs a current message" in failure(keyed(Rogue(), default=0), [1], flush=True)


def test_an_error_names_operator_key_and_record():
    text = failure(keyed(lambda message, state, output: 1 // 0), [3])
    assert text.startswith("step 'op', key 1, record 3: ZeroDivisionError")


def test_a_logic_without_on_data_is_refused():
    class Empty(StatefulLogic[int]):
        pass

    assert "Empty must define on_data" in failure(keyed(Empty()), [1])


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_rejected_record_leaves_state_and_output_as_they_were(parallelism):
    def step(message, state, output):
        state.append(message.value)
        output.emit(len(state))
        if message.value >= 10:
            raise ValueError("too large")
        output.emit(message.value)
        return state

    ran = run(keyed(step, default=list), [11, 1, 10, 2, 3, 13], [12, 5], dead_letter=True, parallelism=parallelism)
    assert ran.states == {"op": {1: [1, 3, 5], 0: [2]}}
    assert ran.by_key() == {1: [1, 1, 2, 3, 3, 5], 0: [1, 2]}
    assert sorted(row["record"] for row in ran.dead) == ["10", "11", "12", "13"]


def test_a_class_in_place_of_a_logic_is_refused_when_the_graph_is_built():
    with pytest.raises(GraphError, match=r"step 'op': it takes a logic and not its class; give Tally\(…\)"):
        run(keyed(Tally))
    with pytest.raises(GraphError, match="step 'op': it takes a function as its second argument, not int"):
        run(keyed(3))
