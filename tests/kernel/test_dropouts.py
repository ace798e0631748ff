"""A node that drops out at a stage is silent and deaf for the rest of that round, and back in the next; one that takes
part in some rounds alone is not there in the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from emul.base import rows as R
from emul.base.streams import key64, uniform_at
from emul.record.columns import columns
from emul.record.invariants import check_columns
from emul.roles import Message, Node
from emul.scenario import DropOut, Stop
from emul.scenario.churn import InRounds
from emul.testing import MS, Ran, Shuffled, run_world


@dataclass(frozen=True)
class Ask(Message):
    number: int


@dataclass(frozen=True)
class Early(Message):
    number: int


@dataclass(frozen=True)
class Late(Message):
    number: int


@dataclass(frozen=True)
class Loose(Message, unscoped=True):
    number: int


MESSAGES = (Ask, Early, Late, Loose)


async def server(node: Node, p: Any) -> None:
    """Two stages a round; reports who was heard in each, and how many loose words came between."""
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Ask(node.round))
            early = await node.gather(Early, node.clients)
            node.broadcast(node.clients, Ask(-node.round))
            late = await node.gather(Late, node.clients)
            node.report(early=str(list(early)), late=str(list(late)))


async def client(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Early(node.round))
            node.send(node.server, Loose(node.round))
            await node.recv(Ask, node.server)
            node.send(node.server, Late(node.round))


def heard(*faults: DropOut, rounds: int = 3, **how: Any) -> tuple[list[tuple[str, str]], Ran]:
    """[(clients heard early, late) of each round]."""
    world = run_world({"server": server, "client": client}, faults=faults, stop=Stop(rounds=rounds), **how)
    assert world.invariants.violations == []
    return [(row[4]["early"], row[4]["late"]) for row in world.of("server", R.REPORT)], world


ALL = "[1, 2, 3]"


@pytest.mark.parametrize(("stage", "expected"), [
    ("Early", ("[1, 3]", "[1, 3]")), ("Late", (ALL, "[1, 3]")), ("Loose", (ALL, "[1, 3]")), ("Ask", (ALL, ALL))])
def test_nothing_is_heard_from_the_named_message_on(stage: str, expected: tuple[str, str]) -> None:
    seen, world = heard(DropOut("client2", stage))
    assert seen == [expected] * 3
    assert [row[3] for row in world.of("client2", R.DROP)] == ([] if stage == "Ask" else [1, 2, 3])


def test_it_holds_in_the_rounds_that_are_named() -> None:
    gone, here = ("[1, 3]", "[1, 3]"), (ALL, ALL)
    assert heard(DropOut("client2", "Early", 2, 3), rounds=4)[0] == [here, gone, gone, here]
    assert heard(DropOut("client2", "Early", 3), rounds=4)[0] == [here, here, gone, gone]
    two = heard(DropOut("client2", "Early", 2, 2), DropOut("client2", "Late", 1, 3), rounds=4)[0]
    assert two == [(ALL, "[1, 3]"), gone, (ALL, "[1, 3]"), here]


def test_a_pattern_stands_for_every_node_that_matches_and_servers_may_drop_out_too() -> None:
    assert heard(DropOut("client[13]", "Late"))[0] == [(ALL, "[2]")] * 3
    assert heard(DropOut("server", "Ask", 2, 2))[0] == [(ALL, ALL), ("[]", "[]"), (ALL, ALL)]


def test_what_was_under_way_to_it_is_lost_and_what_it_sent_before_arrives() -> None:
    seen, world = heard(DropOut("client2", "Loose", 1, 1), rounds=2)
    assert seen == [(ALL, "[1, 3]"), (ALL, ALL)]
    sent = {(row[2], row[3]): row for row in world.rows if row[0] == R.SEND}
    lost = [(sent[row[2], row[3]][5], sent[row[2], row[3]][9] >= 0) for row in world.rows if row[0] == R.LOST]
    # the second question crosses its link in vain; what it says itself takes no link
    assert sorted(lost) == [("Ask", True), ("Loose", False)]


def test_an_invariant_finds_a_word_of_a_node_that_is_out() -> None:
    _, world = heard(DropOut("client2", "Early", 1, 1), rounds=1)
    first = next(i for i, row in enumerate(world.rows) if row[0] == R.DROP)
    kind, _, *what = world.rows[first]
    moved = [(kind, 0, *what), *world.rows[:first], *world.rows[first + 1:]]     # as if out from the start
    broken = check_columns(columns(moved), world.header).violations
    assert [one.name for one in broken] == ["who drops out of a round is out of it"]


@pytest.mark.parametrize("how", [{"lookahead": False}, {"pool": Shuffled(2, 3)}])
def test_the_run_is_the_same_without_lookahead_and_for_any_workers(how: dict[str, Any]) -> None:
    faults = (DropOut("client*", "Late", 2, 2), DropOut("client1", "Early"))
    costs = {"costs": {"client": 0.003}}
    _, plain = heard(*faults, **costs)
    _, other = heard(*faults, **costs, **how)
    for name in plain.header["names"]:
        assert plain.of(name) == other.of(name)


def test_dropping_out_takes_no_time_of_others() -> None:
    """The server without a timeout learns of it when the message would have come, at 10 ms a way."""
    _, world = heard(DropOut("client2", "Late"), rounds=1)
    assert world.kernel.end_ns == 40 * MS



def test_a_drawn_dropout_is_a_function_of_seed_node_and_round() -> None:
    drop = DropOut("client*", "Late", p=0.4)
    seen, world = heard(drop, rounds=12)
    streams = {k: key64(7, "dropout", f"client{k}", 0) for k in (1, 2, 3)}
    assert [late for _, late in seen] == [str([k for k in streams if uniform_at(streams[k], r) >= 0.4])
                                          for r in range(1, 13)]
    # the same clients at another stage, which other schemes may have; and those again in a part of the rounds
    assert [early for early, _ in heard(DropOut("client*", "Early", p=0.4), rounds=12)[0]] == [late for _, late in seen]
    assert [late for _, late in heard(DropOut("client*", "Late", 5, p=0.4), rounds=12)[0][4:]] == [
        late for _, late in seen[4:]]
    assert world.rows == heard(drop, rounds=12, pool=Shuffled(2, 3))[1].rows


def test_draws_at_two_stages_are_independent_and_stages_that_are_not_sent_take_none() -> None:
    two, _ = heard(DropOut("client*", "Early", p=0.4), DropOut("client*", "Late", p=0.4), rounds=12)
    early = heard(DropOut("client*", "Early", p=0.4), rounds=12)[0]
    assert [one for one, _ in two] == [one for one, _ in early]
    assert any(late != one for one, late in two), "else the second draw would be the first one"
    assert heard(DropOut("client*", "Masked", p=0.9), DropOut("client*", "Early", p=0.4), rounds=12)[0] == early


def test_who_has_not_joined_or_has_left_is_sent_nothing_and_not_waited_for() -> None:
    some = [InRounds("client2", ((3, None),)), InRounds("client3", ((1, 1), (4, 4)))]
    seen, world = heard(*some, rounds=5)
    assert [early for early, _ in seen] == ["[1, 3]", "[1]", "[1, 2]", ALL, "[1, 2]"]
    assert [row[3] for row in world.of("client2", R.ENTER)] == [3, 4, 5]
    assert [row[3] for row in world.of("client3", R.ENTER)] == [1, 4]
    assert not any(row[0] == R.LOST for row in world.rows)
    to = [row[8] for row in world.rows if row[0] == R.SEND and row[4] == 2]
    assert to == [3, 3, 4, 4, 5, 5], "two questions in each of its rounds, and nothing before"
    for how in ({"lookahead": False}, {"pool": Shuffled(2, 3)}):
        other = heard(*some, rounds=5, **how)[1]
        assert all(world.of(name) == other.of(name) for name in world.header["names"])


async def listener(node: Node, p: Any) -> None:
    """A server with a deadline, which asks everybody."""
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Ask(node.round))
            got = await node.gather(Early, node.clients, timeout_s=1.0)
            node.report(early=str(list(got)))


async def answerer(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Early(node.round))


def test_a_deadline_is_not_awaited_for_who_has_not_joined() -> None:
    world = run_world({"server": listener, "client": answerer}, faults=[InRounds("client2", ((3, None),))],
                      stop=Stop(rounds=3))
    assert world.kernel.end_ns == 3 * 20 * MS


async def mate(node: Node, p: Any) -> None:
    async for round_ in node.rounds(sync=node.peers):
        with round_:
            node.broadcast(node.peers, Early(node.round))
            got = await node.gather(Early, node.peers)
            node.report(early=str(list(got)))


@pytest.mark.parametrize("how", [{}, {"lookahead": False}, {"pool": Shuffled(2, 3)}])
def test_a_peer_joins_when_word_of_its_round_can_have_come_and_ends_with_its_last_one(how: dict[str, Any]) -> None:
    some = [InRounds("peer2", ((3, None),)), InRounds("peer3", ((1, 2),)), InRounds("peer4", ((9, 9),))]
    world = run_world({"peer": mate}, nodes={"peer": 4}, stop=Stop(rounds=4), decides="peer", faults=some, **how)
    assert world.invariants.violations == []
    assert {name: [row[3] for row in world.of(name, R.ENTER)] for name in world.header["names"]} == {
        "peer1": [1, 2, 3, 4, 0], "peer2": [3, 4, 0], "peer3": [1, 2, 0], "peer4": []}
    entered = {row[3]: row[1] for row in world.of("peer1", R.ENTER)}
    assert world.of("peer2", R.ENTER)[0][1] == entered[3] + 10 * MS
    assert world.kernel.end_ns == 5 * 10 * MS      # peer2 begins the third round one way later
