"""Runs killed at random points are gone on with to the digests that they would have had; see `benchmarks.kills`."""

from __future__ import annotations

import pytest

from benchmarks.kills import hunt

pytestmark = pytest.mark.machine


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_killed_runs_are_resumed_and_leave_nothing_behind() -> None:
    outcomes, wrong = hunt(20, seed=1)
    assert wrong == []
    assert outcomes["resumed"] >= 7, outcomes
