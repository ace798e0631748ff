"""Looking ahead must not show: the same run as one event at a time, and in whatever real order workers answer.

Clients run programs drawn at random, over links drawn at random, latencies and costs of zero included. The reference
is the same kernel without lookahead, which takes one step after the other as the total order is written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import NothingToReceive, TimedOut
from emul.network import LinkRule, OutageSpec, TopologySpec
from emul.network.links.features import Queue, Switching
from emul.network.links.transport import Arq
from emul.network.models.latency import JitterSpec
from emul.roles import Message, Node
from emul.scenario import Crash, LinkDown, Stop
from emul.scenario.faults import Leave
from emul.testing import MS, Ran, Shuffled, run_world

LONG = 10_000                       # ms: the observer outlives all programs


@dataclass(frozen=True)
class Note(Message):
    number: int
    body: bytes


@dataclass(frozen=True)
class Free(Message, unscoped=True):
    number: int


MESSAGES = (Note, Free)


async def observer(node: Node, p: Any, until: int) -> None:
    await node.sleep(until / 1e3)


@dataclass(frozen=True)
class Do:
    """One instruction; `who` are places among the other clients, times are ms."""

    what: str
    who: tuple[int, ...] = (0,)
    time: int = 0
    number: int = 1


@dataclass(frozen=True)
class Program:
    outside: tuple[Do, ...]
    rounds: tuple[tuple[Do, ...], ...]
    follows: tuple[int, ...] | None     # places of leaders; None: counts by itself
    quorum: int
    abandon: bool


async def client(node: Node, p: Any, programs: dict[str, Program]) -> None:
    program = programs[node.name]
    for do in program.outside:
        await perform(node, do)
    if not program.rounds:
        return
    if program.follows is None:
        rounds = node.rounds()
    else:
        leaders = sorted({node.peers[i % len(node.peers)] for i in program.follows})
        rounds = node.rounds(of=leaders, quorum=min(program.quorum, len(leaders)),
                             on_new_round="abandon" if program.abandon else "finish")
    async for round_ in rounds:
        with round_:
            for do in program.rounds[(round_ - 1) % len(program.rounds)]:
                await perform(node, do)
        if round_ >= len(program.rounds):
            break


async def perform(node: Node, do: Do) -> None:
    who = sorted({node.peers[i % len(node.peers)] for i in do.who})
    timeout = do.time / 1e3
    try:
        if do.what == "send":
            node.broadcast(who, Note(do.number, bytes(do.number)))
        elif do.what == "free":
            node.broadcast(who, Free(do.number))
        elif do.what == "self":
            node.send(node.id, Note(do.number, b""))
        elif do.what == "sleep":
            await node.sleep(timeout)
        elif do.what == "compute":
            await node.compute(f"{do.time} ms", sum, (1, 2))
        elif do.what == "abstain":
            node.abstain(who, Note)
        elif do.what == "gather":
            await node.gather(Note, who)
        elif do.what == "gather until":
            await node.gather((Note, Free), who, timeout_s=timeout, need=1 + do.number % len(who))
        elif do.what == "recv":
            await node.recv(Note, who[0])
        else:
            await node.recv_any(timeout_s=timeout)
    except (TimedOut, NothingToReceive):
        if node.stream("coin").random() < 0.5:      # in a round: sometimes what ends it
            raise


TIMES = [0, 0, 1, 2, 3, 5, 10, 20]
WHATS = ["send", "send", "send", "free", "self", "sleep", "compute", "abstain", "gather", "gather until", "recv", "any"]
does = st.builds(Do, st.sampled_from(WHATS), st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple),
                 st.sampled_from(TIMES), st.integers(1, 400))
bodies = st.lists(does, max_size=4).map(tuple)
programs = st.builds(Program, st.lists(does, max_size=2).map(tuple), st.lists(bodies, max_size=3).map(tuple),
                     st.none() | st.lists(st.integers(0, 4), min_size=1, max_size=2).map(tuple),
                     st.integers(1, 2), st.booleans())
names = st.sampled_from(["client1", "client2", "client3", "client4"])
ends = st.sampled_from(["client1", "client2", "client3", "client4", "server", "*"])


def rule(source: str, destination: str, latency: int, bandwidth: int | None, p: float) -> LinkRule:
    return LinkRule(f"{source}->{destination}", latency_ns=latency * MS, bandwidth_bps=bandwidth,
                    outage=OutageSpec(p, "round") if p else None)


# what all links of a world are besides: nothing, or one of what a link can be
SLOW = LinkRule("*", bandwidth_bps=200_000)
KINDS: dict[str, list[LinkRule]] = {
    "plain": [],
    "flows": [SLOW, LinkRule("*", sharing="maxmin")],
    "flows behind a queue": [SLOW, LinkRule("client*->server", sharing="maxmin"),
                                      LinkRule("server->client*", queue=Queue(300))],
    "packetized": [SLOW, LinkRule("*", switching=Switching("packetized", 100))],
    "drawn latencies": [LinkRule("*", latency_ns=JitterSpec("uniform", 4 * MS, 2 * MS))],
    "out of order": [SLOW, LinkRule("*", latency_ns=JitterSpec("uniform", 4 * MS, 3 * MS, reorder=True))],
    "repeated": [SLOW, LinkRule("*", transport=Arq("stop_and_wait", 3 * MS, 3))],
}


def of_kind(kind: str, rules: tuple[LinkRule, ...]) -> list[LinkRule]:
    """Drawn latencies are everywhere."""
    return [*rules, *KINDS[kind]]


moments = st.integers(0, 40).map(lambda ms: ms * MS)
crashes = st.builds(Crash, moments, names, st.none() | st.integers(1, 20).map(lambda ms: ms * MS))
leaves = st.builds(Leave, moments, names, st.none() | st.integers(1, 20).map(lambda ms: ms * MS))
downs = st.builds(LinkDown, moments, names, st.just("server"), st.none() | st.integers(1, 20).map(lambda ms: ms * MS))


@dataclass(frozen=True)
class Case:
    programs: dict[str, Program]
    topology: str
    links: tuple[LinkRule, ...]
    faults: tuple[Any, ...]
    kind: str

    def run(self, until: int = LONG, **how: Any) -> Ran:
        return run_world(
            {"server": partial(observer, until=until), "client": partial(client, programs=self.programs)},
            topology=TopologySpec(generator=self.topology, clients=len(self.programs)),
            links=(LinkRule("*", latency_ns=MS), *of_kind(self.kind, self.links)), faults=self.faults,
            costs={f"{ms} ms": ms / 1e3 for ms in set(TIMES)}, stop=Stop(rounds=99), **how)


def case(chosen: list[Program], topology: str, links: list[LinkRule], faults: list[Any], kind: str) -> Case:
    named = {f"client{i}": program for i, program in enumerate(chosen, 1)}
    return Case(named, topology, tuple(links), tuple(f for f in faults if of_node(f) in named), kind)


def of_node(fault: Crash | Leave | LinkDown) -> str:
    return fault.source if isinstance(fault, LinkDown) else fault.node


def cases(least_latency: int) -> st.SearchStrategy[Case]:
    latencies = st.sampled_from([0, 0, 1, 1, 2, 3, 7]).map(lambda ms: max(ms, least_latency))
    rules = st.builds(rule, ends, ends, latencies, st.sampled_from([None, None, 200_000]),
                      st.sampled_from([0, 0, 0.3, 1.0]))
    return st.builds(case, st.lists(programs, min_size=2, max_size=4), st.sampled_from(["star", "star_mesh"]),
                     st.lists(rules, max_size=4),
                     st.lists(crashes | leaves | downs, max_size=2, unique_by=lambda f: (type(f), of_node(f))),
                     st.sampled_from(sorted(KINDS)))


def timelines(world: Ran) -> dict[str, list[tuple[Any, ...]]]:
    """What every node lived through, in its own order."""
    return {name: world.of(name) for name in world.header["names"]}


def links_of(world: Ran) -> list[tuple[Any, ...]]:
    return sorted(row for row in world.rows if row[0] in (R.HOP, R.LINK))


def assert_same_lives(fast: Ran, slow: Ran) -> None:
    for name, life in timelines(slow).items():
        mine = timelines(fast)[name]
        assert mine == life, f"{name} lives otherwise with lookahead"
    assert links_of(fast) == links_of(slow)


quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(cases(least_latency=1))       # at latency 0 nodes are not independent within an instant: see the next tests
@quick
def test_every_node_lives_the_same_life_with_lookahead_as_one_event_at_a_time(case: Case) -> None:
    fast, slow = case.run(), case.run(lookahead=False)
    assert_same_lives(fast, slow)


@given(cases(least_latency=1), st.integers(1, 60))
@quick
def test_a_run_ends_at_the_same_place_with_lookahead_as_one_event_at_a_time(case: Case, until: int) -> None:
    fast, slow = case.run(until), case.run(until, lookahead=False)
    end = until * MS
    for world in (fast, slow):
        assert world.kernel.end_ns == end
        assert max(row[1] for row in world.rows) == end
    for name, life in timelines(slow).items():
        before = [row for row in life if row[1] < end]
        assert [row for row in timelines(fast)[name] if row[1] < end] == before, f"{name} lives otherwise"


async def returner(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            await node.sleep(0.008)
            return


async def talker(node: Node, p: Any) -> None:
    if node.index == 0:
        await node.sleep(0.0076)
        node.send(node.clients[1], Free(1))
        await node.sleep(0.0014)
    await node.sleep(1.0)


def test_nothing_that_was_looked_ahead_at_is_written_after_the_end() -> None:
    # the server leaves its round and returns at 8 ms in one activation; by then a delivery at 8.6 ms has been taken
    links = [LinkRule("*", latency_ns=10 * MS), LinkRule("client*->client*", latency_ns=MS)]
    fast, slow = (run_world({"server": returner, "client": talker}, links=links, stop=Stop(rounds=3), lookahead=ahead,
                            topology=TopologySpec(generator="star_mesh", clients=2)) for ahead in (True, False))
    assert max(row[1] for row in fast.rows) == fast.kernel.end_ns == 8 * MS
    assert fast.digest == slow.digest


@given(cases(least_latency=0), st.integers(1, 4), st.integers(0, 2**32))
@quick
def test_a_run_is_the_same_for_workers_that_answer_in_any_real_order(case: Case, workers: int, seed: int) -> None:
    assert case.run(pool=Shuffled(workers, seed)).digest == case.run().digest


@given(cases(least_latency=0))
@quick
def test_the_invariants_hold_of_every_random_world(case: Case) -> None:
    assert not case.run().invariants.violations
