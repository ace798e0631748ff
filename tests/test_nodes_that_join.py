"""Runs that nodes join and leave by round, as a user has them: real workers, a resume, a replay, a report."""

from __future__ import annotations

import pytest

from emul import engine
from emul.record.load import load_run
from emul.report import build
from emul.scenario import loads
from tests.test_resume import interrupted

TEXT = """
emul: 1
name: joining
seed: 3
topology: {generator: star_mesh, clients: 6}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
groups:
  - {name: late, match: "client[56]", availability: {from_round: 3}}
faults:
  - availability: {match: client1, rounds: ..2}
  - availability: {match: client2, rounds: [..1, 4..]}
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}, {name: secagg, threshold: 3, stage_deadline: 500 ms}, gossip]
stop: {rounds: 5}
"""
THERE = {1: {1, 2, 3, 4}, 2: {1, 3, 4}, 3: {3, 4, 5, 6}, 4: {2, 3, 4, 5, 6}, 5: {2, 3, 4, 5, 6}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return engine.run(loads(TEXT), workers=2, out=tmp_path_factory.mktemp("joining"))


def test_in_real_workers_the_same_nodes_take_part_as_without(made, tmp_path):
    assert [one.error for one in made] == [None] * 3
    alone = engine.run(loads(TEXT), workers=0, out=tmp_path)
    assert [one.summary["digest"] for one in made] == [one.summary["digest"] for one in alone]
    for one in made:
        sent = load_run(one.directory).messages
        clients = sent[sent["source_name"].astype(str).str.startswith("client") & (sent["round"] > 0)]
        assert {n: {int(name[6:]) for name in found} for n, found in clients.groupby("round")["source_name"]} == THERE
        assert set(one.summary["invariants"].split()) == {"hold"}


def test_such_runs_are_replayed_and_gone_on_with(made, tmp_path):
    for one in made:
        assert engine.replay(one.directory, workers=2) == one.summary["digest"]
    for scheme, rows in (("fedavg", 20), ("secagg", 60), ("gossip", 30)):
        left = interrupted(loads(TEXT), tmp_path / scheme, rows, scheme=scheme)
        gone_on, = engine.resume(left, workers=2)
        whole = next(whole for whole in made if whole.scheme == scheme)
        assert gone_on.summary["digest"] == whole.summary["digest"]


def test_a_report_shows_them(made, tmp_path):
    for one in made:
        build.write(one.directory, tmp_path / "report.html")
        assert "client6" in (tmp_path / "report.html").read_text()
