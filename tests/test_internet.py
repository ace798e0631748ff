"""The closed forms of benchmarks/internet.py against the published tables."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from benchmarks import document, internet
from benchmarks.finished import swept
from benchmarks.internet import TABLE_4, TABLE_6, Simulated, hours, ring_s, steps_off, utilisation
from emul.learning.declared import declared
from emul.scenario import load

ONE_B = Simulated(24, 0.1, 134.35)


def test_table_4_of_streaming_diloco() -> None:
    off = steps_off(TABLE_4)
    assert len(off) == 75
    assert off.count(0) >= 68
    assert {abs(step) for step in off} <= {0, 1}


def test_table_6_of_the_scaling_laws() -> None:
    off = steps_off(TABLE_6)
    assert len(off) == 75
    assert off.count(0) >= 59
    assert {abs(step) for step in off} <= {0, 1}


def test_table_1_of_streaming_diloco() -> None:
    """25e9 tokens in 0.67 h over free links; at 1 Gbit/s 109 h and 0.88 h are published, which need S = 16.4 Gbit."""
    model = Simulated(24, 0.1, 164.0)
    assert hours(model, 1.0, 0.67, "Data-Parallel") == pytest.approx(110.1, rel=0.01)
    assert hours(model, 1.0, 0.67, "overlapped, 4 bits") == pytest.approx(0.86, rel=0.01)


def test_single_cells_by_hand() -> None:
    assert ONE_B.whole(81.0) == pytest.approx(0.495110, abs=1e-6)
    assert ONE_B.whole(6.2, 100) == pytest.approx(0.826238, abs=1e-6)
    assert ONE_B.streaming(5.2) == pytest.approx(0.823023, abs=1e-6)


def test_intellect_1_by_hand() -> None:
    assert ring_s(14, 1e10, 316.8e6, 0.05) == pytest.approx(470.28, abs=0.01)
    for seconds, published in ((103, 0.957), (382, 0.856), (469, 0.830)):
        assert utilisation(2280, seconds) == pytest.approx(published, abs=0.001)


# --- the study --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("label", [
    pytest.param(label, marks=[] if label in ("ddp", "noloco_10") else [pytest.mark.slow])
    for label in internet.ENTRIES])
def test_every_run_of_the_study_is_a_sound_scenario(label: str) -> None:
    trained = load(internet.FILE, internet.training(label))
    assert trained.stop.rounds == internet.STEPS / internet.ENTRIES[label].steps
    for size, latency_ms, slow in internet.PANELS.values():
        timed = load(internet.FILE, internet.timing(label, size, 100, latency_ms, slow))
        assert timed.training == "skip"
        parameters, step_s = internet.SIZES[size]
        island = timed.node_speeds[0].island
        model = declared(timed.task)
        assert island is not None
        assert model is not None
        assert model.parameters == parameters
        assert model.step / island.rate == pytest.approx(step_s)


@pytest.mark.parametrize("name", internet.TROUBLES)
def test_every_run_in_trouble_is_a_sound_scenario(name: str) -> None:
    trouble = internet.TROUBLES[name]
    for label in trouble.labels:        # a bandwidth is a number alike in all of them
        scenario = load(internet.FILE, internet.troubled(label, name, trouble.uplinks[0]))
        assert scenario.training == "skip"
        assert [one for one in scenario.warnings if "has no effect" in one] == []
        assert bool(scenario.faults) == name.startswith("churn")
        assert (scenario.stop.rounds is None) == trouble.day


def test_a_run_that_trains_while_workers_leave_is_a_sound_scenario() -> None:
    scenario = load(internet.FILE, internet.leaving("diloco_10", True))
    assert scenario.training != "skip"
    assert scenario.faults
    assert scenario.stop.rounds == 20


def test_times_of_those_who_survive_follow_the_bandwidth() -> None:
    """S is 320e9 bits: 320 s over 1 Gbit/s."""
    assert internet.surviving("diloco_50", 1000) == (
        "name: diloco, steps: 50, survive: true, pieces: 2, timeout: 130 s, grace: 778 s")
    assert internet.surviving("noloco_50", 1000) == "name: noloco, steps: 50, timeout: 970 s"
    assert internet.surviving("async_50", 1000) == "name: async_diloco, steps: 50, timeout: 1030 s"


def test_training_counts_in_rounds_that_end_well(tmp_path: Path) -> None:
    def computations(*of: tuple[int, int, float, str, bool]) -> None:
        pd.DataFrame([{"node": node, "round": round_, "label": label, "start_ns": 0, "end_ns": int(s * 1e9),
                       "finished": finished} for node, round_, s, label, finished in of]).to_parquet(
            tmp_path / "computations.parquet")
    computations((0, 1, 2.0, "train", True), (0, 1, 9.0, "outer", True), (0, 2, 3.0, "train", True),
                 (1, 1, 4.0, "train", True), (1, 2, 5.0, "train", False))
    of_peers = pd.DataFrame([{"node": 0, "round": 1, "completed": True}, {"node": 0, "round": 2, "completed": False},
                             {"node": 1, "round": 1, "completed": True}, {"node": 1, "round": 2, "completed": True}])
    assert internet.kept_s(tmp_path, of_peers) == 6.0
    of_server = pd.DataFrame([{"node": 9, "round": k, "completed": k != 2} for k in (1, 2, 3)])
    assert internet.kept_s(tmp_path, of_server) == 2 * 3.0                  # the mean of those that have ended


def test_new_rows_take_the_place_of_those_with_their_key() -> None:
    before = pd.DataFrame({"key": ["a", "b", "c"], "what": ["train", "time", "trouble"], "loss": ["1", "2", "3"]})
    new = pd.DataFrame({"key": ["a", "d"], "what": ["train", "time"], "loss": ["4", "5"]})
    assert internet.merged(before, new)[["key", "loss"]].to_numpy().tolist() == [
        ["a", "4"], ["b", "2"], ["d", "5"], ["c", "3"]]


PLAIN = {                           # of the loop in plain torch whose numbers the study's training was checked against
    "ddp": 2.438, "local_sgd_10": 2.492, "local_sgd_50": 2.523, "diloco_10": 2.528, "streaming_10": 2.485,
    "sparseloco_10": 2.515, "noloco_10": 2.492}


def test_the_losses_of_the_rows_are_those_of_a_plain_loop_and_in_its_order() -> None:
    found = pd.read_csv(internet.DATA)
    last = {row["scheme"]: [*internet.losses(row).values()][-1]
            for row in found[(found["what"] == "train") & (found["seed"] == internet.SEED)].to_dict("records")}
    for label, loss in PLAIN.items():
        assert last[label] == pytest.approx(loss, abs=0.03), label
    assert last["ddp"] < last["local_sgd_10"] < last["diloco_10"]


@pytest.mark.parametrize("mbps", internet.UPLINKS)
def test_shares_of_a_ring_are_the_closed_form(mbps: int) -> None:
    """H t / (H t + T): the rows against the formula, with 5 ms between two workers. With a slow uplink the next
    training goes on beside what is left in its queue. So the share is between that of T and that of T beside it."""
    found = internet.shares(pd.read_csv(internet.DATA))
    found = found[found["mbps"] == mbps]
    for label, steps in (("ddp", 1), ("local_sgd_10", 10), ("local_sgd_50", 50)):
        of, train_s = found[found["scheme"] == label].set_index("trouble")["share"], 0.8 * steps
        assert of["none"] == pytest.approx(utilisation(train_s, ring_s(4, 4e10, mbps * 1e6, 0.005)), rel=0.003)
        slow_s = ring_s(4, 4e10, mbps * 1e5, 0.005)
        assert 0.997 * utilisation(train_s, slow_s) < of["one uplink a tenth"] < 1.003 * train_s / slow_s


def rows() -> pd.DataFrame:
    """Two schemes that get to 2.6 in their second round, and one that does not."""
    trained = [{"what": "train", "scheme": name, "seed": 7, "rounds": 2, "mb": 8.0, "losses": curve}
               for name, curve in (("ddp", "10:3 20:2.6"), ("diloco_10", "1:2.7 2:2.5"),
                                   ("local_sgd_10", "1:2.9 2:2.8"))]
    timed = [{"what": "time", "scheme": name, "size": "1B", "mbps": 50, "latency_ms": 2.5, "slow": False, "rounds": 4,
              "virtual_s": seconds, "train_s": 1.0}
             for name, seconds in (("ddp", 40.0), ("diloco_10", 80.0), ("local_sgd_10", 60.0))]
    return pd.DataFrame(trained + timed)


def test_the_time_to_a_loss_is_rounds_times_the_time_of_one() -> None:
    assert internet.rounds_to(rows()) == pytest.approx(
        {"ddp": 20, "diloco_10": 2, "local_sgd_10": math.nan}, nan_ok=True)
    found = internet.times(rows()).set_index("scheme")
    assert found.loc["ddp", "to_target_s"] == 200
    assert found.loc["diloco_10", "to_target_s"] == 40
    assert found["to_target_s"].isna().sum() == 1
    assert found.loc["ddp", "share"] == 1 / 40
    assert internet.time_table(rows(), "1B").splitlines()[2] == "| 50 | 200 | - | **40** |"
    assert internet.winners(rows()).splitlines()[2].startswith("| 1B | 2.6 | `diloco_10` | - |")


def test_seeds_are_averaged_and_a_map_names_all_that_win_with_one_of_them() -> None:
    second = rows()[:3].assign(seed=8, losses=["10:2.5 20:2.4", "1:2.7 2:2.65", "1:2.9 2:2.5"])
    both = pd.concat([rows(), second], ignore_index=True)
    assert internet.rounds_to(both) == pytest.approx(
        {"ddp": 15, "diloco_10": math.nan, "local_sgd_10": math.nan}, nan_ok=True)
    assert internet.winners(both).splitlines()[2].startswith("| 1B | 2.6 | `diloco_10`, `local_sgd_10` | - |")
    last = "2.500 (2.400 to 2.600)"
    assert internet.trained_table(both).splitlines()[2] == f"| `ddp` | {last} | {last} | {last} | 15 (10 to 20) | 2.0 |"
    assert internet.spread([1.0, math.nan], "g") == "- (1 of 2 not)"


def test_the_page_says_what_its_rows_say() -> None:
    page = document.read(internet.PAGE)
    found = pd.read_csv(internet.DATA) if internet.DATA.exists() else None
    assert internet.filled(page, found) == page, "make it anew: python -m benchmarks.internet"


def test_a_sweep_of_which_a_cell_fails_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = SimpleNamespace(cell=SimpleNamespace(scheme="ddp", seed=8), error="No space left on device")
    monkeypatch.setattr("emul.study.sweep.sweep", lambda *_, **__: SimpleNamespace(failed=[failure]))
    with pytest.raises(RuntimeError, match="out: ddp, seed 8: No space left on device"):
        swept(internet.FILE, tmp_path / "out", tmp_path / "done.csv", seeds=[8])
