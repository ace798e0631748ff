"""Nodes that do nothing cost nothing: no coroutine before the first round, none between rounds where a scheme says so,
and a round that costs what its sampled clients cost, whoever else is registered."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks.bench_large import PEAK_TARGET_GIB, WHOLE_TARGET_S, measure, workload
from emul import engine
from emul.base import rows as R
from emul.base.errors import Deadlock, RoleFailed
from emul.kernel import Kernel
from emul.kernel.calendar import Calendar
from emul.learning import partition
from emul.learning.partition import Bootstrap
from emul.learning.shards import Shards
from emul.learning.task import Task
from emul.network import LinkRule
from emul.record.journal import MemoryJournal
from emul.registry import schemes
from emul.roles import Message, Node, Scheme
from emul.roles.events import Event
from emul.scenario import Crash, Stop, loads
from emul.testing import MS, NoParams, Ran, Shuffled, check_scheme, run_world
from emul.workers.setup import Setup
from emul.workers.twin import Twin


@dataclass(frozen=True)
class Ask(Message):
    number: int


@dataclass(frozen=True)
class Tell(Message):
    number: float


MESSAGES = (Ask, Tell)


async def server(node: Node, p: Any) -> None:
    """Asks two clients a round, others in each."""
    async for round_ in node.rounds():
        with round_:
            first = 2 * (round_ - 1) % len(node.clients)
            chosen = node.clients[first:first + 2]
            node.broadcast(chosen, Ask(int(round_)))
            await node.gather(Tell, chosen)


async def plain(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            asked = await node.recv(Ask, node.server)
            node.send(node.server, Tell(float(node.stream("tell").random()) + asked.number))


class Watching(Twin):
    """A twin that looks at what its worker holds, whenever it answers; `keep`: no role is ended before its time."""

    def __init__(self, keep: bool = False) -> None:
        super().__init__()
        self.keep = keep
        self.most = Counter[str]()

    def open(self, setups: Sequence[Setup]) -> None:
        super().open(setups)
        assert self._core is not None
        self._core.keeps_roles = self.keep

    def post(self, worker: int, event: Event) -> None:
        super().post(worker, event)
        core = self._core
        assert core is not None
        held: list[tuple[str, Any]] = [("roles", core._running), ("memories", core._memories), ("tasks", core._tasks)]
        for name, those in held:
            self.most[name] = max(self.most[name], len(those))
        self.most["jobs"] = max(self.most["jobs"], len(core._jobs.waiting))
        waiting = core._jobs.waiting
        self.most["results"] = max(self.most["results"], sum(job.result is not None for *_, job in waiting))


def scheme(client: Callable[..., Any], *stateless: str) -> Scheme[Any]:
    return Scheme(name="large", params=NoParams, roles={"server": server, "client": client}, messages=MESSAGES,
                  stateless=stateless)


def both(client: Callable[..., Any], *stateless: str, clients: int = 40, rounds: int = 3,
         **how: Any) -> tuple[Ran, Watching]:
    """The run, and what it held; the same run with every role kept is the same."""
    resting, keeping = Watching(), Watching(keep=True)
    found, kept = (run_world(scheme(client, *stateless), clients=clients, stop=Stop(rounds=rounds), pool=pool, **how)
                   for pool in (resting, keeping))
    assert keeping.most["roles"] == clients + 1
    assert found.digest == kept.digest
    return found, resting


# --- roles that have not begun -------------------------------------------------------------------------------------

def test_a_client_that_is_never_asked_has_no_coroutine_and_no_memory() -> None:
    world, held = both(plain)
    assert held.most["roles"] == held.most["memories"] == 1 + 3 * 2         # the server, two clients a round
    assert sum(row[0] == R.START for row in world.rows) == 41               # it began in virtual time, as any other


def test_of_a_learning_task_it_has_nothing_either() -> None:
    text = """
emul: 1
name: large
seed: 3
topology: {generator: star, clients: 300}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits}, partition: {bootstrap: 5}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 5}}}
compute: {mode: zero}
schemes: [{name: fedavg, fraction: 0.02}]
stop: {rounds: 4}
"""
    scenario, held = loads(text), Watching()
    wiring = engine.wire(scenario, *scenario.schemes[0])
    engine.execute(wiring, held, MemoryJournal({}))
    assert held.most["memories"] == held.most["tasks"] <= 1 + 4 * 6
    assert held.most["roles"] <= 1 + 6 + 1              # of those that have left the round before none is kept
    assert held.most["results"] <= 6                    # of computations that are done nobody holds the result
    assert held.most["jobs"] <= 2 * 6 + 101


def test_computations_that_are_done_leave_the_queue_of_a_worker_that_is_never_idle() -> None:
    async def busy(node: Node, p: Any) -> None:
        for _ in range(500):
            await node.compute("work", float, 1)

    held = Watching()
    run_world(scheme(busy), clients=1, pool=held)
    assert 100 < held.most["jobs"] <= 103


async def with_state(node: Node, p: Any) -> None:
    s = node.state([0])
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            s[0] += 1
            node.send(node.server, Tell(s[0]))


async def with_stream(node: Node, p: Any) -> None:
    drawn = node.rng.random()
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Tell(drawn))


async def with_greeting(node: Node, p: Any) -> None:
    node.send(node.server, Tell(-1.0))
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Tell(1.0))


async def with_set_up(node: Node, p: Any) -> None:
    code = await node.compute("code", float, 3)
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Tell(code))


@pytest.mark.parametrize("client", [with_state, with_stream, with_greeting, with_set_up])
def test_a_role_that_has_done_anything_stays(client: Callable[..., Any]) -> None:
    assert both(client)[1].most["roles"] == 41


async def with_clock(node: Node, p: Any) -> None:
    begun, size = node.now, len(node.clients)           # plain values, the same whenever it begins
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Tell(begun + size))


def test_a_role_that_begins_late_sees_the_time_at_which_it_began() -> None:
    world, held = both(with_clock)
    assert held.most["roles"] == 7
    assert world.kernel.end_ns > 0


def test_clients_that_crash_before_their_first_round_and_return() -> None:
    faults = [Crash(5 * MS, "client1", 20 * MS), Crash(5 * MS, "client3"), Crash(5 * MS, "client4", 20 * MS, True),
              Crash(25 * MS, "client5", 500 * MS)]
    world, held = both(plain, faults=faults, rounds=4)
    assert held.most["roles"] < 20
    assert world.digest == run_world(scheme(plain), clients=40, stop=Stop(rounds=4), faults=faults,
                                     lookahead=False).digest


def test_clients_without_a_further_round_end_when_the_server_has() -> None:
    async def brief(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                node.send(node.server, Tell(0.0))
        node.report(ended=node.now)

    world, _ = both(brief, links=[LinkRule("*", latency_ns=0)])         # so that they still hear of its end
    assert sum(row[0] == R.FINISH for row in world.rows) == 41
    assert sum(row[0] == R.REPORT for row in world.rows) == 40


begun: list[int] = []


async def forgetful(node: Node, p: Any) -> None:
    """Asks for its rounds in another way when it begins again: what no role can do that depends on its node alone."""
    begun.append(node.id)
    async for round_ in node.rounds(of=node.server, on_new_round="finish" if begun.count(node.id) == 1 else "abandon"):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Tell(0.0))


def test_a_role_that_begins_otherwise_the_second_time_fails_the_run() -> None:
    begun.clear()
    with pytest.raises(RoleFailed, match="client1: its role was ended while it waited for a round, begun anew, and did "
                                         "otherwise than before: it depends on more than its node and parameters"):
        run_world(scheme(forgetful), clients=5)


# --- between rounds -------------------------------------------------------------------------------------------------

async def lingering(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            asked = await node.recv(Ask, node.server)
            await node.sleep(0.001)
            node.send(node.server, Tell(asked.number))


def test_what_a_stateless_role_held_is_let_go_when_its_round_is_over() -> None:
    _, held = both(lingering, "client", rounds=15)
    assert held.most["memories"] == 31
    assert held.most["roles"] == 1 + 2                  # the server and its two


def test_a_stateless_role_keeps_state_and_streams() -> None:
    both(with_state, "client", clients=4, rounds=8)
    both(plain, "client", clients=4, rounds=8, faults=[Crash(45 * MS, "client1", 30 * MS)])


async def noted(node: Node, p: Any) -> None:
    begun.append(node.id)
    await plain(node, p)


def test_a_stateless_role_begins_where_it_enters_a_round_and_at_few_nodes_before() -> None:
    begun.clear()
    found = run_world(scheme(noted, "client"), clients=40, stop=Stop(rounds=3))
    assert begun[:6] == [1, 2, 4, 8, 16, 32]
    assert begun[6:] == [1, 2, 3, 4, 5, 6]              # two clients a round
    assert found.digest == run_world(scheme(plain), clients=40, stop=Stop(rounds=3)).digest


async def divided(node: Node, p: Any) -> None:
    """Asks for rounds in two ways, by its number."""
    async for round_ in node.rounds(of=node.server, on_new_round="finish" if node.index < 20 else "abandon"):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Tell(0.0))


def test_a_stateless_role_whose_nodes_ask_for_rounds_in_several_ways_fails_the_run_at_once() -> None:
    with pytest.raises(RoleFailed, match="client32: its role began otherwise than that of another node: the scheme "
                                         "must not have 'client' in `stateless`"):
        run_world(scheme(divided, "client"), clients=40)
    assert run_world(scheme(divided), clients=40).digest


async def divided_by_worker(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server, on_new_round="abandon" if node.id % 2 else "finish"):
        with round_:
            await node.recv(Ask, node.server)


def test_it_fails_too_where_all_nodes_of_one_worker_ask_in_one_way_and_those_of_another_in_another() -> None:
    with pytest.raises(RoleFailed, match="client2: its role began otherwise than that of another node"):
        run_world(scheme(divided_by_worker, "client"), clients=4, pool=Shuffled(2))


async def drawing_first(node: Node, p: Any) -> None:
    begun.append(node.id)
    node.rng.random()
    await plain(node, p)


def test_a_stateless_role_that_does_something_before_it_asks_begins_at_all_nodes() -> None:
    begun.clear()
    found = run_world(scheme(drawing_first, "client"), clients=40, stop=Stop(rounds=3), pool=Shuffled(3))
    assert set(begun) == set(range(1, 41))
    assert found.digest == run_world(scheme(plain), clients=40, stop=Stop(rounds=3)).digest


async def counting(node: Node, p: Any) -> None:
    count = 0
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            count += 1
            node.send(node.server, Tell(float(count)))
            node.report(count=count)


def test_a_role_that_is_called_stateless_and_is_not_is_found_out() -> None:
    wrong = scheme(counting, "client")
    with schemes.lend("large", wrong), pytest.raises(AssertionError, match="with every role kept between its rounds"):
        check_scheme("large", SMALL, pools=[])


SMALL = """
emul: 1
name: small
seed: 3
topology: {generator: star, clients: 2}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 5}}}
compute: {mode: zero}
schemes: [large]
stop: {rounds: 3}
"""


def test_stateless_names_roles(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrongly_stateless.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Params:\n    pass\n\n"
        "async def server(node, p):\n    pass\n\nfrom emul.roles import Scheme\n"
        "SCHEME = Scheme(params=Params, roles={'server': server}, stateless=('clients',))\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(schemes.NotAScheme, match="has no role clients, which stateless names"):
        schemes.find("wrongly_stateless", ["wrongly_stateless"])


# --- a round costs what its clients cost ----------------------------------------------------------------------------

def work_of_rounds(clients: int, monkeypatch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """What the kernel does in each round after the first: activations, entries on the calendar, nodes looked at."""
    work, marks = Counter[str](), []
    add, latency = Calendar.add, type(NETWORK).latency_ns

    def counted_add(calendar: Calendar, time: int, entry: Any) -> None:
        work["entries"] += 1
        add(calendar, time, entry)

    def counted_latency(network: Any, u: int, v: int) -> int:
        work["latencies"] += 1
        return latency(network, u, v)

    def told(kernel: Kernel) -> None:
        if kernel.round_ended:
            marks.append(Counter(work, activations=kernel.activations))

    with monkeypatch.context() as patch, schemes.lend("large", scheme(plain, "client")):
        patch.setattr(Calendar, "add", counted_add)
        patch.setattr(type(NETWORK), "latency_ns", counted_latency)
        scenario = loads(SMALL.replace("clients: 2", f"clients: {clients}").replace("task:", "task: ").replace(
            "model:", "partition: {bootstrap: 3}, model:").replace("rounds: 3", "rounds: 6"), check=False)
        wiring = engine.wire(scenario, "large", {})
        engine.execute(wiring, Twin(), MemoryJournal({}), told)
    return [b - a for a, b in itertools.pairwise(marks)]


def _network() -> Any:
    from emul.network import TopologySpec, build
    return build(TopologySpec(generator="star", clients=1), [], 1)


NETWORK = _network()


def test_the_work_of_a_round_is_that_of_its_sampled_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (work_of_rounds(clients, monkeypatch) for clients in (20, 2_000))
    assert few == many
    assert all(work["activations"] == 6 and work["entries"] <= 9 and work["latencies"] <= 8 for work in many)


@pytest.mark.slow
def test_ten_thousand_registered_clients_meet_their_targets() -> None:
    found = measure(workload(10_000))
    assert found.whole_s < WHOLE_TARGET_S
    assert found.peak_bytes < PEAK_TARGET_GIB[10_000] * 2**30


def test_a_deadlock_of_many_is_told_in_few_lines() -> None:
    async def stuck(node: Node, p: Any) -> None:
        await node.recv_any(Ask)

    with pytest.raises(Deadlock) as told:
        run_world({"server": stuck, "client": plain}, clients=3_000)
    text = str(told.value)
    assert "client1 and 2,999 more (client): waiting for a round after 0 of server (test_large.py:" in text
    assert len(text.splitlines()) == 3

    async def asking(node: Node, p: Any) -> None:
        await node.gather(Tell, node.clients)

    async def silent(node: Node, p: Any) -> None:
        await node.recv_any(Ask)

    with pytest.raises(Deadlock, match=r"Tell from client1, .*client50 and 2,950 more \(test_large"):
        run_world({"server": asking, "client": silent}, clients=3_000)


# --- data ------------------------------------------------------------------------------------------------------------

def test_a_bootstrap_partition_is_a_key_for_any_number_of_clients() -> None:
    labels = np.zeros(1_500, np.int64)
    few, many = (partition.make({"bootstrap": 15}, labels, clients, 7) for clients in (10, 10**7))
    assert many == few == Bootstrap(1_500, 15, 7)
    np.testing.assert_array_equal(many.indices(9), few.indices(9))
    assert len(many.indices(10**7 - 1)) == many.size(10**7 - 1) == 15


@pytest.mark.parametrize("spec", ["iid", {"dirichlet": 0.3}, {"classes": 2}])
def test_other_partitions_are_views_on_one_array(spec: Any) -> None:
    labels = np.arange(1_000) % 10
    made = partition.make(spec, labels, 90, 7)
    assert isinstance(made, Shards)
    assert all(made.indices(client).base is made.order for client in range(90))
    assert sum(made.size(client) for client in range(90)) == len(made.order)
    assert not made.indices(3).flags.writeable


def test_evaluating_a_model_for_each_client_is_what_each_would_say() -> None:
    task = Task({"data": {"set": "digits"}, "partition": {"bootstrap": 7}, "model": "logistic",
                 "solver": {"sgd": {"lr": 0.1, "steps": 1}}}, 30, 5)
    vector = task.initial_parameters()
    assert task.evaluate_each(vector) == [task.evaluate_client(client, vector) for client in range(30)]
