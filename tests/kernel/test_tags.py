"""Tags: waits tell messages of one type apart by them, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emul.base import rows as R
from emul.base.errors import NothingToReceive, RoleFailed
from emul.roles import Message, Node, Scheme
from emul.scenario import DropOut, Stop
from emul.testing import MS, Ran, Shuffled, drive, run_world
from emul.testing.world import NoParams

HERE = Path(__file__).name


@dataclass(frozen=True)
class Chunk(Message, tagged=True):
    number: int
    tag: int


@dataclass(frozen=True)
class Word(Message):
    number: int


MESSAGES = (Chunk, Word)


def run(client: Callable[..., Any], **how: Any) -> Ran:
    """Two clients that find each other at once; the server only outlives them."""
    async def server(node: Node, p: Any) -> None:
        await node.sleep(5.0)
    ran = run_world({"server": server, "client": client}, **{"clients": 2, **how})
    assert not ran.invariants.violations
    return ran


def between(sends: Callable[[Node, int], None], receives: Callable[..., Any], **how: Any) -> tuple[list[Any], Ran]:
    """What the second client notes of what the first one sends at once."""
    noted: list[Any] = []

    async def client(node: Node, p: Any) -> None:
        first, second = node.clients
        if node.id == first:
            sends(node, second)
            await node.sleep(2.0)
        else:
            await receives(node, first, noted.append)
    ran = run(client, **how)
    return noted, ran


def in_turn(node: Node, target: int) -> None:
    for number, tag in enumerate((7, 8, 7)):
        node.send(target, Chunk(number, tag))


def at_once(node: Node, target: int) -> None:
    node.broadcast([target], Chunk(0, 7))
    node.send_each({target: Chunk(1, 8)})
    node.broadcast([target], Chunk(2, 7))


@pytest.mark.parametrize("sends", [in_turn, at_once])
@pytest.mark.parametrize("early", [False, True], ids=["from the inbox", "as they come"])
def test_a_wait_takes_what_has_its_tag_and_tags_are_used_again(sends: Any, early: bool) -> None:
    async def receives(node: Node, source: int, note: Any) -> None:
        if not early:
            await node.sleep(1.0)
        for tag in (8, 7, 7):
            note((tag, (await node.recv(Chunk, source, tag=tag)).number))
    noted, ran = between(sends, receives)
    assert noted == [(8, 1), (7, 0), (7, 2)]
    assert {row[5] for row in ran.rows if row[0] == R.SEND} == {"Chunk"}        # no tag in the journal


def test_other_waits_name_tags_too() -> None:
    async def receives(node: Node, source: int, note: Any) -> None:
        note([m.number for m in (await node.gather(Chunk, [source], tag=8)).values()])
        note((await node.recv_any(Chunk, Word, tag=7)).number)
        note([type(m).__name__ for m in await node.collect(1, 0.0)])     # any type, any tag
    assert between(in_turn, receives)[0] == [[1], 0, ["Chunk"]]


def test_a_loss_or_an_abstention_is_of_its_tag() -> None:
    def sends(node: Node, target: int) -> None:
        node.abstain(target, Chunk, tag=7)
        node.send(target, Chunk(1, 8))

    async def receives(node: Node, source: int, note: Any) -> None:
        for tag in (7, 8):
            try:
                note((await node.recv(Chunk, source, tag=tag)).number)
            except NothingToReceive:
                note("none")
    noted, ran = between(sends, receives)
    assert noted == ["none", 1]
    assert next(row[5] for row in ran.rows if row[0] == R.ABSTAIN) == ["Chunk"]


def test_messages_of_several_tags_go_to_many_in_one_call() -> None:
    got: list[tuple[int, int]] = []

    async def client(node: Node, p: Any) -> None:
        if not node.index:
            node.send_each({k: Chunk(k, 5 + place // 2) for place, k in enumerate(node.clients[1:])})
        else:
            tag = 5 + (node.index - 1) // 2
            got.append((node.index, (await node.recv(Chunk, node.clients[0], tag=tag)).number))
    run(client, clients=5)
    assert sorted(got) == [(1, 2), (2, 3), (3, 4), (4, 5)]


def test_a_node_drops_out_at_a_type_whatever_the_tag() -> None:
    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                if not node.index:
                    node.send(node.clients[1], Word(1))
                    node.send(node.clients[1], Chunk(1, int(round_)))
                await node.sleep(0.1)
    ran = run(client, faults=[DropOut("client1", "Chunk")], stop=Stop(rounds=2), decides="client")
    assert len([row for row in ran.rows if row[0] == R.DROP]) == 2
    assert [row[0] for row in ran.of("client2", R.DELIVER, R.LOST)] == [R.DELIVER, R.LOST] * 2


@pytest.mark.parametrize(("wait", "told"), [
    (lambda node: node.recv(Chunk, node.server), "Chunk is tagged: say which with tag="),
    (lambda node: node.gather((Word, Chunk), [node.server]), "Chunk is tagged"),
    (lambda node: node.recv_any(Chunk), "Chunk is tagged"),
    (lambda node: node.abstain(node.server, Chunk), "Chunk is tagged"),
    (lambda node: node.recv(Word, node.server, tag=1), "tag=1 of a type without tags")])
def test_a_missing_tag_and_one_too_many_are_told_with_their_place(wait: Any, told: str) -> None:
    async def client(node: Node, p: Any) -> None:
        await wait(node)
    with pytest.raises(RoleFailed) as caught:
        run(client)
    assert told in str(caught.value)
    assert f"{HERE}:" in str(caught.value)


def test_a_tagged_type_without_a_field_for_it_is_a_mistake_of_the_scheme() -> None:
    @dataclass(frozen=True)
    class Untold(Message, tagged=True):
        number: int

    scheme = Scheme(params=NoParams, roles={"client": _nothing}, messages=(Untold,))
    assert scheme.faults() == "messages lists Untold, which is tagged: expected a field tag: int in it"
    assert not Scheme(params=NoParams, roles={"client": _nothing}, messages=MESSAGES).faults()


async def _nothing(node: Node, p: Any) -> None:
    await node.sleep(1.0)


def test_activities_wait_for_a_tag_each_in_any_order_of_workers() -> None:
    def digest(**how: Any) -> str:
        async def client(node: Node, p: Any) -> None:
            other = node.peers[0]

            async def passing(tag: int) -> int:
                total = 0
                for number in range(4):
                    node.send(other, Chunk(number * tag, tag))
                    total += (await node.recv(Chunk, other, tag=tag)).number
                return total
            both = [node.start(passing(tag)) for tag in (1, 2)]
            await node.compute("train", sum, (1, 2), cost_s=0.025)
            assert [await one for one in both] == [6, 12]
        return run(client, **how).digest
    expected = digest()
    assert all(digest(pool=Shuffled(workers, seed)) == expected for workers in (1, 2, 4) for seed in range(3))


def test_a_driven_role_knows_tags() -> None:
    async def peer(node: Node, p: Any) -> None:
        node.send(1, Chunk((await node.recv(Chunk, 2, tag=8)).number, 3))
        node.abstain(1, Chunk, tag=4)
    role = drive(peer, roles={"peer": [0, 1, 2]})
    role.deliver({2: Chunk(5, 7)})
    assert role.ended is None
    role.deliver({2: Chunk(6, 8)})
    assert role.ended == ""
    assert role.sent(Chunk) == {1: Chunk(6, 3)}
    assert role.abstained(Chunk) == [1]


def test_latency_is_that_of_the_link() -> None:
    """10 ms up to the router-less star and 10 ms down, whatever the tag."""
    async def receives(node: Node, source: int, note: Any) -> None:
        await node.recv(Chunk, source, tag=8)
        note(node.now_ns // MS)
    assert between(in_turn, receives)[0] == [20]
