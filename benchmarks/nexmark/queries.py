"""The queries as Tidewheel programs: each takes a stream of its events and returns the stream of its results.

Queries use columns where possible. Each starts with the events and columns that `READS` names.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.nexmark.generator import AUCTION, BID, GAP, PERSON

from tidewheel import Message, Output, StatefulLogic, Stream, Timer, agg, count, max_, mean, session, sliding, tumbling

TEN = timedelta(seconds=10)
TWO = timedelta(seconds=2)
STATES = ("OR", "ID", "CA")
DAY = 86_400_000_000_000
SIDES = pa.table({"side": range(1000), "label": [f"side {n}" for n in range(1000)]})
"""A small table that does not change, with which bids are enriched."""


def timed(events: Stream) -> Stream:
    """Return events with their times; they come in order."""
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
    """The highest bid of an auction while it was open, emitted when the auction has ended."""

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
        """Emit the price if there was a bid."""
        if "price" in state:
            output.emit({"category": state["category"], "price": state["price"]})


def _about(events: pa.RecordBatch) -> pa.RecordBatch:
    return events.append_column("about", pc.coalesce(events.column("auction"), events.column("id")))


def q4(events: Stream) -> Stream:
    """The average closing price of each category, so far."""
    by_auction = timed(events.map_batches("about", _about)).key_by("by-auction", "about")
    closed = by_auction.stateful_op("closing", Closing(), default=dict, returns=dict)
    return closed.key_by("by-category", "category").aggregate("average", price=mean("price"))


class Winning(StatefulLogic[dict[str, Any]]):
    """The highest bid of an auction while it was open, the first of equal bids, emitted when the auction has ended."""

    def on_data(self, message: Message, state: dict[str, Any], output: Output) -> dict[str, Any] | None:
        """Note an auction, or a bid for one."""
        event = message.value
        if event.kind == AUCTION:
            state["auction"] = [event.id, event.seller, event.expires]
            output.set_timer(event.expires)
            offers = state.pop("early", [])
        else:
            offers = [[event.price, -event.number, event.bidder, event.time]]
        if "auction" not in state:
            # Read by another task than its auction, it may come first.
            state.setdefault("early", []).extend(offers)
            return state
        in_time = [offer for offer in offers if offer[3] <= state["auction"][2]]
        if in_time:
            state["best"] = max([*in_time, *([state["best"]] if "best" in state else [])])
        return state

    def on_timer(self, timer: Timer, state: dict[str, Any], output: Output) -> None:
        """Emit the winner if there was a bid."""
        if "best" in state:
            (auction, seller, expires), (price, _, bidder, _) = state["auction"], state["best"]
            # Later auctions have higher numbers, and of those that end together the one that began later.
            order = expires // GAP * 1_000_000 + auction % 1_000_000
            output.emit({"auction": auction, "seller": seller, "order": order, "bidder": bidder, "price": price})


def q9(events: Stream) -> Stream:
    """The winning bid of each auction."""
    by_auction = timed(events.map_batches("about", _about)).key_by("by-auction", "about")
    return by_auction.stateful_op("winning", Winning(), default=dict, returns=dict)


def q6(events: Stream) -> Stream:
    """The average closing price of the last ten auctions of each seller, so far."""
    last = q9(events).key_by("by-seller", "seller").aggregate("last", prices=agg.top(10, by="order", columns=["price"]))
    return last.map(
        "average",
        lambda seller, row: {"seller": seller, "price": sum(each["price"] for each in row.prices) / len(row.prices)},
        with_key=True,
    )


def _hottest(kept: list[Any], row: Any) -> list[Any]:
    best = kept[0][1] if kept else 0
    return [[row.auction, row.n]] if row.n > best else [*kept, [row.auction, row.n]] if row.n == best else kept


def q5(bids: Stream) -> Stream:
    """Find the auctions with the most bids in the last ten seconds, every two seconds."""
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
    """Find the persons who opened an auction in the ten seconds in which they registered."""
    persons, auctions = timed(events).branch("kinds", lambda e: e.kind == PERSON, lambda e: e.kind == AUCTION)
    joined = persons.key_by("by-id", "id").window_join(
        "new-sellers", auctions.key_by("by-seller", "seller"), tumbling(TEN)
    )
    return joined.map("out", lambda pair: {"id": pair.left.id, "name": pair.left.name, "auction": pair.right.id})


def q11(bids: Stream) -> Stream:
    """Count the bids of each bidder in a session."""
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


def q13(bids: Stream) -> Stream:
    """Bids with a column of a small table, which is looked up."""
    auction = pc.field("auction")
    sides = bids.job.table("sides", SIDES, key="side")
    return bids.with_columns("side", side=auction - auction / 1000 * 1000).lookup("label", sides, on="side")


def _zeros(auction: int) -> int:
    return str(auction).count("0")


def q14(bids: Stream) -> Stream:
    """Bids of some prices in another currency, with the part of the day and a function of the user."""
    euros = bids.with_columns("euros", price=pc.field("price") * 908 / 1000)
    some = euros.filter("some", (pc.field("price") > 1000) & (pc.field("price") < 50_000))
    return some.map("described", _described)


def _described(bid: Any) -> dict[str, Any]:
    hour = bid.time % DAY // 3_600_000_000_000
    part = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
    return {
        "auction": bid.auction,
        "bidder": bid.bidder,
        "price": bid.price,
        "part": part,
        "zeros": _zeros(bid.auction),
    }


def _ranked(bids: pa.RecordBatch) -> pa.RecordBatch:
    price = bids.column("price")
    day = pc.divide(bids.column("time"), DAY)
    columns = {"day": day, "rank1": pc.less(price, 10_000), "rank3": pc.greater_equal(price, 50_000)}
    columns["rank2"] = pc.and_(pc.invert(columns["rank1"]), pc.invert(columns["rank3"]))
    for name, column in columns.items():
        bids = bids.append_column(name, column)
    return bids


def _counts() -> dict[str, Any]:
    counts = {f"rank{n}": agg.count(where=f"rank{n}") for n in (1, 2, 3)}
    bidders = {f"bidders{n}": agg.count_distinct("bidder", where=f"rank{n}") for n in (1, 2, 3)}
    auctions = {f"auctions{n}": agg.count_distinct("auction", where=f"rank{n}") for n in (1, 2, 3)}
    both = {"bidders": agg.count_distinct("bidder"), "auctions": agg.count_distinct("auction")}
    return {"bids": agg.count(), **counts, **both, **bidders, **auctions}


def q15(bids: Stream) -> Stream:
    """How many bids, bidders and auctions there are each day, also by price, so far."""
    return bids.map_batches("ranked", _ranked).key_by("by-day", "day").aggregate("statistics", **_counts())


def q16(bids: Stream) -> Stream:
    """The same for each channel."""
    ranked = bids.map_batches("ranked", _ranked).map_batches("by", lambda rows: _with_key(rows, "channel", pa.string()))
    return ranked.key_by("by-both", "by").aggregate("statistics", **_counts())


def _with_key(rows: pa.RecordBatch, column: str, kind: pa.DataType) -> pa.RecordBatch:
    day = rows.column("day")
    if pa.types.is_string(kind):
        return rows.append_column("by", pc.binary_join_element_wise(rows.column(column), day.cast(kind), " "))
    return rows.append_column("by", pc.bit_wise_or(pc.shift_left(day, 32), rows.column(column)))


def q17(bids: Stream) -> Stream:
    """The bids of each auction and day, so far."""
    ranked = bids.map_batches("ranked", _ranked).map_batches("by", lambda rows: _with_key(rows, "auction", pa.int64()))
    prices = {"least": agg.min("price"), "most": agg.max("price"), "mean": agg.mean("price"), "sum": agg.sum("price")}
    counts = {f"rank{n}": agg.count(where=f"rank{n}") for n in (1, 2, 3)}
    return ranked.key_by("by-both", "by").aggregate("statistics", bids=agg.count(), **counts, **prices)


def q19(bids: Stream) -> Stream:
    """The ten highest bids of each auction, so far."""
    return bids.key_by("by-auction", "auction").aggregate("highest", prices=agg.top(10, by="price"))


class Expanded(StatefulLogic[dict[str, Any]]):
    """Bids with the auction that they are for, whichever comes first."""

    def on_data(self, message: Message, state: dict[str, Any], output: Output) -> dict[str, Any] | None:
        """Pair what comes with what is there."""
        event = message.value
        if event.kind == AUCTION:
            state["auction"] = [event.seller, event.expires]
            fresh = state.pop("bids", [])
        else:
            fresh = [[event.bidder, event.price]]
            if "auction" not in state:
                state.setdefault("bids", []).extend(fresh)
                return state
        seller, expires = state["auction"]
        for bidder, price in fresh:
            output.emit(
                {"auction": message.key, "bidder": bidder, "price": price, "seller": seller, "expires": expires}
            )
        return state


def q20(events: Stream) -> Stream:
    """Bids on auctions of category 10, with these auctions."""
    some = events.filter("some", (pc.field("kind") == BID) | (pc.field("category") == 10))
    keyed = some.map_batches("about", _about).key_by("by-auction", "about")
    return keyed.stateful_op("expanded", Expanded(), default=dict, returns=dict)


QUERIES: dict[str, Callable[[Stream], Stream]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q11, q13, q14, q15, q16, q17, q18, q19, q20)
}
LAST_BY = {
    "q4": ("category",),
    "q6": ("seller",),
    "q15": ("day",),
    "q16": ("by",),
    "q17": ("by",),
    "q18": ("bidder", "auction"),
    "q19": ("auction",),
}
"""Queries whose results are replaced by later ones, and the columns that say which."""
COLUMNS = {
    "q0": ("auction", "bidder", "price"),
    "q1": ("auction", "bidder", "price"),
    "q2": ("auction", "price"),
    "q3": ("name", "state", "auction"),
    "q4": ("category", "price"),
    "q5": ("end", "auction", "n"),
    "q6": ("seller", "price"),
    "q7": ("end", "price"),
    "q8": ("id", "name", "auction"),
    "q9": ("auction", "bidder", "price"),
    "q11": ("bidder", "start", "end", "n"),
    "q13": ("auction", "bidder", "price", "label"),
    "q14": ("auction", "bidder", "price", "part", "zeros"),
    "q15": ("day", *_counts()),
    "q16": ("by", *_counts()),
    "q17": ("by", "bids", "rank1", "rank2", "rank3", "least", "most", "mean", "sum"),
    "q18": ("bidder", "auction", "number", "price"),
    "q19": ("auction", "prices"),
    "q20": ("auction", "bidder", "price", "seller", "expires"),
}
"""The columns of each query's result that are checked."""
READS: dict[str, tuple[tuple[int, ...], str]] = {
    "q0": ((BID,), "auction bidder price"),
    "q1": ((BID,), "auction bidder price"),
    "q2": ((BID,), "auction price"),
    "q3": ((PERSON, AUCTION), "kind id name state seller category"),
    "q4": ((AUCTION, BID), "kind time id category expires auction price"),
    "q5": ((BID,), "time auction"),
    "q6": ((AUCTION, BID), "kind number time id seller expires auction bidder price"),
    "q7": ((BID,), "time price"),
    "q8": ((PERSON, AUCTION), "kind time id name seller"),
    "q9": ((AUCTION, BID), "kind number time id seller expires auction bidder price"),
    "q11": ((BID,), "time bidder"),
    "q13": ((BID,), "auction bidder price"),
    "q14": ((BID,), "time auction bidder price"),
    "q15": ((BID,), "time auction bidder price"),
    "q16": ((BID,), "time auction bidder price channel"),
    "q17": ((BID,), "time auction price"),
    "q18": ((BID,), "number auction bidder price"),
    "q19": ((BID,), "auction price"),
    "q20": ((AUCTION, BID), "kind id seller category expires auction bidder price"),
}
"""The kinds of events that each query is about, and the columns of them."""


def chosen(events: Stream, query: str) -> Stream:
    """Return the events and columns that a query reads."""
    kinds, columns = READS[query]
    return events.filter("wanted", pc.field("kind").isin(kinds)).select("wanted-columns", *columns.split())
