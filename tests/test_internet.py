"""The closed forms of benchmarks/internet.py against the published tables."""

from __future__ import annotations

import pytest

from benchmarks.internet import TABLE_4, TABLE_6, Simulated, hours, ring_s, steps_off, utilisation

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
