"""Rounds: who follows whom, when a round is over, how a run ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from emul import engine
from emul.base import rows as R
from emul.base.errors import TooFewClients
from emul.kernel.parts import StopRule
from emul.network import LinkRule, OutageSpec, TopologySpec
from emul.roles import Message, Node
from emul.roles.events import Observation, WaitEnd
from emul.scenario import Behaviour, Crash, Stop
from emul.testing import MS, Ran, run_world
from emul.testing.world import scheme_of
from emul.workers.twin import Twin


@dataclass(frozen=True)
class Ask(Message):
    number: int = 0


@dataclass(frozen=True)
class Answer(Message):
    number: int = 0


MESSAGES = (Ask, Answer)


async def ticking(node: Node, p: Any) -> None:
    """A server that opens a round every 10 ms; latency 10 ms."""
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Ask(int(round_)))
            await node.sleep(0.01)


async def nothing(node: Node, p: Any) -> None:
    return


def rounds_of(world: Ran, node: str) -> list[int]:
    """The rounds that a node entered before the run ended."""
    return [row[3] for row in before_the_end(world, node, R.ENTER) if row[3]]


def before_the_end(world: Ran, node: str, kind: int) -> list[Any]:
    """At the very instant of the end it is of no interest what else happens."""
    return [row for row in world.of(node, kind) if row[1] < world.kernel.end_ns]


# --- followers ------------------------------------------------------------------------------------------------------

def test_a_follower_enters_the_newest_round_and_skips_those_between() -> None:
    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.compute("work", int)

    world = run_world({"server": ticking, "client": client}, clients=1, costs={"work": 0.025}, stop=Stop(rounds=8))
    assert rounds_of(world, "client1")[:3] == [1, 3, 6]       # at 10, 35, 60 ms


def test_a_waiting_follower_is_told_that_its_round_is_over() -> None:
    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Answer, node.server, timeout_s=9)

    world = run_world({"server": ticking, "client": client}, clients=1, stop=Stop(rounds=3))
    over = [row[1] // MS for row in before_the_end(world, "client1", R.RESUME) if row[3] == WaitEnd.ROUND_OVER]
    assert over == [20]
    assert [row[3:] for row in before_the_end(world, "client1", R.LEAVE)] == [(1, "a later round has begun")]
    assert rounds_of(world, "client1") == [1, 2]


def follower_computes(on_new_round: str) -> Ran:
    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server, on_new_round=on_new_round):
            with round_:
                await node.compute("work", int)
                node.send(node.server, Answer(int(round_)))
                await node.sleep(1)

    return run_world({"server": ticking, "client": client}, clients=1, costs={"work": 0.025}, stop=Stop(rounds=6))


def test_a_running_computation_is_finished_its_sends_leave_and_the_next_await_raises() -> None:
    world = follower_computes("finish")
    assert next(row[1] // MS for row in world.of("client1", R.COMPUTED)) == 35
    assert next((row[1] // MS, row[8]) for row in world.of("client1", R.SEND)) == (35, 1)
    assert next((row[1] // MS, row[4]) for row in world.of("client1", R.LEAVE)) == (35, "a later round has begun")


def test_a_running_computation_is_abandoned_if_the_follower_says_so() -> None:
    world = follower_computes("abandon")
    assert world.of("client1", R.COMPUTED) == []
    assert [row[1] // MS for row in before_the_end(world, "client1", R.LEAVE)] == [20, 30, 40, 50]
    assert world.summary["rounds_missed"]["client"] >= 4
    assert world.summary["compute_virtual_seconds"]["client"]["work"] == pytest.approx(0.05, abs=1e-9)


def test_a_quorum_of_leaders_carries_a_follower_on() -> None:
    """Leaders tick every 10, 20 and 40 ms; the follower is in the round that two of them have reached."""
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(int(round_)))
                await node.sleep({"server1": 0.01, "server2": 0.02, "server3": 0.04}[node.name])

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.servers, quorum=2):
            with round_:
                await node.sleep(1)

    world = run_world({"server": server, "client": client}, clients=1, servers=3, stop=Stop(rounds=4))
    entered = [(row[1] // MS, row[3]) for row in world.of("client1", R.ENTER) if row[3]]
    assert entered == [(10, 1), (30, 2), (50, 3), (70, 4)]      # when server2's word comes


def test_rounds_in_step_with_others_go_to_the_newest_that_a_quorum_has_reached() -> None:
    async def peer(node: Node, p: Any) -> None:
        async for round_ in node.rounds(sync=node.peers, quorum=2):
            with round_:
                node.broadcast(node.peers, Ask(int(round_)))
                await node.sleep(0.1 if node.name == "peer1" and round_ == 1 else 0.01)

    world = run_world({"peer": peer}, topology=TopologySpec(generator="complete", peers=4), stop=Stop(rounds=20),
                      links=[LinkRule("*", latency_ns=MS)])
    slow = rounds_of(world, "peer1")
    assert slow[:2] == [1, 10]                                  # in which the others have been since 90 ms
    assert rounds_of(world, "peer2")[:12] == list(range(1, 13))


# --- the end --------------------------------------------------------------------------------------------------------

def test_all_deciders_end_after_the_last_round_and_the_others_with_them() -> None:
    world = run_world({"server": ticking, "client": nothing}, stop=Stop(rounds=3))
    assert rounds_of(world, "server") == [1, 2, 3]
    assert world.kernel.end_ns == 30 * MS
    assert world.of("server")[-1] == (R.FINISH, 30 * MS, 0, "")


def test_what_is_under_way_at_the_end_counts_as_in_flight() -> None:
    world = run_world({"server": ticking, "client": nothing}, clients=1, stop=Stop(rounds=2),
                      links=[LinkRule("*", latency_ns=100 * MS)])
    assert world.summary["messages_in_flight"] == 2


def test_rounds_that_no_decider_completes_have_failed() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await node.sleep(0.001)
                if round_ % 2:
                    raise TooFewClients("1 of 3")

    world = run_world({"server": server, "client": nothing}, stop=Stop(rounds=5))
    assert (world.summary["rounds"], world.summary["rounds_failed"]) == (2, 3)


def counted(latency_ns: int, faults: Any = (), links: Any = (), rounds: int = 3) -> dict[str, Any]:
    """The summary of rounds in which a server asks and takes what comes within 100 ms."""
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(int(round_)))
                await node.gather(Answer, node.clients, timeout_s=0.1)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                node.send(node.server, Answer(int(round_)))

    return run_world({"server": server, "client": client}, stop=Stop(rounds=rounds), faults=faults,
                     links=[LinkRule("*", latency_ns=latency_ns), *links]).summary


def test_completed_rounds_that_nobody_answers_are_counted() -> None:
    """They count as completed: the scheme may live with it, but who reads the result has to know.

    The answers of round 7 come at the instant at which round 8 begins, and count for both.
    """
    gone = [Crash(0, f"client{i}") for i in (1, 2, 3)]
    assert [(s["rounds"], s["rounds_failed"], s["rounds_unanswered"]) for s in (
        counted(10 * MS), counted(10 * MS, gone), counted(10 * MS, gone[:2]),
        counted(10 * MS, [Crash(145 * MS, f"client{i}") for i in (1, 2, 3)], rounds=20),
        counted(60 * MS), counted(0))] == [(3, 0, 0), (3, 0, 3), (3, 0, 0), (20, 0, 12), (3, 0, 3), (3, 0, 0)]


def test_of_several_deciders_one_that_completes_a_round_is_enough() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await node.sleep(0.001)
                if node.name == "server1" or round_ == 2:
                    raise TooFewClients("1 of 3")

    world = run_world({"server": server, "client": nothing}, servers=2, stop=Stop(rounds=3))
    assert (world.summary["rounds"], world.summary["rounds_failed"]) == (2, 1)


@pytest.mark.parametrize("faulty", [["server"], ["server1"], ["server1", "server2"]])
def test_a_faulty_server_decides_where_no_other_is_left(faulty: list[str]) -> None:
    """Else nobody counts rounds, and a run that stops after some of them never ends."""
    async def faulty_server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            assert int(round_) <= 10, "the run goes on after its last round"
            with round_:
                await node.sleep(0.02)

    scheme = replace(scheme_of({"server": ticking, "client": nothing}),
                     behaviours={"server": {"faulty": faulty_server}})
    world = run_world(scheme, stop=Stop(rounds=3), servers=max(1, 2 * ("server" not in faulty)),
                      faults=[Behaviour(name, "faulty") for name in faulty])
    names = world.header["names"]
    deciders = faulty if len(faulty) == names.index("client1") else ["server2"]
    assert [names[node] for node in world.header["deciders"]] == deciders
    assert [rounds_of(world, name) for name in deciders] == [[1, 2, 3]] * len(deciders)


def test_without_a_server_all_nodes_decide() -> None:
    async def peer(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await node.sleep(0.01 * (node.index + 1))

    world = run_world({"peer": peer}, topology=TopologySpec(generator="complete", peers=3), stop=Stop(rounds=2))
    assert world.kernel.end_ns == 60 * MS
    assert [world.of(f"peer{i}", R.FINISH)[0][1] // MS for i in (1, 2, 3)] == [20, 40, 60]


def test_a_decider_that_crashed_for_good_counts_as_returned() -> None:
    world = run_world({"server": ticking, "client": nothing}, servers=2, stop=Stop(rounds=5),
                      faults=[Crash(25 * MS, "server1")])
    assert world.kernel.end_ns == 50 * MS
    world = run_world({"server": ticking, "client": nothing}, servers=1, stop=Stop(rounds=5),
                      faults=[Crash(25 * MS, "server")])
    assert world.kernel.end_ns == 25 * MS


def test_a_decider_that_returns_from_a_crash_is_waited_for() -> None:
    world = run_world({"server": ticking, "client": nothing}, stop=Stop(rounds=4),
                      faults=[Crash(25 * MS, "server", 100 * MS)])
    assert rounds_of(world, "server") == [1, 2, 3, 4]
    assert world.kernel.end_ns == 135 * MS


class Seeing(Twin):
    """A twin whose evaluations find accuracies, or losses, of the test's choosing."""

    def __init__(self, found: dict[int, float], name: str = "accuracy"):
        super().__init__()
        self.found, self.name = found, name

    def observation(self, node: int, round: int) -> Observation:
        return Observation(node, round, {self.name: self.found[round]})


async def learning(node: Node, p: Any) -> None:
    import numpy as np

    async for round_ in node.rounds():
        with round_:
            await node.sleep(0.01)
            node.report(parameters=np.zeros(3, np.float32))


def test_a_stop_on_accuracy_ends_the_run_after_the_round_that_reached_it() -> None:
    world = run_world({"server": learning, "client": nothing}, stop=Stop(accuracy=0.8, rounds=50),
                      pool=Seeing({1: 0.1, 2: 0.5, 3: 0.8, 4: 0.9}))
    assert rounds_of(world, "server") == [1, 2, 3]


def test_a_stop_on_loss_ends_the_run_at_that_loss_or_less() -> None:
    losses = {1: 2.5, 2: 2.41, 3: 2.4, 4: 2.3}
    world = run_world({"server": learning, "client": nothing}, stop=Stop(loss=2.4, rounds=50),
                      pool=Seeing(losses, "loss"))
    assert rounds_of(world, "server") == [1, 2, 3]
    world = run_world({"server": learning, "client": nothing}, stop=Stop(loss=2.4, accuracy=0.9, rounds=2),
                      pool=Seeing(losses, "loss"))
    assert rounds_of(world, "server") == [1, 2]


def test_an_accuracy_that_nobody_measured_is_not_one_of_zero() -> None:
    assert not StopRule(accuracy=0.0).reached({"loss": 0.1})
    assert StopRule(accuracy=0.0).reached({"accuracy": 0.0})
    assert StopRule(loss=0.0).reached({"loss": 0.0})


def test_a_stop_on_accuracy_that_is_never_reached_ends_with_the_rounds() -> None:
    world = run_world({"server": learning, "client": nothing}, stop=Stop(accuracy=0.8, rounds=4),
                      pool=Seeing(dict.fromkeys(range(1, 9), 0.1)))
    assert rounds_of(world, "server") == [1, 2, 3, 4]


def test_a_stop_on_accuracy_looks_only_at_rounds_that_are_evaluated() -> None:
    world = run_world({"server": learning, "client": nothing}, stop=Stop(accuracy=0.8, rounds=50), evaluate_every=3,
                      pool=Seeing({3: 0.1, 6: 0.9}))
    assert rounds_of(world, "server") == [1, 2, 3, 4, 5, 6]


def test_one_event_at_a_time_the_virtual_time_lets_the_running_round_end() -> None:
    world = run_world({"server": ticking, "client": nothing}, stop=Stop(virtual_time_ns=35 * MS), lookahead=False)
    assert rounds_of(world, "server") == [1, 2, 3, 4]
    assert world.kernel.end_ns == 40 * MS


def test_the_virtual_time_lets_the_running_round_end() -> None:
    world = run_world({"server": ticking, "client": nothing}, stop=Stop(virtual_time_ns=35 * MS),
                      links=[LinkRule("*", latency_ns=100 * MS)])
    assert rounds_of(world, "server") == [1, 2, 3, 4]
    assert world.kernel.end_ns == 40 * MS


async def listening(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            await node.recv_any()


async def sleeping(node: Node, p: Any) -> None:
    while True:
        await node.sleep(0.002)


@pytest.mark.parametrize("lookahead", [True, False])
def test_the_virtual_time_stops_a_run_in_which_no_round_ends(lookahead: bool) -> None:
    """The round that runs has as long again."""
    world = run_world({"server": listening, "client": sleeping}, stop=Stop(virtual_time_ns=35 * MS),
                      lookahead=lookahead)
    assert rounds_of(world, "server") == [1]
    assert world.kernel.end_ns == 70 * MS
    assert not world.invariants.violations
    assert world.summary["rounds"] == 0


def test_a_run_in_which_no_round_ends_says_so_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, bool]] = []
    real = engine.execute

    def watched(wiring: Any, pool: Any, journal: Any, progress: Any = None, *rest: Any) -> Any:
        return real(wiring, pool, journal, lambda k: seen.append((k.entered, k.ended_ns, k.round_ended)), *rest)

    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await (node.sleep(0.05) if round_ == 1 else node.recv_any())

    monkeypatch.setattr(engine, "execute", watched)
    run_world({"server": server, "client": sleeping}, stop=Stop(virtual_time_ns=10_000 * MS))
    assert seen[0] == (1, 50 * MS, True)
    assert len(seen) > 3
    assert set(seen[1:]) == {(2, 50 * MS, False)}


def test_what_happens_before_the_end_is_in_the_journal() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.100)

    async def client(node: Node, p: Any) -> None:
        await node.sleep(0.098)
        await node.sleep(0.001)
        node.send(node.server, Ask())

    world = run_world({"server": server, "client": client}, clients=1)
    assert [row[1] // MS for row in world.of("client1", R.SEND)] == [99]


def follower_of_a_leader_that_ends(lookahead: bool) -> Ran:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(int(round_)))
                await node.sleep(0.015)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.compute("work", int)

    return run_world({"server": server, "client": client}, decides=("server", "client"), costs={"work": 0.012},
                     lookahead=lookahead)


def test_a_follower_that_computes_when_its_leader_ends_comes_to_know_it() -> None:
    assert follower_of_a_leader_that_ends(True).kernel.end_ns == 25 * MS


def test_so_it_does_without_lookahead() -> None:
    assert follower_of_a_leader_that_ends(False).kernel.end_ns == 25 * MS


def test_recorded_costs_are_those_of_the_same_computations() -> None:
    from emul.engine import CostSource

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                for label in ("one", "two", "three"):
                    await node.compute(label, int)

    roles = {"server": ticking, "client": client}
    first = run_world(roles, costs={"one": 0.006, "two": 0.007, "three": 0.001}, stop=Stop(rounds=4))
    costs: dict[int, list[int]] = {}
    for row in first.rows:
        if row[0] == R.COMPUTE:
            costs.setdefault(row[2], []).append(row[4])
    again = run_world(roles, costs=CostSource("recorded", recorded=costs), stop=Stop(rounds=4))
    assert again.digest == first.digest


# --- crash and return -----------------------------------------------------------------------------------------------

def test_state_round_and_streams_survive_a_crash_the_inbox_does_not() -> None:
    seen: list[tuple[Any, ...]] = []

    async def server(node: Node, p: Any) -> None:
        for number in range(2):
            node.send(1, Ask(number))
            await node.sleep(0.05)

    async def client(node: Node, p: Any) -> None:
        state = node.state({"starts": 0})
        state["starts"] += 1
        seen.append((state["starts"], node.round, node.rng.random()))
        async for round_ in node.rounds():
            with round_:
                if state["starts"] == 1:
                    await node.sleep(9)
                seen.append((int(round_), (await node.recv_any(timeout_s=1)).number))

    world = run_world({"server": server, "client": client}, clients=1, faults=[Crash(30 * MS, "client1", 5 * MS)],
                      decides="server", stop=Stop(rounds=9))
    (starts1, round1, draw1), (starts2, round2, draw2), received = seen
    assert (starts1, round1, starts2, round2) == (1, 0, 2, 1)
    assert received == (2, 1)                       # not Ask(0), which lay in the inbox
    assert draw1 != draw2
    assert world.summary["messages_unread"] == 1
    assert [row[:2] for row in world.of("client1", R.CRASH, R.RETURN)] == [(R.CRASH, 30 * MS), (R.RETURN, 35 * MS)]


def test_sequence_numbers_go_on_after_a_return() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.2)

    async def client(node: Node, p: Any) -> None:
        node.send(node.server, Ask())
        await node.sleep(1)

    world = run_world({"server": server, "client": client}, clients=1, faults=[Crash(30 * MS, "client1", 5 * MS)])
    assert [row[3] for row in world.of("client1", R.SEND)] == [0, 1]


def test_a_message_offered_before_the_crash_still_travels_and_one_to_the_crashed_ends_nowhere() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(1, Ask())
        node.report(got=(await node.recv(Answer, 1)).number)

    async def client(node: Node, p: Any) -> None:
        node.send(node.server, Answer(4))
        await node.sleep(1)

    world = run_world({"server": server, "client": client}, clients=1, faults=[Crash(5 * MS, "client1")])
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"got": 4}]
    assert world.summary["messages_to_ended"] == 1


def test_a_computation_of_a_node_that_crashes_is_over_and_charged_until_then() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.2)

    async def client(node: Node, p: Any) -> None:
        await node.compute("work", int)
        node.send(node.server, Ask())

    world = run_world({"server": server, "client": client}, clients=1, costs={"work": 0.1},
                      faults=[Crash(30 * MS, "client1")])
    assert world.of("client1", R.SEND) == []
    assert world.summary["compute_virtual_seconds"]["client"]["work"] == 0.03


def test_a_returned_follower_goes_on_with_a_later_round_than_that_of_its_crash() -> None:
    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.sleep(0.001)

    world = run_world({"server": ticking, "client": client}, clients=1, stop=Stop(rounds=6),
                      faults=[Crash(20 * MS + MS // 2, "client1", 8 * MS)])
    assert rounds_of(world, "client1") == [1, 2, 3, 4, 5]       # the word of round 6 comes as the run ends


def test_who_crashes_for_good_does_not_return_by_a_later_fault() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.2)

    async def client(node: Node, p: Any) -> None:
        await node.sleep(1)

    world = run_world({"server": server, "client": client}, clients=1,
                      faults=[Crash(30 * MS, "client1"), Crash(40 * MS, "client1", 10 * MS)])
    assert world.of("client1", R.RETURN) == []


def test_everything_is_lost_and_the_run_still_ends() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask())
                node.report(got=len(await node.gather(Answer, node.clients)))

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                node.send(node.server, Answer())

    world = run_world({"server": server, "client": client}, stop=Stop(rounds=3),
                      links=[LinkRule("*", latency_ns=10 * MS, outage=OutageSpec(1.0))])
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"got": 0}] * 3
    assert world.kernel.end_ns == 60 * MS           # a loss is known after one latency, the silence after another


def test_who_counts_for_itself_enters_no_round_at_the_instant_after_the_last_decider_has_ended() -> None:
    """Without latency it knows at that very instant that nobody answers any more, and would count on for ever."""
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await node.gather(Ask, node.clients)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.send(node.server, Ask(int(round_)))
                await node.gather(Answer, [node.server])

    world = run_world({"server": server, "client": client}, links=[LinkRule("*", latency_ns=0)], stop=Stop(rounds=3))
    assert world.kernel.end_ns == 0
    assert world.of("client1", R.ENTER)[-1][3] == 0        # no more rounds
