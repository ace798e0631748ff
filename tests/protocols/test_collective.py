"""Collectives: their times against closed forms, their sums against NumPy, one result at all, and members that fail."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, get_args

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import RoleError
from emul.message.wire import ENVELOPE_BYTES, encode
from emul.network import LinkRule, OutageSpec, TopologySpec
from emul.network.models.latency import JitterSpec
from emul.protocols import collective
from emul.protocols.collective import How, Part, all_gather, all_reduce, legs_of, unfit
from emul.roles import Node
from emul.scenario import Crash, Stop
from emul.testing import MS, Ran, run_world

MESSAGES = collective.MESSAGES
HOWS: tuple[How, ...] = get_args(How)
DELTA, B = 0.05, 2_500_000                  # s one way, bytes/s
WIRES = (LinkRule("*", latency_ns=50 * MS, bandwidth_bps=B * 8),)


def can(how: How, n: int) -> bool:
    return how != "butterfly" or n in (1, 2, 4, 8, 16)


CASES = [(how, n) for how in HOWS for n in range(2, 17) if can(how, n)]


def vectors(n: int, d: int, seed: int = 1) -> dict[int, np.ndarray]:
    return dict(enumerate(np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)))


def world(n: int, role: Any, **rest: Any) -> Ran:
    return run_world({"peer": role}, nodes={"peer": n}, **{"links": WIRES, **rest})


def summing(found: dict[int, tuple[np.ndarray, float]], x: dict[int, np.ndarray], how: How,
            timeout_s: float | None = None, rounds: bool = False) -> Callable[..., Any]:
    """A role that adds up once a round: (the sum, when) of each member goes to `found`."""
    async def peer(node: Node, _: Any) -> None:
        async for round_ in node.rounds(sync=node.peers):
            with round_:
                members = node.nodes("peer")
                total = await all_reduce(node, members, x[node.id], how, timeout_s)
                found[node.id] = total, node.now
                node.report(took=node.now)
    return peer


def size_of(values: int, number: int = 0) -> int:
    """Bytes of a part on a link, header included."""
    return encode(Part(np.zeros(values, np.float32), number)).size + ENVELOPE_BYTES


def seconds(how: How, n: int, d: int) -> float:
    """The closed forms, with the bytes of headers. n divides d."""
    k = math.ceil(math.log2(n))
    if how == "ring":
        return 2 * (n - 1) * (DELTA + size_of(d // n) / B)
    if how == "tree":
        return 2 * k * (DELTA + size_of(d) / B)
    if how == "butterfly":
        return 2 * k * DELTA + 2 * sum(size_of(d >> i) for i in range(1, k + 1)) / B
    return 2 * (DELTA + (n - 1) * size_of(d) / B)


def star(n: int, *rules: LinkRule) -> dict[str, Any]:
    """Peers around a router that plays no role, half the latency on each link."""
    graph = nx.Graph()
    graph.add_node("router")
    for k in range(n):
        graph.add_node(f"peer{k}", role="peer")
        graph.add_edge(f"peer{k}", "router")
    return {"topology": TopologySpec(graph=graph), "links": [LinkRule("*", latency_ns=25 * MS), *rules]}


SLOW_UP = LinkRule("*->router", bandwidth_bps=B * 8)


@pytest.mark.parametrize(("how", "n"), [case for case in CASES if case[0] != "server"])
@pytest.mark.parametrize("shared", [False, True], ids=["a link for each pair", "an uplink for each member"])
def test_the_time_is_that_of_the_closed_form(how: How, n: int, shared: bool) -> None:
    d, found = 240 * n, {}
    if how == "butterfly":
        d = 4096
    ran = world(n, summing(found, vectors(n, d), how), **star(n, SLOW_UP) if shared else {})
    expected = seconds(how, n, d)
    assert max(at for _, at in found.values()) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert len(found) == n
    assert not ran.invariants.violations


@pytest.mark.parametrize("n", range(2, 17))
def test_a_server_has_all_vectors_on_its_own_link(n: int) -> None:
    found: dict[int, tuple[np.ndarray, float]] = {}
    near = star(n, LinkRule("peer0<->router", bandwidth_bps=B * 8))
    world(n, summing(found, vectors(n, 1000), "server"), **near)
    assert max(at for _, at in found.values()) == pytest.approx(seconds("server", n, 1000), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("n", range(2, 17))
def test_gathering_takes_as_long_as_the_copies_for_all_others(n: int) -> None:
    found: dict[int, tuple[dict[int, np.ndarray], float]] = {}
    x = vectors(n, 500)

    async def peer(node: Node, _: Any) -> None:
        got = await all_gather(node, node.nodes("peer"), Part(x[node.id], 0))
        found[node.id] = {j: part.values for j, part in got.items()}, node.now
    world(n, peer, **star(n, SLOW_UP))
    last = max(at for _, at in found.values())
    assert last == pytest.approx(DELTA + (n - 1) * size_of(500) / B, rel=1e-9, abs=1e-6)
    for got, _ in found.values():
        assert list(got) == list(range(n))
        assert all(np.array_equal(got[j], x[j]) for j in got)


@pytest.mark.parametrize(("how", "n"), [(how, n) for how, n in CASES if n in (2, 3, 4, 7, 8, 14)])
@pytest.mark.parametrize("d", [1, 5, 97])
def test_all_end_with_the_same_bits(how: How, n: int, d: int) -> None:
    x, found = vectors(n, d), {}
    world(n, summing(found, x, how))
    assert len({total.tobytes() for total, _ in found.values()}) == 1
    assert found[0][0] == pytest.approx(np.sum([*x.values()], 0, np.float64), rel=1e-5, abs=1e-5)
    assert all(total.dtype == np.float32 for total, _ in found.values())


def in_lockstep(how: How, x: np.ndarray) -> np.ndarray:
    """The sums of all members by their legs alone, without a network: (n, d)."""
    n, d = x.shape
    total = x.copy()
    todo = {rank: legs_of(how, n, rank, d) for rank in range(n)}
    sent: dict[tuple[int, int], list[np.ndarray]] = {}
    has_sent = dict.fromkeys(range(n), False)
    while any(todo.values()):
        before = sum(map(len, todo.values())), sum(has_sent.values())
        for rank, legs in todo.items():
            if not legs:
                continue
            leg = legs[0]
            if leg.to is not None and not has_sent[rank]:
                sent.setdefault((rank, leg.to), []).append(total[rank, leg.sends].copy())
                has_sent[rank] = True
            here = leg.source is None or bool(sent.get((leg.source, rank)))
            if not here:
                continue
            if leg.source is not None:
                values = sent[leg.source, rank].pop(0)
                total[rank, leg.takes] = total[rank, leg.takes] + values if leg.adds else values
            todo[rank], has_sent[rank] = legs[1:], False
        assert (sum(map(len, todo.values())), sum(has_sent.values())) != before, "nobody can go on"
    assert not any(sent.values()), "a part that nobody takes"
    return total


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(HOWS), st.integers(1, 40), st.integers(0, 70), st.integers(0, 2**32))
def test_sums_are_those_of_numpy(how: How, n: int, d: int, seed: int) -> None:
    n = 1 << (n % 6) if how == "butterfly" else n
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    total = in_lockstep(how, x)
    assert (total == total[0]).all()
    assert np.allclose(total[0], x.sum(0, np.float64), rtol=1e-5, atol=1e-4)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 64), st.integers(1, 500))
def test_a_ring_sends_two_n_minus_one_nths_of_the_vector_from_each_member(n: int, blocks: int) -> None:
    d = n * blocks
    for rank in range(n):
        legs = legs_of("ring", n, rank, d)
        assert sum(leg.sends.stop - leg.sends.start for leg in legs) * n == 2 * (n - 1) * d


@given(st.integers(2, 300))
def test_a_tree_is_one_and_no_deeper_than_the_closed_form_says(n: int) -> None:
    depth: dict[int, int] = {0: 0}
    for rank in range(1, n):
        parent, _ = collective._tree(n, rank)
        assert parent is not None
        assert rank in collective._tree(n, parent)[1]
        depth[rank] = depth[parent] + 1
    assert collective._tree(n, 0)[0] is None
    assert max(depth.values()) == math.ceil(math.log2(n))


def test_a_butterfly_needs_a_power_of_two() -> None:
    assert "power of two" in unfit("butterfly", 6)
    assert not unfit("butterfly", 8)
    assert not unfit("ring", 6)
    with pytest.raises(RoleError, match="a butterfly of 6 members"):
        legs_of("butterfly", 6, 0, 10)


@pytest.mark.parametrize("how", HOWS)
def test_parts_that_overtake_each_other_are_put_in_order(how: How) -> None:
    x, found = vectors(8, 64), {}
    jitter = (LinkRule("*", latency_ns=JitterSpec("uniform", 40 * MS, 40 * MS, reorder=True)),)
    ran = world(8, summing(found, x, how), links=jitter, stop=Stop(rounds=3))
    assert len({total.tobytes() for total, _ in found.values()}) == 1
    assert found[0][0] == pytest.approx(np.sum([*x.values()], 0, np.float64), rel=1e-5, abs=1e-5)
    assert not ran.summary["rounds_failed"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("timeout_s", [2.0, None])
def test_without_a_member_the_others_fail_in_the_round_and_do_not_hang(how: How, timeout_s: float | None) -> None:
    ran = world(4, summing({}, vectors(4, 400), how, timeout_s), faults=[Crash(10 * MS, "peer4")],
                stop=Stop(rounds=2))
    why = [(row[2], row[4]) for row in ran.rows if row[0] == R.LEAVE and row[4]]
    assert {node for node, _ in why} == {0, 1, 2}       # in the second round at the latest: it has sent some parts
    expected = r"TimedOut: no Part from peer\d within " if timeout_s else r"NothingToReceive: Part from peer\d is lost"
    assert all(re.match(expected, text) for _, text in why)
    assert ran.kernel.end_ns < 2 * 4.1e9
    assert not ran.invariants.violations


def test_gathering_names_who_is_missing() -> None:
    async def peer(node: Node, _: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                await all_gather(node, node.nodes("peer"), Part(np.zeros(3, np.float32), 0), 1.0)
    deaf = (*WIRES, LinkRule("peer1->peer3", outage=OutageSpec(1.0, "message")))
    ran = world(4, peer, links=deaf)
    why = [(row[2], row[4]) for row in ran.rows if row[0] == R.LEAVE and row[4]]
    assert why == [(2, "ProtocolFailure: all_gather: no Part from peer1")]


def test_a_part_of_another_size_is_rejected() -> None:
    found: dict[int, tuple[np.ndarray, float]] = {}
    x = vectors(3, 30)
    x[1] = x[1][:20]
    ran = world(3, summing(found, x, "server", 1.0))
    rejected = [row for row in ran.rows if row[0] == R.REJECT]
    assert rejected
    assert "shape (20,), expected (30,)" in str(rejected[0])
    assert not found
