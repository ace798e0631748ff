"""The fit of `benchmarks/bench_devices.py` against pairs whose numbers are known, and that it sees no pair left out."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import bench_devices as bench
from benchmarks.bench_devices import Fit, Pair
from emul.learning.counting import Operation, StepCount, StepCounts
from emul.scenario.devices import read_devices

TRUE = Fit(0.4, 0.7, 3e-6, 0.2, 0.3, 5e-5)
# name -> operations: (times, convolution, flops of a sample, bytes once, bytes of a sample)
MODELS = {"a": [(5, False, 2e7, 1e5, 1e3)], "b": [(40, False, 1e3, 2e6, 1e5)], "c": [(300, False, 10.0, 10.0, 1.0)],
          "d": [(10, True, 4e7, 1e4, 1e4), (20, False, 0.0, 1e5, 1e4)], "f": [(8, True, 1e3, 4e6, 1e5)],
          "e": [(30, True, 100.0, 10.0, 10.0)]}


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models whose operations are bound by compute, by memory, by launches, and the same of convolutions."""
    kept = bench.kept_counts()
    made = {name: StepCounts(1, *(StepCount(tuple(Operation(times, conv, flops * b, once + each * b)
                                                  for times, conv, flops, once, each in operations), 0.0)
                                  for b in (1, 2))) for name, operations in MODELS.items()}
    monkeypatch.setattr(bench, "kept_counts", lambda: {**kept, **made})


def pairs() -> list[Pair]:
    bare = [Pair("here", model, batch, 1.0, 1e11, 1e10) for model in MODELS for batch in (1, 8, 64)]
    return [replace(pair, seconds=TRUE.seconds(pair)) for pair in bare]


def test_a_fit_finds_the_numbers_that_made_the_pairs() -> None:
    assert asdict(bench.fit(pairs())) == pytest.approx(asdict(TRUE), rel=0.02)


def test_pairs_left_out_are_predicted_from_the_others_alone() -> None:
    seen: list[tuple[set[str], set[str]]] = []

    def predict(fitted: object, wanted: object) -> list[float]:
        assert isinstance(fitted, list)
        assert isinstance(wanted, list)
        seen.append(({pair.model for pair in fitted}, {pair.model for pair in wanted}))
        return [2 * pair.seconds for pair in wanted]

    found = bench.held_out(pairs(), "model", predict)
    assert [wanted for _, wanted in seen] == [{"a"}, {"b"}, {"c"}, {"d"}, {"f"}, {"e"}]
    assert all(not fitted & wanted for fitted, wanted in seen)
    assert bench.median_error(found) == pytest.approx(1.0)
    assert bench.spearman(found) == pytest.approx(1.0)


def test_rows_are_kept_and_read_again(tmp_path: Path) -> None:
    kept = bench.write_pairs(pairs(), "wall", tmp_path / "rows.csv")
    again = bench.read_pairs(tmp_path / "rows.csv")
    assert [(pair.device, pair.model, pair.batch) for pair in again] == [
        (pair.device, pair.model, pair.batch) for pair in kept]
    assert [pair.seconds for pair in again] == pytest.approx([pair.seconds for pair in kept], rel=1e-5)


def test_the_table_of_devices_gets_what_was_fitted_and_keeps_all_else(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "devices.csv"
    path.write_text(bench.TABLE.read_text())
    monkeypatch.setattr(bench, "TABLE", path)
    before = read_devices(path)
    on_gpu = [Pair("h200", "a", 32, 5 * 5e-5, 6.7e13, 4.8e12)]       # of 5 launches
    bench.write_table(pairs(), on_gpu)
    after = read_devices(path)
    assert after["here"].efficiency == pytest.approx(0.4, rel=0.02)
    assert after["here"].origins["efficiency"].basis == "measured"
    assert after["raspberry-pi-4"].conv_launch_s == pytest.approx(5e-5, rel=0.02)
    assert after["jetson-nano"].launch_s == after["h200"].launch_s == after["h200"].conv_launch_s == 5e-5
    assert after["jetson-nano"].origins["launch_s"].basis == after["h200"].origins["use"].basis == "assumed"
    assert after["h200"].origins["launch_s"].basis == "measured"
    assert after["jetson-nano"].flops == before["jetson-nano"].flops
    assert after["laptop"] == before["laptop"]


def test_every_published_row_has_its_source_its_counts_and_a_device_of_the_table() -> None:
    rows, known = bench.published(pairs()), read_devices(bench.TABLE)
    assert len(rows) >= 10
    assert len({row["source"] for row in rows}) >= 3
    assert all(row["device"] in known and row["source"] for row in rows)
    assert all(0.05 < float(row["printed / ours"]) < 20 for row in rows)
