import json
import statistics
from dataclasses import asdict

import pytest
from benchmarks.state import measure, report
from benchmarks.state.cases import FULL, LARGE, QUICK, SMALL, SMOKE, Case, cases, within
from benchmarks.state.measure import Batch, Measurement
from hypothesis import given
from hypothesis import strategies as st

PROMISED = {
    *(f"stateful_map_vs_{peer}_{keys}" for peer in ("tws", "floor", "bytewax") for keys in (100, 10_000, 1_000_000)),
    *(f"{step}_vs_pathway_{keys}" for step in ("aggregate", "stateful_map") for keys in (10_000, 1_000_000)),
    "aggregate_vs_floor_10000",
    "aggregate_vs_floor_1000000",
    "stateful_map_vs_floor_1000000_sustained",
    "aggregate_vs_floor_1000000_sustained",
    "aggregate_vs_duckdb_10000",
    "aggregate_vs_duckdb_1000000",
    "latency_vs_empty",
}

batches = st.lists(st.builds(Batch, st.integers(1, 10**6), st.floats(1, 10**6), st.just({})), min_size=1, max_size=20)


def taking(milliseconds: float, rows: int = LARGE) -> Measurement:
    return Measurement([Batch(rows, milliseconds)], 0)


@given(batches, st.integers(0, 25))
def test_warm_up_batches_do_not_count_unless_there_are_no_others(found: list[Batch], warmup: int) -> None:
    measured = Measurement(found, warmup).measured
    assert list(measured) == (found[warmup:] if warmup < len(found) else [found[-1]])


@given(found=batches, warmup=st.integers(0, 5))
def test_a_measurement_survives_its_way_between_processes(found, warmup, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("result") / "result.json"
    sent = Measurement(found, warmup, ["capped"])
    path.write_text(json.dumps(asdict(sent)))
    assert measure.read(path) == sent


def test_one_disturbed_batch_does_not_decide_the_rate() -> None:
    calm = [Batch(1000, 10.0)] * 4
    assert Measurement([*calm, Batch(1000, 9000.0)], 0).rows_per_second == 100_000


def test_a_slow_batch_counts_in_the_sustained_rate() -> None:
    found = Measurement([Batch(1000, 5.0), *[Batch(1000, 10.0)] * 9, Batch(1000, 110.0)], 1)
    assert found.sustained_rows_per_second == 50_000
    assert found.slowest_milliseconds == 110


def test_durations_are_medians_over_the_measured_batches() -> None:
    found = [Batch(1, 1, {"addBatch": n}) for n in (900, 3, 1, 2)]
    assert Measurement(found, 1).durations == {"addBatch": statistics.median((3, 1, 2))}


@pytest.mark.parametrize("plan", [QUICK, FULL, SMOKE])
def test_every_plan_measures_both_sides_of_every_ratio(plan) -> None:
    done = {case: taking(100) for case in cases(plan)}
    found = report.ratios(done, plan.divisor)
    assert None not in found.values()
    assert set(found) >= PROMISED


def test_a_ratio_of_rates_is_more_when_the_subject_is_faster() -> None:
    done = {
        Case("aggregate", 10_000, LARGE, 1, 0, 1): taking(50),
        Case("floor", 10_000, LARGE, 1, 0, 1): taking(100),
    }
    assert report.ratios(done)["aggregate_vs_floor_10000"] == 2


def test_a_ratio_of_latencies_is_less_when_the_subject_is_faster() -> None:
    done = {
        Case("stateful_map", SMALL, SMALL, 1, 0, 1): taking(50, SMALL),
        Case("foreach_batch_nothing", SMALL, SMALL, 1, 0, 1): taking(100, SMALL),
    }
    assert report.ratios(done)["latency_vs_empty"] == 0.5


def test_a_ratio_is_null_when_one_side_failed() -> None:
    done = {Case("floor", 10_000, LARGE, 1, 0, 1): taking(100)}
    document = report.document("quick", done, {}, 1, 1)
    assert document["aggregate_vs_floor_10000"] is None
    assert json.loads(json.dumps(document)) == document


@given(st.floats(-1000, 1000), st.floats(20, 500))
def test_a_case_never_gets_more_than_its_own_limit(left: float, limit: float) -> None:
    case = Case("transform_with_state", 1, 1, 1, 0, limit)
    assert 20 <= within(case, left).limit <= limit
