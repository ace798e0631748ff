"""Under `training: skip` one node of a class answers for all of it, and the run is the one in which each is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul import engine
from emul.base import rows as R
from emul.base.errors import RoleFailed
from emul.registry import schemes
from emul.roles import Message, Node, Scheme, Vector
from emul.roles.events import Drop, Entered, Event
from emul.scenario import loads
from emul.testing import Ran, Shuffled
from emul.testing.world import NoParams, run_wiring
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: alike
seed: 7
topology: {generator: star, clients: CLIENTS}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task: {data: {set: digits}, partition: {bootstrap: 8}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 3}
"""
QUALIFIED = sorted(name for name in schemes.known() if schemes.find(name).interchangeable)
JUDGING = {"foolsgold", "median"}           # variants with a rule that needs training


class Posting(Shuffled):
    """Keeps what the kernel posts."""

    def __init__(self, workers: int, seed: int = 1) -> None:
        super().__init__(workers, seed)
        self.posted: list[Event] = []

    def post(self, worker: int, event: Event) -> None:
        self.posted.append(event)
        super().post(worker, event)

    @property
    def entered(self) -> list[int]:
        """Those that were asked what they do in a round, one after the other."""
        return [event.node for event in self.posted if type(event) is Entered and event.round and event.node]

    @property
    def left(self) -> int:
        """Messages that lie in a worker, or wait for being shipped."""
        return sum(len(core._payloads) for core in self._cores) + sum(map(len, self._outboxes))


def text(scheme: str = "fedavg", clients: int = 6) -> str:
    return TEXT.replace("SCHEME", scheme).replace("CLIENTS", str(clients))


def ran(scenario: str, *sets: str, pool: Any = None, served: bool = True,
        costs: dict[str, float] | None = None) -> Ran:
    """served: as it is; else every node is asked."""
    loaded = loads(scenario, "alike", list(sets))
    (name, raw), = loaded.schemes
    chosen = Twin() if pool is None else pool
    source = None if costs is None else engine.CostSource(
        "profile", {f"{name}/{key}": [seconds, 0.0] for key, seconds in costs.items()})
    wiring = engine.wire(loaded, name, raw, chosen.workers, costs=source)
    if not served:
        wiring = replace(wiring, plan=replace(wiring.plan, classes=()))
    found = run_wiring(wiring, chosen)
    assert found.invariants.violations == []
    return found


@pytest.mark.parametrize("scheme", [name for name in QUALIFIED if name not in JUDGING])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_one_client_a_round_is_asked_and_the_run_is_that_of_all(scheme: str, workers: int) -> None:
    pool = Posting(workers)
    found = ran(text(scheme), pool=pool)
    assert pool.entered == [1, 1, 1]
    assert found.digest == ran(text(scheme), served=False).digest


def test_one_of_each_number_of_samples_and_speed_is_asked() -> None:
    sets = ["nodes=[{match: 'client[12]', speed: 2}, {match: client6, speed: 3}]", "stop.rounds=1"]
    pool = Posting(2)
    costs = {"client/train": 0.01, "server/aggregate": 0.0}
    found = ran(text(), *sets, pool=pool, costs=costs)
    assert sorted(pool.entered) == [1, 3, 6]
    assert found.digest == ran(text(), *sets, served=False, costs=costs).digest
    pool = Posting(2)
    ran(text(clients=10), "task.partition={sizes: linear}", pool=pool)          # no two have as many
    assert len(pool.entered) == 3 * 10


def test_computations_that_take_time_are_imitated_too() -> None:
    pool, costs = Posting(2), {"client/train": 0.01, "server/aggregate": 0.001}
    found = ran(text(), pool=pool, costs=costs)
    assert pool.entered == [1, 1, 1]
    assert found.digest == ran(text(), served=False, costs=costs).digest


@pytest.mark.parametrize("edit", [
    "record={payloads: [Update]}", "training=run", "faults=[{at: 1 h, node: client2, crash: true}]",
    "faults=[{at: 10 ms, node: client2, slow: 2}]",
    "schemes=[{name: fedavg, compress: sign}]", "schemes=[{name: fedavg, personal: true}]"])
def test_where_answers_may_differ_every_client_is_asked(edit: str) -> None:
    pool = Posting(2)
    found = ran(text(), edit, "stop.rounds=2", pool=pool)
    assert sorted(pool.entered) == sorted([1, 2, 3, 4, 5, 6] * 2)
    assert found.digest == ran(text(), edit, "stop.rounds=2", served=False).digest


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_frames_stay_but_those_of_the_newest_example(workers: int) -> None:
    pool = Posting(workers)
    ran(text(), "stop.rounds=5", pool=pool)
    assert pool.left <= 2                       # in its worker and in the server's
    assert any(type(event) is Drop for event in pool.posted)


# ---- roles of its own ----

@dataclass(frozen=True)
class Task(Message):
    body: Vector


@dataclass(frozen=True)
class Done(Message):
    samples: int
    who: int


async def server(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Task(np.zeros(600, np.float32)))
            got = await node.gather(Done, node.clients, timeout_s=0.06)
            node.report(received=len(got), sum=sum(done.samples + done.who for done in got.values()))


async def plain(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Task, node.server)
            node.send(node.server, Done(await node.compute("train", node.task.samples), 0))


async def abandoning(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server, on_new_round="abandon"):
        with round_:
            await node.recv(Task, node.server)
            node.send(node.server, Done(await node.compute("train", node.task.samples), 0))
            await node.compute("rest", node.task.samples)


async def finishing(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Task, node.server)
            samples = await node.compute("train", node.task.samples)
            await node.compute("rest", node.task.samples)
            node.send(node.server, Done(samples, 0))


async def drawing(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Task, node.server)
            node.send(node.server, Done(int(node.rng.integers(100)), 0))


async def naming(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server, on_new_round="abandon"):
        with round_:
            await node.recv(Task, node.server)
            await node.compute(f"train {node.id}", node.task.samples, cost_s=0.05)
            node.send(node.server, Done(0, 0))


def of_roles(client: Callable[..., Any]) -> Scheme[Any]:
    return Scheme(name="lent", params=NoParams, roles={"server": server, "client": client}, messages=(Task, Done),
                  stateless=("client",), interchangeable=("client",), oblivious=True)


def lent(client: Callable[..., Any], *sets: str, **how: Any) -> Ran:
    with schemes.lend("lent", of_roles(client)):
        return ran(text("lent"), *sets, **how)


JITTER = "links=[{match: '*', latency: {distribution: uniform, mean: 20 ms, jitter: 15 ms}, bandwidth: 20 Mbit/s}]"


@pytest.mark.parametrize("train_s", [0.0, 0.015, 0.03, 0.07, 0.12])
@pytest.mark.parametrize("rest_s", [0.0, 0.02])
@pytest.mark.parametrize("client", [abandoning, finishing])
def test_an_imitator_whose_round_is_over_is_asked_from_its_entry_on(
        client: Callable[..., Any], rest_s: float, train_s: float) -> None:
    costs = {"client/train": train_s, "client/rest": rest_s}
    for seed in range(3):
        found = lent(client, JITTER, f"seed={seed}", pool=Posting(1 + seed, seed), costs=costs)
        assert found.digest == lent(client, JITTER, f"seed={seed}", served=False, costs=costs).digest


def test_a_role_that_draws_is_found_out() -> None:
    pool = Posting(2)
    found = lent(drawing, pool=pool)
    assert sorted(pool.entered) == sorted([1, 2, 3, 4, 5, 6] * 3)
    assert found.digest == lent(drawing, served=False).digest


def test_an_imitator_that_turns_out_to_do_otherwise_fails_the_run() -> None:
    with pytest.raises(RoleFailed, match=r"the scheme must not have 'client' in `interchangeable`$"):
        lent(naming, JITTER, "stop.rounds=6")


def test_small_messages_that_travel_with_their_events_have_the_senders_of_their_copies() -> None:
    pool = Posting(3)
    found = lent(plain, pool=pool)
    assert pool.entered == [1, 1, 1]
    assert found.digest == lent(plain, served=False).digest
    assert {row[4]["received"] for row in found.rows if row[0] == R.REPORT} == {6}


def test_interchangeable_names_stateless_roles() -> None:
    wrong = replace(of_roles(plain), stateless=())
    assert wrong.faults() == "has client in interchangeable and not in stateless"
    assert replace(wrong, interchangeable=("clients",)).faults() == "has no role clients, which interchangeable names"


# ---- random scenarios ----

LATENCIES = ["20 ms", "{distribution: uniform, mean: 20 ms, jitter: 15 ms}",
             "{distribution: lognormal, median: 20 ms, sigma: 0.5}"]
FAULTS = ["{at: 50 ms, node: client2, crash: true, for: 40 ms}", "{at: 30 ms, node: client1, crash: true}",
          "{at: 45 ms, link: 'client3->server', down: true, for: 35 ms}", "{at: 10 ms, node: client3, slow: 3}",
          "{node: client2, stage: Update, drop: true, rounds: 2}"]


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[str, list[str], dict[str, float] | None]:
    name = draw(st.sampled_from([name for name in QUALIFIED if name not in JUDGING]))
    deadline = draw(st.sampled_from(["", ", deadline: 25 ms", ", deadline: 45 ms", ", deadline: 1 s"]))
    entry = f"{{name: {name}{deadline}"
    if name == "fedavg":
        entry += draw(st.sampled_from(["", ", fraction: 0.5", ", selection: {available: {count: 3, window: 60 ms}}",
                                       ", compress: {down: {uniform: {bits: 8}}}", ", personal: true"]))
    rule = f'match: "*", latency: {draw(st.sampled_from(LATENCIES))}'
    rule += draw(st.sampled_from(["", ", bandwidth: 2 Mbit/s", ", bandwidth: 2 Mbit/s, sharing: maxmin"]))
    rule += draw(st.sampled_from(["", ", outage: {model: bernoulli, p: 0.2, per: message}",
                                  ", outage: {model: bernoulli, p: 0.2, per: round}"]))
    sets = [f"links=[{{{rule}}}]", f"stop.rounds={draw(st.integers(1, 4))}", f"seed={draw(st.integers(0, 99))}",
            f"task.partition={draw(st.sampled_from(['{bootstrap: 8}', 'iid', '{sizes: linear}']))}"]
    sets += draw(st.sampled_from([[], ["nodes=[{match: 'client[24]', speed: 2}]"]]))
    faults = draw(st.lists(st.sampled_from(FAULTS), max_size=2, unique=True)) if draw(st.booleans()) else []
    sets += [f"faults=[{', '.join(faults)}]"] if faults else []
    costs = draw(st.sampled_from([None, {"client/train": 0.012, "server/aggregate": 0.001, "server/select": 0.0,
                                         "server/encode": 0.0, "client/decode": 0.002}]))
    return text(entry + "}", draw(st.integers(3, 9))), sets, costs


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([abandoning, finishing, plain]), st.sampled_from([0.0, 0.005, 0.02, 0.04, 0.07, 0.1]),
       st.sampled_from([0.0, 0.01, 0.05]), st.sampled_from(["", ", outage: {model: bernoulli, p: 0.2, per: message}"]),
       st.integers(0, 999), st.integers(1, 3))
def test_roles_that_are_cut_and_lose_messages_run_the_same(
        client: Callable[..., Any], train_s: float, rest_s: float, outage: str, seed: int, workers: int) -> None:
    sets = JITTER.replace("jitter: 15 ms}", f"jitter: 19 ms}}{outage}"), f"seed={seed}", "stop.rounds=6"
    costs = {"client/train": train_s, "client/rest": rest_s}
    found = lent(client, *sets, pool=Posting(workers, seed), costs=costs)
    assert found.digest == lent(client, *sets, served=False, costs=costs).digest


@settings(max_examples=25, deadline=None)
@given(scenarios(), st.integers(1, 3), st.integers(0, 9))
def test_a_run_is_the_same_whether_all_are_asked_or_one_of_each_class(
        case: tuple[str, list[str], dict[str, float] | None], workers: int, seed: int) -> None:
    scenario, sets, costs = case
    asked = ran(scenario, *sets, served=False, costs=costs)
    served = ran(scenario, *sets, pool=Shuffled(workers, seed), costs=costs)
    assert served.digest == asked.digest
    assert served.kernel.activations == asked.kernel.activations
    assert served.kernel.rounds_missed == asked.kernel.rounds_missed
