"""Collectives with tags, several at once, beside a computation; blocking ones; rings of codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import RoleFailed
from emul.message.wire import ENVELOPE_BYTES, encode
from emul.network import LinkRule
from emul.primitives.compress import Codec, choose
from emul.protocols import collective
from emul.protocols.collective import Chunk, CodedPart, How, Manner, all_gather, all_reduce
from emul.roles import Node, Scheme
from emul.scenario import Stop
from emul.testing import MS, Ran, Shuffled, run_world
from emul.testing.world import NoParams, full_mesh

MESSAGES = collective.MESSAGES
DELTA, B = 0.05, 2_500_000                  # s one way, bytes/s
WIRES = (LinkRule("*", latency_ns=50 * MS, bandwidth_bps=B * 8),)
HOWS: tuple[How, ...] = ("ring", "tree", "butterfly", "server")


def vectors(n: int, d: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def world(n: int, role: Any, **how: Any) -> Ran:
    scheme = Scheme(name="world", params=NoParams, roles={"peer": role}, messages=MESSAGES, lanes=("gpu", "link"))
    return run_world(scheme, **{"topology": full_mesh({"peer": n}), "links": WIRES, **how})


def forwarding(found: dict[int, list[Any]], x: np.ndarray, how: How, busy_s: float = 100.0,
               collectives: int = 2) -> Callable[..., Any]:
    """A role that trains while activities add up, each a vector of its own; what they found, and when they had it."""
    async def peer(node: Node, _: Any) -> None:
        members = node.nodes("peer")

        async def one(tag: int) -> tuple[np.ndarray, float]:
            total = await all_reduce(node, members, x[node.id] * (tag + 1), how, manner=Manner(tag=tag, lane="link"))
            return total, node.now
        async for round_ in node.rounds(sync=node.peers):
            with round_:
                tasks = [node.start(one(tag)) for tag in range(collectives)]
                await node.compute("train", sum, (1, 2), cost_s=busy_s)
                found.setdefault(node.id, []).append([await task for task in tasks])
    return peer


@pytest.mark.parametrize("how", HOWS)
def test_two_at_once_forward_while_all_members_compute(how: How) -> None:
    n, found = 4, dict[int, list[Any]]()
    x = vectors(n, 400)
    ran = world(n, forwarding(found, x, how), stop=Stop(rounds=2))
    for tag in (0, 1):
        totals = {round_[tag][0].tobytes() for rounds in found.values() for round_ in rounds}
        assert len(totals) == 1             # in both rounds, at all members
        assert found[0][0][tag][0] == pytest.approx((tag + 1) * x.sum(0, np.float64), rel=1e-5, abs=1e-5)
        assert all(rounds[0][tag][1] < 2 for rounds in found.values())      # long before they have trained
    assert set(ran.payloads) == {"Chunk"}
    assert not ran.invariants.violations


def test_two_at_once_take_twice_the_bytes_and_no_more_latency() -> None:
    """On each link the parts of both go out one after the other: 2 (n - 1) (delta + 2 S / (n B))."""
    n, d = 5, 50_000
    found: dict[int, list[Any]] = {}
    world(n, forwarding(found, vectors(n, d), "ring"))
    size = encode(Chunk(np.zeros(d // n, np.float32), 0, 0)).size + ENVELOPE_BYTES
    last = max(at for rounds in found.values() for _, at in rounds[0])
    assert last == pytest.approx(2 * (n - 1) * (DELTA + size / B) + size / B, rel=1e-9, abs=1e-6)


def test_one_digest_for_any_workers_with_three_activities_and_two_collectives() -> None:
    n = 4
    x = vectors(n, 40)

    def digest(**how: Any) -> str:
        async def beside(node: Node) -> None:
            while True:
                await node.compute("tick", sum, (1,), cost_s=0.07)

        async def peer(node: Node, p: Any) -> None:
            async for round_ in node.rounds(sync=node.peers):
                with round_:
                    members = node.nodes("peer")
                    tasks = [node.start(all_reduce(node, members, x[node.id], "ring",
                                                   manner=Manner(tag=7, lane="link"))),
                             node.start(all_reduce(node, members, x[node.id], "tree",
                                                   manner=Manner(tag=8, lane="link", blocking=True)))]
                    node.start(beside(node))
                    await node.compute("train", sum, (1, 2), cost_s=0.31)
                    for task in tasks:
                        node.report(parameters=await task)
        return world(n, peer, stop=Stop(rounds=2), **how).digest
    expected = digest()
    for workers in (1, 2, 4):
        assert {digest(pool=Shuffled(workers, seed)) for seed in range(4)} == {expected}


def test_messages_with_tags_are_gathered_by_them() -> None:
    found: dict[int, list[float]] = {}

    async def peer(node: Node, _: Any) -> None:
        members = node.nodes("peer")

        async def one(tag: int) -> float:
            own = Chunk(np.full(1, node.id * 10.0 ** tag, np.float32), 0, tag)
            return float(sum(m.values[0] for m in (await all_gather(node, members, own)).values()))
        found[node.id] = [await task for task in [node.start(one(tag)) for tag in (0, 1, 2)]]
    world(3, peer)
    assert list(found.values()) == [[3.0, 30.0, 300.0]] * 3


# --- blocking ---------------------------------------------------------------------------------------------------------

def larger(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Messages declare so many bytes for each byte of their arrays, and none for their headers and envelopes."""
    def encode_larger(message: Any) -> Any:
        encoded = encode(message)
        carried = encoded.size - len(encoded.header)
        encoded.declared = round(carried * factor) - encoded.size - ENVELOPE_BYTES
        encoded.size += encoded.declared
        return encoded
    monkeypatch.setattr("emul.roles.desk.encode", encode_larger)


S, RATE = 10e9, 316_800_000                # INTELLECT-1's model in 8 bits; bytes, bit/s


@pytest.mark.parametrize(("slow", "expected"), [(False, 468.9755), (True, 4689.75)])
def test_one_uplink_at_a_tenth_holds_up_its_own_member_too(
        monkeypatch: pytest.MonkeyPatch, slow: bool, expected: float) -> None:
    """delta = 0: the formula of HALoS, 2 (n - 1) S / (n B); with a slow uplink of one ten times that."""
    n = 14
    x = vectors(n, 14 * 8)
    larger(monkeypatch, S / x[0].nbytes)
    links = [LinkRule("*", latency_ns=0, bandwidth_bps=RATE)]
    if slow:
        links.append(LinkRule("peer3->*", bandwidth_bps=RATE // 10))
    ends: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for blocking in (False, True):
        async def peer(node: Node, _: Any, blocking: bool = blocking) -> None:
            await all_reduce(node, node.nodes("peer"), x[node.id], "ring", manner=Manner(blocking=blocking))
            ends[blocking][node.id] = node.now
        world(n, peer, links=links)
    for each in ends.values():
        assert max(each.values()) == pytest.approx(expected, abs=0.01)
    if slow:
        assert ends[True][2] == pytest.approx(expected, abs=0.01)       # peer3 is number 2
        assert ends[False][2] < 0.6 * expected                          # its parts lie in its queue


# --- codes in a ring --------------------------------------------------------------------------------------------------

def coded(x: np.ndarray, codec: Codec) -> np.ndarray:
    """The sums of a ring of codes, part by part: part p begins at member p, goes around and is added to."""
    n, d = x.shape
    ends = [d * p // n for p in range(n + 1)]
    total = np.empty(d, np.float32)
    rng = np.random.default_rng(0)

    def through(values: np.ndarray) -> np.ndarray:
        return codec.decode(codec.encode(values, rng)[0], len(values)) if len(values) else values
    for p in range(n):
        part = slice(ends[p], ends[p + 1])
        partial = x[p, part]
        for hop in range(1, n):
            partial = x[(p + hop) % n, part] + through(partial)
        total[part] = through(partial)
    return total


def summed(x: np.ndarray, codec: Codec, **how: Any) -> tuple[list[np.ndarray], Ran]:
    found: dict[int, np.ndarray] = {}

    async def peer(node: Node, _: Any) -> None:
        found[node.id] = await all_reduce(node, node.nodes("peer"), x[node.id], "ring", manner=Manner(codec=codec))
    ran = world(len(x), peer, **how)
    return [found[k] for k in sorted(found)], ran


@pytest.mark.parametrize("codec", ["bf16", "int8", {"int8": {"sigmas": 3}}, "e3m0"])
@pytest.mark.parametrize(("n", "d"), [(2, 10), (3, 97), (5, 3), (14, 140)])
def test_a_ring_of_codes_is_what_each_hop_makes_of_it(codec: Any, n: int, d: int) -> None:
    x = vectors(n, d)
    found, _ = summed(x, choose(codec))
    assert len({one.tobytes() for one in found}) == 1       # the owner's too
    assert found[0].tobytes() == coded(x, choose(codec)).tobytes()


def test_a_ring_in_bf16_is_near_the_sum_and_in_16_bits() -> None:
    n, d = 4, 400
    x = vectors(n, d)
    found, ran = summed(x, choose("bf16"))
    assert np.abs(found[0] - x.sum(0)).max() < 0.05
    header = encode(CodedPart(np.zeros(200, np.uint8), 0, 0)).size - 200
    assert ran.payloads == {"CodedPart": [200 + header] * n * 2 * (n - 1)}


def test_drawn_codes_leave_equal_bits_at_all_members() -> None:
    found, _ = summed(vectors(5, 200), choose({"qsgd": {"levels": 4}}))
    assert len({one.tobytes() for one in found}) == 1


def test_codes_are_added_up_in_a_ring_alone() -> None:
    async def peer(node: Node, _: Any) -> None:
        await all_reduce(node, node.nodes("peer"), np.zeros(4, np.float32), "tree", manner=Manner(codec=choose("bf16")))
    with pytest.raises(RoleFailed, match="how = tree: codes are added up in a ring alone"):
        world(3, peer)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(1, 30), st.integers(0, 2**32))
def test_codes_of_32_bits_change_nothing(n: int, d: int, seed: int) -> None:
    """A codec that keeps all bits gives the bits of the plain ring."""
    x = vectors(n, d, seed)
    found: dict[int, np.ndarray] = {}

    async def peer(node: Node, _: Any) -> None:
        found[node.id] = await all_reduce(node, node.nodes("peer"), x[node.id], "ring")
    world(n, peer)
    ours, _ = summed(x, Exact())
    assert ours[0].tobytes() == found[0].tobytes()


class Exact(Codec):
    """32 bits as they are."""

    unbiased = True

    def encode(self, x: np.ndarray, rng: np.random.Generator, warm: object = None) -> tuple[np.ndarray, object]:
        return np.ascontiguousarray(x).view(np.uint8).copy(), None

    def decode(self, code: np.ndarray, d: int) -> np.ndarray:
        return np.frombuffer(code.tobytes(), np.float32).copy()

    def nbytes(self, d: int) -> int | None:
        return 4 * d

