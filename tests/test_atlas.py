"""docs/atlas.md: its tables are those of the committed runs, and what they say of them is computed as they say."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks import atlas, document
from emul.scenario import load
from emul.study.suite import Suite
from emul.study.suite_tables import RefusedScheme
from emul.study.verify import cell_of

NETWORKS = list(Suite.of().networks)


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    return atlas.read()


@pytest.mark.slow
def test_the_page_is_made_of_the_committed_runs(found: pd.DataFrame) -> None:
    text = document.read(atlas.PAGE)
    assert atlas.filled(text, found, atlas.read_refused(), atlas.read_attacked()) == text


def test_every_scheme_of_emul_has_a_line(found: pd.DataFrame) -> None:
    text = document.read(atlas.PAGE)
    for name in atlas.asked():
        assert f"| [{name}](" in text
    assert all(f"| {name} | all | " in text for name in atlas.UNASKED)


def test_the_rows_are_runs_of_networks_of_this_suite(found: pd.DataFrame) -> None:
    assert set(found["network"]) <= set(NETWORKS)
    assert set(found["change"]) == {"", atlas.DROPOUT}
    assert not found.duplicated(["network", "change", "scheme", "seed"]).any()
    labels = {*atlas.asked(), "over_selection", "qsgd"}
    assert set(found["scheme"]) <= labels


@pytest.mark.parametrize("table", [atlas.DATA, atlas.ATTACKED], ids=lambda path: path.stem)
def test_a_row_of_each_network_can_be_made_again_from_its_scenario(table: Path) -> None:
    with table.open(newline="", encoding="utf-8") as lines:
        first = {row["file"]: row for row in csv.DictReader(lines)}
    for row in first.values():
        assert cell_of(table, row).scheme == row["scheme"]          # raises StudyError where its key is another one


def rows(*runs: tuple[str, str, list[float]], **more: Any) -> pd.DataFrame:
    """Runs (network, scheme, seconds on seeds 0, 1, ...); a negative number: the target was not reached."""
    return pd.DataFrame([{"network": network, "scheme": scheme, "seed": seed, "change": "",
                          "oracle_waits": 0, "accuracy_of": "global",
                          "rounds": 4, "rounds_failed": 1, "accuracy": 0.9, "joules": None, "bytes": None,
                          "time": value if value > 0 else None, "phases": json.dumps({"Update": 8000, "Model": 2000}),
                          **more} for network, scheme, values in runs for seed, value in enumerate(values)])


TIMES = rows(("lan", "fedavg", [10, 12, 14]), ("lan", "fedbuff", [4, 5, 6]), ("far", "fedavg", [1, 2, 3]),
             ("far", "fedbuff", [3, 5, 4]), ("far", "secagg", [3, -1, 4]))


def test_differences_are_paired_by_seed() -> None:
    said = atlas.against(TIMES, ["fedbuff"], "time", ["lan", "far"]).splitlines()
    assert said[2].startswith("| lan | fedbuff | 3 | -7 [")         # of -6, -7 and -8
    assert said[2].endswith("| yes |")
    assert said[3].startswith("| far | fedbuff | 3 | 2 [")          # of 2, 3 and 1
    assert said[3].endswith("| no |")


def test_schemes_without_all_seeds_are_not_compared() -> None:
    few = TIMES[~((TIMES["scheme"] == "fedbuff") & (TIMES["network"] == "lan") & (TIMES["seed"] == 2))]
    assert "lan" not in atlas.against(few, ["fedbuff"], "time", ["lan", "far"])


def test_the_cheapest_reached_the_target_on_most_seeds() -> None:
    said = atlas.cheapest(TIMES, ["fedbuff", "secagg"], ["lan", "far"]).splitlines()
    assert said[2].startswith("| lan | 1 | `fedbuff`: 5 [")
    assert said[3].startswith("| far | 2 | `fedbuff`: 4 [")


def test_bytes_by_phase_are_those_of_a_round() -> None:
    assert atlas.phases(TIMES[TIMES["scheme"] == "secagg"]) == "Update 1.6, Model 0.4"       # 8 and 2 kB in 5 rounds


def test_what_is_missing_is_told_by_network() -> None:
    without = [RefusedScheme("lan", name, "") for name in atlas.asked() if name not in ("fedavg", "fedbuff", "secagg")]
    said = atlas.missing(TIMES, without, ["lan"]).splitlines()
    assert said[2] == "| lan | 6 of 9 | secagg (3) |"


def test_runs_take_the_place_of_their_equals(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    atlas.kept(file, TIMES)
    again = atlas.kept(file, rows(("lan", "fedavg", [11])))
    assert len(again) == len(TIMES)
    assert again.set_index(["network", "scheme", "seed"]).loc[("lan", "fedavg", 0), "time"] == 11


def test_runs_under_attack_are_all_of_their_scenario_with_eight_seeds() -> None:
    found, scenario = atlas.read_attacked(), load(atlas.HARMED)
    labels = [label for label, _ in scenario.schemes]
    assert len(found) == len(labels) * len(atlas.HARMS) * 8
    assert (found.groupby(["scheme", "harm"])["seed"].agg(sorted).map(list(range(8)).__eq__)).all()
    assert set(found["scheme"]) == set(labels)
    assert set(found["file"]) == {"scenarios/atlas_robust.yaml"}


def test_personal_accuracies_are_marked_and_not_compared_with_global_ones(found: pd.DataFrame) -> None:
    attacked = atlas.read_attacked()
    marked = {*found.loc[found["accuracy_of"] == "personal", "scheme"], "pbfl"}
    assert {"fedprox", "fesem", "local"} <= marked
    assert set(attacked.loc[attacked["accuracy_of"] == "personal", "scheme"]) == {"pbfl"}
    assert not {"pbfl", "rfca"} & {*atlas.comparable(attacked)}
    said = atlas.harms_said(attacked)
    assert said.endswith("Not compared with `fedavg`, whose accuracy is global: `pbfl` (personal), `rfca` (cluster).")
    kinds = atlas.results(found[found["change"] == ""], ["fedavg", "fedprox", "ifca"], ["lan"]).kinds()
    assert kinds == {"global": ["fedavg"], "personal": ["fedprox"], "cluster": ["ifca"]}


def test_differences_under_attack_are_paired_and_settled_by_holm() -> None:
    found = pd.DataFrame([{"scheme": scheme, "harm": "attackers", "accuracy_of": "global", "seed": seed,
                           "accuracy": value / 100}
                          for scheme, values in (("fedavg", (10, 20, 30)), ("median", (50, 61, 72)),
                                                 ("krum", (5, 14, 23)), ("foolsgold", (60, 20, 0)))
                          for seed, value in enumerate(values)])
    assert atlas.apart(found, "median", "attackers") == pytest.approx([40, 41, 42])
    names = ["median", "krum", "foolsgold"]
    assert atlas.settled_sides(found, names, "attackers") == {"median": "higher", "krum": "lower", "foolsgold": "open"}
    wide = found.copy()
    wide.loc[wide["scheme"] == "krum", "accuracy"] = [0.05, 0.13, 0.255]        # -5, -7, -4.5: p 0.019 alone
    assert atlas.settled_sides(wide, ["krum"], "attackers") == {"krum": "lower"}
    twice = pd.concat([wide, *(wide[wide["scheme"] == "foolsgold"].assign(scheme=other) for other in "abc")])
    assert atlas.settled_sides(twice, ["krum", "a", "b", "c"], "attackers")["krum"] == "open"       # 4 times p
