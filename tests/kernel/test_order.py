"""The total order and its guards: steps, deadlocks, loops in no time, double keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emul.base import rows as R
from emul.base.errors import Deadlock, DuplicateKey, EndOfTime, TimedOut, ZeroTimeLoop
from emul.kernel import state
from emul.kernel.calendar import FAULT, NETWORK, TIMER, Calendar
from emul.network import LinkRule, TopologySpec
from emul.roles import Message, Node
from emul.scenario import Crash, LinkDown, Stop
from emul.testing import MS, Shuffled, run_text, run_world

HERE = Path(__file__).name


@dataclass(frozen=True)
class Ask(Message):
    number: int = 0


@dataclass(frozen=True)
class Answer(Message):
    number: int = 0


MESSAGES = (Ask, Answer)


async def nothing(node: Node, p: Any) -> None:
    return


# --- the calendar ---------------------------------------------------------------------------------------------------

def entry(kind: int, node: int, seq: int, what: str = "") -> tuple[Any, ...]:
    return (kind, node, seq, 0, what, None)


def test_times_before_simpys_clock_are_taken() -> None:
    """`Environment.schedule` takes delays below 0, which a kernel needs that lets nodes run ahead of each other."""
    calendar = Calendar()
    for time in (10, 30):
        calendar.add(time, (TIMER, 0, time, 0, None, None))
    assert calendar.take_step(10)
    assert calendar.take_step(30)
    calendar.add(20, (TIMER, 1, 0, 0, None, None))
    calendar.add(5, (TIMER, 2, 0, 0, None, None))
    assert [(time, calendar.take_step(time)[0][1]) for time in (5, 20)] == [(5, 2), (20, 1)]
    assert calendar.next_time is None


def taken(calendar: Calendar) -> list[tuple[int, list[tuple[int, int, int]]]]:
    steps = []
    while (time := calendar.next_time) is not None:
        steps.append((time, [e[:3] for e in calendar.take_step(time)]))
    return steps


def test_a_step_is_all_of_the_lowest_kind_at_the_earliest_time_by_node_and_number() -> None:
    calendar = Calendar()
    for time, kind, node, seq in [(5, TIMER, 1, 1), (5, FAULT, 0, 0), (5, NETWORK, 2, 1), (5, NETWORK, 1, 9),
                                  (5, NETWORK, 1, 2), (3, FAULT, 7, 0), (5, TIMER, 0, 4)]:
        calendar.add(time, entry(kind, node, seq))
    assert taken(calendar) == [
        (3, [(FAULT, 7, 0)]), (5, [(NETWORK, 1, 2), (NETWORK, 1, 9), (NETWORK, 2, 1)]),
        (5, [(TIMER, 0, 4), (TIMER, 1, 1)]), (5, [(FAULT, 0, 0)])]


def test_what_a_step_creates_at_its_own_time_belongs_to_a_later_step() -> None:
    calendar = Calendar()
    calendar.add(5, entry(TIMER, 1, 1))
    calendar.add(5, entry(NETWORK, 1, 1))
    assert [e[:3] for e in calendar.take_step(5)] == [(NETWORK, 1, 1)]
    calendar.add(5, entry(NETWORK, 0, 1))
    assert taken(calendar) == [(5, [(NETWORK, 0, 1)]), (5, [(TIMER, 1, 1)])]


def test_times_may_be_added_before_that_of_the_last_step() -> None:
    calendar = Calendar()
    calendar.add(50, entry(TIMER, 1, 1))
    calendar.take_step(50)
    calendar.add(20, entry(TIMER, 2, 1))
    calendar.add(60, entry(TIMER, 2, 2))
    assert taken(calendar) == [(20, [(TIMER, 2, 1)]), (60, [(TIMER, 2, 2)])]


def test_two_equal_keys_stop_the_run() -> None:
    calendar = Calendar()
    calendar.add(5, entry(TIMER, 1, 1, "a"))
    calendar.add(5, entry(TIMER, 1, 1, "b"))
    with pytest.raises(DuplicateKey, match=r"^two events at 5 ns with the key \(kind, node, seq\) = \(1, 1, 1\)$"):
        calendar.take_step(5)


# --- the end of virtual time ----------------------------------------------------------------------------------------

LAST = "virtual time ends at 4.61168602e+09 s (2^62 ns, 146 years): the next event, "
YEARS = 31_557_600.0                # seconds


async def pings(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Ask())
            await node.gather(Answer, node.clients)


async def answers(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Answer())


def test_messages_that_take_longer_than_virtual_time_has_end_the_run_with_an_error_that_says_so() -> None:
    """They were never taken off the calendar, and the kernel looked at them for ever."""
    with pytest.raises(EndOfTime) as stopped:
        run_world({"server": pings, "client": answers}, clients=2, stop=Stop(rounds=5),
                  links=[LinkRule("*", latency_ns=2_000_000_000 * 10**9)])
    lines = str(stopped.value).splitlines()
    assert lines[0] == LAST + "a message of server to client1, would come at 6e+09 s"
    assert lines[1].startswith(
        "  server (server): waiting since 4e+09 s for Answer from client1 (not asked in round 2), ")


@pytest.mark.parametrize(("years", "costs", "said"), [
    (200.0, 0.0, "a deadline of server (server), would come at 6.31152e+09 s"),
    (1e30, 0.0, "a deadline of server (server), would come at 9.22337204e+09 s"),       # no integer of a table
    (0.0, 200 * YEARS, "the end of a computation of server (server), would come at 6.31152e+09 s"),
    (0.0, 1e30 * YEARS, "the end of a computation of server (server), would come at 9.22337204e+09 s")])
def test_whoever_sleeps_or_computes_until_after_the_end_of_virtual_time_is_named(
        years: float, costs: float, said: str) -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(years * YEARS)
        await node.compute("work", int, cost_s=costs)

    with pytest.raises(EndOfTime) as stopped:
        run_world({"server": server, "client": nothing}, clients=1)
    assert str(stopped.value).splitlines()[0] == LAST + said


def test_a_stop_on_virtual_time_gives_the_last_round_as_long_again_or_until_the_end_of_virtual_time() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await node.recv(Ask, 1, timeout_s=150 * YEARS)

    world = run_world({"server": server, "client": nothing}, clients=1,
                      stop=Stop(virtual_time_ns=round(100 * YEARS) * 10**9))
    assert world.finished.kernel.end_ns == 2**62


# --- the order of a run ---------------------------------------------------------------------------------------------

def test_a_node_with_everything_at_one_instant_takes_it_in_the_written_order() -> None:
    """A delivery, a computation's end, a timer and a crash, all at 20 ms."""
    order = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.1)

    async def client(node: Node, p: Any) -> None:
        if node.name == "client2":
            await node.sleep(0.01)
            node.send(1, Ask())
            return
        await node.compute("work", int)
        order.append("computed")
        await node.recv(Ask, 2, timeout_s=0)
        order.append("received")
        try:
            await node.recv(Ask, 2, timeout_s=0)
        except TimedOut:
            order.append(f"timed out at {node.now_ns // MS}")
        await node.sleep(0.05)
        order.append("survived")

    topology = TopologySpec(generator="star_mesh", clients=2)
    world = run_world({"server": server, "client": client}, topology=topology, costs={"work": 0.02},
                      faults=[Crash(20 * MS, "client1")])
    assert order == ["computed", "received", "timed out at 20"]
    kinds = [row[0] for row in world.of("client1") if row[1] == 20 * MS]
    assert kinds == [R.DELIVER, R.COMPUTED, R.RESUME, R.RESUME, R.CRASH]


def test_faults_of_one_instant_happen_in_the_order_of_the_file_after_everything_else() -> None:
    async def server(node: Node, p: Any) -> None:
        node.broadcast(node.clients, Ask())
        await node.sleep(0.05)
        node.broadcast(node.clients, Ask())
        await node.sleep(0.05)

    faults = [LinkDown(10 * MS, "server", "client2", 5 * MS), LinkDown(10 * MS, "server", "client1", 5 * MS),
              LinkDown(15 * MS, "server", "client1", 1 * MS)]     # touches the one before: down from 10 to 16 ms
    world = run_world({"server": server, "client": nothing}, clients=2, faults=faults)
    network = world.header["network"]
    changes = [(row[1] // MS, network[row[3]], row[4]["down"]) for row in world.rows if row[0] == R.LINK]
    assert changes == [(10, "client2", True), (10, "client1", True), (15, "client2", False), (16, "client1", False)]
    assert world.summary["messages_lost"] == 0          # what arrives at 10 ms has arrived before the link goes down


def test_the_rows_sorted_by_time_are_a_total_order_that_no_worker_count_changes() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(int(round_)))
                await node.gather(Answer, node.clients, timeout_s=0.03)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                await node.compute("work", int)
                node.send(node.server, Answer())

    def run(**how: Any) -> list[Any]:
        return run_world({"server": server, "client": client}, clients=5, stop=Stop(rounds=4), costs={"work": 0.012},
                         **how).rows

    assert run() == run(pool=Shuffled(3, 5)) == run(pool=Shuffled(6, 1))


def test_every_payload_is_freed_once_nobody_can_read_it() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(int(round_)))
                await node.gather(Answer, node.clients, timeout_s=0.03)
        await node.sleep(1)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                if node.name != "client1":
                    await node.recv(Ask, node.server)
                node.send(node.server, Answer())
                node.broadcast(node.peers, Answer())        # nobody reads these

    left: list[int] = []

    class Watching(Shuffled):
        def finish(self) -> Any:
            while any(self._posted):
                self._step()
            left.extend([sum(map(len, self._outboxes)), sum(map(len, self._arrived)),
                         sum(len(core._payloads) for core in self._cores)])
            return super().finish()

    for workers in (1, 3):
        run_world({"server": server, "client": client}, clients=4, stop=Stop(rounds=5), pool=Watching(workers))
    assert left == [0] * 6


# --- nothing goes on ------------------------------------------------------------------------------------------------

def test_a_deadlock_says_who_waits_for_what_since_when_and_at_which_line() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.send(1, Ask())
                await node.recv(Answer, 1)
                await node.recv_any(Ask, Answer)            # waits for ever

    async def client(node: Node, p: Any) -> None:
        if node.name == "client2":
            await node.gather(Ask, [1])
        elif node.name == "client1":
            async for round_ in node.rounds(of=node.server):
                with round_:
                    node.send(node.server, Answer())

    line = server.__code__.co_firstlineno
    with pytest.raises(Deadlock) as caught:
        run_world({"server": server, "client": client}, clients=4, faults=[Crash(5 * MS, "client3")])
    base = client.__code__.co_firstlineno
    assert str(caught.value).splitlines() == [
        "deadlock at 0.02 s: no delivery, timer, computation or fault of a node is left",
        f"  server (server): waiting since 0.02 s for Answer or Ask from anybody ({HERE}:{line + 5})",
        f"  client1 (client): waiting for a round after 1 of server ({HERE}:{base + 4})",
        f"  client2 (client): waiting since 0 s for Ask from client1 ({HERE}:{base + 2})",
        "  client3 (client): ended at 0 s",
        "  client4 (client): ended at 0 s"]


def test_a_deadlock_names_a_source_that_was_not_asked_in_this_round() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.send(1, Ask())
                await node.gather(Answer, node.clients)     # client2 was never asked

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                node.send(node.server, Answer())

    with pytest.raises(Deadlock, match=r"server \(server\): waiting since 0 s for Answer from client2 \(not asked in "
                                       rf"round 1\) \({HERE}:\d+\)"):
        run_world({"server": server, "client": client}, clients=2)


def test_changes_of_links_that_are_still_to_come_do_not_keep_a_deadlock_from_its_report() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.recv_any()

    with pytest.raises(Deadlock, match=r"^deadlock at "):
        run_world({"server": server, "client": nothing}, faults=[LinkDown(10**12, "server", "client1")])


def test_a_crash_that_is_still_to_come_may_end_a_wait() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.gather(Answer, [1])
        node.report(at=node.now_ns // MS)

    async def client(node: Node, p: Any) -> None:
        await node.recv_any()

    world = run_world({"server": server, "client": client}, clients=1, faults=[Crash(700 * MS, "client1")])
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"at": 710}]


def test_a_role_that_loops_in_no_time_is_stopped() -> None:
    async def server(node: Node, p: Any) -> None:
        while True:
            await node.sleep(0)

    with pytest.raises(ZeroTimeLoop, match=r"^\d+ steps at 0 ns in which no decider entered a round: server loops "
                                           r"without anything that takes virtual time$"):
        run_world({"server": server, "client": nothing})


def test_two_nodes_that_call_each_other_in_no_time_are_stopped() -> None:
    async def server(node: Node, p: Any) -> None:
        while True:
            node.send(1, Ask())
            await node.recv(Answer, 1)

    async def client(node: Node, p: Any) -> None:
        while True:
            node.send(0, Answer())
            await node.recv(Ask, 0)

    with pytest.raises(ZeroTimeLoop):
        run_world({"server": server, "client": client}, clients=1, links=[LinkRule("*", latency_ns=0)])


def test_rounds_that_take_no_time_are_no_loop() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await node.sleep(0)

    world = run_world({"server": server, "client": nothing}, stop=Stop(rounds=6_000))
    assert world.kernel.entered == 6_000


def test_many_nodes_at_one_instant_are_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 10,001 clients of a star would be; here with a smaller limit."""
    monkeypatch.setattr(state, "_ACTIVATIONS_AT_ONE_INSTANT", 100)

    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask())
                await node.gather(Answer, node.clients)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                node.send(node.server, Answer())

    run_world({"server": server, "client": client}, clients=200)


ASYNCHRONOUS = """
emul: 1
name: asynchronous
seed: 7
topology: {generator: star, clients: 40}
links: [{match: "*", latency: {distribution: uniform, mean: 25 ms, jitter: 15 ms}, bandwidth: 10 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
training: skip
compute: {mode: zero}
schemes: [{name: fedasync}]
stop: {rounds: 40}
"""



def test_what_waits_for_a_busy_node_does_not_go_to_and_fro_at_each_of_its_answers(
        monkeypatch: pytest.MonkeyPatch) -> None:
    added = 0

    def counted(calendar: Calendar, time: int, entry: Any) -> None:
        nonlocal added
        added += 1
        add(calendar, time, entry)
    add = Calendar.add
    monkeypatch.setattr(Calendar, "add", counted)
    a_message = []
    for clients in (40, 160):
        before = added
        ran = run_text(ASYNCHRONOUS, f"topology.clients={clients}", f"stop.rounds={clients}")
        a_message.append((added - before) / sum(map(len, ran.payloads.values())))
    assert a_message[1] < 1.2 * a_message[0]            # 34 to 11 where all were entered again
