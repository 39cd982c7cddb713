"""Define which contender runs over which input, in which order, and for how long."""

from dataclasses import dataclass, replace

KEYS = (100, 10_000, 1_000_000)
LARGE = 1_000_000
MEDIUM = 250_000
SMALL = 200


@dataclass(frozen=True)
class Case:
    """One contender over one input: `files` batches of `rows` rows over `keys` keys.

    A contender that can be stopped is stopped `limit` seconds after the start of its first batch, and its figures cover what it
    has done. A contender that cannot be stopped is killed after `patience` seconds.
    """

    contender: str
    keys: int
    rows: int
    files: int
    warmup: int
    limit: float
    patience: float = 240
    format: str = "parquet"

    @property
    def name(self) -> str:
        return f"{self.contender}, {self.keys:,} keys, {self.rows:,} rows a batch"


@dataclass(frozen=True)
class Plan:
    """The number of batches of each size, and the time limits of a slow contender and of the whole run.

    `many_keys` is the number of measured batches of a large case with the most keys.
    """

    large: int
    large_warmup: int
    many_keys: int
    medium: int
    medium_warmup: int
    small: int
    small_warmup: int
    native: int
    native_limit: float
    bytewax_limit: float
    budget: float
    divisor: int = 1


# Takes at most a quarter of an hour on two cores.
QUICK = Plan(
    large=14,
    large_warmup=6,
    many_keys=30,
    medium=16,
    medium_warmup=8,
    small=60,
    small_warmup=25,
    native=6,
    native_limit=95,
    bytewax_limit=10,
    budget=800,
)
FULL = Plan(
    large=16,
    large_warmup=4,
    many_keys=30,
    medium=24,
    medium_warmup=8,
    small=300,
    small_warmup=100,
    native=10,
    native_limit=500,
    bytewax_limit=60,
    budget=3600,
)
# Shows that every contender runs; the figures are meaningless.
SMOKE = Plan(
    large=3,
    large_warmup=2,
    many_keys=10,
    medium=3,
    medium_warmup=2,
    small=6,
    small_warmup=2,
    native=3,
    native_limit=40,
    bytewax_limit=3,
    budget=1200,
    divisor=50,
)


def cases(plan: Plan) -> list[Case]:
    """Return all cases, in the order in which they run.

    Cases that share a ratio are neighbours, so that a busy minute of the machine affects both. The longest case is the last one,
    because its limit is the rest of the budget.
    """
    few, some, many = KEYS
    return [
        *_large(plan, few),
        *_medium(plan, few, native_warmup=2),
        *_large(plan, some),
        *_csv(plan, some),
        *_medium(plan, some, native_warmup=2),
        *_large(plan, many),
        *_csv(plan, many),
        *_small(plan),
        # One batch of it takes a minute to warm up.
        *_medium(plan, many, native_warmup=1),
    ]


def _large(plan: Plan, keys: int) -> list[Case]:
    rows = LARGE // plan.divisor
    # Background merges start after eight batches and slow down single batches, so many keys need more batches.
    batches = plan.large_warmup + plan.many_keys if keys == KEYS[-1] else plan.large
    measured = [
        Case(contender, keys, rows, batches, plan.large_warmup, 120)
        for contender in ("floor", "stateful_map", "aggregate", "duckdb")
    ]
    return [*measured, Case("bytewax", keys, rows, plan.large, 0, plan.bytewax_limit)]


def _csv(plan: Plan, keys: int) -> list[Case]:
    """Return the cases of Pathway, and those of Tidewheel over the files that Pathway reads best."""
    contenders = ("stateful_map_csv", "pathway_stateful", "aggregate_csv", "pathway_sum")
    rows = LARGE // plan.divisor
    return [Case(contender, keys, rows, plan.large, plan.large_warmup, 120, format="csv") for contender in contenders]


def _medium(plan: Plan, keys: int, native_warmup: int) -> list[Case]:
    rows = MEDIUM // plan.divisor
    return [
        # Its warm-up takes less time than one batch of the other.
        Case("stateful_map", keys, rows, plan.medium, plan.medium_warmup, 120),
        Case("transform_with_state", keys, rows, plan.native, native_warmup, plan.native_limit, 600),
    ]


def _small(plan: Plan) -> list[Case]:
    contenders = ("foreach_batch_nothing", "stateful_map", "foreach_batch_same_query")
    return [Case(c, SMALL, SMALL, plan.small, plan.small_warmup, 120) for c in contenders]


def within(case: Case, left: float) -> Case:
    """Return the case with its limit reduced to the rest of the budget, but long enough to measure something.

    Starting and ending the contender's process take time in addition to the limit.
    """
    return replace(case, limit=max(20, min(case.limit, left - 20)))
