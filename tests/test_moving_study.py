"""docs/studies/moving.md: its sweeps are sound, and its numbers are computed as it says."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest

from benchmarks import document, moving, moving_grid
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
    page = document.read(moving.PAGE)
    assert moving.filled(page, pd.read_csv(moving.DATA)) == page, "make it anew: python -m benchmarks.moving"


# --- the grid ---------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize(("place", "isl", "gap"), [
    ((1, 1, 1), "none", "hold"), ((10, 10, 13), "none", "hold"), ((2, 10, 2), "ring", "hold"),
    ((2, 10, 3), "ring", "again")])
def test_a_sky_of_the_grid_is_a_sound_scenario_with_its_schemes(place: tuple[int, int, int], isl: str,
                                                                gap: str) -> None:
    scenario = load(moving_grid.SCENARIO, moving_grid.sets((moving_grid.Place(*place), isl, gap)))
    spec = scenario.topology.constellation
    assert spec is not None
    assert (spec.planes, spec.each) == place[:2]
    assert len(spec.stations.read_text().splitlines()) - 2 == place[2]
    assert [params.get("label", name) for name, params in scenario.schemes] == [
        one.label for one in moving_grid.ALL if (one.isl, one.gap) == (isl, gap)]
    assert scenario.contacts is not None
    assert scenario.contacts.gap == gap


def test_the_grid_has_768_configurations_and_each_sky_belongs_to_one_shard() -> None:
    assert len(moving_grid.PLACES) * len(moving_grid.SCHEMES) == 768
    assert sum(bool(moving_grid.there(place, one)) for place, one in itertools.product(
        moving_grid.PLACES, moving_grid.SCHEMES)) == 216
    whole = moving_grid.skies("1/1")
    assert len(whole) == len(set(whole)) == 96 + 24 + 24
    assert sorted(moving_grid.skies("1/2") + moving_grid.skies("2/2")) == sorted(whole)


def test_stations_of_the_grid_lie_within_one_another() -> None:
    folder = moving_grid.SCENARIO.parent
    sets = [set((folder / f"stations{'' if n == 10 else n}.csv").read_text().splitlines()[2:])
            for n in moving_grid.STATIONS]
    assert [len(one) for one in sets] == list(moving_grid.STATIONS)
    assert all(fewer < more for fewer, more in itertools.pairwise(sets))


def test_factors_of_the_grid_are_of_one_configuration_each() -> None:
    one, other = moving_grid.Place(1, 10, 1), moving_grid.Place(2, 10, 13)
    found = {(one, "waits"): 20.0, (one, "back"): 5.0, (one, "ring back"): 2.0, (other, "waits"): 6.0,
             (other, "back"): 3.0}
    by_scheme, causes = (table(found).splitlines() for table in (moving_grid.by_scheme, moving_grid.causes))
    assert "| `back` | 2 | 4 [3, 5] | 3 [2, 4] | 1 x 10, 1 | 0 |" in by_scheme
    assert "| `ring back` | 1 | 2 [2, 2] | 10 [10, 10] | 1 x 10, 1 | 1 |" in by_scheme
    assert "| ring, first back | `back` / `ring back` | 1 | 2.5 [2.5, 2.5] | 0 |" in causes
    assert moving_grid.best(found).splitlines()[-1] == "| 10 | 10 to 10 | - | - | - | - | 2 to 2 |"


def test_a_run_that_ended_early_has_the_hours_of_the_rounds_that_it_had() -> None:
    place = moving_grid.Place(1, 1, 1)
    assert moving_grid.hours({(place, "waits"): {"virtual_s": "36000", "rounds": "5"},
                              (place, "half"): {"virtual_s": "7200", "rounds": "0"}}) == {
                                  (place, "waits"): 2.0, (place, "half"): 2.0}


def test_the_page_says_what_the_rows_of_the_grid_say() -> None:
    page = document.read(moving_grid.PAGE)
    assert moving_grid.filled(page, moving_grid.known()) == page, "make it anew: python -m benchmarks.moving_grid"
