"""The queries as Tidewheel programs: each takes the stream of events and returns the stream of its results."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from benchmarks.nexmark.generator import AUCTION, BID, PERSON

from tidewheel import Message, Output, StatefulLogic, Stream, Timer, count, max_, mean, session, sliding, tumbling

TEN = timedelta(seconds=10)
TWO = timedelta(seconds=2)
STATES = ("OR", "ID", "CA")


def bids(events: Stream) -> Stream:
    """The bids."""
    return events.filter("bids", lambda event: event.kind == BID)


def timed(events: Stream) -> Stream:
    """Events with their times; they come in order."""
    on_time, _ = events.assign_timestamps("time", "time").limit_out_of_orderness("in-order", 0)
    return on_time


def q0(events: Stream) -> Stream:
    """Pass bids through."""
    return bids(events).map("out", lambda bid: {"auction": bid.auction, "bidder": bid.bidder, "price": bid.price})


def q1(events: Stream) -> Stream:
    """Prices in another currency."""
    return bids(events).map(
        "euros", lambda bid: {"auction": bid.auction, "bidder": bid.bidder, "price": bid.price * 908 // 1000}
    )


def q2(events: Stream) -> Stream:
    """Bids on some auctions."""
    chosen = events.filter("chosen", lambda event: event.kind == BID and event.auction % 123 == 0)
    return chosen.map("out", lambda bid: {"auction": bid.auction, "price": bid.price})


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


def q3(events: Stream) -> Stream:
    """Who sells in category 10 in some states."""
    chosen = events.filter(
        "chosen",
        lambda e: (e.kind == PERSON and e.state in STATES) or (e.kind == AUCTION and e.category == 10),
    )
    keyed = chosen.key_by("by-person", lambda event: event.id if event.kind == PERSON else event.seller)
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


def q4(events: Stream) -> Stream:
    """The average closing price of each category, so far."""
    chosen = timed(events).filter("chosen", lambda event: event.kind != PERSON)
    by_auction = chosen.key_by("by-auction", lambda event: event.id if event.kind == AUCTION else event.auction)
    closed = by_auction.stateful_op("closing", Closing(), default=dict, returns=dict)
    return closed.key_by("by-category", "category").aggregate("average", price=mean("price"))


def _hottest(kept: list[Any], row: Any) -> list[Any]:
    best = kept[0][1] if kept else 0
    return [[row.auction, row.n]] if row.n > best else [*kept, [row.auction, row.n]] if row.n == best else kept


def q5(events: Stream) -> Stream:
    """The auctions with the most bids in the last ten seconds, every two seconds."""
    windows = sliding(TEN, TWO)
    counted = (
        bids(timed(events)).key_by("by-auction", "auction").window("count", windows, n=count(), auction=max_("auction"))
    )
    # Each count belongs to one window, whose last moment is the time of the result.
    hot = counted.key_by("by-window", lambda row: row.start)
    best = hot.window("hottest", tumbling(1), _hottest, default=list)
    return best.flat_map(
        "out", lambda result: [{"end": result.end, "auction": auction, "n": n} for auction, n in result.value]
    )


def q7(events: Stream) -> Stream:
    """The highest bid of every ten seconds."""
    windows = tumbling(TEN)
    partial = bids(timed(events)).key_by("by-auction", "auction").window("partial", windows, price=max_("price"))
    highest = partial.key_by("by-window", lambda row: row.start).window("highest", tumbling(TEN), price=max_("price"))
    return highest.map("out", lambda row: {"end": row.end, "price": row.price})


def q8(events: Stream) -> Stream:
    """Persons who opened an auction in the ten seconds in which they came."""
    persons, auctions = timed(events).branch("kinds", lambda e: e.kind == PERSON, lambda e: e.kind == AUCTION)
    joined = persons.key_by("by-id", "id").window_join(
        "new-sellers", auctions.key_by("by-seller", "seller"), tumbling(TEN)
    )
    return joined.map("out", lambda pair: {"id": pair.left.id, "name": pair.left.name, "auction": pair.right.id})


def q11(events: Stream) -> Stream:
    """How often each bidder bids in a session."""
    return bids(timed(events)).key_by("by-bidder", "bidder").window("sessions", session(TEN), n=count())


def _later(key: Any, bid: Any, last: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    new = [bid.number, bid.price] if not last or bid.number > last[0] else last
    return {"bidder": key[0], "auction": key[1], "number": new[0], "price": new[1]}, new


def q18(events: Stream) -> Stream:
    """The last bid of each bidder on each auction, so far."""
    keyed = bids(events).key_by("by-both", lambda bid: (bid.bidder, bid.auction))
    return keyed.stateful_map("last", _later, default=list)


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
