"""The pages of the reproductions: each table and figure of the five papers has a line, and counts of rows are right."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks import document, mp_dp, others, ppfpl, reproductions, secure_costs
from benchmarks.document import read, replaced
from benchmarks.others import SETUPS, Setup, clock, stale, tiers, waited

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
            count.update(row["scenario"] for row in csv.DictReader(file) if row.get("scenario") and row.get("key"))
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
        assert here in ("run", "in part", "stand-in", "not run"), (name, here)
        assert has_evidence(by) if here != "not run" else len(by) > 10, (name, by)


# --- claims -----------------------------------------------------------------------------------------------------------

# Read off the abstracts: what each of them claims, by words that its line has
OF_THE_ABSTRACTS = {
    "ebs_cfl": ["poisoning is discarded", "communication is O(ml + m^2)", "computation is O(m^2 l)",
                "at least O(log n) better", "stay hidden", "authenticates encodings"],
    "ppfpl": ["poisoned non-IID", "poisoning is resisted", "Byzantine-robustly", "convergence", "tampered data",
              "secure aggregation protocol"],
    "mp_dp": ["costs less", "better defence", "200 to over 1,000 times", "loses no accuracy", "central DP",
              "less than 6 %", "up to 20 %", "no access to the model", "satisfy LDP"],
    "fedrfq": ["more accurate", "FEMNIST", "redundancy", "failure of prototypes", "poisoning",
               "malfunctions of servers"],
    "seccogc": ["unreliable links", "arbitrarily strong privacy", "20 to 70", "equally", "LMIP", "LDP", "reliability",
                "real field", "total power", "computationally efficient", "prior information"],
}
Rows = list[dict[str, str]]
Count = Callable[[], int]


def rows_of(name: str) -> Rows:
    with (PAGES / "data" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def held(name: str, scenario: str, schemes: Collection[str] = (), within: str = "", *,
         by: Sequence[str] = ("scheme", "values")) -> Count:
    """Counts the cells of a scenario that have rows: of these schemes, with `within` in the text of their values."""
    return lambda: len({tuple(row[key] for key in by) for row in rows_of(name) if row["scenario"].startswith(scenario)
                        and (not schemes or row["scheme"] in schemes) and within in row["values"]})


def costs(name: str, schemes: Collection[str], **chosen: float) -> Count:
    return lambda: sum(row["scheme"] in schemes and float(row.get("l", 0)) != secure_costs.PAPER_SIZE
                       and all(float(row[key]) == value for key, value in chosen.items()) for row in rows_of(name))


def formulas(kind: str) -> Count:
    return lambda: sum(name.endswith(kind) for name in secure_costs.FORMULAS["ebs_cfl"])


def panels() -> int:
    """Of Fig. 4: attacks under which PPFPL has cells, on Fashion-MNIST, where FedAvg without attackers has, too."""
    own = [row for row in rows_of("ppfpl_done") if row["scenario"] == "ppfpl-fashion-epochs"]
    clean = any(row["scheme"] == "fedavg" and json.loads(row["values"]) == {"attacks": []} for row in own)
    return clean * len({row["values"] for row in own if row["scheme"] == "ppfpl"})


def attacked(schemes: Collection[str]) -> Count:
    """The attacks that the paper prints; estimating the reference is ours."""
    return lambda: held(RUNS, IID, schemes, '{"attacks": [{')() - held(RUNS, IID, schemes, '"estimated"')()


RUNS, SKEW, IID = "ebs_cfl_runs", "ebs-cfl-skew-mnist", "ebs-cfl-attacks-mnist"
OURS, TABLE_4 = {"rfca_refresh"}, {"fedavg", "median", "krum", "fltrust", "rfca_refresh"}
PANEL = ("scenario", "gamma", "lambda")
# The cells, curves or panels that the paper prints for a claim (None: it prints no numbers), and those that have rows
CELLS: dict[str, dict[int, tuple[int | None, Count]]] = {
    "ebs_cfl": {
        1: (10, attacked(OURS)), 2: (50, attacked(TABLE_4)),
        3: (2, held(RUNS, IID, {"krum"}, "krum_attack")), 4: (2, held(RUNS, IID, {"krum"}, "label_flip")),
        5: (4, held(RUNS, IID, {"fedavg", "median"}, "trim_attack")), 6: (10, held(RUNS, IID, TABLE_4, "backdoor")),
        7: (24, held(RUNS, SKEW, {"fedavg", "fltrust", "ifca", "rfca_refresh"}, "nodes")),
        8: (6, held(RUNS, SKEW, {"fedavg", "ifca"}, "sine")),
        9: (12, held(RUNS, SKEW, {"rfca_refresh", "fltrust"}, "nodes")),
        10: (6, held(RUNS, SKEW, {"fedavg", "ifca"}, "label_flip")),
        11: (4, held(RUNS, "ebs-cfl-shards-mnist", by=("scenario",))), 12: (2, formulas("_bytes")),
        13: (1, lambda: formulas("_s")() - 1), 14: (None, costs("ebs_cfl_costs", {"secagg", "ccesa", "fastsecagg"})),
        15: (1, lambda: formulas("_s")() - 1), 16: (None, costs("ebs_cfl_costs", {"ebs_cfl"}, m=2)),
        17: (24, held(RUNS, SKEW, {"fedavg", "fltrust", "ifca", "rfca_refresh"}, "nodes")),
        20: (28, held(RUNS, "ebs-cfl-attacks-cifar10", (), "nodes"))},
    "fedrfq": {
        1: (6, lambda: sum(held(name, "fedrfq-mnist", {"fedrfq"}, "class_space.avg")()
                           for name in ("fedrfq_runs", "fedrfq_done"))),
        2: (96, held("fedrfq_done", "fedrfq-cifar10")),
        3: (48, lambda: sum(held(name, "fedrfq-mnist", (), "class_space.avg")()
                            for name in ("fedrfq_runs", "fedrfq_done"))),
        **dict.fromkeys((4, 5), (8, lambda: sum(held(name, "fedrfq-mnist", (), '{"task.partition.class_space.avg": 3}',
                                                     by=("scheme",))() for name in ("fedrfq_runs", "fedrfq_done")))),
        6: (None, lambda: held("fedrfq_runs", "fedrfq-mnist-pooling", by=("pool",))() - 1),
        7: (9, held("fedrfq_runs", "fedrfq-mnist-poisoned", {"fedrfq"})),
        9: (None, held("fedrfq_done", "fedrfq-mnist-lambda"))},
    "mp_dp": {
        1: (20, costs("mp_dp_costs", mp_dp.TABLE_I)), 2: (20, costs("mp_dp_costs", mp_dp.TABLE_I, clients=5)),
        3: (4, lambda: len({"mp_dp"} & document.blocks(read(ROOT / "docs" / "benchmark-tables.md")).keys())),
        5: (12, held("mp_dp_done", "mp-dp-cifar10", by=("scheme",))),
        10: (12, held("mp_dp_done", "mp-dp-cifar-attacks")),
        **dict.fromkeys((6, 7, 8), (4, held("mp_dp_done", "mp-dp-cifar-eps"))),
        9: (20, held("mp_dp_done", "mp-dp-cifar-attacks"))},
    "ppfpl": {
        1: (100, held("ppfpl_done", "ppfpl-mnist", ppfpl.PRINTED, "class_space.avg")),
        2: (100, held("ppfpl_done", "ppfpl-mnist-30", ppfpl.PRINTED)),
        3: (100, held("ppfpl_done", "ppfpl-fashion", ppfpl.PRINTED, by=("scheme",))),
        4: (100, held("ppfpl_done", "ppfpl-cifar10", ppfpl.PRINTED)), 5: (4, panels),
        6: (60, held("ppfpl_done", "ppfpl-mnist-chi", {"mean", "chi_0", "chi_0.2", "chi_0.5", "X"})),
        7: (6, lambda: sum((row["role"], row["declared"]) == ("client", "False")
                           and row["label"] in ("encrypt", "decrypt") for row in rows_of("ppfpl_costs"))),
        8: (36, held("ppfpl_done", "ppfpl-mnist-lambda")), 9: (15, held("ppfpl_done", "ppfpl-mnist-clients")),
        10: (18, held("ppfpl_done", "ppfpl-mnist-steps"))},
    "seccogc": {
        **dict.fromkeys((1, 2, 5), (16, held("seccogc_mnist_runs", "seccogc-mnist", {"fair_seccogc"}, by=PANEL))),
        3: (8, held("seccogc_mnist_runs", "seccogc-mnist", {"fl_private"}, "0.05", by=PANEL)),
        4: (8, held("seccogc_mnist_runs", "seccogc-mnist", {"fl_private"}, 'lambda": 0.1', by=PANEL)),
        6: (16, lambda: 2 * held("seccogc_mnist_runs", "seccogc-mnist", {"fl_lossy"}, by=PANEL)())},
}


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_claim_has_its_printed_value_a_verdict_and_as_many_rows_as_the_data_have(page: str) -> None:
    rows = cells_by_scenario()
    for number, claim, printed, here, verdict, *_, by in table(page, "What the paper claims"):
        assert all((claim, printed, verdict)), number
        assert verdict == "not run" or here, number
        for scenario, count in re.findall(r"`([\w-]+)`,? (\d+)", by):
            assert rows[scenario] == int(count), (number, scenario)


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_claim_says_how_many_of_the_printed_cells_were_run(page: str) -> None:
    """`proof`: what is claimed is no number, and tests or attacks stand in its line."""
    lines = table(page, "What the paper claims")
    assert [int(line[0]) for line in lines] == list(range(1, len(lines) + 1))
    for number, *_, cells, _, _ in lines:
        if int(number) not in CELLS[page]:
            assert cells == "proof", number
            continue
        printed, counted = CELLS[page][int(number)]
        assert cells == (f"{counted()}, no numbers" if printed is None else f"{counted()} of {printed}"), number


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_difference_says_whether_an_experiment_isolates_its_cause(page: str) -> None:
    for number, *_, verdict, _, cause, _ in table(page, "What the paper claims"):
        if verdict not in ("yes", "yes, by little", "not run"):
            assert re.search(r"\bisolated\b|^as claim \d+$", cause), (number, cause)


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_every_claim_of_the_abstract_has_a_line(page: str) -> None:
    claims = [line[1] for line in table(page, "What the paper claims") if line[1].startswith("Abstract: ")]
    for words in OF_THE_ABSTRACTS[page]:
        assert sum(words in claim for claim in claims) == 1, words
    assert len(claims) == len(OF_THE_ABSTRACTS[page])


# --- numbers ----------------------------------------------------------------------------------------------------------

RESULT = re.compile(r"(?<![\w.^/-])\d[\d,]*\.\d+(?![\d.]*[\w])")
SETTING = re.compile(r"(?:alpha|lambda|Gamma|Dirichlet|at) 0\.\d+(?:(?:, | and )0\.\d+)*")
TYPED = ("What the paper claims", "Tables and figures of the paper", "Set-up", "Features (Table 1 of the paper)")


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_table_of_results_is_made_of_rows(page: str) -> None:
    """A table stands between the marks of a block, which tests hold against the rows, or below a heading that has none
    of our numbers but those of settings."""
    text = read(PAGES / f"{page}.md")
    for name in document.blocks(text):
        text = replaced(text, name, "")
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE):
        heading = part.partition("\n")[0]
        assert heading in TYPED or not re.search(r"^\|", part, re.MULTILINE), heading


@pytest.mark.parametrize("page", reproductions.BLOCKS)
def test_a_page_says_what_its_rows_say(page: str) -> None:
    """The other pages: `test_ppfpl_scenarios.py`, `test_mp_dp_scenarios.py`, `test_attack_impact.py`."""
    text = read(PAGES / f"{page}.md")
    assert reproductions.filled(page, text) == text, "make it anew: python -m benchmarks.reproductions"


NO_ROWS = ("claims", "features", "results", "scenarios", "tables_and_figures")      # tables that are typed


def made_of_rows(page: str, text: str) -> list[float]:
    """The numbers of a page's tables that are made of rows, in the page and beside it."""
    blocks = [content for name, content in document.blocks(text).items() if name not in ("cells", "evidence")]
    beside = [path.read_text(encoding="utf-8") for path in sorted((PAGES / page).glob("*.csv"))
              if path.stem not in (*NO_ROWS, "cells", "evidence")]
    return [float(number.replace(",", "")) for content in blocks + beside
            for number in re.findall(r"\d[\d,]*\.?\d*", content)]


def stands(number: str, printed: str, made: Sequence[float], times: Sequence[float] = (1, 100)) -> bool:
    """Whether a number is, at its own digits, one of those that rows give (as it stands there, or as percent), or
    printed in the paper."""
    digits = len(number.partition(".")[2])
    return number in printed or any(f"{value:.{digits}f}" == number.replace(",", "") for one in made
                                    for value in (one * by for by in times))


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_number_of_a_claim_is_one_that_rows_give(page: str) -> None:
    """The rule: a number with decimals in "In short" or in the column `here` of the claims is one that rows give, or
    the paper prints it in this claim. Whole numbers are left out, because most of them are settings."""
    text = read(PAGES / f"{page}.md")
    made = made_of_rows(page, text)
    short = text.split("## In short\n")[1].split("\n## ")[0]
    lines = [("", short, ""), *((line[0], line[3], line[2]) for line in table(page, "What the paper claims"))]
    missing = [(number, value) for number, here, printed in lines
               for value in RESULT.findall(SETTING.sub("", here)) if not stands(value, printed, made)]
    assert not missing


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_number_in_prose_is_one_that_rows_give(page: str) -> None:
    """The same of all paragraphs but those of the set-up, where numbers are settings; a claim's own numbers are held
    above."""
    text = read(PAGES / f"{page}.md")
    printed = " ".join(f"{line[2]} {line[3]}" for line in table(page, "What the paper claims"))
    made = made_of_rows(page, text)
    assert not [number for number in numbers_in_prose(text) if not stands(number, printed + PRINTED[page], made)]


def test_a_number_about_results_of_others_is_one_that_rows_give() -> None:
    """Of others.md, and of the table at its top; minutes may stand for seconds."""
    text = read(PAGES / "others.md")
    made = made_of_rows("others", text)
    for row in rows_of("others_runs"):
        if row["scenario"].startswith("niid"):          # they have no table
            made += [float(value) for value in (row["best_accuracy"], *re.findall(r":([\d.]+)", row["curve"]))]
    with (PAGES / "others" / "results.csv").open(newline="", encoding="utf-8") as file:
        results = list(csv.DictReader(file))
    said = [number for row in results for number in RESULT.findall(row["here (seeds)"])] + numbers_in_prose(text)
    printed = " ".join(row["printed"] for row in results) + PRINTED["others"]
    assert not [number for number in said if not stands(number, printed, made, (1, 100, 1 / 60))]


# Printed there, or a setting, and in no table of the page
PRINTED = {"ebs_cfl": "", "mp_dp": "", "seccogc": "", "ppfpl": "", "fedrfq": "436.8, 105.6", "others": "57.14, 0.03"}


def numbers_in_prose(text: str) -> list[str]:
    """Numbers with decimals outside of tables, code, links, references and the sections whose numbers are settings."""
    for name in document.blocks(text):
        text = replaced(text, name, "")
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|arXiv [\d.]+v?\d*", "", text, flags=re.DOTALL)
    found = []
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        if heading not in (*TYPED, "Commands"):
            lines = (line for line in body.splitlines() if not line.startswith("|"))
            found += RESULT.findall(SETTING.sub("", "\n".join(lines)))
    return found


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_page_begins_with_what_to_take_away(page: str) -> None:
    headings = re.findall(r"^## (.+)$", (PAGES / f"{page}.md").read_text(), re.M)
    assert headings[:3] == ["In short", "What the paper claims", "Tables and figures of the paper"]


# what no seed changes, or a machine measures
COUNTED = {("ebs_cfl", "12"): "bytes", ("ebs_cfl", "13"): "seconds", ("ebs_cfl", "14"): "seconds",
           ("mp_dp", "1"): "seconds", ("mp_dp", "3"): "seconds"}


@pytest.mark.parametrize("page", OF_THE_PAPERS)
def test_a_claim_that_is_called_reproduced_has_two_seeds_or_more(page: str) -> None:
    for number, _, _, here, verdict, cells, *_ in table(page, "What the paper claims"):
        if re.search(r"\byes\b", verdict) and (page, number) not in COUNTED and cells != "proof":
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


def test_the_loop_of_flgo_that_waits_for_all_takes_what_order_statistics_say() -> None:
    found = [stale(seed, first=20) for seed in range(300)]
    assert np.mean([units for units, _ in found]) == pytest.approx(waited(20, 20, 6), rel=0.01)     # sigma / mean 0.02
    assert stale(0, budget=1000.0) == pytest.approx((6000.0, np.nan), nan_ok=True)
    assert 1 <= stale(0, budget=200.0)[1] < 5


def test_the_expected_slowest_of_a_cohort_is_that_of_draws() -> None:
    times, rng = 5 + 995 * (np.arange(100) + 0.5) / 100, np.random.default_rng(0)
    drawn = [rng.choice(times, 20, replace=False).max() for _ in range(3000)]
    fedavg, tifl = tiers(20, 20)
    assert fedavg / 20 == pytest.approx(np.mean(drawn), rel=0.003)
    assert (tifl - times[-1]) / 19 == pytest.approx(np.mean([times[20 * i:20 * i + 20].max() for i in range(5)]))
