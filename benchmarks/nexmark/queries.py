"""The queries as Tidewheel programs: each takes a stream of the events that it is about and returns the stream of its results.

What can be said in columns is said in columns; a query begins with the events and columns that `READS` names.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.nexmark.generator import AUCTION, BID, PERSON

from tidewheel import Message, Output, StatefulLogic, Stream, Timer, count, max_, mean, session, sliding, tumbling

TEN = timedelta(seconds=10)
TWO = timedelta(seconds=2)
STATES = ("OR", "ID", "CA")


def timed(events: Stream) -> Stream:
    """Events with their times; they come in order."""
    on_time = events.assign_timestamps("time", "time", unit="ns").limit_out_of_orderness("in-order", "0 s")
    return on_time


def q0(bids: Stream) -> Stream:
    """Pass bids through."""
    return bids


def q1(bids: Stream) -> Stream:
    """Prices in another currency."""
    return bids.with_columns("euros", price=pc.field("price") * 908 / 1000)


def q2(bids: Stream) -> Stream:
    """Bids on some auctions."""
    auction = pc.field("auction")
    return bids.filter("chosen", auction - auction / 123 * 123 == 0)


class LocalAuctions(StatefulLogic[dict[str, Any]]):
    """Auctions of category 10 with their sellers, whichever comes first."""

    def on_data(self, message: Message, state: dict[str, Any], output: Output) -> dict[str, Any]:
        """Pair what comes with what is there."""
        event = message.value
        if event.kind == PERSON:
            state["person"] = [event.name, event.state]
            fresh = state.pop("auctions", [])
        else:
            fresh = [event.id] if "person" in state else []
            if not fresh:
                state.setdefault("auctions", []).append(event.id)
        for auction in fresh:
            name, region = state["person"]
            output.emit({"name": name, "state": region, "auction": auction})
        return state


def _local(events: pa.RecordBatch) -> pa.RecordBatch:
    local = pc.is_in(events.column("state"), pa.array(STATES))
    chosen = events.filter(pc.or_(local, pc.fill_null(pc.equal(events.column("category"), 10), False)))
    person = pc.if_else(pc.equal(chosen.column("kind"), PERSON), chosen.column("id"), chosen.column("seller"))
    return chosen.append_column("person", person)


def q3(events: Stream) -> Stream:
    """Who sells in category 10 in some states."""
    keyed = events.map_batches("chosen", _local).key_by("by-person", "person")
    return keyed.stateful_op("sellers", LocalAuctions(), default=dict)


class Closing(StatefulLogic[dict[str, Any]]):
    """The highest bid of an auction while it was open, told when it has ended."""

    def on_data(self, message: Message, state: dict[str, Any], output: Output) -> dict[str, Any] | None:
        """Note an auction, or a bid for one."""
        event = message.value
        if event.kind == AUCTION:
            state["category"], state["expires"] = event.category, event.expires
            output.set_timer(event.expires)
            offers = state.pop("early", [])
        else:
            offers = [[event.time, event.price]]
        if "expires" not in state:
            # Read by another task than its auction, it may come first.
            state.setdefault("early", []).extend(offers)
            return state
        for time, price in offers:
            if time <= state["expires"]:
                state["price"] = max(state.get("price", 0), price)
        return state

    def on_timer(self, timer: Timer, state: dict[str, Any], output: Output) -> None:
        """Tell the price, if there was a bid."""
        if "price" in state:
            output.emit({"category": state["category"], "price": state["price"]})


def _about(events: pa.RecordBatch) -> pa.RecordBatch:
    return events.append_column("about", pc.coalesce(events.column("auction"), events.column("id")))


def q4(events: Stream) -> Stream:
    """The average closing price of each category, so far."""
    by_auction = timed(events.map_batches("about", _about)).key_by("by-auction", "about")
    closed = by_auction.stateful_op("closing", Closing(), default=dict, returns=dict)
    return closed.key_by("by-category", "category").aggregate("average", price=mean("price"))


def _hottest(kept: list[Any], row: Any) -> list[Any]:
    best = kept[0][1] if kept else 0
    return [[row.auction, row.n]] if row.n > best else [*kept, [row.auction, row.n]] if row.n == best else kept


def q5(bids: Stream) -> Stream:
    """The auctions with the most bids in the last ten seconds, every two seconds."""
    by_auction = timed(bids).key_by("by-auction", "auction")
    counted = by_auction.window("count", sliding(TEN, TWO), n=count(), auction=max_("auction"))
    # Each count belongs to one window, whose last moment is the time of the result.
    hot = counted.key_by("by-window", "start")
    best = hot.window("hottest", tumbling("1 ns"), _hottest, default=list)
    return best.flat_map(
        "out", lambda result: [{"end": result.end, "auction": auction, "n": n} for auction, n in result.value]
    )


def q7(bids: Stream) -> Stream:
    """The highest bid of every ten seconds."""
    # One key for all: what crosses the shuffle is one partial result for each window and task.
    alike = bids.map_batches("alike", lambda rows: rows.append_column("all", pa.array(np.zeros(len(rows), np.int64))))
    return timed(alike).key_by("all", "all").window("highest", tumbling(TEN), price=max_("price"))


def q8(events: Stream) -> Stream:
    """Persons who opened an auction in the ten seconds in which they came."""
    persons, auctions = timed(events).branch("kinds", lambda e: e.kind == PERSON, lambda e: e.kind == AUCTION)
    joined = persons.key_by("by-id", "id").window_join(
        "new-sellers", auctions.key_by("by-seller", "seller"), tumbling(TEN)
    )
    return joined.map("out", lambda pair: {"id": pair.left.id, "name": pair.left.name, "auction": pair.right.id})


def q11(bids: Stream) -> Stream:
    """How often each bidder bids in a session."""
    return timed(bids).key_by("by-bidder", "bidder").window("sessions", session(TEN), n=count())


def _later(_: int, bid: Any, last: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    new = [bid.number, bid.price] if not last or bid.number > last[0] else last
    return {"bidder": bid.bidder, "auction": bid.auction, "number": new[0], "price": new[1]}, new


def _paired(bids: pa.RecordBatch) -> pa.RecordBatch:
    pair = pc.bit_wise_or(pc.shift_left(bids.column("bidder"), 32), bids.column("auction"))
    return bids.append_column("pair", pair)


def q18(bids: Stream) -> Stream:
    """The last bid of each bidder on each auction, so far."""
    return bids.map_batches("pair", _paired).key_by("by-both", "pair").stateful_map("last", _later, default=list)


QUERIES: dict[str, Callable[[Stream], Stream]] = {
    query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q7, q8, q11, q18)
}
LAST_BY = {"q4": ("category",), "q18": ("bidder", "auction")}
"""Queries whose results are replaced by later ones, and the columns that say which."""
COLUMNS = {
    "q0": ("auction", "bidder", "price"),
    "q1": ("auction", "bidder", "price"),
    "q2": ("auction", "price"),
    "q3": ("name", "state", "auction"),
    "q4": ("category", "price"),
    "q5": ("end", "auction", "n"),
    "q7": ("end", "price"),
    "q8": ("id", "name", "auction"),
    "q11": ("bidder", "start", "end", "n"),
    "q18": ("bidder", "auction", "number", "price"),
}
"""The columns of each query's result that are checked."""
READS: dict[str, tuple[tuple[int, ...], str]] = {
    "q0": ((BID,), "auction bidder price"),
    "q1": ((BID,), "auction bidder price"),
    "q2": ((BID,), "auction price"),
    "q3": ((PERSON, AUCTION), "kind id name state seller category"),
    "q4": ((AUCTION, BID), "kind time id category expires auction price"),
    "q5": ((BID,), "time auction"),
    "q7": ((BID,), "time price"),
    "q8": ((PERSON, AUCTION), "kind time id name seller"),
    "q11": ((BID,), "time bidder"),
    "q18": ((BID,), "number auction bidder price"),
}
"""The kinds of events that each query is about, and the columns of them."""


def chosen(events: Stream, query: str) -> Stream:
    """Return the events and columns that a query is about."""
    kinds, columns = READS[query]
    return events.filter("wanted", pc.field("kind").isin(kinds)).select("wanted-columns", *columns.split())
