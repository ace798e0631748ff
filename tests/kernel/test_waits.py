"""Fates: what a wait without a timeout comes to know, when, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emul.base import rows as R
from emul.base.errors import NothingToReceive, TimedOut
from emul.network import LinkRule, OutageSpec, TopologySpec
from emul.roles import Message, Node
from emul.roles.events import WaitEnd
from emul.scenario import Crash, LinkDown, Stop
from emul.testing import MS, Ran, run_world

HERE = Path(__file__).name
LOST = OutageSpec(1.0)
LATENCY = LinkRule("*", latency_ns=10 * MS)


@dataclass(frozen=True)
class Ask(Message):
    number: int = 0


@dataclass(frozen=True)
class Answer(Message):
    number: int = 0


MESSAGES = (Ask, Answer)


async def nothing(node: Node, p: Any) -> None:
    return


Behave = Callable[[Node], Any]


def asking(client1: Behave, rounds: int = 1, timeout_s: float | None = None, faults: Any = (), links: Any = (),
           clients: int = 2, client: Behave | None = None, **how: Any) -> tuple[Ran, list[tuple[int, list[int]]]]:
    """A server gathers answers each round; client1 does as it is told, the others answer. [(ms, who answered)]."""
    got: list[tuple[int, list[int]]] = []

    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(int(round_)))
                replies = await node.gather(Answer, node.clients, timeout_s=timeout_s)
                got.append((node.now_ns // MS, list(replies)))

    async def answer(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                if node.name == "client1":
                    await client1(node)
                else:
                    node.send(node.server, Answer())

    world = run_world({"server": server, "client": answer}, clients=clients, stop=Stop(rounds=rounds), faults=faults,
                      links=[LATENCY, *links], **how)
    assert not world.invariants.violations
    return world, got


# --- lost, never, pending -------------------------------------------------------------------------------------------

async def answers(node: Node) -> None:
    node.send(node.server, Answer())


async def abstains(node: Node) -> None:
    node.abstain(node.server, Answer)
    await node.sleep(1)


async def leaves(node: Node) -> None:
    await node.sleep(0.005)


async def is_slow(node: Node) -> None:
    await node.sleep(0.2)
    node.send(node.server, Answer())


def test_a_gather_returns_when_all_have_arrived() -> None:
    _, got = asking(answers)
    assert got == [(20, [1, 2])]


def test_a_gather_settles_when_a_loss_becomes_known_at_the_time_of_delivery() -> None:
    world, got = asking(answers, links=[LinkRule("client1->server", latency_ns=50 * MS, outage=LOST)])
    assert got == [(60, [2])]
    assert [row[3] for row in world.of("server", R.RESUME)] == [WaitEnd.SETTLED]


def test_a_gather_settles_a_latency_after_a_source_has_abstained() -> None:
    _, got = asking(abstains)
    assert got == [(20, [2])]


def test_a_gather_settles_a_latency_after_a_source_has_left_the_round() -> None:
    _, got = asking(leaves)
    assert got == [(25, [2])]


def test_a_gather_settles_a_latency_after_a_source_has_finished() -> None:
    got = []

    async def server(node: Node, p: Any) -> None:
        replies = await node.gather(Answer, node.clients)
        got.append((node.now_ns // MS, list(replies)))

    async def client(node: Node, p: Any) -> None:
        await node.sleep(0.007)

    run_world({"server": server, "client": client})
    assert got == [(17, [])]


def test_a_gather_settles_a_latency_after_a_source_has_crashed() -> None:
    _, got = asking(is_slow, faults=[Crash(33 * MS, "client1")])
    assert got == [(43, [2])]


def test_a_straggler_is_pending_however_long_it_takes() -> None:
    _, got = asking(is_slow)
    assert got == [(220, [1, 2])]


def test_a_message_under_way_is_pending_though_its_sender_has_left_the_round() -> None:
    _, got = asking(answers, links=[LinkRule("client1->server", bandwidth_bps=800)])     # 23 B take 0.23 s
    assert got[0][1] == [1, 2]
    assert got[0][0] > 200


def test_at_latency_zero_a_departure_is_known_in_a_later_step_of_the_same_instant() -> None:
    _, got = asking(leaves, links=[LinkRule("*", latency_ns=0)])
    assert got == [(5, [2])]


def test_a_lost_message_of_the_leader_means_that_the_follower_has_left_that_round() -> None:
    world, got = asking(answers, rounds=2, links=[LinkRule("server->client1", outage=OutageSpec(1.0, "round"))])
    assert got == [(20, [2]), (40, [2])]
    assert world.of("client1", R.ENTER) == []


def test_a_follower_whose_leader_was_lost_still_follows_a_later_message_of_that_round() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(1))            # the first one is lost
                await node.sleep(0.05)
                node.broadcast(node.clients, Ask(2))
                node.report(got=len(await node.gather(Answer, node.clients, timeout_s=0.1)))

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                node.send(node.server, Answer((await node.recv(Ask, node.server)).number))

    # a link that is down for the first message alone
    world = run_world({"server": server, "client": client}, clients=1,
                      faults=[LinkDown(0, "server", "client1", 30 * MS)])
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"got": 1}]


def test_followers_of_a_leader_that_has_left_the_round_answer_in_it_no_more() -> None:
    """client2 waits for client1, which was never asked: it knows so once that could know that the server has left."""
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.send(2, Ask())
                await node.sleep(0.03)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                try:
                    await node.recv(Answer, 1)
                except NothingToReceive as e:
                    node.report(why=str(e), at=node.now_ns // MS)

    async def lasting(node: Node, p: Any) -> None:
        await server(node, p)
        await node.sleep(1)

    world = run_world({"server": lasting, "client": client}, clients=2, stop=Stop(rounds=1))
    said = [row[4] for row in world.of("client2", R.REPORT)]
    # left at 30 ms, known to client1 at 40, its silence to client2 (by the server) at 60
    assert said == [{"why": "Answer from client1 is lost or will not be sent", "at": 60}]


# --- recv -----------------------------------------------------------------------------------------------------------

def test_a_recv_whose_message_is_lost_raises_and_ends_the_round() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.send(1, Ask())
                await node.recv(Answer, 1)
                node.report(unreachable=True)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                node.send(node.server, Answer())

    world = run_world({"server": server, "client": client}, clients=1, stop=Stop(rounds=2),
                      links=[LATENCY, LinkRule("client1->server", outage=LOST)])
    why = "NothingToReceive: Answer from client1 is lost or will not be sent"
    assert [row[3:] for row in world.of("server", R.LEAVE)] == [(1, why), (2, why)]
    assert world.of("server", R.REPORT) == []
    assert (world.summary["rounds"], world.summary["rounds_failed"]) == (0, 2)


def test_a_loss_is_used_up_by_the_wait_that_it_settles() -> None:
    said = []

    async def server(node: Node, p: Any) -> None:
        for _ in range(3):
            try:
                said.append((await node.recv(Answer, 1)).number)
            except NothingToReceive:
                said.append("lost")

    async def client(node: Node, p: Any) -> None:
        for number in range(2):
            node.send(node.server, Answer(number))
            await node.sleep(0.05)

    run_world({"server": server, "client": client}, clients=1, faults=[LinkDown(0, "client1", "server", 20 * MS)])
    assert said == ["lost", 1, "lost"]          # the last: the client has finished


def test_a_message_that_has_arrived_counts_before_an_earlier_loss() -> None:
    said = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.1)
        for _ in range(2):
            try:
                said.append((await node.recv(Answer, 1)).number)
            except NothingToReceive:
                said.append("lost")

    async def client(node: Node, p: Any) -> None:
        for number in range(2):
            node.send(node.server, Answer(number))
            await node.sleep(0.05)
        await node.sleep(1)

    run_world({"server": server, "client": client}, clients=1, faults=[LinkDown(0, "client1", "server", 20 * MS)])
    assert said == [1, "lost"]


# --- oracle waits ---------------------------------------------------------------------------------------------------

def test_waits_settled_by_fates_are_counted_by_role_and_line() -> None:
    world, _ = asking(abstains, rounds=3)
    (role, where), count = world.kernel.oracle_waits.most_common()[0]
    assert (role, count, where.split(":")[0]) == ("server", 3, HERE)
    assert world.summary["oracle_waits"] == {f"server@{where}": 3}


def test_waits_that_were_complete_are_no_oracle_waits() -> None:
    world, _ = asking(answers, rounds=3)
    assert not world.kernel.oracle_waits


def test_waits_with_a_timeout_never_use_fates() -> None:
    world, got = asking(abstains, timeout_s=0.5)
    assert got == [(500, [2])]
    assert not world.kernel.oracle_waits


def test_recv_any_never_uses_fates() -> None:
    async def server(node: Node, p: Any) -> None:
        try:
            await node.recv_any(Answer, timeout_s=0.3)
        except TimedOut as e:
            node.report(why=str(e), at=node.now_ns // MS)

    world = run_world({"server": server, "client": nothing}, clients=1)
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"why": "no message within 0.3 s", "at": 300}]


def test_a_timeout_after_a_wait_that_was_over_ends_nothing() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.recv(Answer, 1, timeout_s=0.05)
        await node.sleep(0.2)
        node.report(at=node.now_ns // MS)

    async def client(node: Node, p: Any) -> None:
        node.send(node.server, Answer())

    world = run_world({"server": server, "client": client}, clients=1)
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"at": 210}]


# --- departures whose word is under way -----------------------------------------------------------------------------

def abstains_then_leaves(lookahead: bool) -> list[tuple[int, list[int]]]:
    async def behave(node: Node) -> None:
        node.abstain(node.server, Answer)
        await node.sleep(0.005)

    return asking(behave, lookahead=lookahead)[1]


def test_a_source_that_abstains_and_leaves_soon_after_settles_by_its_abstention() -> None:
    assert abstains_then_leaves(True) == [(20, [2])]


def test_so_it_does_without_lookahead() -> None:
    assert abstains_then_leaves(False) == [(20, [2])]


def test_the_word_of_a_crash_arrives_though_the_node_has_returned_by_then() -> None:
    _, got = asking(is_slow, faults=[Crash(33 * MS, "client1", 2 * MS)])
    assert got == [(43, [2])]


def test_a_follower_that_was_down_when_its_leader_called_has_left_that_round() -> None:
    _, got = asking(answers, faults=[Crash(9 * MS, "client1", 2 * MS)])
    assert got == [(20, [2])]


def test_the_word_of_a_crash_arrives_outside_rounds_too() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.gather(Answer, node.clients)
        node.report(at=node.now_ns // MS)

    async def client(node: Node, p: Any) -> None:
        if node.state({"starts": 0})["starts"]:     # set up already, it thinks
            await node.recv(Answer, node.server)
        node.state({})["starts"] = 1
        await node.sleep(0.05)
        node.send(node.server, Answer())

    world = run_world({"server": server, "client": client}, clients=1, faults=[Crash(20 * MS, "client1", 2 * MS)])
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"at": 30}]


def lonely(client1_goes: str, **how: Any) -> list[int]:
    """client2 waits for client3, which follows client1, which goes without ever opening a round. [ms]"""
    known = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(1)

    async def client(node: Node, p: Any) -> None:
        if node.name == "client1":
            await node.sleep(0.05 if client1_goes == "finish" else 9)
        elif node.name == "client2":
            async for round_ in node.rounds():
                with round_:
                    await node.gather(Answer, [3])
                    known.append(node.now_ns // MS)
                break
        else:
            async for round_ in node.rounds(of=1):
                with round_:
                    pass

    run_world({"server": server, "client": client}, topology=TopologySpec(generator="star_mesh", clients=3), **how)
    return known


GOES = [("finish", ()), ("crash", (Crash(50 * MS, "client1"),))]


@pytest.mark.parametrize(("how", "faults"), GOES)
def test_who_waits_for_a_follower_of_a_leader_that_has_gone_is_told(how: str, faults: Any) -> None:
    assert lonely(how, faults=faults) == [70]       # 50 ms, 10 to client3, and 10 from there


def test_a_leader_that_is_down_for_a_while_has_left_no_later_round() -> None:
    """client3 may yet be asked, so client2 waits on."""
    assert lonely("crash", faults=[Crash(0, "client1", 25 * MS)], lookahead=False) == []
    assert lonely("crash", faults=[Crash(0, "client1", 25 * MS)]) == []


def test_who_waits_for_a_follower_is_told_when_the_last_of_its_leaders_ends() -> None:
    """client4 follows client1, which goes on to round 2 at 20 ms, and client3, which finishes at 50 ms."""
    known = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.2)

    async def client(node: Node, p: Any) -> None:
        if node.name == "client1":
            async for round_ in node.rounds():
                with round_:
                    await node.sleep(0.02 if round_ == 1 else 9)
        elif node.name == "client2":
            async for round_ in node.rounds():
                with round_:
                    await node.gather(Answer, [4])
                    known.append(node.now_ns // MS)
                break
        elif node.name == "client3":
            await node.sleep(0.05)
        else:
            async for round_ in node.rounds(of=[1, 3]):
                with round_:
                    pass

    run_world({"server": server, "client": client}, topology=TopologySpec(generator="star_mesh", clients=4))
    assert known == [70]


def test_who_waits_for_a_node_that_follows_late_is_told_that_its_leader_has_left() -> None:
    """client1 begins to follow client2 at 50 ms, in round 2 then; client3 waits for it in round 1."""
    known = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.3)

    async def client(node: Node, p: Any) -> None:
        if node.name == "client1":
            await node.sleep(0.05)
            async for round_ in node.rounds(of=2):
                with round_:
                    pass
        elif node.name == "client2":
            async for round_ in node.rounds():
                with round_:
                    await node.sleep(0 if round_ == 1 else 9)
        else:
            async for round_ in node.rounds():
                with round_:
                    await node.gather(Answer, [1])
                    known.append(node.now_ns // MS)
                break

    run_world({"server": server, "client": client}, topology=TopologySpec(generator="star_mesh", clients=3))
    assert known == [60]                            # it says whom it follows at 50, and that takes 10


# --- so many of anybody ---------------------------------------------------------------------------------------------

def test_collect_takes_several_of_one_node_in_the_order_of_arrival() -> None:
    """What came before the wait and what comes during it; at the deadline what there is; with 0 what lies here."""
    got: list[tuple[int, list[tuple[int, int]]]] = []

    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask())
                await node.sleep(0.05)
                for count, timeout_s in ((4, 1), (3, 0), (2, 0.03), (9, 0.5)):
                    came = await node.collect(count, timeout_s)
                    got.append((node.now_ns // MS, [(m.sender, m.number) for m in came]))

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                for number in range(4):
                    node.send(node.server, Answer(number))
                    await node.sleep(0.02 * node.id)

    world = run_world({"server": server, "client": client}, clients=2, stop=Stop(rounds=1), links=[LATENCY])
    assert not world.invariants.violations
    assert got == [(60, [(1, 0), (2, 0), (1, 1), (1, 2)]), (60, [(2, 1)]), (90, [(1, 3)]), (590, [(2, 2), (2, 3)])]
