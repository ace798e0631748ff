"""Solvers that go on from round to round: one digest whoever computes, with a store too; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul.base.errors import ScenarioError
from emul.learning import Task, TaskError
from emul.scenario import loads
from emul.store import Store
from emul.workers.pool import Workers
from emul.workers.twin import Twin
from tests.digested import digests

SOLVER = "{adamw: {lr: 0.01, steps: 2, batch: 16, clip: 1, keep: true, schedule: {warm_up: 2, steps: 8, to: 0.1}}}"
TEXT = f"""
emul: 1
name: kept-moments
seed: 3
topology: {{generator: star, clients: 4}}
links:
  - {{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}}
  - {{match: "client*->server", outage: {{model: bernoulli, p: 0.1, per: round}}}}
task: {{data: {{set: digits}}, model: logistic, solver: {SOLVER}}}
compute: {{mode: zero}}
schemes: [fedavg]
stop: {{rounds: 4}}
"""
SPEC = {"data": {"set": "digits"}, "model": "logistic",
        "solver": {"adamw": {"lr": 0.01, "steps": 2, "batch": 16, "keep": True}}}


def test_a_run_has_one_digest_for_any_number_of_workers() -> None:
    alone = digests(loads(TEXT), Twin())
    with Workers(2) as pool:
        assert digests(loads(TEXT), pool) == alone
    assert digests(loads(TEXT.replace("keep: true", "keep: false")), Twin())[1] != alone[1]


def test_the_store_tells_trainings_apart_by_their_moments(tmp_path: Path) -> None:
    """The second round trains from the same model in the same round number, and differs in what was kept."""
    def trained(store: Store | None, first: bool) -> bytes:
        task, now = Task(SPEC, 2, 7, store=store), [1]
        node = task.for_node("client0", 0, lambda: now[0])
        start = task.initial_parameters()
        if first:
            node.local_update(start)
        now[0] = 2
        found = node.local_update(start)[0].tobytes()
        task.results.close()
        return found

    fresh = [trained(None, first) for first in (False, True)]
    assert fresh[0] != fresh[1]
    for _ in range(2):                              # the second time everything is found
        assert [trained(Store(tmp_path), first) for first in (False, True)] == fresh


def test_moments_outlive_nothing_but_their_part() -> None:
    task = Task(SPEC, 2, 7)
    node, other = (task.for_node("client0", 0, lambda: 1) for _ in range(2))
    start = task.initial_parameters()
    assert node.local_update(start)[0].tobytes() == other.local_update(start)[0].tobytes()
    with pytest.raises(TaskError, match=r"^solver: keep: expected a scheme whose clients train on"):
        node.local_update(start, share=1)


@pytest.mark.parametrize(("change", "said"), [
    (("stop:", "fuse: 2\nstop:"), "the solver: expected sgd or adam without clip, schedule, accumulate and keep"),
    (("stop:", "attacks: [{nodes: {fraction: 0.5}, update: {name: alie, z: 1.5}, knows: all}]\nstop:"),
     "the updates of others cannot be computed again without the moments that they keep"),
    (("schemes: [fedavg]", "schemes: [scaffold]"), "scaffold needs sgd"),
    (("schemes: [fedavg]", "schemes: [{name: split, cut: 0}]"), "solver.keep = True  expected none: a piece of"),
    (("schemes: [fedavg]", "schemes: [vertical]"), "solver.keep = True  expected none: a piece of"),
])
def test_what_does_not_go_with_it_is_refused(change: tuple[str, str], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(TEXT.replace(*change))


def test_schemes_of_plain_descent_refuse_steps_that_are_cut_or_scheduled() -> None:
    text = TEXT.replace(SOLVER, "{sgd: {lr: 0.1, steps: 2, batch: 16, clip: 1}}").replace("[fedavg]", "[scaffold]")
    with pytest.raises(ScenarioError, match="scaffold needs steps of one size along gradients as they are"):
        loads(text)
