"""The closed forms of benchmarks/internet.py against the published tables."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import internet
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


def rows() -> pd.DataFrame:
    """Two schemes that get to 2.6 in their second round, and one that does not."""
    trained = [{"what": "train", "scheme": name, "rounds": 2, "mb": 8.0, "losses": losses} for name, losses in (
        ("ddp", "10:3 20:2.6"), ("diloco_10", "1:2.7 2:2.5"), ("local_sgd_10", "1:2.9 2:2.8"))]
    timed = [{"what": "time", "scheme": name, "size": "1B", "mbps": 50, "latency_ms": 2.5, "slow": False, "rounds": 4,
              "virtual_s": seconds, "train_s": 1.0}
             for name, seconds in (("ddp", 40.0), ("diloco_10", 80.0), ("local_sgd_10", 60.0))]
    return pd.DataFrame(trained + timed)


def test_the_time_to_a_loss_is_rounds_times_the_time_of_one() -> None:
    assert internet.rounds_to(rows()) == {"ddp": 20, "diloco_10": 2, "local_sgd_10": None}
    found = internet.times(rows()).set_index("scheme")
    assert found.loc["ddp", "to_target_s"] == 200
    assert found.loc["diloco_10", "to_target_s"] == 40
    assert found["to_target_s"].isna().sum() == 1
    assert found.loc["ddp", "share"] == 1 / 40
    assert internet.time_table(rows(), "1B").splitlines()[2] == "| 50 | 200 | - | **40** |"
    assert internet.winners(rows()).splitlines()[2].startswith("| 1B | 2.6 | `diloco_10` | - |")


def test_the_page_says_what_its_rows_say() -> None:
    page = internet.PAGE.read_text(encoding="utf-8")
    found = pd.read_csv(internet.DATA) if internet.DATA.exists() else None
    assert internet.filled(page, found) == page, "make it anew: python -m benchmarks.internet"
