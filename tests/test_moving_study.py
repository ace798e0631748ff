"""docs/studies/moving.md: its sweeps are sound, and its numbers are computed as it says."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest

from benchmarks import moving
from emul.scenario import load


@pytest.mark.slow
@pytest.mark.parametrize("name", moving.PARTS)
def test_every_sweep_is_a_sound_scenario(name: str) -> None:
    part = moving.PARTS[name]
    first = [f"{path}={values[-1]}" for path, values in part.grid.items()]
    scenario = load(moving.SCENARIO, [*part.sets, *first])
    assert scenario.topology.constellation is not None
    assert scenario.warnings == []
    assert scenario.stop.virtual_time_ns == scenario.topology.constellation.span_ns


def test_a_row_of_rounds_has_the_hours_of_each_sky_and_their_quotient() -> None:
    found = pd.DataFrame([{"part": "grid", "sky": sky, "planes": planes, "each": each, "stations": n, "rounds": 5,
                           "virtual_h": 5 * (30 if sky == "alone" else 10)}
                          for sky, planes, each, n in itertools.product(
                              ("alone", "ring"), moving.PLANES, moving.EACH, moving.STATIONS)
                          if sky == "alone" or each == 10])
    lines = moving.rounds(found).splitlines()
    assert lines[2] == "| 1 | 1 | 30 | - | 30 | - | - | - |"
    assert lines[-1] == "| 10 | 10 | 30 | 10 | 30 | 10 | 3 | 3 |"


def test_a_mean_is_of_the_seeds_that_reached_the_target() -> None:
    found = pd.DataFrame([{"part": "schemes", "sky": "alone", "scheme": "waits", "accuracy": accuracy, "virtual_h":
        hours,
                           "rounds": 4, "mb": 2.0} for accuracy, hours in ((0.9, 10), (0.86, 20), (0.5, 120))])
    assert moving.schemes(found).splitlines()[-1] == "| alone | `waits` | 15 [10, 20] | 4 | 2 | 2 of 3 | 0.753 |"


def test_the_page_says_what_its_rows_say() -> None:
    page = moving.PAGE.read_text(encoding="utf-8")
    assert moving.filled(page, pd.read_csv(moving.DATA)) == page, "make it anew: python -m benchmarks.moving"
