"""The straggler view of a report: for whom was waited, how long, and what work came to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import emul
from emul.report import data, stragglers

SCENARIO = """
emul: 1
name: stragglers
seed: 3
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 10 ms}]
nodes: [{match: client2, speed: 0.5}, {match: client3, speed: 0.1}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: profile, file: costs.json}
schemes:
  - {name: fedavg, label: patient, deadline: 20 s}
  - {name: fedavg, label: hasty, deadline: 5 s}
  - {name: fedavg, label: first_two, deadline: 20 s, selection: {uniform: {count: 2, over: 1.5}}}
stop: {rounds: 2}
"""
COSTS = {"fedavg/client/train": [1.0, 0.0], "fedavg/server/aggregate": [0.0, 0.0], "fedavg/server/select": [0.0, 0.0]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, data.RunData]:
    folder = tmp_path_factory.mktemp("stragglers")
    (folder / "costs.json").write_text(json.dumps({"emul_profile": 1, "costs": COSTS}))
    (folder / "s.yaml").write_text(SCENARIO)
    done = emul.run(folder / "s.yaml", workers=0, out=folder / "runs")
    return {run.summary["label"]: data.open_run(Path(run.path)) for run in done}


def held_up(run: data.RunData) -> pd.DataFrame:
    return stragglers.held_up(run, data.waits(run))


def test_the_slowest_is_waited_for_and_alone_from_the_last_but_one_on(runs: dict[str, data.RunData]) -> None:
    found = stragglers.waited_for(held_up(runs["patient"])).to_dict("records")
    assert [(row["cause"], row["rounds"]) for row in found] == [("client3", 2)]         # 10 s, the others 1 and 2
    assert found[0]["waited_s"] == pytest.approx(2 * 10.02, abs=1e-6)
    assert found[0]["alone_s"] == pytest.approx(2 * 8, abs=1e-6)
    assert found[0]["share"] == 1


def test_who_is_missing_at_a_deadline_is_waited_for_until_then(runs: dict[str, data.RunData]) -> None:
    found = stragglers.waited_for(held_up(runs["hasty"])).to_dict("records")
    assert [row["cause"] for row in found] == ["client3"]   # which has not even sent when the run is over
    assert found[0]["waited_s"] == pytest.approx(2 * 5, abs=1e-6)


def test_a_round_that_waits_one_by_one_waits_for_each(runs: dict[str, data.RunData]) -> None:
    found = stragglers.waited_for(held_up(runs["first_two"])).set_index("cause")["waited_s"].round(6).to_dict()
    assert found == {"client1": 2 * 1.02, "client2": 2 * 1}


def test_several_that_are_missing_share_a_wait() -> None:
    held = pd.DataFrame({"round": [1, 1, 2], "node": [0] * 3, "end_ns": [6, 6, 9], "cause": ["a", "b", "a"],
                         "waited_s": [6.0, 6.0, 1.0], "alone_s": [6.0, 6.0, 0.5], "how": ["deadline"] * 3})
    found = stragglers.waited_for(held).set_index("cause")
    assert found["waited_s"].to_dict() == {"a": 4, "b": 3}
    assert found["alone_s"].to_dict() == {"a": 3.5, "b": 3}
    assert found["share"].sum() == pytest.approx(1)


def seconds(run: data.RunData) -> dict[tuple[str, str], float]:
    found = stragglers.work(run)
    return {(row["name"], row["became"]): round(row["seconds"], 6) for row in found.to_dict("records")}


def test_work_is_used_if_the_update_was_there_in_time(runs: dict[str, data.RunData]) -> None:
    assert seconds(runs["patient"]) == {("client1", "used"): 2, ("client2", "used"): 4, ("client3", "used"): 20}
    assert stragglers.wasted(stragglers.work(runs["patient"])) == 0


def test_work_of_the_late_comes_to_nothing_with_the_bytes_that_it_sent(runs: dict[str, data.RunData]) -> None:
    found = stragglers.work(runs["first_two"])
    used = found[found["became"] == "used"].set_index("name")["seconds"].to_dict()
    assert used == {"client1": 2, "client2": 4}
    vain = found[found["became"] != "used"]
    assert set(vain["name"]) == {"client3"}
    assert stragglers.wasted(found) == pytest.approx(vain["seconds"].sum() / (6 + vain["seconds"].sum()))
    assert vain["seconds"].sum() > 0
    sent = runs["first_two"].messages
    total = sent.wire_bytes[sent.target == 0].sum()
    assert found["bytes"].sum() == total                    # every byte towards the server, once


def test_a_page_has_both_figures_and_says_what_was_in_vain(runs: dict[str, data.RunData]) -> None:
    run = runs["first_two"]
    drawn = stragglers.views(held_up(run), stragglers.work(run))
    assert [figure.key for figure in drawn] == ["waited-for", "work-wasted"]
    assert "client1 was waited for 2.04 s in 2 rounds" in drawn[0].words
    assert f"{stragglers.wasted(stragglers.work(run)):.1%} of" in drawn[1].words
    both = stragglers.side_by_side({name: stragglers.work(one) for name, one in runs.items()})
    shares = both.table.groupby("run")["share"].sum()
    assert shares.to_dict() == pytest.approx(dict.fromkeys(runs, 1))


def test_seconds_of_rounds_are_stacked_where_a_scheme_reports_them(runs: dict[str, data.RunData]) -> None:
    assert stragglers.seconds_figures(runs["patient"].rounds) == []
    rounds = pd.DataFrame({"round": [1, 2, 3], "seconds_poll": [6.0, 3.0, None], "seconds_start": [1.0, 1.5, None]})
    figure, = stragglers.seconds_figures(rounds)
    assert figure.frames["seconds"].sort_values(["round", "rank"])[["round", "part", "seconds"]].values.tolist() == [
        ["1", "poll", 6.0], ["1", "start", 1.0], ["2", "poll", 3.0], ["2", "start", 1.5]]
    assert "most of them: poll" in figure.words
