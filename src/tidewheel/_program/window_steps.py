"""WindowSteps: fold the messages of each key by windows of time."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tidewheel._core.text import shortened
from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.base import Operator
from tidewheel._operators.field_getter import FieldGetter
from tidewheel._operators.graph import AutomaticName
from tidewheel._operators.keyed.key_by import KeyBy
from tidewheel._operators.keyed.state_spec import state_spec
from tidewheel._operators.stateless.filter import Filter
from tidewheel._operators.windows.counted_aggregates import CountedAggregates
from tidewheel._operators.windows.fixed import FixedWindows
from tidewheel._operators.windows.fixed_aggregates import FixedAggregates
from tidewheel._operators.windows.message_windows import CountedWindows, TriggeredWindows
from tidewheel._operators.windows.session import SessionWindows
from tidewheel._operators.windows.session_aggregates import SessionAggregates
from tidewheel._operators.windows.top import Per, Top
from tidewheel._operators.windows.window import Fold
from tidewheel._operators.windows.window_result import WindowResult
from tidewheel._program.arguments import Factory, checked_aggregates, checked_function, checked_state, checked_upgrade
from tidewheel._program.join_steps import JoinSteps
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._time.early import early_of
from tidewheel._time.panes import Panes
from tidewheel._time.windows import Counted, Session, Triggered, Windows
from tidewheel._values import Row
from tidewheel._values.type_variables import Key, Value
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.side_outputs import WindowedStream

New = TypeVar("New")
"""The return type of a window's function."""
S = TypeVar("S")
"""The type of the folded value."""
Upgrade = Callable[[Any, int], Any]
"""Converts a folded value that an earlier version of the program stored into the current format."""


class WindowSteps(JoinSteps[Key, Value]):
    """The step of a keyed stream that folds values by windows."""

    # fmt: off
    @overload
    def window(
        self, name: str, windows: Windows, add: None = None, *, default: None = None, state: None = None,
        merge: None = None, allowed_lateness: Duration = "0 s", early: Duration | None = None,
        **aggregates: Aggregate,
    ) -> WindowedStream[Key, Row, Value]: ...
    @overload
    def window(
        self, name: str, windows: Windows, add: Callable[[Any, Value], New], *,
        default: None = None, state: UnionType | None = None,
        merge: Callable[[New, New], New] | None = None, allowed_lateness: Duration = "0 s",
        early: Duration | None = None, version: int = 1, upgrade: Upgrade | None = None,
    ) -> WindowedStream[Key, WindowResult[New], Value]: ...
    @overload
    def window(
        self, name: str, windows: Windows, add: Callable[[S, Value], S], *, state: type[S],
        default: Any = None,
        merge: Callable[[S, S], S] | None = None, allowed_lateness: Duration = "0 s",
        early: Duration | None = None, version: int = 1, upgrade: Upgrade | None = None,
    ) -> WindowedStream[Key, WindowResult[S], Value]: ...
    @overload
    def window(
        self, name: str, windows: Windows, add: Callable[[S, Value], S], *, default: Factory[S],
        state: UnionType | None = None,
        merge: Callable[[S, S], S] | None = None, allowed_lateness: Duration = "0 s",
        early: Duration | None = None, version: int = 1, upgrade: Upgrade | None = None,
    ) -> WindowedStream[Key, WindowResult[S], Value]: ...
    @overload
    def window(
        self, name: str, windows: Windows, add: Callable[[S, Value], S], *, default: S,
        state: UnionType | None = None,
        merge: Callable[[S, S], S] | None = None, allowed_lateness: Duration = "0 s",
        early: Duration | None = None, version: int = 1, upgrade: Upgrade | None = None,
    ) -> WindowedStream[Key, WindowResult[S], Value]: ...
    # fmt: on
    def window(
        self,
        name: str,
        windows: Windows,
        add: Callable[[Any, Any], Any] | None = None,
        *,
        default: Any = None,
        merge: Callable[[Any, Any], Any] | None = None,
        state: Any = None,
        allowed_lateness: Duration = "0 s",
        early: Duration | Aggregate | None = None,
        version: int | Aggregate = 1,
        upgrade: Upgrade | Aggregate | None = None,
        **aggregates: Aggregate,
    ) -> WindowedStream[Any, Any, Any]:
        """Fold the values of each key by windows. A window of time is emitted when the clock passes its end.

        With aggregates, the result is a row with `start`, `end` and the aggregates; with a function, a `WindowResult`.

        - `windows`: `tumbling(length)`, `sliding(length, every)` or `session(gap)` by time; `counted(length)` by the number
          of messages; or `triggered(closes)`, which needs a function.
        - `add`: called with the folded value so far and a value; returns the new folded value.
        - `default`, `state`: the initial folded value and its type, as in `stateful_map`.
        - `merge`: combines two folded values into one. Required for sessions, because two sessions can become one.
        - `allowed_lateness`: a `timedelta`, or text such as "90 s". Messages up to this much behind the end of a window
          are still added, and the window is emitted again with `correction` set. Later messages are in the stream
          `late` of the result.
        - `early`: also emit open windows, with `final` False: "batch" after each batch, or a duration, such as "1 minute",
          whenever the clock of the data passes a multiple of it. Each time, the open windows of the keys with new
          messages are emitted. The result at the end has `final` True. Without `early`, rows have no column `final`.
        - `version`, `upgrade`: as in `stateful_map`; the function is called with the folded value of each open window.
        - `aggregates`: as in `aggregate`, instead of `add`.

        >>> from tidewheel import Job, sinks, sources, sum_, tumbling
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("tens")
        >>> sales = job.source("in", sources.iterable([{"shop": "a", "at": 1, "n": 2}, {"shop": "a", "at": 8, "n": 3}]))
        >>> shops = sales.event_time("at", unit="ns", max_delay="0 s").key_by("by-shop", "shop")
        >>> sums = shops.window("sums", tumbling("10 ns"), n=sum_("n")).map("n", lambda row: row.n)
        >>> most = shops.window("most", tumbling("10 ns"), lambda most, sale: max(most, sale.n), default=0)
        >>> _ = sums.union("both", most.map("value", lambda result: result.value)).sink("out", sinks.collect())
        >>> sorted(record["value"] for record in run_in_memory(job).outputs["out"])
        [3, 5]
        """
        from tidewheel._program.side_outputs import WindowedStream

        # An aggregate can have any name, including these three.
        if isinstance(early, Aggregate):
            aggregates, early = {**aggregates, "early": early}, None
        if isinstance(version, Aggregate):
            aggregates, version = {**aggregates, "version": version}, 1
        if isinstance(upgrade, Aggregate):
            aggregates, upgrade = {**aggregates, "upgrade": upgrade}, None
        if (add is None) == (not aggregates):
            raise GraphError(f"step {name!r}: a window takes either a function or aggregates, such as total=sum_(…)")
        if not isinstance(windows, Windows):
            raise GraphError(
                f"step {name!r}: {windows!r} is not a kind of windows; write tumbling({windows!r}), sliding(…), session(…), "
                "counted(…) or triggered(…)"
            )
        for label, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate) and get_close_matches(label, ["allowed_lateness"], cutoff=0.5):
                raise GraphError(
                    f"step {name!r}: a window has no {label}=; did you mean allowed_lateness={shortened(aggregate, 60)}?"
                )
        emitted_early = early_of(early, f"step {name!r}: early")
        nanos = nanoseconds(allowed_lateness, f"step {name!r}: the allowed lateness")
        if isinstance(windows, Counted | Triggered) and (nanos or emitted_early):
            raise GraphError(
                f"step {name!r}: allowed_lateness= and early= are for windows of time; messages end a counted or triggered "
                "window, and none is too late for it. counted(length, every=1) emits with each message"
            )
        operator: Operator
        if add is not None:
            function = checked_function(name, add, "folded", "value")
            changed = checked_upgrade(name, upgrade)
            spec = checked_state(name, state_spec(function, 0, state, default, None, version, changed))
            fold = Fold(spec.factory(), add, merge)
            if isinstance(windows, Session):
                operator = SessionWindows(windows=windows, fold=fold, lateness=nanos, folded=spec, early=emitted_early)
            elif isinstance(windows, Counted):
                operator = CountedWindows(windows=windows, fold=fold, folded=spec)
            elif isinstance(windows, Triggered):
                checked_function(name, windows.closes, "folded", "value")
                operator = TriggeredWindows(windows=windows, fold=fold, folded=spec)
            else:
                operator = FixedWindows(windows=windows, fold=fold, lateness=nanos, folded=spec, early=emitted_early)
        else:
            kept = checked_aggregates(name, aggregates, self.job.graph.shape(self.port))
            if isinstance(windows, Session):
                operator = SessionAggregates(kept, windows, nanos, early=emitted_early)
            elif isinstance(windows, Counted):
                operator = CountedAggregates(kept, windows)
            elif isinstance(windows, Triggered):
                raise GraphError(
                    f"step {name!r}: a trigger is called with the folded value, so its window takes a function and not "
                    "aggregates: window(name, triggered(…), add, default=…)"
                )
            else:
                operator = FixedAggregates(kept, Panes(windows, nanos), early=emitted_early)
        return WindowedStream(self.job, self._then(name, operator))

    def top(
        self, name: str, n: int, *, by: str | Callable[[Value], Any], per: str | list[str] = "start"
    ) -> WindowedStream[Any, Row, Value]:
        """Rank the results of windows over all keys; emit the `n` highest of each window when it ends.

        The result has the fields of the record, its previous key if that is known, and `rank`, from 1.

        - `n`: how many records of each window to emit.
        - `by`: a column, or a function of the value; the highest is first, and records without a value are last. The
          order of equal records depends on their other fields, not on their arrival.
        - `per`: the column that identifies a window, or several columns for a ranking in groups, as in
          `per=["start", "country"]`.

        [Early results](time.md#results-before-a-window-ends) are not ranked. Corrections of windows that have been ranked
        are in the stream `late` of the result.

        >>> from tidewheel import Job, sinks, sources, sum_, tumbling
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("best")
        >>> sold = [{"shop": shop, "at": 1, "n": n} for shop, n in [("a", 2), ("b", 5), ("c", 3)]]
        >>> sales = job.source("in", sources.iterable(sold)).event_time("at", unit="ns", max_delay="0 s")
        >>> sums = sales.key_by("by-shop", "shop").window("sums", tumbling("10 ns"), n=sum_("n"))
        >>> _ = sums.top("top2", 2, by="n").sink("out", sinks.collect())
        >>> [(row["rank"], row["shop"], row["n"]) for row in run_in_memory(job).outputs["out"]]
        [(1, 'b', 5), (2, 'c', 3)]
        """
        from tidewheel._program.side_outputs import WindowedStream

        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise GraphError(
                f"step {name!r}: the second argument of top is the number of records to emit, at least 1, not {n!r}"
            )
        columns = (per,) if isinstance(per, str) else tuple(per) if isinstance(per, list) else ()
        if not columns or not all(isinstance(column, str) for column in columns):
            raise GraphError(f"step {name!r}: per= is a column, or a list of columns, not {per!r}")
        key = columns[0] if len(columns) == 1 else Per(columns)
        function = FieldGetter(by) if isinstance(by, str) else checked_function(name, by, "value")
        final = self
        if self._has_early_results():
            final = self._at(final._then(AutomaticName(f"{name}:final"), Filter(FieldGetter("final"))))
        by_window = KeyBy(key, None, self._key_of_results(), times_as_numbers=True)
        ranked = self._at(final._then(AutomaticName(f"{name}:per"), by_window))
        return WindowedStream(self.job, ranked._then(name, Top(n, function)))

    def _has_early_results(self) -> bool:
        """Return whether the stream comes from a window with early results."""
        nodes = self.job.graph.nodes
        node = nodes[self.port.node]
        while node.operator.kind != "window" and node.inputs and not isinstance(node.operator, KeyBy):
            node = nodes[node.inputs[0].node]
        return getattr(node.operator, "early", None) is not None
