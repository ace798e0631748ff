"""Activities beside a computation: what runs in which order, what ends them, and that no real order shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import Cancelled, Deadlock, NothingToReceive, RoleFailed, TimedOut
from emul.network import LinkRule, TopologySpec
from emul.record.columns import columns
from emul.record.tables import computations_of
from emul.roles import Message, Node, Scheme
from emul.scenario import Crash, FusedTraining, Stop
from emul.testing import MS, Ran, Shuffled, run_world
from emul.testing.world import NoParams

HERE = Path(__file__).name
LATENCY = LinkRule("*", latency_ns=10 * MS)


@dataclass(frozen=True)
class Chunk(Message, unscoped=True):
    number: int


@dataclass(frozen=True)
class Word(Message):
    number: int


MESSAGES = (Chunk, Word)
Behave = Callable[..., Any]


async def until_late(node: Node, p: Any) -> None:
    await node.sleep(5.0)


def run(client: Any, clients: int = 2, server: Any = until_late, lanes: tuple[str, ...] = ("compute",), **how: Any,
        ) -> Ran:
    """A server that only sleeps, unless another is given, and clients of one role."""
    scheme = Scheme(name="world", params=NoParams, roles={"server": server, "client": client}, messages=MESSAGES,
                    lanes=lanes)
    return run_world(scheme, topology=TopologySpec(generator="star_mesh", clients=clients),
                     links=how.pop("links", (LATENCY,)), stop=how.pop("stop", Stop(rounds=3)), **how)


def alone(behave: Behave, **how: Any) -> list[Any]:
    """What one client notes while nobody else does anything."""
    noted: list[Any] = []

    async def client(node: Node, p: Any) -> None:
        await behave(node, noted.append)
    ran = run(client, clients=1, **how)
    assert not ran.invariants.violations
    return noted


# --- order ----------------------------------------------------------------------------------------------------------

def test_an_activity_runs_when_the_one_that_began_it_waits_and_in_the_order_in_which_they_became_able() -> None:
    async def behave(node: Node, note: Any) -> None:
        async def child(name: str, s: float) -> str:
            note(f"{name} begins")
            await node.sleep(s)
            note(f"{name} at {node.now}")
            return name.upper()

        async def nested() -> str:
            inner = node.start(child("inner", 0.0))
            note("nested has begun inner")
            return await inner + "!"
        a, b = node.start(child("a", 0.3)), node.start(child("b", 0.2))
        c = node.start(nested())
        note("main goes on first")
        note([await a, await b, await c, await c])      # those that have ended give their result at once, and again
    assert alone(behave) == [
        "main goes on first", "a begins", "b begins", "nested has begun inner", "inner begins", "inner at 0.0",
        "b at 0.2", "a at 0.3", ["A", "B", "INNER!", "INNER!"]]


def test_a_message_is_for_the_role_itself_then_for_the_activity_that_was_begun_first() -> None:
    got: list[tuple[str, int]] = []

    async def client(node: Node, p: Any) -> None:
        async def take(name: str) -> None:
            got.append((name, (await node.recv_any(Chunk)).number))
        if node.index:
            await node.sleep(0.1)
            for number in range(4):
                node.send(node.clients[0], Chunk(number))
            return
        activities = [node.start(take(name)) for name in "ab"]
        got.append(("role", (await node.recv_any(Chunk)).number))
        for activity in activities:
            await activity
        got.append(("role", (await node.recv_any(Chunk)).number))
    run(client)
    assert sorted(got, key=lambda one: one[1]) == [("role", 0), ("a", 1), ("b", 2), ("role", 3)]


def test_a_role_forwards_while_it_computes() -> None:
    """The chunk goes around the ring of three long before anybody has trained."""
    at: list[tuple[str, int, int]] = []

    async def client(node: Node, p: Any) -> None:
        ring = node.clients
        before, after = ring[node.index - 1], ring[(node.index + 1) % len(ring)]

        async def forward() -> None:
            chunk = await node.recv(Chunk, before)
            at.append((node.name, node.now_ns // MS, chunk.number))
            if chunk.number < len(ring):
                node.send(after, Chunk(chunk.number + 1))
        activity = node.start(forward())
        if not node.index:
            node.send(after, Chunk(1))
        await node.compute("train", sum, (1, 2), cost_s=1.0)
        assert node.now_ns == 1000 * MS
        await activity
    ran = run(client, clients=3)
    assert at == [("client2", 10, 1), ("client3", 20, 2), ("client1", 30, 3)]
    assert not ran.invariants.violations


# --- errors and ends ------------------------------------------------------------------------------------------------

async def failing(node: Node, error: Exception) -> None:
    await node.sleep(0.1)
    raise error


@pytest.mark.parametrize("error", [ValueError("a bug"), TimedOut("no answer")])
def test_an_exception_reaches_whoever_awaits_the_activity(error: Exception) -> None:
    async def behave(node: Node, note: Any) -> None:
        activity = node.start(failing(node, error))
        for _ in range(2):
            try:
                await activity
            except type(error) as e:
                note(str(e))
    assert alone(behave) == [str(error)] * 2


def test_a_failure_of_the_protocol_waits_for_whoever_awaits_it_later() -> None:
    async def behave(node: Node, note: Any) -> None:
        activity = node.start(failing(node, TimedOut("no answer")))
        await node.compute("train", sum, (1,), cost_s=1.0)
        try:
            await activity
        except TimedOut as e:
            note((str(e), node.now))
    assert alone(behave) == [("no answer", 1.0)]


def test_a_bug_that_nobody_awaits_ends_the_run_at_once_with_its_traceback() -> None:
    async def client(node: Node, p: Any) -> None:
        node.start(failing(node, ValueError("a bug")))
        await node.sleep(2.0)
    with pytest.raises(RoleFailed, match=r"client1 \(client\) failed at 0.1 s(.|\n)*in failing(.|\n)*a bug"):
        run(client)


def test_a_failure_that_nobody_has_awaited_is_one_of_the_round_or_of_the_role() -> None:
    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                if round_ == 1:
                    node.start(failing(node, TimedOut("no answer")))
                await node.sleep(0.2)
            if round_ == 2:
                break
        node.start(failing(node, TimedOut("again")))
        await node.sleep(0.2)
    ran = run(client, clients=1)
    left = [(row[3], row[4]) for row in ran.rows if row[0] == R.LEAVE]
    assert left == [(1, "failing: TimedOut: no answer"), (2, "")]
    assert next(row[3] for row in ran.rows if row[0] == R.FINISH) == "failing: TimedOut: again"


def ends(ran: Ran) -> list[tuple[int, int, str]]:
    """(ms, number, why) of the ends of activities."""
    return [(row[1] // MS, row[3], row[4]) for row in ran.rows if row[0] == R.DONE]


def test_activities_end_with_their_round_unless_carried_and_all_with_the_role() -> None:
    async def client(node: Node, p: Any) -> None:
        node.start(long(node))
        async for round_ in node.rounds():
            with round_:
                node.start(long(node))
                if round_ == 1:
                    node.start(long(node), carry=True)
                await node.sleep(0.1)
            if round_ == 2:
                break

    async def long(node: Node) -> None:
        await node.sleep(60)
    ran = run(client, clients=1)
    assert ends(ran) == [(100, 2, "cancelled"), (200, 4, "cancelled"), (200, 1, "cancelled"), (200, 3, "cancelled")]


def test_cancelling_runs_finally_blocks_gives_messages_back_and_frees_the_lane() -> None:
    async def behave(node: Node, note: Any) -> None:
        async def two() -> None:
            try:
                await node.gather(Word, [node.id, node.server])     # only the first of them comes
            finally:
                node.send(node.id, Chunk(7))

        async def busy() -> None:
            await node.compute("long", sum, (1,), cost_s=60.0)

        async def next_on_the_lane() -> float:
            await node.compute("short", sum, (1,), cost_s=0.5)
            return node.now
        waiting, computing, queued = node.start(two()), node.start(busy()), node.start(next_on_the_lane())
        node.send(node.id, Word(3))
        await node.sleep(1.0)
        node.cancel(waiting)
        node.cancel(waiting)
        node.cancel(computing)
        note((await node.recv(Word, node.id)).number)
        note((await node.recv(Chunk, node.id)).number)
        note(await queued)
        try:
            await waiting
        except Cancelled as e:
            note(str(e))
    assert alone(behave) == [3, 7, 1.5, "two was cancelled"]


@pytest.mark.parametrize(("wrong", "told"), [
    ("itself", "cannot cancel itself"), ("awaits", "awaits while it is cancelled"), ("rounds", "asks for rounds"),
    ("asyncio", "only node.* may be awaited"), ("forgets", "is not awaited where it is written"),
    ("no coroutine", "expected a call of an `async def` function")])
def test_misuse_is_told_with_its_place(wrong: str, told: str) -> None:
    async def client(node: Node, p: Any) -> None:
        async def activity() -> None:
            if wrong == "itself":
                node.cancel(own[0])
            elif wrong == "rounds":
                async for _ in node.rounds():
                    pass
            elif wrong == "asyncio":
                await Foreign()
            elif wrong == "forgets":
                node.recv_any(Chunk)
            else:
                try:
                    await node.sleep(1.0)
                finally:
                    await node.sleep(1.0)
        if wrong == "no coroutine":
            node.start(activity)                # type: ignore[arg-type]
        own = [node.start(activity())]
        await node.sleep(0.1)
        node.cancel(own[0])
    with pytest.raises(RoleFailed) as caught:
        run(client)
    assert told in str(caught.value).replace("\\*", "*")


class Foreign:
    def __await__(self) -> Any:
        yield "no Await"


def test_a_crash_ends_all_and_numbers_go_on_after_the_return() -> None:
    async def client(node: Node, p: Any) -> None:
        async def forever() -> None:
            while True:
                await node.compute("tick", sum, (1,), cost_s=0.3)
        node.start(forever())
        await node.sleep(0.5 if node.now else 60)
    ran = run(client, clients=1, faults=(Crash(1000 * MS, "client1", 500 * MS),))
    begun = [(row[1] // MS, row[3]) for row in ran.rows if row[0] == R.ACTIVITY]
    assert begun == [(0, 1), (1500, 2)]
    assert ends(ran) == [(2000, 2, "cancelled")]
    c = computations_of(columns(ran.rows))
    assert [(s // MS, e // MS, bool(f)) for s, e, f in zip(c.start_ns, c.end_ns, c.finished, strict=True)] == [
        (0, 300, True), (300, 600, True), (600, 900, True), (900, 1000, False), (1500, 1800, True), (1800, 2000, False)]
    assert not ran.invariants.violations


@pytest.mark.parametrize("how", ["cancel", "each other", "begin", "raise"])
@pytest.mark.parametrize("fails", [False, True], ids=["crash", "error"])
def test_activities_whose_end_ends_or_begins_others_end_all_the_same(how: str, fails: bool) -> None:
    async def inner(node: Node, other: list[Any]) -> None:
        try:
            await node.sleep(60)
        finally:
            if how == "each other":
                node.cancel(other[0])

    async def outer(node: Node, other: list[Any]) -> None:
        one = node.start(inner(node, other))
        try:
            await node.sleep(60)
        finally:
            if how == "begin":
                node.start(inner(node, other))
            elif how == "raise":
                raise KeyError("of the finally block")
            else:
                node.cancel(one)

    async def client(node: Node, p: Any) -> None:
        other: list[Any] = []
        other.append(node.start(outer(node, other)))
        await node.sleep(0.5 if node.now else 1)
        if fails:
            raise ValueError("my own mistake")
        if how == "raise":
            await node.sleep(60)                # or the role's end would be the error
    crash = Crash(700 * MS, "client1", None if how == "raise" else 500 * MS)
    if fails:
        with pytest.raises(RoleFailed, match="ValueError: my own mistake"):
            run(client, clients=1)
    else:
        assert not run(client, clients=1, faults=(crash,)).invariants.violations


def test_what_an_activity_begins_as_its_round_ends_ends_with_it() -> None:
    async def inner(node: Node) -> None:
        await node.sleep(60)

    async def outer(node: Node) -> None:
        try:
            await node.sleep(60)
        finally:
            node.start(inner(node))

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.start(outer(node))
                await node.sleep(0.1)
    ran = run(client, clients=1, stop=Stop(rounds=1, virtual_time_ns=10**9))
    assert ends(ran)[:2] == [(100, 1, "cancelled"), (100, 2, "cancelled")]


def test_a_round_that_is_over_ends_the_wait_for_an_activity() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Word(int(round_)))
                await node.sleep(1.0)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.start(stuck(node))

    async def stuck(node: Node) -> None:
        await node.recv_any(Chunk)
    ran = run(client, server=server, clients=1)
    why = [(row[3], row[4]) for row in ran.rows if row[0] == R.LEAVE and row[2] == 1]
    assert why == [(1, "a later round has begun"), (2, "a later round has begun")]
    assert ends(ran) == [(1010, 1, "cancelled"), (2010, 2, "cancelled")]


def test_fates_reach_the_waits_of_activities() -> None:
    """client2 abstains from the one, returns before the other."""
    noted: list[tuple[str, int]] = []

    async def client(node: Node, p: Any) -> None:
        async def expect(kind: type[Message]) -> None:
            try:
                await node.recv(kind, node.clients[1])
            except NothingToReceive:
                noted.append((kind.__name__, node.now_ns // MS))
        if node.index:
            await node.sleep(0.1)
            node.abstain(node.clients[0], Word)
            await node.sleep(0.1)
            return
        for kind in (Word, Chunk):
            node.start(expect(kind))
        await node.sleep(1.0)
    run(client)
    assert noted == [("Word", 110), ("Chunk", 210)]


def test_a_deadlock_tells_what_activities_wait_for() -> None:
    async def client(node: Node, p: Any) -> None:
        async def expect() -> None:
            await node.recv_any(Chunk)
        await node.start(expect())
    with pytest.raises(Deadlock, match=rf"client1 \(client\): waiting since 0 s for another part of its role "
                                       rf"\({HERE}:\d+\); its expect: waiting since 0 s for Chunk from anybody"):
        run(client, clients=1, server=client)


# --- lanes ----------------------------------------------------------------------------------------------------------

def test_computations_of_a_lane_take_turns_and_lanes_go_on_side_by_side() -> None:
    async def behave(node: Node, note: Any) -> None:
        async def job(name: str, lane: str | None, cost_s: float) -> None:
            await node.compute(name, sum, (1,), cost_s=cost_s, lane=lane)
            note((name, node.now))
        activities = [node.start(job(*one)) for one in (
            ("a", None, 1.0), ("b", "gpu", 0.5), ("c", "link", 0.2), ("d", "link", 0.2), ("e", "gpu", 0.1))]
        await node.compute("main", sum, (1,), cost_s=0.1, lane="link")
        note(("main", node.now))
        for activity in activities:
            await activity
    assert alone(behave, lanes=("gpu", "link")) == [
        ("main", 0.1), ("c", 0.3), ("d", 0.5), ("a", 1.0), ("b", 1.5), ("e", 1.6)]


def test_a_lane_that_does_not_exist_is_told_with_those_that_do() -> None:
    async def client(node: Node, p: Any) -> None:
        await node.compute("train", sum, (1,), lane="lnk")
    with pytest.raises(RoleFailed, match=rf'{HERE}:\d+: compute\(lane="lnk"\): there is no such lane; the scheme has '
                                         "gpu, link"):
        run(client, lanes=("gpu", "link"))


@pytest.mark.parametrize("lanes", [(), "gpu", ("gpu", "gpu"), ("",), (1,)])
def test_wrong_names_of_lanes_are_a_mistake_of_the_scheme(lanes: Any) -> None:
    scheme = Scheme(params=NoParams, roles={"client": until_late}, lanes=lanes)
    assert scheme.faults() == f"lanes = {lanes!r}: expected names of lanes, one at least and none twice"


def test_the_table_says_whose_a_computation_was_and_on_which_lane() -> None:
    async def client(node: Node, p: Any) -> None:
        async def job() -> None:
            await node.compute("sum", sum, (1,), cost_s=0.4, lane="link")
        activity = node.start(job())
        await node.compute("train", sum, (1,), cost_s=1.0)
        await activity
    ran = run(client, clients=1, lanes=("gpu", "link"))
    c = computations_of(columns(ran.rows))
    assert [(c.labels[label], activity, lane, start, end // MS) for label, activity, lane, start, end in zip(
        c.label, c.activity, c.lane, c.start_ns, c.end_ns, strict=True)] == [
            ("train", 0, 0, 0, 1000), ("sum", 1, 1, 0, 400)]
    assert ran.header["lanes"] == ["gpu", "link"]


def test_jobs_of_a_node_are_done_in_the_order_begun_and_before_anything_else_of_it() -> None:
    """The role changes what a computation reads as soon as it runs again: it never shows."""
    def found(**how: Any) -> list[int]:
        read: list[int] = []

        async def client(node: Node, p: Any) -> None:
            shared = [0]

            def job(number: int) -> None:
                read.append(10 * number + shared[0])

            async def compute(number: int, lane: str) -> None:
                await node.compute("job", job, number, cost_s=1.0, lane=lane)
            activities = [node.start(compute(1, "gpu")), node.start(compute(2, "link")), node.start(compute(3, "gpu"))]
            await node.sleep(0.5)
            shared[0] = 5
            for activity in activities:
                await activity
        run(client, clients=1, lanes=("gpu", "link"), **how)
        return read
    assert found() == found(fuse=FusedTraining(2, 2)) == [10, 20, 35]
    assert all(found(pool=Shuffled(2, seed)) == [10, 20, 35] for seed in range(10))


# --- determinism ----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Do:
    """One instruction of an activity; times are ms."""

    what: str
    who: int = 0
    time: int = 0
    lane: str = "gpu"


Program = tuple[tuple[Do, ...], ...]            # of the role itself, then of its activities


async def perform(node: Node, do: Do, started: list[Any]) -> None:
    other = node.peers[do.who % len(node.peers)]
    seconds = do.time / 1e3
    try:
        if do.what == "send":
            node.send(other, Chunk(do.time))
        elif do.what == "word":
            node.broadcast(node.peers, Word(do.time))
        elif do.what == "sleep":
            await node.sleep(seconds)
        elif do.what == "compute":
            await node.compute("job", sum, (1, 2), cost_s=seconds, lane=do.lane)
        elif do.what == "cancel":
            node.cancel(started[do.who % len(started)])
        elif do.what == "await":
            await started[do.who % len(started)]
        elif do.what == "gather":
            await node.gather((Chunk, Word), node.peers, timeout_s=seconds)
        elif do.what == "recv":
            await node.recv(Word, other)
        else:
            await node.recv_any(timeout_s=seconds)
    except (TimedOut, NothingToReceive, Cancelled):
        pass


async def activity(node: Node, dos: tuple[Do, ...], place: int, started: list[Any]) -> None:
    for do in dos:
        if do.what not in ("cancel", "await") or do.who % len(started) < place:     # one that was begun before it
            await perform(node, do, started)


async def member(node: Node, p: Any, programs: list[Program]) -> None:
    own, *beside = programs[node.index % len(programs)]
    async for round_ in node.rounds():
        with round_:
            started: list[Any] = []

            for place, dos in enumerate(beside):
                started.append(node.start(activity(node, dos, place, started), carry=place == 2))
            for do in own:
                await perform(node, do, started)
        if round_ == 2:
            return


dos = st.builds(Do, st.sampled_from(["send", "send", "word", "sleep", "compute", "compute", "cancel", "await", "gather",
                                     "recv", "any"]),
                st.integers(0, 5), st.sampled_from([0, 0, 1, 2, 3, 5, 10, 20]), st.sampled_from(["gpu", "link"]))
bodies = st.lists(dos, max_size=4).map(tuple)
programs = st.lists(st.tuples(bodies, bodies, bodies, bodies), min_size=1, max_size=3)
faults = st.lists(st.builds(Crash, st.integers(0, 40).map(lambda ms: ms * MS), st.just("client1"),
                            st.none() | st.integers(1, 20).map(lambda ms: ms * MS)), max_size=1).map(tuple)
quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def world(programs: list[Program], faults: Any, **how: Any) -> Ran:
    return run(partial(member, programs=programs), clients=3, lanes=("gpu", "link"), faults=faults,
               links=(LinkRule("*", latency_ns=MS),), **how)


@given(programs, faults, st.integers(1, 4), st.integers(0, 2**32))
@quick
def test_a_run_with_three_activities_a_node_is_the_same_for_workers_that_answer_in_any_order(
        programs: list[Program], faults: Any, workers: int, seed: int) -> None:
    ran = world(programs, faults)
    assert not ran.invariants.violations
    assert world(programs, faults, pool=Shuffled(workers, seed)).digest == ran.digest


@given(programs, faults)
@quick
def test_every_node_lives_the_same_life_with_lookahead_as_one_event_at_a_time(programs: list[Program],
                                                                              faults: Any) -> None:
    fast, slow = world(programs, faults), world(programs, faults, lookahead=False)
    assert [fast.of(name) for name in fast.header["names"]] == [slow.of(name) for name in fast.header["names"]]


@given(programs, faults)
@quick
def test_one_computation_at_a_time_is_on_a_lane(programs: list[Program], faults: Any) -> None:
    ran = world(programs, faults)
    c = computations_of(columns(ran.rows))
    taken: dict[tuple[int, int], int] = {}
    for node, lane, start, end in zip(c.node, c.lane, c.start_ns, c.end_ns, strict=True):
        assert start >= taken.get((node, lane), 0)
        taken[node, lane] = end if end >= 0 else 1 << 62
