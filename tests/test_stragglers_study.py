"""docs/studies: its tables are those of the committed runs, and what they say of them is computed as they say."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import document, stragglers

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "docs" / "studies"


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    return pd.read_csv(HOME / "data" / "stragglers.csv")


def test_every_network_has_its_schemes_on_five_seeds(found: pd.DataFrame) -> None:
    for network in stragglers.NETWORKS:
        seeds = found[found["network"] == network].groupby("scheme")["seed"].apply(sorted)
        assert len(seeds) >= 12
        assert all(each == [0, 1, 2, 3, 4] for each in seeds)


@pytest.mark.release
@pytest.mark.parametrize("page", sorted(HOME.glob("*.md")), ids=lambda page: page.stem)
def test_the_tables_are_made_of_the_committed_runs(found: pd.DataFrame, page: Path) -> None:
    text = document.read(page)
    assert stragglers.filled(text, found) == text


def rows(**of: list[float]) -> pd.DataFrame:
    """Runs of one network by scheme: seconds on seeds 0, 1, ...; a negative number: the target was not reached."""
    return pd.DataFrame([{"network": "home", "scheme": scheme, "seed": seed, "virtual_s": abs(value), "mb": 1.0,
                          "accuracy": 0.95 if value > 0 else 0.9, "joules": abs(value)}
                         for scheme, values in of.items() for seed, value in enumerate(values)])


def test_schemes_are_ordered_by_how_often_they_got_there_and_then_by_time() -> None:
    assert stragglers.order(rows(slow=[9, 9], quick=[2, 2], often=[1, -1])) == ["quick", "slow", "often"]


def test_a_ratio_is_taken_seed_by_seed_where_both_got_there() -> None:
    found = rows(fedavg=[10, 20, -30], other=[5, 40, 3])
    assert stragglers.ratios(found, "other", "virtual_s") == [0.5, 2.0]
    assert math.prod(stragglers.ratios(found, "other", "virtual_s")) == 1


def test_a_front_is_of_those_that_got_there_on_every_seed() -> None:
    found = rows(fedavg=[10, 12], quick=[5, 6], weak=[1, -1])
    assert stragglers.complete(found).index.tolist() == ["fedavg", "quick"]
    assert "| home | `quick` |" in stragglers.fronts(found)


def test_runs_of_a_network_take_the_place_of_those_before(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    stragglers.kept(file, rows(a=[1]).assign(network="silo"))
    stragglers.kept(file, rows(a=[1, 2]))
    again = stragglers.kept(file, rows(b=[3]))
    assert again[["network", "scheme"]].to_records(index=False).tolist() == [("silo", "a"), ("home", "b")]
