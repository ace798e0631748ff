"""Messages of its own to each of many, sent at once: the same run as if each had been sent alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import RoleFailed, ZeroTimeLoop
from emul.kernel import state
from emul.network import Arq, LinkRule, OutageSpec, TopologySpec
from emul.roles import Declared, Message, Node, Octets
from emul.scenario import Crash, Leave, Limits, LinkDown, Stop
from emul.testing import MS, Ran, Shuffled, run_world


@dataclass(frozen=True)
class Box(Message):
    sealed: Octets


@dataclass(frozen=True)
class Note(Message, unscoped=True):
    text: str
    rest: Declared


@dataclass(frozen=True)
class Number(Message):
    value: float


MESSAGES = (Box, Note, Number)

LINKS = {
    "plain": LinkRule("*"),
    "free": LinkRule("*", latency_ns=0, bandwidth_bps="infinite"),
    "framed": LinkRule("*", overhead_bytes=40, mtu=100, outage=OutageSpec(0.2, per="packet")),
    "lossy": LinkRule("*", outage=OutageSpec(0.3, per="message")),
    "lossy rounds": LinkRule("*", outage=OutageSpec(0.3, per="round")),
    "shared": LinkRule("*", sharing="maxmin", outage=OutageSpec(0.3, per="message")),
    "arq": LinkRule("*", transport=Arq(), mtu=100, outage=OutageSpec(0.2, per="packet")),
}
FAULTS = {
    "none": (),
    "crash": (Crash(25 * MS, "client2", 30 * MS),),
    "leave": (Leave(15 * MS, "client1", 20 * MS),),
    "down": (LinkDown(11 * MS, "client1", "*", 30 * MS),),
}


def message_for(me: int, j: int, round_: int, sizes: Sequence[int]) -> Message:
    """One of two types, by turns; some are of equal contents."""
    size = sizes[(me + 3 * j + round_) % len(sizes)]
    return Note("n" * size, Declared(size // 2)) if (me + j) % 4 == 0 else Box(np.full(size, j, np.uint8))


def run(bulk: bool, sizes: Sequence[int], topology: str, link: str, faults: str, pool: Any = None) -> Ran:
    async def client(node: Node, p: Any) -> None:
        others = [*node.peers, *node.servers]
        async for round_ in node.rounds():
            with round_:
                for again in range(2):
                    messages = {j: message_for(node.id, j, round_ + again, sizes) for j in others}
                    if bulk:
                        node.send_each(messages)
                    else:
                        for j, message in messages.items():
                            node.send(j, message)
                got = await node.gather((Box, Note), node.peers, timeout_s=0.05 if faults == "down" else None)
                node.report(heard=len(got))

    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                got = await node.gather((Box, Note), node.clients, timeout_s=0.1)
                node.report(heard=len(got))

    rule = LINKS[link]
    links = [LinkRule("*", latency_ns=10 * MS, bandwidth_bps=8_000_000), rule]
    return run_world({"client": client, "server": server}, topology=TopologySpec(generator=topology, clients=3),
                     links=links, faults=FAULTS[faults], stop=Stop(rounds=2), limits=Limits(max_message=2_000),
                     pool=pool, decides="server")


@pytest.fixture(scope="module", autouse=True)
def _an_endless_loop_is_found_soon() -> Iterator[None]:
    """After 300 steps at one instant in place of 10,000, which take ten seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_ACTIVATIONS_AT_ONE_INSTANT", 300)
        yield


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=6), st.sampled_from(["star", "star_mesh"]),
       st.sampled_from(sorted(LINKS)), st.sampled_from(sorted(FAULTS)))
@example([3_000, 405, 1_686, 18, 819, 3_000], "star", "free", "crash")
def test_bulk_is_single_sends_over_any_links_and_faults(sizes: list[int], topology: str, link: str,
                                                        faults: str) -> None:
    """Deliveries, times, fates and bytes: every row of the journal. Over links that take no time a client whose server
    has crashed and whose messages are too large goes round for ever at one instant: both ways are refused alike."""
    try:
        bulk = run(True, sizes, topology, link, faults)
    except ZeroTimeLoop as refused:
        with pytest.raises(ZeroTimeLoop, match=f"^{re.escape(str(refused))}$"):
            run(False, sizes, topology, link, faults)
        return
    single = run(False, sizes, topology, link, faults)
    assert bulk.rows == single.rows
    assert bulk.digest == single.digest
    assert bulk.invariants.violations == []
    assert bulk.kernel.network.links()[0].offered() == single.kernel.network.links()[0].offered()


@pytest.mark.parametrize("link", ["lossy", "shared"])
def test_bulk_does_not_depend_on_the_order_of_answers(link: str) -> None:
    sizes = [10, 500, 0]
    shuffled = run(True, sizes, "star_mesh", link, "none", Shuffled(3))
    assert shuffled.rows == run(True, sizes, "star_mesh", link, "none").rows


def test_what_is_too_large_is_rejected_alone() -> None:
    world = run(True, [100, 2_500], "star_mesh", "plain", "none")
    refused = {(row[2], row[3]) for row in world.rows if row[0] == R.REJECT}
    large = {(row[2], row[3]) for row in world.rows if row[0] == R.SEND and row[6] > 2_000}
    assert refused
    assert refused <= large


def test_a_node_that_is_not_there_fails_the_role_at_its_line() -> None:
    async def client(node: Node, p: Any) -> None:
        node.send_each({0: Note("", Declared(0)), 9: Note("", Declared(0))})

    with pytest.raises(RoleFailed, match=r"test_bulk\.py:\d+: there is no node 9: nodes are 0 to 1"):
        run_world({"client": client}, nodes={"client": 2})


def test_a_type_that_is_not_listed_fails_the_role_at_its_line() -> None:
    @dataclass(frozen=True)
    class Strange(Message):
        pass

    async def client(node: Node, p: Any) -> None:
        node.send_each({j: Strange() for j in node.peers})

    with pytest.raises(RoleFailed, match=r"test_bulk\.py:\d+: Strange is not in messages of the scheme"):
        run_world({"client": client}, nodes={"client": 2})


def test_nothing_is_sent_if_one_cannot_be() -> None:
    """A number that is not finite ends the node's round before any of the others has left."""
    world = run_world({"client": diverging}, nodes={"client": 3}, stop=Stop(rounds=1))
    assert [row for row in world.rows if row[0] == R.SEND] == []
    assert {row[4] for row in world.rows if row[0] == R.LEAVE} == {"NotSendable: Number: value: not finite"}


async def diverging(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.send_each({j: Number(1.0 if place == 0 else float("inf")) for place, j in enumerate(node.peers)})
