"""Run each query as a batch in Spark SQL over the same events, and compare the results."""

from collections.abc import Iterable
from typing import Any

from benchmarks.nexmark.queries import COLUMNS, LAST_BY
from pyspark.sql import DataFrame, SparkSession

TEN, TWO = 10_000_000_000, 2_000_000_000

DAY = 86_400_000_000_000
RANKS = {"1": "price < 10000", "2": "price >= 10000 and price < 50000", "3": "price >= 50000"}
_RANKS = ", ".join(f"count_if({where}) as rank{n}" for n, where in RANKS.items())
_COUNTS = (
    f"count(*) as bids, {_RANKS}, count(distinct bidder) as bidders, count(distinct auction) as auctions, "
    + ", ".join(
        f"count(distinct {column}) filter (where {where}) as {column}s{n}"
        for column in ("bidder", "auction")
        for n, where in RANKS.items()
    )
)
_WON = """select a.id as auction, a.seller, a.expires, b.bidder, b.price,
            row_number() over (partition by a.id order by b.price desc, b.number) as place
          from auction a join bid b on a.id = b.auction and b.time between a.time and a.expires"""

SQL = {
    "q0": "select auction, bidder, price from bid",
    "q1": "select auction, bidder, price * 908 div 1000 as price from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """select p.name, p.state, a.id as auction from auction a join person p on a.seller = p.id
             where a.category = 10 and p.state in ('OR', 'ID', 'CA')""",
    "q4": """select category, avg(best) as price from (
               select a.id, a.category, max(b.price) as best from auction a join bid b
               on a.id = b.auction and b.time between a.time and a.expires group by a.id, a.category)
             group by category""",
    "q5": f"""with counts as (
                select end, auction, count(*) as n from
                  (select auction, explode(sequence(time div {TWO} * {TWO} + {TWO},
                     time div {TWO} * {TWO} + {TEN}, {TWO})) as end from bid)
                group by end, auction)
              select c.end, c.auction, c.n from counts c
              join (select end, max(n) as most from counts group by end) m on c.end = m.end and c.n = m.most""",
    "q6": f"""select seller, avg(price) as price from (
                select *, row_number() over (partition by seller order by expires desc, auction desc) as recent
                from ({_WON}) where place = 1)
              where recent <= 10 group by seller""",
    "q7": f"select time div {TEN} * {TEN} + {TEN} as end, max(price) as price from bid group by 1",
    "q8": f"""select p.id, p.name, a.id as auction from person p join auction a
              on p.id = a.seller and p.time div {TEN} = a.time div {TEN}""",
    "q11": f"""with steps as (
                 select bidder, time, sum(fresh) over (partition by bidder order by time, number) as visit from (
                   select *, if(time - lag(time) over (partition by bidder order by time, number) < {TEN}, 0, 1) as fresh
                   from bid))
               select bidder, min(time) as start, max(time) + {TEN} as end, count(*) as n from steps group by bidder, visit""",
    "q9": f"select auction, bidder, price from ({_WON}) where place = 1",
    "q13": "select auction, bidder, price, concat('side ', auction % 1000) as label from bid",
    "q14": f"""select auction, bidder, euros as price, length(auction) - length(replace(auction, '0', '')) as zeros,
                 case when hour between 8 and 18 then 'day' when hour <= 6 or hour >= 20 then 'night' else 'other' end as part
               from (select *, price * 908 div 1000 as euros, time % {DAY} div 3600000000000 as hour from bid)
               where euros > 1000 and euros < 50000""",
    "q15": f"select time div {DAY} as day, {_COUNTS} from bid group by 1",
    "q16": f"select concat(channel, ' ', time div {DAY}) as by, {_COUNTS} from bid group by 1",
    "q17": f"""select shiftleft(time div {DAY}, 32) | auction as by, count(*) as bids, {_RANKS}, min(price) as least,
                 max(price) as most, avg(price) as mean, sum(price) as sum from bid group by 1""",
    "q19": """select auction, slice(sort_array(collect_list(price), false), 1, 10) as prices from bid group by auction""",
    "q20": """select b.auction, b.bidder, b.price, a.seller, a.expires from bid b join auction a on b.auction = a.id
              where a.category = 10""",
    "q18": """select bidder, auction, number, price from
                (select *, row_number() over (partition by bidder, auction order by number desc) as place from bid)
              where place = 1""",
}


def expected(spark: SparkSession, events: DataFrame, query: str) -> list[tuple[Any, ...]]:
    """Return the results of a query according to Spark SQL."""
    for number, name in enumerate(("person", "auction", "bid")):
        events.where(f"kind = {number}").createOrReplaceTempView(name)
    return normal((row.asDict() for row in spark.sql(SQL[query]).collect()), query)


def normal(records: Iterable[dict[str, Any]], query: str) -> list[tuple[Any, ...]]:
    """Return results as sorted tuples; if results replace one another, the last one."""
    chosen: Iterable[dict[str, Any]] = records
    if query in LAST_BY:
        chosen = {tuple(record[name] for name in LAST_BY[query]): record for record in records}.values()
    rows = [tuple(record[name] for name in COLUMNS[query]) for record in chosen]
    return sorted(tuple(round(item, 6) if isinstance(item, float) else item for item in row) for row in rows)
