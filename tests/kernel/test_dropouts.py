"""A node that drops out at a stage is silent and deaf for the rest of that round, and back in the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from emul.base import rows as R
from emul.record.columns import columns
from emul.record.invariants import check_columns
from emul.roles import Message, Node
from emul.scenario import DropOut, Stop
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

