"""Comparisons: what is measured of a run, what is said of a pair, and what of schemes that do not get there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest

import emul
from emul.base.errors import ScenarioError
from emul.scenario import Scenario
from emul.study import comparison, tables, text
from emul.study.cells import Cell
from emul.study.compare import compare
from emul.study.comparison import (
    METRICS,
    Comparison,
    choose_targets,
    differences,
    differences_table,
    document,
    measure,
    metrics_table,
    verdict,
)
from emul.study.directory import Failure
from emul.study.runs import StudyOutcome, Where
from emul.study.stats import interval, seeds_needed

Inside = Callable[..., Where]


def frames(runs: dict[tuple[str, int], list[tuple[float, float, float]]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curves and results of runs given by their (virtual_s, mb, accuracy) a round."""
    curves = [{"scheme": scheme, "seed": seed, "round": i + 1, "virtual_s": t, "mb": mb, "accuracy": a, "loss": 0.0}
              for (scheme, seed), points in runs.items() for i, (t, mb, a) in enumerate(points)]
    results = [{"scheme": scheme, "seed": seed, "virtual_s": points[-1][0], "bytes": int(points[-1][1] * 1e6),
                "accuracy": points[-1][2], "accuracy_of": "global"} for (scheme, seed), points in runs.items()]
    return pd.DataFrame(curves), pd.DataFrame(results)


def compared(runs: dict[tuple[str, int], list[tuple[float, float, float]]], target: float,
             **kinds: str) -> Comparison:
    schemes = list(dict.fromkeys(scheme for scheme, _ in runs))
    seeds, targets = sorted({seed for _, seed in runs}), dict.fromkeys(schemes, target)
    values, accuracy_of = measure(*frames(runs), targets), dict.fromkeys(schemes, "global") | kinds
    return Comparison(StudyOutcome(Path("study"), [], [], 0, [], []), schemes, seeds, targets, "--target", values,
                      differences(values, schemes, seeds, (), accuracy_of), accuracy_of)


FAST = [(1.0, 10.0, 0.5), (2.0, 20.0, 0.9)]                     # dear
BOTH = {"fast": 0.8, "slow": 0.8}                               # targets
SLOW = [(3.0, 2.0, 0.6), (6.0, 4.0, 0.8), (9.0, 6.0, 0.95)]     # cheap


# --- values -----------------------------------------------------------------------------------------------------------

def test_every_metric_is_that_of_the_observation_it_names() -> None:
    values = measure(*frames({("fast", 0): FAST, ("slow", 0): SLOW}), BOTH)
    assert values == {
        "accuracy_at_equal_time": {"fast": {0: 0.9}},                       # slow has nothing yet after 2 s
        "accuracy_at_equal_bytes": {"slow": {0: 0.95}},                     # nor fast after 6 MB
        "time_to_target": {"fast": {0: 2.0}, "slow": {0: 6.0}},
        "bytes_to_target": {"fast": {0: 20.0}, "slow": {0: 4.0}}}


def test_budgets_are_those_of_each_seed() -> None:
    longer = [*FAST, (4.0, 40.0, 0.92)]
    values = measure(*frames({("fast", 0): FAST, ("slow", 0): SLOW, ("fast", 1): longer, ("slow", 1): SLOW}), BOTH)
    assert values["accuracy_at_equal_time"]["fast"] == {0: 0.9, 1: 0.92}
    assert values["accuracy_at_equal_time"]["slow"] == {1: 0.6}


def test_without_a_target_nothing_is_said_of_one() -> None:
    values = measure(*frames({("fast", 0): FAST, ("slow", 0): SLOW}), {})
    assert (values["time_to_target"], values["bytes_to_target"]) == ({}, {})


@pytest.mark.parametrize(("given", "stop", "expected"), [
    (0.5, 0.7, (0.5, "--target")),
    (None, 0.7, (0.7, "stop.accuracy")),
    (None, None, (0.855, "95% of the median final accuracy of fast, the lowest")),
])
def test_the_target_is_the_one_given_that_of_the_stop_or_within_reach_of_all(
        given: float | None, stop: float | None, expected: tuple[float, str]) -> None:
    runs = {("fast", 0): FAST, ("fast", 1): FAST, ("fast", 2): [(1.0, 1.0, 0.1)], ("slow", 0): SLOW}
    value, said = expected
    assert choose_targets(given, stop, frames(runs)[1]) == ({"fast": value, "slow": value}, said)
    blind = frames(runs)[1].assign(accuracy=np.nan)
    assert choose_targets(None, None, blind) == ({}, "no accuracy was observed")


def test_each_kind_of_accuracy_has_a_target_of_its_own() -> None:
    results = frames({("fast", 0): FAST, ("slow", 0): SLOW, ("own", 0): [(1.0, 1.0, 0.1)]})[1]
    results.loc[results["scheme"] == "own", "accuracy_of"] = "personal"
    assert choose_targets(None, None, results) == (
        {"fast": 0.855, "slow": 0.855, "own": 0.095},
        "95% of the median final accuracy of fast and of own, the lowest of its kind")


def test_a_time_of_0_and_bytes_of_0_are_found() -> None:
    """`local` may have the target before anything is sent; with means of 0 nothing is a multiple of them."""
    c = compared({("local", s): [(0.0, 0.0, 0.95)] for s in range(3)} | {("fedavg", s): SLOW for s in range(3)}, 0.9)
    time, size = text.answer(c)
    assert time.startswith("local needs the least time to global accuracy 0.9: 0 s [0, 0]; fedavg 9 s.")
    assert size.startswith("local needs the least bytes to global accuracy 0.9: 0 MB [0, 0]; fedavg 6 MB.")


def test_two_kinds_of_accuracy_are_neither_ranked_nor_tested_against_each_other() -> None:
    runs = {(name, s): shifted(SLOW, by + s) for name, by in (("fedavg", 0.0), ("secagg", 2.0), ("fedper", -2.0),
                                                              ("local", -2.5)) for s in range(3)}
    c = compared(runs, 0.8, fedper="personal", local="personal")
    assert {key[1:] for key in c.differences} == {("secagg", "fedavg"), ("local", "fedper")}
    assert document(c)["least"] == {"time_to_target": {"global": "fedavg", "personal": "local"},
                                    "bytes_to_target": {"global": "fedavg", "personal": "fedper"}}
    *paragraphs, apart = text.answer(c)
    assert [said.partition(":")[0] for said in paragraphs] == [
        "fedavg needs the least time to global accuracy 0.8", "fedavg needs the least bytes to global accuracy 0.8",
        "local needs the least time to personal accuracy 0.8", "fedper needs the least bytes to personal accuracy 0.8"]
    assert apart.startswith("Not compared with one another: global accuracy of fedavg and secagg (one model for all, "
                            "on the whole test set); personal accuracy of fedper and local (each client's own model, ")
    said = text.comparison(c)
    assert "target: global accuracy 0.8, personal accuracy 0.8 (--target)" in said
    assert "least time to the target of personal accuracy: local, 4.5 [3.5, 5.5] s" in said


# --- differences ----------------------------------------------------------------------------------------------------

def shifted(points: list[tuple[float, float, float]], by: float) -> list[tuple[float, float, float]]:
    return [(t + by, mb, a) for t, mb, a in points]


def test_differences_are_taken_seed_by_seed() -> None:
    by = [0.0, 5.0, 1.0, 30.0]                                              # the seeds differ much, the schemes little
    runs = {(name, seed): shifted(SLOW, x + extra) for name, extra in (("a", 0.0), ("b", 0.5))
            for seed, x in enumerate(by)}
    c = compared(runs, 0.8)
    found, note = c.differences["time_to_target", "b", "a"]
    assert (found.n, found.mean, found.low, found.high, note) == (4, 0.5, 0.5, 0.5, "")
    assert found.without_zero
    by_hand = [c.values["time_to_target"]["b"][s] - c.values["time_to_target"]["a"][s] for s in range(4)]
    assert found == interval(by_hand, "time_to_target", "b", "a")


def test_a_seed_that_one_scheme_does_not_reach_is_left_out_and_said() -> None:
    never = [(3.0, 2.0, 0.6)]
    runs = ({("a", s): SLOW for s in range(4)} | {("b", s): shifted(SLOW, 1.0 + s) for s in (0, 1, 3)}
            | {("b", 2): never})
    c = compared(runs, 0.8)
    found, note = c.differences["time_to_target", "b", "a"]
    assert note == "b has a value on 3 of 4 seeds; compared on the 3 that both have"
    assert (found.n, found.mean) == (3, pytest.approx((1 + 2 + 4) / 3))
    said = text.comparison(c)
    assert "b: +2.33 s [1, 4] over 3 seeds; it reached the target on 3 of 4 seeds" in said


def test_a_scheme_that_is_quick_but_seldom_gets_there_does_not_win() -> None:
    runs = ({("sure", s): SLOW for s in range(3)} | {("lucky", 0): FAST}
            | {("lucky", s): [(1.0, 10.0, 0.5)] for s in (1, 2)})
    c = compared(runs, 0.8)
    found = verdict(c, "time_to_target", c.schemes)
    assert found is not None
    assert (found.best, found.others["lucky"][1]) == ("sure", 1)
    assert found.others["lucky"][0].mean == pytest.approx(2.0 - 6.0)        # where it does, it is quicker
    row = differences_table(c).set_index(["metric", "scheme"]).loc[("time_to_target", "lucky")]
    assert row.note == "lucky has a value on 1 of 3 seeds; compared on the 1 that both have; no interval below 3 seeds"
    assert (row.n_seeds, np.isnan(row.low), np.isnan(row.high)) == (1, True, True)


def test_where_no_scheme_gets_there_nobody_wins() -> None:
    c = compared({(name, s): SLOW for name in ("a", "b") for s in range(3)}, 0.99)
    assert verdict(c, "time_to_target", c.schemes) is None
    assert "least time to the target: no scheme reached it" in text.comparison(c)
    assert metrics_table(c).query("metric == 'time_to_target'")["value"].isna().all()
    assert document(c)["least"] == {"time_to_target": {"global": None}, "bytes_to_target": {"global": None}}


def test_least_time_and_least_bytes_may_be_of_different_schemes() -> None:
    c = compared({(name, s): shifted(points, s / 10) for name, points in (("fast", FAST), ("slow", SLOW))
                  for s in range(3)}, 0.8)
    assert document(c)["least"] == {"time_to_target": {"global": "fast"}, "bytes_to_target": {"global": "slow"}}
    said = text.comparison(c)
    assert "least time to the target: fast, 2.1 [2, 2.2] s\n  slow: +4 s [4, 4] over 3 seeds\n" in said
    assert "least bytes to the target: slow, 4 [4, 4] MB\n  fast: +16 MB [16, 16] over 3 seeds\n" in said


def test_the_answer_names_the_best_how_much_more_others_need_and_what_is_open() -> None:
    jitter = [0.3, -0.4, 0.5, -0.1, 0.4]
    runs = {("a", s): SLOW for s in range(5)} | {("near", s): shifted(SLOW, x) for s, x in enumerate(jitter)}
    runs |= {("late", s): shifted(SLOW, 6.0 + s / 100) for s in range(5)} | {("seldom", 0): FAST}
    runs |= {("seldom", s): [(1.0, 10.0, 0.5)] for s in range(1, 5)}
    c = compared(runs, 0.8)
    time, size = text.answer(c)
    mean = 6 + np.mean(jitter)                                      # SLOW reaches 0.8 at 6 s
    assert time.startswith("a needs the least time to global accuracy 0.8: 6 s [6, 6]; ")
    assert f"near {mean / 6:.3g} times that and late {(12.02 / 6):.3g} times that." in time
    assert "seldom (1 of 5) reached it on fewer seeds." in time
    seeds = c.tests["time_to_target", "near", "a"].seeds
    assert seeds is not None
    assert time.endswith(f"Not settled against near (about {seeds} seeds would settle it).")
    assert "needs the least bytes" in size
    assert text.comparison(c).startswith(f"{time}\n{size}\n\ntarget: global accuracy")


def test_of_many_schemes_an_answer_names_the_nearest() -> None:
    runs = {(f"s{k}", seed): shifted(SLOW, k + seed / 100) for k in range(6) for seed in range(3)}
    time, _ = text.answer(compared(runs, 0.8))
    assert "; s1 1.17 times that, s2 1.33 times that, s3 1.5 times that and 2 more schemes up to 1.83 times." in time


def test_the_answer_without_seeds_or_without_a_winner() -> None:
    assert text.answer(compared({("fast", 0): FAST, ("slow", 0): SLOW}, 0.8))[0].endswith(
        "With 1 seed nothing is settled.")
    assert text.answer(compared({(name, s): SLOW for name in ("a", "b") for s in range(3)}, 0.99)) == [
        "No scheme reached global accuracy 0.99."]


def test_an_interval_that_holds_zero_is_said_to() -> None:
    jitter = [0.3, -0.4, 0.1, -0.1, 0.2]
    c = compared({("a", s): SLOW for s in range(5)} | {("b", s): shifted(SLOW, x) for s, x in enumerate(jitter)}, 0.8)
    assert "over 5 seeds: the interval holds 0" in text.comparison(c)


def test_each_scheme_is_counted_on_the_seeds_on_which_it_was_run() -> None:
    c = compared({("fast", 0): FAST, ("slow", 7): SLOW}, 0.8)
    of = cast("Scenario", None)         # is not looked at
    cells = [Cell("a", "fast", 0, {}, of), Cell("b", "slow", 7, {}, of)]
    counted = [[row.split()[2] for row in text.comparison(one).splitlines() if row.startswith(("fast  ", "slow  "))]
               for one in (c, replace(c, study=replace(c.study, runs=cells)),
                           replace(c, study=replace(c.study, runs=cells[:1], failed=[Failure(cells[1], "")])))]
    assert counted == [["1/2", "1/2"], ["1/1", "1/1"], ["1/1", "1/1"]]



def test_fewer_than_three_seeds_are_said_to_have_no_intervals() -> None:
    said = text.comparison(compared({("fast", 0): FAST, ("slow", 0): SLOW}, 0.8))
    assert said.endswith("no intervals: they need 3 seeds or more, e.g. --seeds 0:5")
    assert "slow: +4 s over 1 seed: no interval, so nothing is shown" in said


def test_what_is_not_settled_says_how_many_seeds_would_settle_it() -> None:
    jitter = [0.3, -0.4, 0.5, -0.1, 0.4]
    runs = {("a", s): SLOW for s in range(5)} | {("b", s): shifted(SLOW, x) for s, x in enumerate(jitter)}
    c = compared(runs, 0.8)
    found = c.tests["time_to_target", "b", "a"]
    assert (found.settled, found.seeds) == (False, seeds_needed(np.mean(jitter), np.std(jitter, ddof=1)))
    assert f"not settled; a difference of this size takes about {found.seeds} seeds\n" in text.comparison(c)
    row = differences_table(c).set_index("metric").loc["time_to_target"]
    assert (row.seeds_needed, row.p, row.p_holm) == pytest.approx((found.seeds, found.p, found.p))
    assert row.t_low < row.low < 0 < row.high < row.t_high


def test_the_seeds_that_a_test_would_need_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(comparison, "seeds_needed", lambda mean, sd, tests: (asked.append(tests), 7)[1])
    jitter = [0.3, -0.4, 0.1]
    c = compared({(f"s{k}", s): shifted(SLOW, (-1) ** k * x) for k in range(4) for s, x in enumerate(jitter)}, 0.8)
    assert "about 7 seeds" in text.comparison(c)
    document(c)
    assert len(asked) == len(c.tests) > 4


def test_a_pair_among_many_is_settled_by_holm_and_not_by_itself() -> None:
    jitter = [0.1, 0.5, 0.3, 0.02, 0.25]
    runs = {("a", s): SLOW for s in range(5)}
    runs |= {(name, s): shifted(SLOW, sign * x) for name, sign in (("b", 1), ("c", -1), ("d", 0.3))
             for s, x in enumerate(jitter)}
    c = compared(runs, 0.8)
    of_time = {key[1:]: one for key, one in c.tests.items() if key[0] == "time_to_target"}
    alone = c.differences["time_to_target", "b", "a"][0].student
    assert len(of_time) == 6
    assert alone is not None
    assert alone.p < 0.05 < of_time["b", "a"].p
    assert re.search(r", p = 0\.0\d+ for this pair alone, 0\.\d+ by Holm for all 6 pairs: ", text.comparison(c))
    assert {d["p_holm"] for d in document(c)["differences"] if d["metric"] == "time_to_target"} == {
        one.p for one in of_time.values()}


# --- from runs --------------------------------------------------------------------------------------------------------

def test_a_comparison_leaves_its_tables_and_says_who_needs_least(small: Path, inside: Inside) -> None:
    c = compare(small, inside(), seeds=[0, 1, 2], sets=["stop.rounds=4"])
    assert (c.schemes, c.seeds, len(c.study.runs), c.study.path) == (["fedavg", "secagg"], [0, 1, 2], 6,
                                                                     Path("runs/small-compare"))
    read = emul.load_study(c.study.path)
    assert {name: [c for c in getattr(read, name) if c != "parameters.threshold"] for name in tables.COLUMNS} == {
        name: list(columns) for name, columns in tables.COLUMNS.items()}
    assert read.study["kind"] == "compare"
    assert (read.study["targets"], read.study["target_from"]) == (c.targets, c.target_from)
    assert len(read.metrics) == len(METRICS) * 2 * 3
    assert len(read.differences) == len(METRICS)
    for name in tables.COLUMNS:
        as_text = pd.read_csv(c.study.path / f"{name}.csv", dtype={"unit": str, "note": str})
        empty = {column: "" for column in ("unit", "note") if column in as_text}
        pd.testing.assert_frame_equal(as_text.fillna(empty), getattr(read, name), check_dtype=False)
    assert document(c)["least"]["time_to_target"]["global"] in c.schemes
    assert r"fedavg* & global & 3/3 & " in (c.study.path / "compare.tex").read_text()
    json.dumps(document(c))


def test_a_curve_is_what_the_tables_of_the_run_say(small: Path, inside: Inside) -> None:
    c = compare(small, inside(), seeds=[0], sets=["stop.rounds=4", "evaluation={every: 2}"])
    read = emul.load_study(c.study.path)
    for cell in c.study.runs:
        run = read.run(f"cells/{cell.key}")
        mine = read.curves.query("scheme == @cell.scheme and seed == 0")
        seen = run.rounds.dropna(subset=["accuracy"])
        assert mine["round"].tolist() == seen["round"].tolist() == [2, 4]
        assert mine["accuracy"].tolist() == seen["accuracy"].tolist()
        assert mine["virtual_s"].tolist() == [ns / 1e9 for ns in seen["left_ns"]]
        by_hand = [run.messages.query("sent_ns <= @left").wire_bytes.sum() / 1e6 for left in seen["left_ns"]]
        assert mine["mb"].tolist() == by_hand
    # all that was sent, once the last round is over
    total = read.results.set_index("scheme")["bytes"]
    assert read.curves.groupby("scheme")["mb"].max().to_dict() == pytest.approx((total / 1e6).to_dict())


def test_schemes_meet_the_same_losses(small: Path, inside: Inside) -> None:
    """Common random numbers: an uplink that is out for a scheme in a round is out for the other, too."""
    c = compare(small, inside(), seeds=[3], sets=["stop.rounds=6"])
    out = []
    for cell in c.study.runs:
        run = emul.load_run(c.study.path / "cells" / cell.key)
        up = run.messages.query("target_name == 'server' and round > 0")
        out.append({(name, number): fate for (name, number), fate in
                    (up["fate"] == "lost").groupby([up["source_name"].astype(str), up["round"]]).max().items()})
    both = out[0].keys() & out[1].keys()
    assert len(both) > 10
    assert {k: out[0][k] for k in both} == {k: out[1][k] for k in both}
    assert any(out[0][k] for k in both)


def test_cells_of_a_sweep_and_of_a_comparison_are_the_same(small: Path, inside: Inside) -> None:
    from emul.study.sweep import sweep

    swept = sweep(small, inside(), seeds=[0])
    assert [cell.key for cell in compare(small, inside(), seeds=[0]).study.runs] == [cell.key for cell in swept.runs]


def test_a_failed_run_is_left_out_and_counted(small: Path, picky: str, inside: Inside) -> None:
    c = compare(small, inside(picky), seeds=[0, 1], sets=[f"schemes=[fedavg, secagg, {picky}]"], target=0.0)
    assert [(f.cell.scheme, f.cell.seed) for f in c.study.failed] == [(picky, 1)]
    found, note = c.differences["time_to_target", "secagg", "fedavg"]
    assert (found.n, note.split("; ")[0]) == (2, "no interval below 3 seeds")
    found, note = c.differences["time_to_target", picky, "fedavg"]         # observes nothing even where it runs
    assert (found.n, found.mean, note.split("; ")[0]) == (0, None, f"{picky} has a value on 0 of 2 seeds")


def test_one_scheme_is_nothing_to_compare(small: Path, inside: Inside) -> None:
    with pytest.raises(ScenarioError, match=r"schemes +fedavg +expected two or more to compare"):
        compare(small, inside(), schemes=["fedavg"])
