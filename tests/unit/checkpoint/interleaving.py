"""Run tasks against one store, one access at a time, in an order that the test chooses."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from support.waiting import SOON
from tidewheel._storage import Entry, Store


class _Turns:
    """Lets one task at a time go on to its next access: the next live one in `order`, then the lowest."""

    def __init__(self, tasks: int, order: Sequence[int]) -> None:
        self._changed = threading.Condition()
        self.one_at_a_time = [threading.Lock() for _ in range(tasks)]  # A task may have threads of its own.
        self._order = list(order)
        self._waiting: set[int] = set()
        self._live = set(range(tasks))
        self._turn: int | None = None

    def wait(self, task: int) -> None:
        with self._changed:
            self._waiting.add(task)
            self._next()
            assert self._changed.wait_for(lambda: self._turn == task, timeout=SOON)
            self._turn = None
            self._waiting.discard(task)

    def done(self, task: int) -> None:
        with self._changed:
            self._live.discard(task)
            self._next()

    def _next(self) -> None:
        # Nobody goes on until all are at an access or done: so the order alone decides.
        if self._turn is not None or self._waiting != self._live or not self._live:
            return
        while self._order and self._order[0] not in self._live:
            self._order.pop(0)
        self._turn = self._order.pop(0) if self._order else min(self._live)
        self._changed.notify_all()


class _TurnStore(Store):
    def __init__(self, inner: Store, turns: _Turns, task: int) -> None:
        self._inner, self._turns, self._task = inner, turns, task
        self.url = inner.url

    def at(self, prefix: str) -> "_TurnStore":
        return _TurnStore(self._inner.at(prefix), self._turns, self._task)

    def read(self, path: str) -> bytes:
        return self._in_turn(self._inner.read, path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._in_turn(self._inner.read_range, path, start, length)

    def create(self, path: str, data: bytes) -> bool:
        return self._in_turn(self._inner.create, path, data)

    def write(self, path: str, data: bytes) -> None:
        self._in_turn(self._inner.write, path, data)

    def list(self, prefix: str = "") -> list[Entry]:
        return self._in_turn(self._inner.list, prefix)

    def delete(self, path: str) -> None:
        self._in_turn(self._inner.delete, path)

    def _in_turn(self, access: Callable[..., Any], *arguments: Any) -> Any:
        with self._turns.one_at_a_time[self._task]:
            self._turns.wait(self._task)
            return access(*arguments)


def run_interleaved(store: Store, tasks: Sequence[Callable[[Store], Any]], order: Sequence[int]) -> list[Any]:
    """Run every task with its own view of the store; return what each returned or raised."""
    turns = _Turns(len(tasks), order)
    results: list[Any] = [None] * len(tasks)

    def run(number: int) -> None:
        try:
            results[number] = tasks[number](_TurnStore(store, turns, number))
        except Exception as error:
            results[number] = error
        finally:
            turns.done(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
