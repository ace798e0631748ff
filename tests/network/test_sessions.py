"""Availability made by a model: its statistics, and the file that comes along."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emul.network.models import churn, sessions

TRACES = Path(__file__).resolve().parents[2] / "scenarios" / "traces"
DAY = 24 * 3600 * 10**9


def share(found: dict[str, churn.Schedule], t: int) -> float:
    return float(np.mean([any(on <= t < off for on, off in one.present) for one in found.values()]))


def test_sessions_are_short_and_more_at_some_hours() -> None:
    found = sessions.schedules({"nodes": "1000"}, 3)
    lengths = np.array([off - on for one in found.values() for on, off in one.present]) / 1e9
    assert abs(np.mean(lengths <= 600) - 0.7) < 0.02
    over_day = [share(found, t * DAY // 48) for t in range(48)]
    assert abs(np.mean(over_day) - 0.25) < 0.04             # the beta law's own spread: 0.22 / sqrt(1000) = 0.007
    best, worst = np.mean(over_day[10:15]), np.mean(over_day[34:39])       # around a quarter and three quarters
    assert 3 < best / worst < 5
    own = np.array([sum(off - on for on, off in one.present) / DAY for one in found.values()])
    assert np.percentile(own, 90) > 4 * np.percentile(own, 30)             # some are there far more often


def test_nobody_is_missing_and_a_node_depends_on_the_seed_and_its_number_alone() -> None:
    found = sessions.schedules({"nodes": "300", "mean": "0.02"}, 1)
    assert len(found) == 300
    assert all(one.present for one in found.values())
    assert sessions.schedules({"nodes": "5", "mean": "0.02"}, 1)["4"] == found["4"]


def test_the_file_that_comes_along_is_what_its_command_writes(tmp_path: Path) -> None:
    made = sessions.schedules({"nodes": "100", "mean": "0.4", "amplitude": "0.6"}, 1)
    assert churn.availability_csv(made) == (TRACES / "phones.csv").read_text()
    assert churn.read_availability(TRACES / "phones.csv") == made


@pytest.mark.parametrize(("given", "expected"), [
    ({"node": "3"}, r"^node: is not used by sessions, which has nodes, mean"),
    ({"nodes": "0"}, r'^nodes: "0": expected a whole number from 1 to 100000$'),
    ({"mean": "0.6"}, r"^mean, amplitude: expected mean \(1 \+ amplitude\) below 1$"),
    ({"sigma": "0"}, r"^sigma: expected a number from 0.01 to 5$"),
    ({"day": "1 ms"}, r'^day: "1 ms": expected 1 s or more$')])
def test_a_wrong_parameter_is_told(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        sessions.schedules(given, 0)
