"""Background threads whose failures are reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

OnError = Literal["go on", "end"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0


class BackgroundThread:
    """A daemon thread that reports every unexpected exception.

    `work` runs in the thread until it returns. If it raises, the exception is stored in `error` and passed to
    `on_error`, in the same thread. `on_error` informs the users of the object that owns the thread, and decides: "go
    on" calls `work` again after a short pause (which grows while `work` keeps failing), "end" ends the thread. If
    `on_error` itself raises, the thread ends, and `error` is that exception.

    A process that was forked from the one that started the thread does not have the thread: `is_here` is False there.
    """

    def __init__(self, work: Callable[[], None], name: str, on_error: Callable[[BaseException], OnError]) -> None:
        self._work, self._on_error = work, on_error
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.error: BaseException | None = None
        """The last exception that left `work`, None if there was none."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the thread was started in this process and has not ended."""
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait until `work` has returned; it is not called again. Does nothing in the thread itself or before `start`.

        The owner must make `work` return, for example with a flag that `work` checks.
        """
        self._stop.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return self._work()
            except BaseException as error:
                self.error = error
                try:
                    if self._on_error(error) == "end":
                        return None
                except BaseException as second:
                    self.error = second
                    return None
            if self._stop.wait(pause):
                return None
            pause = min(2 * pause, _LONGEST_PAUSE_S)
