"""The contract between a role and the kernel, one test a line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from emul.base import rows as R
from emul.base.errors import NothingToReceive, RoleError, RoleFailed, TimedOut, TooFewClients, WireError
from emul.network import LinkRule
from emul.roles import Message, Node, RoundOver, Vector
from emul.roles.events import Abstain, Compute, Finish, LeaveRound, Report, Send, Wait, WaitEnd
from emul.scenario import Crash, Stop
from emul.testing import MS, Driven, drive, run_world

HERE = Path(__file__).name


@dataclass(frozen=True)
class Ask(Message):
    number: int = 0


@dataclass(frozen=True)
class Answer(Message):
    number: int = 0


@dataclass(frozen=True)
class Data(Message):
    values: Vector
    table: dict[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class News(Message, unscoped=True):
    number: int = 0


MESSAGES = (Ask, Answer, Data, News)


async def nothing(node: Node, p: Any) -> None:
    return


def kinds(role: Driven) -> list[str]:
    return [type(a).__name__ for a in role.actions]


# --- send never suspends --------------------------------------------------------------------------------------------

def test_send_broadcast_abstain_and_report_never_suspend() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(1, Ask())
        node.broadcast([1, 2], Ask())
        node.abstain([2, 3], Ask, Answer)
        node.report(accuracy=np.float64(0.5), name="x")

    role = drive(server)
    assert kinds(role) == ["Send", "Send", "Abstain", "Report", "Finish"]
    assert role.ended == ""


def test_a_broadcast_is_one_action_with_a_number_for_every_copy() -> None:
    async def server(node: Node, p: Any) -> None:
        node.broadcast([3, 1], Ask(7))
        node.broadcast([], Ask())
        node.send(2, Answer())

    sends = [a for a in drive(server).actions if type(a) is Send]
    assert [(s.to, s.kind, s.first) for s in sends] == [([3, 1], "Ask", 0), ([2], "Answer", 2)]


def test_what_is_sent_is_what_it_was_at_the_call() -> None:
    async def server(node: Node, p: Any) -> None:
        values = np.ones(3, np.float32)
        node.send(1, Data(values))
        values[:] = 9
        await node.sleep(1)

    assert drive(server).sent(Data)[1].values.tolist() == [1, 1, 1]


def test_every_array_that_a_role_receives_is_read_only_and_aligned() -> None:
    got: list[Data] = []

    async def server(node: Node, p: Any) -> None:
        got.append(await node.recv(Data, 1))

    drive(server).deliver({1: Data(np.arange(5, dtype=np.float32), {4: np.zeros((3, 3))})})
    for array in (got[0].values, got[0].table[4]):
        assert array.ctypes.data % 64 == 0
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_message_that_cannot_travel_fails_where_it_is_sent() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(1, Data(np.array([object()])))

    with pytest.raises(RoleFailed, match=rf'{HERE}", line \d+, in server(.*\n)*.*WireError: Data cannot be encoded'):
        drive(server)
    assert issubclass(WireError, Exception)


# --- only node.* may be awaited -------------------------------------------------------------------------------------

class Foreign:
    def __await__(self) -> Any:
        yield "something"


def line_of(function: Any, text: str) -> int:
    """The line in this file on which `text` stands in a function."""
    code = function.__code__
    lines = Path(__file__).read_text().splitlines()
    return next(n for n in range(code.co_firstlineno, len(lines)) if text in lines[n - 1])


def test_a_foreign_awaitable_is_refused_with_file_and_line_of_the_role() -> None:
    async def server(node: Node, p: Any) -> None:
        await Foreign()

    line = line_of(server, "await Foreign")
    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:{line}: only node\.\* may be awaited, not str$"):
        drive(server)


def test_a_foreign_awaitable_in_a_helper_is_refused_at_the_line_of_the_helper() -> None:
    async def helper() -> None:
        await Foreign()

    async def server(node: Node, p: Any) -> None:
        await helper()

    line = line_of(helper, "await Foreign")
    with pytest.raises(RoleFailed, match=rf"{HERE}:{line}: only node\.\* may be awaited"):
        drive(server)


def test_asyncio_is_refused_with_file_and_line_of_the_role() -> None:
    async def server(node: Node, p: Any) -> None:
        await asyncio.sleep(1)

    line = line_of(server, "await asyncio")
    with pytest.raises(RoleFailed, match=rf"{HERE}:{line}: only node\.\* may be awaited, nothing of asyncio\n$"):
        drive(server)


def test_sleep_zero_of_asyncio_is_refused_too() -> None:
    async def server(node: Node, p: Any) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:\d+: only node\.\* may be awaited"):
        drive(server)


def test_a_forgotten_await_is_refused_with_its_line() -> None:
    async def server(node: Node, p: Any) -> None:
        node.sleep(1)
        await node.sleep(1)

    line = line_of(server, "node.sleep")
    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:{line}: a wait or computation that is not awaited where "
                                         r"it is written: await it\n$"):
        drive(server)


def test_a_message_to_a_node_that_is_not_there_is_refused_with_its_line() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(77, Answer(1))

    line = line_of(server, "node.send")
    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:{line}: there is no node 77: nodes are 0 to \d+\n$"):
        drive(server)


def test_a_role_that_is_no_coroutine_function_is_refused() -> None:
    def server(node: Node, p: Any) -> None:
        return None

    said = r"^role 'server' is no coroutine function: write `async def server\(node, p\)`$"
    with pytest.raises(RoleError, match=said):
        drive(server)       # type: ignore[arg-type]


def test_helpers_and_asynchronous_generators_of_a_role_may_await_the_node() -> None:
    async def answers(node: Node) -> AsyncIterator[int]:
        for client in node.clients:
            yield (await node.recv(Answer, client)).number

    async def server(node: Node, p: Any) -> None:
        node.report(total=sum([number async for number in answers(node)]))

    role = drive(server)
    role.deliver({3: Answer(5), 1: Answer(1), 2: Answer(3)})
    assert role.reports == [{"total": 9}]


# --- replies are dicts ordered by node ------------------------------------------------------------------------------

def test_gathered_replies_are_ordered_by_node_not_by_arrival() -> None:
    async def server(node: Node, p: Any) -> None:
        replies = await node.gather(Answer, [3, 2, 1])
        node.report(order=str(list(replies)), senders=str([m.sender for m in replies.values()]))

    role = drive(server)
    role.deliver({2: Answer()})
    role.deliver({3: Answer(), 1: Answer()})
    assert role.reports == [{"order": "[1, 2, 3]", "senders": "[1, 2, 3]"}]


def test_gather_takes_one_message_of_a_source_and_leaves_the_next_to_the_next_wait() -> None:
    seen = []

    async def server(node: Node, p: Any) -> None:
        for _ in range(2):
            seen.append([m.number for m in (await node.gather(Answer, [1, 2])).values()])

    role = drive(server)
    role.deliver({1: Answer(10)})
    role.deliver({1: Answer(11)})
    role.deliver({2: Answer(20)})
    role.deliver({2: Answer(21)})
    assert seen == [[10, 20], [11, 21]]


def test_gather_with_need_returns_at_the_kth_message() -> None:
    async def server(node: Node, p: Any) -> None:
        node.report(got=str(list(await node.gather(Answer, node.clients, need=2))))

    role = drive(server)
    role.deliver({3: Answer()})
    assert role.waiting is not None
    role.deliver({2: Answer()})
    assert role.reports == [{"got": "[2, 3]"}]


def test_gather_of_more_than_there_are_is_refused_with_file_and_line() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.gather(Answer, [1, 2, 2], need=3)

    line = line_of(server, "await node.gather")
    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:{line}: gather\(need=3\) of 2 sources cannot be met$"):
        drive(server)


def test_gather_of_several_types_takes_whichever_comes() -> None:
    async def server(node: Node, p: Any) -> None:
        replies = await node.gather((Ask, Answer), [1, 2])
        node.report(kinds=" ".join(type(m).__name__ for m in replies.values()))

    role = drive(server)
    role.deliver({2: Ask()})
    role.deliver({1: Answer()})
    assert role.reports == [{"kinds": "Answer Ask"}]


# --- messages carry the round ---------------------------------------------------------------------------------------

def test_messages_carry_the_round_of_their_sender_unscoped_ones_none() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(1, Ask())
        async for round_ in node.rounds():
            with round_:
                node.send(1, Ask())
                node.send(1, News())

    role = drive(server, rounds=2)
    assert [a.round for a in role.actions if type(a) is Send] == [0, 1, 0, 2, 0]


def test_a_message_of_a_finished_round_is_dropped_and_counted_late() -> None:
    got: list[tuple[int, list[int]]] = []

    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask(int(round_)))
                replies = await node.gather(Answer, node.clients, timeout_s=0.1)
                got.append((int(round_), [m.number for m in replies.values()]))

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                ask = await node.recv(Ask, node.server)
                if node.name == "client2" and round_ == 1:
                    await node.sleep(0.085)
                node.send(node.server, Answer(ask.number))

    world = run_world({"server": server, "client": client}, clients=2, stop=Stop(rounds=2))
    assert got == [(1, [1]), (2, [2, 2])]
    late = [row for row in world.of("server", R.DELIVER) if row[4] == R.DELIVERED_LATE]
    assert len(late) == 1
    assert world.summary["messages_late"] == 1


def test_a_message_that_lies_unread_when_its_round_ends_is_late_too() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask())
                await node.gather(Answer, node.clients)
                await node.sleep(0.05)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                node.broadcast([node.server], Answer(1))
                node.broadcast([node.server], Answer(2))

    world = run_world({"server": server, "client": client}, clients=2)
    assert len(world.of("server", R.LATE)) == 2
    assert world.summary["messages_late"] == 2


def test_unscoped_messages_are_never_late() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                if round_ == 2:
                    node.report(number=(await node.recv(News, 1)).number)
                else:
                    await node.sleep(0.05)

    async def client(node: Node, p: Any) -> None:
        node.send(node.server, News(5))

    world = run_world({"server": server, "client": client}, clients=1, stop=Stop(rounds=2))
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"number": 5}]
    assert world.summary["messages_late"] == 0


# --- one instant ----------------------------------------------------------------------------------------------------

def test_a_deadline_accepts_what_arrives_at_that_very_instant() -> None:
    got = []

    async def server(node: Node, p: Any) -> None:
        got.append(list(await node.gather(Answer, node.clients, timeout_s=0.02)))
        got.append(list(await node.gather(Answer, node.clients, timeout_s=0.1)))

    async def client(node: Node, p: Any) -> None:
        await node.sleep({"client1": 0.01, "client2": 0.010000001, "client3": 0.0}[node.name])
        node.send(node.server, Answer())

    run_world({"server": server, "client": client})         # latency 10 ms
    assert got == [[1, 3], [2]]


def test_deliveries_come_before_timers_at_one_instant() -> None:
    async def server(node: Node, p: Any) -> None:
        node.report(at=(await node.recv(Answer, 1, timeout_s=0.02)).number)

    async def client(node: Node, p: Any) -> None:
        await node.sleep(0.01)
        node.send(node.server, Answer(node.now_ns))

    world = run_world({"server": server, "client": client}, clients=1)
    assert [(row[1], row[3]) for row in world.of("server", R.RESUME)] == [(20 * MS, WaitEnd.COMPLETE)]


def test_deliveries_of_one_instant_come_in_the_order_of_source_then_sequence_number() -> None:
    got: list[tuple[int, int]] = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.05)
        for _ in range(6):
            message = await node.recv_any(timeout_s=1)
            got.append((message.sender, message.number))

    async def client(node: Node, p: Any) -> None:
        for number in range(2):
            node.send(node.server, Answer(number))

    run_world({"server": server, "client": client})
    assert got == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


def test_recv_any_that_waits_takes_deliveries_of_one_instant_in_the_same_order() -> None:
    got: list[tuple[int, int]] = []

    async def server(node: Node, p: Any) -> None:
        for _ in range(4):
            message = await node.recv_any(timeout_s=1)
            got.append((message.sender, message.number))

    async def client(node: Node, p: Any) -> None:
        for number in range(2):
            node.send(node.server, Answer(number))

    run_world({"server": server, "client": client}, clients=2)
    assert got == [(1, 0), (1, 1), (2, 0), (2, 1)]


# --- a crash --------------------------------------------------------------------------------------------------------

def test_a_crash_closes_the_coroutine_which_can_no_longer_send() -> None:
    closed = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.1)

    async def client(node: Node, p: Any) -> None:
        try:
            node.send(node.server, Ask())
            await node.sleep(1)
        finally:
            node.send(node.server, Answer())
            closed.append(node.now_ns)

    world = run_world({"server": server, "client": client}, clients=1, faults=[Crash(30 * MS, "client1")])
    assert closed == [0]                        # at its last activation: the node does not see the crash
    assert [row[5] for row in world.of("client1", R.SEND)] == ["Ask"]
    assert world.of("client1")[-1][:3] == (R.CRASH, 30 * MS, 1)
    assert not world.invariants.violations


def test_a_role_that_awaits_while_it_is_closed_is_closed_all_the_same() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.1)

    async def client(node: Node, p: Any) -> None:
        try:
            await node.sleep(1)
        finally:
            await node.sleep(1)

    world = run_world({"server": server, "client": client}, clients=1, faults=[Crash(30 * MS, "client1")])
    assert world.of("client1")[-1][0] == R.CRASH


# --- exceptions -----------------------------------------------------------------------------------------------------

def test_an_exception_in_a_role_ends_the_run_with_node_time_round_and_traceback() -> None:
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
                if round_ == 2 and node.name == "client2":
                    raise KeyError("a bug")

    line = line_of(client, "raise KeyError")
    with pytest.raises(RoleFailed, match=re.compile(
            rf'^client2 \(client\) failed at 0\.03 s in round 2:\n'
            rf'.*, line {line}: KeyError: .*\nTraceback .*{HERE}", line {line}, in client\n'
            r".*KeyError: 'a bug'\n$", re.DOTALL)):
        run_world({"server": server, "client": client}, stop=Stop(rounds=3))


def test_what_a_role_sent_before_its_exception_is_still_in_the_journal() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(1, Ask())
        raise RuntimeError("no luck")

    with pytest.raises(RoleFailed, match=r"RuntimeError: no luck\n$"):
        drive(server)


def test_a_failure_of_the_protocol_outside_a_round_ends_the_role_and_not_the_run() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(0.1)

    async def client(node: Node, p: Any) -> None:
        raise TooFewClients("2 of 3")

    world = run_world({"server": server, "client": client}, clients=1)
    assert world.of("client1", R.FINISH) == [(R.FINISH, 0, 1, "TooFewClients: 2 of 3")]


# --- compute --------------------------------------------------------------------------------------------------------

def test_compute_answers_with_the_cost_first_and_works_later() -> None:
    """The kernel hears of the cost of both computations before either has really run."""
    from emul.workers.twin import Twin

    events: list[str] = []

    class Watching(Twin):
        def reply(self, node: int, worker: int) -> Any:
            reply = super().reply(node, worker)
            events.extend(f"{node} costs {a.cost}" for a in reply.actions if type(a) is Compute)
            return reply

    async def server(node: Node, p: Any) -> None:
        await node.sleep(1)

    async def client(node: Node, p: Any) -> None:
        node.report(result=await node.compute("work", work, node.id))

    def work(node: int) -> int:
        events.append(f"{node} works")
        return node * 10

    world = run_world({"server": server, "client": client}, clients=2, costs={"work": 0.003}, pool=Watching())
    assert events == ["1 costs 3000000", "2 costs 3000000", "1 works", "2 works"]
    assert [row[1:5] for row in world.rows if row[0] == R.REPORT] == [
        (3 * MS, 1, 0, {"result": 10}), (3 * MS, 2, 0, {"result": 20})]


def test_what_a_computation_raises_is_raised_where_it_is_awaited_after_its_cost() -> None:
    async def server(node: Node, p: Any) -> None:
        try:
            await node.compute("work", int, "x")
        except ValueError:
            node.report(caught=node.now_ns)

    world = run_world({"server": server, "client": nothing}, costs={"work": 0.5})
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"caught": 500 * MS}]


def test_a_missing_cost_names_the_command_that_makes_a_profile() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.compute("unknown", int)

    with pytest.raises(RoleFailed, match=r"MissingCost: the profile has no price of 'world/server/unknown': make one "
                                         r"with `emul profile SCENARIO -o FILE`"):
        run_world({"server": server, "client": nothing}, costs={"work": 0.5})


def test_a_node_may_compute_twice_at_one_instant() -> None:
    async def server(node: Node, p: Any) -> None:
        for _ in range(3):
            await node.compute("free", int)

    run_world({"server": server, "client": nothing}, clients=1)


# --- rounds ---------------------------------------------------------------------------------------------------------

def test_rounds_refuses_a_body_that_was_not_inside_with_t() -> None:
    async def server(node: Node, p: Any) -> None:
        async for _ in node.rounds():
            pass

    line = line_of(server, "async for")
    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:{line}: the body of "
                                         r"`async for round_ in node.rounds\(\)` must be inside `with round_:`\n$"):
        drive(server)


def test_a_round_is_a_number_and_leaves_with_its_block() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.report(double=2 * round_, inside=node.round)

    role = drive(server, rounds=2)
    assert role.reports == [{"double": 2, "inside": 1}, {"double": 4, "inside": 2}]
    assert [(a.round, a.why) for a in role.actions if type(a) is LeaveRound] == [(1, ""), (2, "")]


@pytest.mark.parametrize(("error", "why"), [
    (TooFewClients("3 of 5"), "TooFewClients: 3 of 5"),
    (NothingToReceive("Ask from server is lost or will not be sent"),
     "NothingToReceive: Ask from server is lost or will not be sent"),
    (RoundOver(), "a later round has begun"),
])
def test_with_t_swallows_what_ends_a_round_and_says_why(error: BaseException, why: str) -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                raise error

    role = drive(server)
    assert [a.why for a in role.actions if type(a) is LeaveRound] == [why]
    assert role.ended == ""


def test_with_t_swallows_no_bug() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                raise ZeroDivisionError

    with pytest.raises(RoleFailed, match=r"ZeroDivisionError\n$"):
        drive(server)


@pytest.mark.parametrize(("ask", "said"), [
    (lambda n: n.rounds(of=1, sync=[2]), r"rounds\(\) takes `of` or `sync`, not both"),
    (lambda n: n.rounds(of=[1, 2], quorum=3), r"a quorum of 3 of 2 nodes cannot be met"),
    (lambda n: n.rounds(of=[], quorum=1), r"a quorum of 1 of 0 nodes cannot be met"),
    (lambda n: n.rounds(of=1, on_new_round="stop"), r'on_new_round = \'stop\': expected "finish" or "abandon"'),
])
def test_rounds_refuses_what_it_cannot_do_with_file_and_line(ask: Any, said: str) -> None:
    async def server(node: Node, p: Any) -> None:
        ask(node)

    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:\d+: {said}\n$"):
        drive(server)


# --- what ends a wait -----------------------------------------------------------------------------------------------

def test_recv_says_what_did_not_come() -> None:
    async def server(node: Node, p: Any) -> None:
        for timeout in (0.5, None):
            try:
                await node.recv(Answer, 2, timeout_s=timeout)
            except (TimedOut, NothingToReceive) as e:
                node.report(why=f"{type(e).__name__}: {e}")

    role = drive(server)
    assert role.deadline == 0.5
    role.advance_to(0.5)
    assert role.deadline is None
    role.settle()
    assert [r["why"] for r in role.reports] == [
        "TimedOut: no Answer from client2 within 0.5 s",
        "NothingToReceive: Answer from client2 is lost or will not be sent"]


def test_a_gather_that_times_out_returns_what_it_has() -> None:
    async def server(node: Node, p: Any) -> None:
        replies = await node.gather(Answer, node.clients, timeout_s=2.0)
        node.broadcast(replies, Ask())

    role = drive(server)
    role.deliver({3: Answer(), 1: Answer()})
    assert role.deadline == 2.0
    role.advance_to(role.deadline)
    assert list(role.sent(Ask)) == [1, 3]
    assert role.ended == ""


def test_a_wait_says_where_the_role_waits() -> None:
    async def helper(node: Node) -> None:
        await node.gather(Answer, [1])

    async def server(node: Node, p: Any) -> None:
        await helper(node)

    waiting = drive(server).waiting
    assert isinstance(waiting, Wait)
    assert waiting.where == f"{HERE}:{line_of(helper, 'await node.gather')}"
    assert (waiting.kinds, waiting.sources, waiting.need) == (["Answer"], [1], 1)


def test_round_over_raises_in_the_wait_and_no_except_exception_catches_it() -> None:
    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                try:
                    await node.recv(Answer, node.server)
                except Exception:
                    node.report(caught=True)

    role = drive(client)
    role.deliver({0: Ask()})
    role.round_over()
    assert role.reports == []
    assert [a.why for a in role.actions if type(a) is LeaveRound] == ["a later round has begun"]


# --- the node's own -------------------------------------------------------------------------------------------------

def test_streams_of_a_node_are_its_own_and_its_purposes() -> None:
    drawn = {}

    async def client(node: Node, p: Any) -> None:
        drawn[node.id] = (node.rng.random(), node.stream("noise").random(), node.rng.random())

    for id in (1, 2):
        drive(client, id=id)
    first = dict(drawn)
    drive(client, id=1)
    assert drawn == first
    assert len({number for numbers in drawn.values() for number in numbers}) == 6


def test_the_cohort_of_a_round_depends_on_seed_node_and_round_alone() -> None:
    async def server(node: Node, p: Any) -> None:
        node.rng.random(p)                      # other draws do not shift it
        async for round_ in node.rounds():
            with round_:
                node.report(cohort=str(node.sample(node.clients, 0.5)))

    clients = range(1, 21)
    cohorts = [[r["cohort"] for r in drive(server, draws, clients=clients, rounds=3).reports] for draws in (0, 5)]
    assert cohorts[0] == cohorts[1]
    assert len(set(cohorts[0])) == 3
    assert all(len(eval_list(c)) == 10 for c in cohorts[0])


def eval_list(text: str) -> list[int]:
    return [int(number) for number in text.strip("[]").split(",")]


def test_abstain_names_targets_types_and_the_round() -> None:
    async def server(node: Node, p: Any) -> None:
        node.abstain(2, Answer)
        async for round_ in node.rounds():
            with round_:
                node.abstain([1, 3], Answer, Ask)

    role = drive(server)
    assert [a for a in role.actions if type(a) is Abstain] == [
        Abstain([2], ["Answer"], 0), Abstain([1, 3], ["Answer", "Ask"], 1)]
    assert role.abstained(Answer) == [1, 2, 3]


def test_reported_numbers_of_numpy_are_plain() -> None:
    async def server(node: Node, p: Any) -> None:
        node.report(a=np.float32(0.5), b=np.int64(3), c=None, d=True)

    report = next(a for a in drive(server).actions if type(a) is Report)
    assert [type(v) for v in report.values.values()] == [float, int, type(None), bool]


@pytest.mark.parametrize("value", [np.array(0.5), torch.tensor(0.5), np.float64(0.5)])
def test_a_reported_number_may_be_a_tensor(value: Any) -> None:
    async def server(node: Node, p: Any) -> None:
        node.report(a=value, zero=value * 0)

    report = next(a for a in drive(server).actions if type(a) is Report)
    assert report.values == {"a": 0.5, "zero": 0.0}


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, 2**70, np.zeros(2), 1j])
def test_what_no_table_holds_is_no_reported_value(value: Any) -> None:
    async def server(node: Node, p: Any) -> None:
        node.report(a=value)

    with pytest.raises(RoleFailed, match=rf"RoleError: {HERE}:\d+: report: a = .*: expected a number below 2\^63"):
        drive(server)


def test_a_role_alone_is_driven_only_forwards_and_only_where_it_waits() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(1)

    role = drive(server)
    role.advance_to(0.25)
    with pytest.raises(ValueError, match=r"^time cannot go back from 0.25 s to 0.2 s$"):
        role.advance_to(0.2)
    with pytest.raises(ValueError, match=r"^only a wait on named sources without a timeout can settle, not Wait"):
        role.settle()
    role.advance_to(1)
    assert type(role.actions[-1]) is Finish
    with pytest.raises(ValueError, match=r"^the role waits for no message, but for None$"):
        role.round_over()


def test_self_delivery_costs_neither_bytes_nor_time() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(node.id, Ask(3))
        node.report(got=(await node.recv(Ask, node.id)).number, at=node.now_ns)

    world = run_world({"server": server, "client": nothing}, links=[LinkRule("*", latency_ns=MS, overhead_bytes=40)])
    assert [row[4] for row in world.of("server", R.REPORT)] == [{"got": 3, "at": 0}]
    assert world.summary["bytes_total"] == 0
