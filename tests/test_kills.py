"""Runs killed at random points are gone on with to the digests that they would have had; see `benchmarks.kills`."""

from __future__ import annotations

import pytest

from benchmarks.kills import hunt

pytestmark = pytest.mark.machine


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [
    pytest.param(6, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.release)])
def test_killed_runs_are_resumed_and_leave_nothing_behind(count: int) -> None:
    outcomes, wrong = hunt(count, seed=1)
    assert wrong == []
    assert outcomes["resumed"] >= count // 3, outcomes
