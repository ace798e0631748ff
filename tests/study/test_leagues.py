"""Leagues: the points of a space, tuning, resumption, what is refused, and statistics against others' closed forms."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leagues as submissions
from benchmarks import suite_tasks
from benchmarks.suite_tasks import own_prices
from emul import cli
from emul.base.errors import ScenarioError
from emul.registry import schemes as registry
from emul.scenario import build_params
from emul.scenario.schemes import parameters
from emul.study import league_runs, leagues, standings
from emul.study.directory import StudyError
from emul.study.engines import in_turn
from emul.study.league_runs import COLUMNS, read
from emul.study.leagues import SCORING, TUNING, League, LeagueEntry, Range
from emul.study.runs import Where
from emul.study.suite import Suite

LAN = """\
emul: 1
name: suite7-lan
seed: 0
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 5 ms, bandwidth: 20 Mbit/s}]
devices:
  nodes: [{match: "*", device: laptop}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: profile, file: costs.json}
schemes: [fedavg]
stop: {rounds: 4}
"""
PRICES = '{"emul_profile": 1, "costs": {%s}}'
FEDAVG = '"fedavg/server/aggregate": [0.01, 0], "fedavg/client/train": [0.1, 0]'
FEDPROX = '"fedprox/client/train": [0.1, 0], "fedprox/server/aggregate": [0.01, 0]'
LEAGUE = """\
accuracy_of = "global"
task = "digits"
networks = ["lan"]
baseline = "fedavg"
target = 0.9
units = 8
seeds = [0, 1]
tuning = {seeds = [100], points = 2, first = 1}
[space]
"task.solver.sgd.lr" = {low = 0.01, high = 1.0, default = 0.1}
waiting = {low = 1, high = 4, default = 2}
[[entries]]
name = "fedavg"
[[entries]]
name = "fedprox"
mu = 0.0
"""


@pytest.fixture
def folder(small: Path) -> Path:
    """A suite of one network with a league; a round takes a quarter of a second."""
    made = small.parent / "networks"
    (made / "tasks").mkdir(parents=True)
    (made / "leagues").mkdir()
    (made / "lan.yaml").write_text(LAN)
    (made / "costs.json").write_text(PRICES % f"{FEDAVG}, {FEDPROX}")
    (made / "tasks" / "digits.yaml").write_text("extends: ../lan.yaml\nname: suite7-digits\nstop: {accuracy: 0.3}\n")
    (made / "tasks" / "digits.units.csv").write_text("network,unit_s\nlan,0.2\n")
    (made / "leagues" / "plain.toml").write_text(LEAGUE)
    return made


def run(folder: Path, **more: Any) -> list[Mapping[str, str]]:
    return league_runs.run(League.of("plain", folder=folder), Where(in_turn, 0), folder / "rows.csv", folder / "out",
                       **more)


# --- runs -------------------------------------------------------------------------------------------------------------

def test_tuning_comes_first_and_fedprox_without_its_term_is_fedavg(folder: Path) -> None:
    rows = run(folder)
    said = [(row["label"], row["part"], row["point"], row["seed"]) for row in rows]
    point = standings.chosen(League.of("plain", folder=folder), rows)
    assert said[:4] == [("fedavg", TUNING, "0", "100"), ("fedavg", TUNING, "1", "100"),
                        ("fedavg", SCORING, str(point["fedavg"]), "0"), ("fedavg", SCORING, str(point["fedavg"]), "1")]
    own = {label: [row for row in rows if row["label"] == label and row["part"] == TUNING] for label in point}
    assert [row["path"].split()[-1].split(":")[2] for row in own["fedavg"]] == [
        row["path"].split()[-1].split(":")[2] for row in own["fedprox"]]
    lengths = [float(row["path"].split()[-1].split(":")[0]) for row in (own["fedavg"][0], rows[2])]
    assert lengths[0] <= 0.8 < lengths[1] <= 1.6                    # half of 8 units, all of them


def test_a_league_that_was_cut_goes_on_and_has_each_row_once(folder: Path) -> None:
    table = folder / "rows.csv"
    whole = [row["digest"] for row in run(folder)]
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:3]) + lines[3][:40])           # in the middle of a row
    again = [row["digest"] for row in run(folder)]
    assert sorted(again) == sorted(whole)
    before = table.read_bytes()
    run(folder)
    assert table.read_bytes() == before


def test_a_computation_without_a_price_is_refused(folder: Path) -> None:
    (folder / "costs.json").write_text(PRICES % FEDAVG.partition(", \"")[0])
    with pytest.raises(StudyError, match="the profile has no price of 'fedavg/client/train'"):
        run(folder)
    (folder / "lan.yaml").write_text(LAN.replace("costs.json}", "costs.json, default: zero}"))
    with pytest.raises(StudyError, match=r"fedavg on lan: compute\.default: zero"):
        run(folder)


def test_another_kind_of_accuracy_is_refused(folder: Path) -> None:
    (folder / "leagues" / "plain.toml").write_text(LEAGUE.replace("mu = 0.0", "personal = true"))
    with pytest.raises(StudyError, match="league plain has global accuracy; that of fedprox is personal"):
        run(folder)


def test_a_run_that_observed_nothing_has_no_kind_of_accuracy_and_reaches_no_target(folder: Path) -> None:
    run(folder, wanted=["fedavg"])
    with (folder / "rows.csv").open(newline="") as file:
        *rows, last = csv.DictReader(file)
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(last))
        writer.writeheader()
        writer.writerows([*rows, {**last, "accuracy_of": "", "accuracy": "", "rounds": "18", "path": ""}])
    row = read(folder / "rows.csv", League.of("plain", folder=folder))[-1]
    assert standings.reaching(row, 0) == (math.inf, math.inf)


def test_rows_of_another_definition_are_passed_over_and_one_more_scheme_leaves_them(folder: Path) -> None:
    run(folder, wanted=["fedavg"])
    file = folder / "leagues" / "plain.toml"
    for changed, kept in ((LEAGUE.replace("units = 8", "units = 9"), 0), (LEAGUE.replace("high = 1.0", "high = 2"), 0),
                          (LEAGUE.replace("mu = 0.0", "mu = 0.1"), 4), (LEAGUE + '[[entries]]\nname = "fednova"\n', 4)):
        file.write_text(changed)
        assert len(read(folder / "rows.csv", League.of("plain", folder=folder))) == kept
    with pytest.raises(StudyError, match="there are plain"):
        League.of("fast", folder=folder)


MORE = """
[[entries]]
name = "dnc_private"
clip = 1.0
sets = ["topology={generator: star_mesh, clients: 3}", "compute.file=more.json"]
space = {lambda = {low = 0.001, high = 0.1, default = 0.01}, "task.solver.sgd.lr" = false}
[[entries]]
name = "fednova"
task = "fashion"
"""


def test_an_entry_with_servers_and_prices_of_its_own_leaves_the_rows_of_others(folder: Path) -> None:
    before = run(folder, wanted=["fedavg"])
    (folder / "leagues" / "plain.toml").write_text(LEAGUE + MORE)
    added = League.of("plain", folder=folder).entries[-1]
    assert (added.label, list(added.space)) == ("dnc_private", ["waiting", "lambda"])       # fednova is of another task
    suite_tasks.priced_entries(League.of("plain", folder=folder), [], folder / "more.json", folder / "costs.json")
    costs = json.loads((folder / "more.json").read_text())["costs"]
    assert {key.partition("/")[0] for key in costs} == {"dnc_private"}
    found = run(folder, wanted=["dnc_private"])
    assert [row for row in found if row["label"] == "fedavg"] == before
    assert {row["label"] for row in found} == {"fedavg", "dnc_private"}
    (folder / "leagues" / "plain.toml").write_text(LEAGUE + MORE.replace("clients: 3", "clients: 2"))
    assert {row["label"] for row in read(folder / "rows.csv", League.of("plain", folder=folder))} == {"fedavg"}


def test_the_command_prints_the_tables_and_writes_leaderboard_and_page(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                                                      capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Suite, "of", classmethod(lambda cls, _=None, of=Suite.of: of(folder)))
    monkeypatch.setattr("sys.argv", ["emul", "suite", "--league", "plain", "--network", "lan", "--out",
                                     str(folder / "out"), "--workers", "0", "--quiet"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    said = capsys.readouterr().out
    assert "lan: seconds to " in said
    assert "emul suite 7, league plain " in said
    with (folder / "out" / "leaderboard.csv").open() as file:
        assert [row["rank"] for row in csv.DictReader(file)] == ["1", "1"]
    assert "Accuracy over time" in (folder / "out" / "league.html").read_text()


@pytest.mark.parametrize(("words", "said"), [
    (["--league", "plain", "--seeds", "0:10"], "Invalid value for --seeds: is not used with --league"),
    (["--league", "plain", "--json"], "Invalid value for --json: is not used with --league"),
    (["--moved"], "Invalid value for --moved: is not used without --league")])
def test_what_a_league_does_not_use_is_refused(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["emul", "suite", *words])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert said in capsys.readouterr().err


def test_published_points_are_scored_without_tuning_also_where_an_assumed_number_is_moved(
        folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Suite, "of", classmethod(lambda cls, _=None, of=Suite.of: of(folder)))
    (folder / "assumed.csv").write_text(
        'network,number,path,half,double\nlan,latency,links[0].latency,"""2.5 ms""","""10 ms"""\n')
    (folder / "tasks" / "digits.units.csv").write_text(
        "network,unit_s\nlan,0.2\nlan:latency:half,0.2\nlan:latency:double,0.2\n")
    meanings = League.of("plain").meanings()
    (folder / "leagues" / "plain.points.csv").write_text("task,label,definition,point\n" + "".join(
        f"digits,{label},{meanings[label, 'lan']},1\n" for label in ("fedavg", "fedprox")))
    monkeypatch.setattr("sys.argv", ["emul", "suite", "--league", "plain", "--network", "lan", "--moved", "--out",
                                     str(folder / "out"), "--done", str(folder / "rows.csv"), "--workers", "0",
                                     "--quiet", "--no-report"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    found = read(folder / "rows.csv", League.of("plain"))
    assert {(row["part"], row["point"]) for row in found} == {(SCORING, "1")}
    moved = {row["network"]: float(row["path"].split()[0].split(":")[0]) for row in found}
    assert moved["lan:latency:half"] < moved["lan"] < moved["lan:latency:double"]
    assert ('lan:latency:double (links[0].latency="10 ms"), among fedavg, fedprox: first fedavg, fedprox, as without it'
            in capsys.readouterr().out)
    (folder / "leagues" / "plain.points.csv").write_text(
        f"task,label,definition,point\ndigits,fedavg,{meanings['fedavg', 'lan']},1\n")
    (folder / "rows.csv").unlink()                                  # one that has no point needs the baseline's tuning
    assert {(row["label"], row["part"]) for row in run(folder, networks=["lan"])} == {
        (label, part) for label in ("fedavg", "fedprox") for part in (TUNING, SCORING)}
    with pytest.raises(ScenarioError, match="unknown network of the suite; did you mean"):
        run(folder, networks=["lam"])


# --- conditions, budgets, sums ----------------------------------------------------------------------------------------

def test_a_condition_edits_the_network_and_one_network_sets_the_target_of_all(folder: Path) -> None:
    (folder / "leagues" / "plain.toml").write_text(
        LEAGUE.replace('["lan"]', '["lan", "lan:far"]\ntarget_on = "lan"').replace("points = 2", "points = 1")
        + '[conditions]\n"lan:far" = ["links[0].latency=100 ms"]\n')
    found = run(folder, wanted=["fedavg"], networks=["lan:far"])
    league = League.of("plain", folder=folder)
    first = {row["network"]: float(row["path"].split(":")[0]) for row in found}
    assert first["lan:far"] == pytest.approx(first["lan"] + 0.19, abs=0.01)         # there and back, 95 ms more each
    assert standings.target_of(league, found, "lan:far") == standings.target_of(league, found, "lan")
    assert standings.standings(league, [row for row in found if row["network"] != "lan"], "lan:far") == []


PRIVATE = """\
accuracy_of = "global"
task = "digits"
networks = ["lan"]
baseline = "dp_fedavg"
target = 0.9
units = 8
rounds = 3
epsilon = 8.0
seeds = [0]
tuning = {seeds = [100], points = 1, first = 1}
space = {waiting = {low = 1, high = 4, default = 4}}
[[entries]]
name = "dp_fedavg"
eps = 8.0
over = 3
"""


def test_a_run_that_does_not_spend_the_epsilon_of_its_league_is_refused(folder: Path) -> None:
    file = folder / "leagues" / "plain.toml"
    file.write_text(PRIVATE)
    (folder / "costs.json").write_text(PRICES % ", ".join(f'"dp_fedavg/{one}": [0.01, 0]' for one in (
        "client/train", "client/noise", "server/aggregate", "server/noise", "server/step")))
    row, = run(folder)
    assert row[league_runs.SPENT] == "server unbounded, client 8"
    assert row["rounds"] == "3"
    (folder / "rows.csv").unlink()
    file.write_text(PRIVATE.replace("over = 3", "over = 4"))            # noise for a round more than there are
    with pytest.raises(StudyError, match=r"a total epsilon of 8; that of dp_fedavg is server unbounded, client 6\."):
        run(folder)
    assert math.isnan(league_runs.largest("unbounded"))


SUMS = """\
accuracy_of = ""
measure = "sums"
task = "digits"
networks = ["lan", "lan:gone"]
baseline = "fedavg"
target = 0.97
units = 8
rounds = 1
seeds = [0, 1]
tuning = {seeds = [100], points = 1, first = 1}
sets = ["training=skip"]
space = {waiting = {low = 1, high = 4, default = 4}}
[conditions]
"lan:gone" = ["faults=[{node: \\"client*\\", stage: UPLOAD, drop: true}]"]
[[entries]]
name = "fedavg"
upload = "Update"
[[entries]]
name = "secagg"
upload = "Masked"
"""


def test_a_sum_is_a_run_and_one_that_is_given_up_names_stage_and_count(folder: Path) -> None:
    (folder / "leagues" / "plain.toml").write_text(SUMS)
    (folder / "costs.json").write_text(PRICES % ", ".join([FEDAVG, *(f'"secagg/{one}": [0.01, 0]' for one in (
        "client/train", "client/agree", "client/keys", "client/mask", "client/reveal", "client/share",
        "server/aggregate", "server/agree", "server/reconstruct", "server/ring", "server/unmask"))]))
    found = run(folder)
    secagg = {row["network"]: row for row in found if row["label"] == "secagg"}
    assert secagg["lan"]["path"].endswith(":1")
    assert secagg["lan:gone"]["path"] == ""
    said = "\n".join(standings.lines(League.of("plain", folder=folder), found))
    assert "lan: seconds to a sum" in said
    assert "lan:gone: secagg gave 2 of 2 sums up: " in said
    assert secagg["lan:gone"][standings.WHY].partition(": ")[2] in said


ENTRY = """\
league = "plain"
task = "digits"
[[entries]]
name = "fednova"
label = "mine"
price = "300 ms"
"""


@pytest.mark.slow
def test_a_submission_is_checked_row_by_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Suite, "of", classmethod(lambda cls, _=None, of=Suite.of: of(folder)))
    fused = LEAGUE.replace("units = 8", 'units = 8\nsets = ["fuse={clients: 3, lanes: 1}"]')
    (folder / "leagues" / "plain.toml").write_text(fused)
    run(folder)
    monkeypatch.setattr(submissions, "TABLES", {"plain": folder / "rows.csv"})
    mine = folder / "mine"
    mine.mkdir()
    (mine / "entry.toml").write_text(ENTRY)
    league_runs.run(League.of("plain", more=[mine / "entry.toml"]), Where(in_turn, 0), mine / "all.csv",
                    folder / "out", wanted=["mine"])
    lines = (mine / "all.csv").read_text().splitlines(keepends=True)
    own = [lines[0], *(line for line in lines if ",mine," in line)]
    table = mine / "rows.csv"
    table.write_text("".join(own))
    accepted, ranks = submissions.check(mine)
    again = r"mine on lan with seed \d+"
    assert re.fullmatch(rf"accepted: {len(own) - 1} rows; {again} and {again} computed again", accepted)
    assert re.fullmatch(r"lan: mine has rank \d of 3 schemes", ranks)
    table.write_text("".join(own[:-1]))
    with pytest.raises(StudyError, match=r"mine: lacks 1 rows, such as scoring of point \d on lan"):
        submissions.check(mine)
    moved = [line.replace(",scoring,lan,mine,0,", ",scoring,lan,mine,1,") if ",scoring,lan,mine,0," in line else
             line.replace(",scoring,lan,mine,1,", ",scoring,lan,mine,0,") for line in own]
    table.write_text("".join(moved))
    with pytest.raises(StudyError, match="lacks 2 rows"):
        submissions.check(mine)
    digests = [row["digest"] for row in csv.DictReader(own)]
    accuracies = [f",global,{row['accuracy']}," for row in csv.DictReader(own)]
    table.write_text("".join([own[0], *(line.replace(digest, "0" * len(digest)).replace(accuracy, ",global,0.01,")
                                        for line, digest, accuracy in zip(own[1:], digests, accuracies, strict=True))]))
    with pytest.raises(StudyError, match=r"mine on lan, seed \d+: different: accuracy 0\.01, "):
        submissions.check(mine)
    (mine / "entry.toml").write_text(ENTRY.replace("[[entries]]", "[entries]"))
    with pytest.raises(StudyError, match="is no file of entries of a league"):
        submissions.check(mine)
    (mine / "entry.toml").write_text(ENTRY.replace("300 ms", "1 us"))
    league_runs.run(League.of("plain", more=[mine / "entry.toml"]), Where(in_turn, 0), mine / "cheap.csv",
                    folder / "out", wanted=["mine"])
    (mine / "cheap.csv").replace(table)
    with pytest.raises(StudyError, match=r"mine: price: 1 us is too low: fednova/client/train takes \d"):
        submissions.check(mine)


@pytest.mark.parametrize(("words", "said"), [
    ('sets = ["links[0].latency=1 ms"]', "leaves the networks as they are"),
    ("points = 1", "has as many points as all others"),
    ('task = "digits"', "it stands above the entries"),
    ('label = "fedavg"', "the league has a scheme with this label"),
    ('deadline = "1 s"', "is a timeout, which the space sets by `waiting`"),
    ('space = {"links[0].outage.p" = {low = 0.1, high = 0.2, default = 0.1}}', "networks and task stay as they are"),
    ("space = {rate = {low = 0.3, high = 0.3, default = 0.3}}", "expected low below high")])
def test_an_entry_of_a_submission_is_tuned_and_placed_as_all_others(words: str, said: str, tmp_path: Path) -> None:
    entry = 'league = "plain"\ntask = "digits"\n[[entries]]\nname = "fednova"\n'
    (tmp_path / "entry.toml").write_text(entry + words)
    if not words.startswith("label"):       # one more, so that all are told at once
        entry += 'label = "other"\n'
        (tmp_path / "entry.toml").write_text(f"{entry}{words}\n[[entries]]\nname = \"fedprox\"\n")
        said = rf"{re.escape(said)}(.|\n)*fedprox: label: the league has"
    with pytest.raises(StudyError, match=said):
        submissions.check(tmp_path)


def test_rows_are_computed_again_and_those_that_come_out_otherwise_may_move_ranks(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Suite, "of", classmethod(lambda cls, _=None, of=Suite.of: of(folder)))
    (folder / "leagues" / "plain.toml").write_text(LEAGUE.replace("points = 2", "points = 1"))
    run(folder)
    monkeypatch.setattr(submissions, "TABLES", {"plain": folder / "rows.csv"})
    monkeypatch.setattr(submissions, "AGAIN", folder / "again.csv")
    submissions.compute_again(0.5, 0)
    assert submissions.read_again() == []           # all are of this processor
    monkeypatch.setattr(submissions, "processor", lambda: "another")
    submissions.compute_again(0.5, 0)
    (said,) = submissions.said_of_again()
    assert re.match("2 of 4 rows of `plain`, made on .*, were computed again on another: 2 have", said)
    assert said.endswith(": 2 have the same digest, 2 the same curve. No scheme's rank changes.")
    times = {"base": [float(x) for x in range(10, 20)], "slow": [2.0 * x for x in range(10, 20)]}
    found = [row | {"key": f"{row['label']}{row['seed']}", "digest": "d", "processor": "p"} for row in rows(times)]
    asked = leagues.replace(league(list(times), 10), name="plain")
    monkeypatch.setattr(submissions, "leagues", lambda: [(asked, found)])
    with (folder / "again.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, submissions.AGAIN_COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({"table": "rows.csv", "key": f"slow{seed}", "digest": "d", "digest_again": "e",
                          "path": "0.01:1:0.1 5:2:1"} for seed in range(10))
    (said,) = submissions.said_of_again()
    assert said.endswith(": 0 have the same digest, 0 the same curve. Ranks change on n.")


# --- the leagues that come along --------------------------------------------------------------------------------------

LEAGUES = sorted(file.stem for file in (Suite.of().folder / "leagues").glob("*.toml"))


@pytest.mark.parametrize("name", LEAGUES)
def test_every_league_that_comes_along_has_sound_scenarios_and_prices(name: str) -> None:
    league = League.of(name)
    for number, network in enumerate(league.networks):          # as many entries as networks, for each takes a while
        entry = league.entries[-1 - number]
        cell, *_ = league.cells(entry, entry.points - 1, network, TUNING)
        assert cell.seed == 100
    assert league.baseline in {entry.label for entry in league.entries}
    for entry in league.entries:
        own = {key: value for key, value in parameters(entry.parameters).items() if key != "name"}
        build_params(registry.find(entry.parameters["name"]).params, own, f"{name}, {entry.label}")
    of_all = next((one.partition("file: ")[2].rstrip("}") for one in league.sets if "file: " in one), "")
    for file in [of_all] if of_all else ["tasks/digits.profile.json", "tasks/fashion.profile.json"]:
        for entry in league.entries:
            costs = json.loads((league.suite.folder / (own_prices(entry) or file)).read_text())["costs"]
            assert entry.parameters["name"] in {key.partition("/")[0] for key in costs}
    assert all(unit > 0 for unit in league.unit_s().values())


def test_every_scheme_has_an_entry_in_a_league_or_a_reason_to_have_none() -> None:
    lines = submissions.scheme_lines()
    assert [line[0] for line in lines] == list(registry.known())
    for name, rows_in, waits_in, why in lines:
        assert bool(rows_in or waits_in) != bool(why), name


# --- spaces -----------------------------------------------------------------------------------------------------------

def test_points_are_the_defaults_and_then_values_within_the_space() -> None:
    entry = LeagueEntry("x", {"name": "fedavg"}, {"a": Range(0.01, 1, 0.1), "b": Range(1, 20, 10, whole=True)}, 5)
    assert entry.values(0, 1) == {"a": 0.1, "b": 10}
    found = [entry.values(point, 1) for point in range(1, 40)]
    assert all(0.01 <= one["a"] <= 1 and one["b"] in range(1, 21) for one in found)
    for low, high in ((0.01, 0.1), (0.1, 1)):                       # even in the logarithm
        assert sum(low <= one["a"] < high for one in found) in range(18, 22)
    assert len({tuple(one.values()) for one in found[:4]}) == 4


# --- statistics -------------------------------------------------------------------------------------------------------

def test_the_signed_rank_test_is_that_of_scipy() -> None:
    wilcoxon = pytest.importorskip("scipy.stats").wilcoxon
    rng = np.random.default_rng(1)
    for n in (3, 7, 10):
        x = rng.normal(0.3, 1, n)
        assert standings.signed_rank(x) == pytest.approx(wilcoxon(x, method="exact").pvalue)
    assert standings.signed_rank([math.inf] * 6) == pytest.approx(2 / 2**6)
    assert standings.signed_rank([0.0, 0.0]) == 1


@given(st.lists(st.floats(0.1, 100) | st.just(math.inf), min_size=3, max_size=12))
def test_the_interval_of_a_median_holds_it_and_lies_within_the_values(values: list[float]) -> None:
    low, high = standings.median_interval(values)
    assert min(values) <= low <= standings.median(values) <= high <= max(values)
    assert standings.median(values) == np.median(values)
    assert standings.median([-math.inf, math.inf]) == math.inf


def test_ratios_of_times_are_paired_and_two_that_never_arrive_are_equal() -> None:
    one, other = {0: 2.0, 1: math.inf, 2: math.inf, 3: 3.0}, {0: 1.0, 1: math.inf, 2: 5.0, 3: math.inf}
    assert standings.log_ratios(one, other).tolist() == [pytest.approx(math.log(2)), 0, math.inf, -math.inf]


def rows(of: Mapping[str, Sequence[float]]) -> list[dict[str, str]]:
    """Scored rows on network n: seconds to 0.9 by seed; infinite: it ends at 0.5."""
    return [dict.fromkeys(COLUMNS, "") | {
        "part": SCORING, "network": "n", "label": label, "seed": str(seed), "point": "0",
        "path": f"0.01:1:0.1 {1e6 if math.isinf(value) else value}:2:{0.5 if math.isinf(value) else 1}"}
        for label, values in of.items() for seed, value in enumerate(values)]


def league(labels: Sequence[str], seeds: int) -> League:
    entries = tuple(LeagueEntry(label, {"name": label}, {}, 1) for label in labels)
    return League("l", Suite.of(), "digits", "global", ("n",), (), labels[0], 0.9, 60, tuple(range(seeds)), (100,), 1,
                  (), entries, "")


def test_schemes_that_cannot_be_told_apart_share_a_rank() -> None:
    times = {"base": [float(x) for x in range(10, 20)], "same": [x + (-1) ** x * 0.5 for x in range(10, 20)],
             "slow": [2.0 * x for x in range(10, 20)], "never": [math.inf] * 10}
    asked = league(list(times), 10)
    found = standings.standings(asked, rows(times), "n")
    assert {one.label: one.rank for one in found} == {"base": 1, "same": 1, "slow": 3, "never": 4}
    slow = next(one for one in found if one.label == "slow")
    assert slow.ratio[0] == pytest.approx(2, rel=0.1)
    assert "never" in standings.table_lines(found)[3]
    shares = standings.profile(found)
    assert shares["never"] == [0, 0, 0, 0]
    assert shares["slow"][3] == 1


def test_the_contrast_is_set_beside_the_baseline_with_the_schemes_between_them() -> None:
    times = {"base": [float(x) for x in range(10, 20)], "patient": [4.0 * x for x in range(10, 20)],
             "between": [2.0 * x for x in range(10, 20)], "never": [math.inf] * 10}
    asked = leagues.replace(league(list(times), 10), contrast="patient")
    found = standings.standings(asked, rows(times), "n")
    assert [one.label for one in standings.contrast(asked, found)] == ["base", "patient", "between"]
    assert standings.contrast_line(asked, found) == (
        "patient takes 4 times as long as base, 4 to 4 (58 and 14.5 s); it is behind between, which base is not")
    never = leagues.replace(asked, contrast="never")
    assert standings.contrast_line(never, found).startswith("never does not reach the target on most seeds; base takes")
    assert standings.contrast(leagues.replace(asked, contrast=""), found) == []


def test_ranks_are_compared_with_those_of_other_seeds_or_of_halves_in_which_a_lead_can_show() -> None:
    times = {"base": [float(x) for x in range(10, 20)], "slow": [2.0 * x for x in range(10, 20)]}
    asked = leagues.replace(league(list(times), 10), replicate=tuple(range(10, 20)))
    found = rows(times)
    said, *_ = standings.agreement(asked, found, ["n"])
    assert said == "halves of the seeds: the same schemes lead on 1 of 1 networks; Spearman n nan"
    halves = [standings.standings(asked, found, "n", half) for half in (asked.seeds[::2], asked.seeds[1::2])]
    assert [standings.leaders(half) for half in halves] == [{"base", "slow"}] * 2          # five seeds settle nothing
    assert [standings.unsettled(half) for half in halves] == [{"base"}] * 2
    others = rows({"base": times["slow"], "slow": times["base"]})
    again = [row | {"part": leagues.REPLICATE, "seed": str(int(row["seed"]) + 10)} for row in others]
    came_later = rows({"late": times["base"]})                  # it is not in the replicate
    for scored in (found, [*found, *came_later]):
        said, *_ = standings.agreement(asked, [*scored, *again], ["n"])
        assert said == "n, 10 other seeds of 2 schemes: first slow, before base; Spearman nan"
    assert standings.standings(asked, [*found, *again], "n") == standings.standings(asked, found, "n")


def test_a_scheme_without_all_seeds_is_not_ranked() -> None:
    times = {"base": [1.0, 2.0], "part": [1.0]}
    asked = league(list(times), 2)
    assert [one.label for one in standings.standings(asked, rows(times), "n")] == ["base"]
    assert "not whole: part" in list(standings.lines(asked, rows(times)))


def test_the_point_with_the_best_ranks_is_chosen_also_for_the_baseline_which_sets_the_goal() -> None:
    asked = league(["base", "other"], 2)
    entries = tuple(LeagueEntry(label, {"name": label}, {}, 2) for label in ("base", "other"))
    asked = leagues.replace(asked, entries=entries)
    tuned = [dict.fromkeys(COLUMNS, "") | {"part": TUNING, "network": "n", "label": label, "seed": "100",
                                           "point": point, "path": path} for label, point, path in (
        ("base", "0", "1:1:0.75"), ("base", "1", "2:1:0.8"),        # the higher end sets the goal 0.72, the sooner wins
        ("other", "0", "1:1:0.6 2:1:0.9"), ("other", "1", "1:1:0.73"))]
    assert standings.chosen(asked, tuned) == {"base": 0, "other": 1}
    assert standings.chosen(asked, tuned[1:]) == {}


@pytest.mark.parametrize("space", ["{low = 0.0, high = 0.9, default = 0.5}", "{low = 2, high = 1, default = 1}",
                                   "{low = 0.1, high = 0.9}", "0.5", "{low = 'a', high = 1, default = 1}"])
def test_a_space_of_ones_own_says_what_its_ranges_are(tmp_path: Path, space: str) -> None:
    file = tmp_path / "entry.toml"
    file.write_text(f'league = "plain"\n[[entries]]\nname = "mine"\n[entries.space]\nmomentum = {space}\n')
    with pytest.raises(StudyError, match=r"entry\.toml: mine: space: momentum: expected \{low = 0\.1, high"):
        leagues.entries_of(file)
    file.write_text(file.read_text().replace(space, "{low = 0.1, high = 0.9, default = 0.5}"))
    assert [one["name"] for one in leagues.entries_of(file)] == ["mine"]
