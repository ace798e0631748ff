"""The pages of the reproductions: each table and figure of the five papers has a line, and counts of rows are right."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import others
from benchmarks.document import read
from benchmarks.others import SETUPS, Setup, clock

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reproductions"

# Read off the papers: every numbered table and figure. Drawings have a line, too.
OF_THE_PAPERS = {
    "ebs_cfl": [*(f"Table {i}" for i in range(1, 5)), *(f"Fig. {i}" for i in range(1, 8))],
    "ppfpl": [*(f"Table {i}" for i in range(1, 5)), *(f"Fig. {i}" for i in range(1, 12))],
    "mp_dp": [*(f"Table {i}" for i in ("I", "II", "III", "IV", "V", "VI")), *(f"Fig. {i}" for i in range(1, 4))],
    "fedrfq": [*(f"Table {i}" for i in ("I", "II", "III")), *(f"Fig. {i}" for i in range(1, 11))],
    "seccogc": ["Table I", *(f"Fig. {i}" for i in range(1, 5))],
}


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its two head lines."""
    below = read(PAGES / f"{page}.md").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def cells_by_scenario() -> Counter[str]:
    """How many rows of the published data each scenario has."""
    count: Counter[str] = Counter()
    for path in (PAGES / "data").glob("*.csv"):
        with path.open(newline="") as file:
            count.update(row["scenario"] for row in csv.DictReader(file) if row.get("scenario"))
    return count


def has_evidence(by: str) -> bool:
    """Whether a line names rows of the data, a benchmark, a scenario, a test or a section, all of which exist."""
    rows, named = cells_by_scenario(), []
    for word in re.findall(r"`([^`]+)`", by):
        if word in rows:
            named.append(True)
        elif module := re.match(r"python -m benchmarks\.(\w+)", word):
            named.append((ROOT / "benchmarks" / f"{module[1]}.py").exists())
        elif path := re.match(r"(tests/[\w/.]+)", word):
            named.append((ROOT / path[1]).exists())
        elif word.endswith(".yaml"):
            named.append((ROOT / "scenarios" / "paper" / word.split("/")[-1]).exists())
        elif word.endswith(".csv"):
            named.append((PAGES / "data" / word).exists())
    named += [True for _ in re.findall(r"\]\((?:#|\.\./)", by)]
    return bool(named) and all(named)


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_every_table_and_figure_of_the_paper_is_run_stands_for_another_or_says_why_not(page: str) -> None:
    lines = table(page, "Tables and figures of the paper")
    assert [line[0] for line in lines] == OF_THE_PAPERS[page]
    for name, shows, here, by in lines:
        assert shows, name
        assert here in ("run", "stand-in", "not run"), (name, here)
        assert has_evidence(by) if here != "not run" else len(by) > 10, (name, by)


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_claim_has_its_printed_value_a_verdict_and_as_many_rows_as_the_data_have(page: str) -> None:
    rows = cells_by_scenario()
    for number, claim, printed, here, verdict, by in table(page, "What the paper claims"):
        assert all((claim, printed, verdict)), number
        assert verdict == "not run" or here, number
        for scenario, count in re.findall(r"`([\w-]+)`,? (\d+)", by):
            assert rows[scenario] == int(count), (number, scenario)


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_page_begins_with_what_to_take_away(page: str) -> None:
    headings = re.findall(r"^## (.+)$", (PAGES / f"{page}.md").read_text(), re.M)
    assert headings[:3] == ["In short", "What the paper claims", "Tables and figures of the paper"]


# what no seed changes, or a machine measures
COUNTED = {("ebs_cfl", "12"): "bytes", ("mp_dp", "1"): "seconds"}


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_claim_that_is_called_reproduced_has_two_seeds_or_more(page: str) -> None:
    for number, _, _, here, verdict, _ in table(page, "What the paper claims"):
        if re.search(r"\byes\b", verdict) and (page, number) not in COUNTED:
            seeds = [int(n) for n in re.findall(r"\((\d+)(?:, digits)?\)", here)]
            assert seeds, (page, number)
            assert min(seeds) >= 2, (page, number)


def test_the_clock_of_safa_is_what_was_printed_where_nothing_is_drawn() -> None:
    """CNN, everybody chosen: somebody is too slow in every round, and 10 MB (1 + ... + 50) 100 / 1,250 / 50 s are for
    handing out models."""
    found = clock(SETUPS["CNN"], "fedavg", 0.3, 1.0, seed=0)
    assert (round(found.round_s, 1), round(found.t_dist_s, 1)) == (5620.4, 20.4)


def test_the_clock_of_safa_takes_the_fastest_that_it_did_not_take_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four equal shards, one client a round, nobody crashes: 1, 2, 1, 2 by speed, and all are synchronised."""
    setup = Setup("", 4, 1, 20, 80, 1e6, waits=False)
    setup.speeds = np.array([4.0, 2.0, 1.0, 0.5])
    monkeypatch.setattr(others, "shards", lambda *_: np.full(4, 20.0))
    found = clock(setup, "safa", 0.0, 0.25, seed=0)
    travel = 2 * 10 / 0.175
    assert found.round_s - found.t_dist_s == pytest.approx(travel + (1 / 4 + 1 / 2) / 2)
    assert (found.sync_ratio, found.update_ratio, found.version_variance) == (1, 0.25, 0)
