"""The pairwise protocol over any graph: when a round succeeds, what it sends, what a server that deviates gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base import rows
from emul.primitives.crypto import graphs
from emul.primitives.crypto.graphs import Closed
from emul.primitives.crypto.keys import SEAL_OVERHEAD_BYTES
from emul.protocols.audit import both_revealed
from emul.protocols.pairwise import messages
from emul.protocols.pairwise import server as hub
from emul.protocols.pairwise.messages import Consents, Survived, Unmask, id_array
from emul.testing.summing import Summed, sums
from emul.wire import Message, encode

STAGES = ("AdvertiseKeys", "SharesUp", "Masked", "Reveal")


def predicted(A: Closed, n: int, t: int, drops: dict[int, str]) -> str:
    """Section 2 of the specification, word for word: what a round comes to in which these clients drop out."""
    alive = list(range(1, n + 1))
    sets = []
    for stage in STAGES:
        alive = [i for i in alive if drops.get(i) != stage]
        sets.append(alive)
        if stage != "Reveal" and (len(alive) < t or any(len(A[i].intersection(alive)) < t for i in alive)):
            return "too_few"
    _, U2, U3, U5 = sets
    needed = [j for j in U2 if j not in U3 and not A[j].isdisjoint(U3)]
    if len(U3) < 2 or any(len(A[i].intersection(U5)) < t for i in [*U3, *needed]):
        return "too_few"
    return "exact"


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["secagg_plus", "ccesa"]), st.integers(5, 13), st.integers(2, 4), st.integers(0, 999),
       st.dictionaries(st.integers(1, 13), st.sampled_from(STAGES), max_size=5))
def test_A1_a_round_over_a_sparse_graph_is_exact_iff_the_predicate_says_so(scheme: str, n: int, t: int, seed: int,
                                                                         drops: dict[int, str]) -> None:
    drawn: list[Closed] = []
    with pytest.MonkeyPatch.context() as patch:
        real = hub.secure_sum

        async def see(node: Any, U0: Any, graph: Any, *rest: Any) -> Any:
            def noted(nodes: Sequence[int]) -> Closed:
                drawn.append(graph(nodes))
                return drawn[-1]
            return await real(node, U0, noted, *rest)

        patch.setattr(hub, "secure_sum", see)
        params = {"neighbours": 4, "threshold": t} if scheme == "secagg_plus" else {"p": 0.7, "threshold": t}
        there = {i: stage for i, stage in drops.items() if i <= n}
        found = sums(scheme, n, params, drops=there, seed=seed)
    expected = predicted(drawn[0], n, t, there)
    assert found.verdict() == expected if expected == "exact" else found.verdict().startswith("too_few")
    assert not found.exposed
    if expected == "exact":
        assert found.included[1] == [i for i in range(1, n + 1) if there.get(i, "Reveal") == "Reveal"]


# --- A2 -------------------------------------------------------------------------------------------------------------

def array_bytes(found: Summed, kind: str, example: Message) -> int:
    """Bytes of the arrays in all messages of a type."""
    sizes = [row[6] for row in found.rows if row[0] == rows.SEND and row[5] == kind]
    return sum(sizes) - len(sizes) * len(encode(example).header)


def test_A2_the_bytes_through_the_server_are_those_of_the_formulas() -> None:
    """n = 10, d = 1000: 640 / 6160 / 7600 / 7600 / 40000 / 400 / 3680 there, most with a count of 4 in each."""
    n, d = 10, 1000
    found = sums("secagg", n, {"route": "server"}, d=d)

    def u8(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.uint8)

    def ids(count: int) -> np.ndarray:
        return np.zeros(count, np.uint32)

    a = n - 1
    assert [array_bytes(found, type(one).__name__, one) for one in (
        messages.AdvertiseKeys(u8(64)), messages.KeyRing(ids(n), u8(n, 64)), messages.SharesUp(ids(a), u8(a, 80)),
        messages.SharesDown(ids(a), u8(a, 80)), messages.Masked(ids(d)), Unmask(ids(n), ids(0)),
        messages.Reveal(ids(n), u8(n, 32)))] == [
        640, n * 68 * n, 7600 - 4 * n, 7600 - 4 * n, 40000, n * 4 * n, 3680 - 8 * n]       # own entries are sent, too
    assert SEAL_OVERHEAD_BYTES == 16


def test_bytes_of_what_stands_a_server_that_deviates() -> None:
    n = 6
    found = sums("secagg", n, {"adversary": "active"})
    assert found.verdict() == "exact"
    empty = np.zeros
    assert array_bytes(found, "AdvertiseKeys", messages.AdvertiseKeys(empty(128, np.uint8))) == 128 * n
    assert array_bytes(found, "Survived", Survived(empty(n, np.uint32))) == n * 4 * n
    assert array_bytes(found, "Consent", messages.Consent(empty(64, np.uint8))) == 64 * n
    assert array_bytes(found, "Consents", Consents(empty(n, np.uint32), empty((n, 64), np.uint8))) == n * 68 * n


# --- a server that deviates -----------------------------------------------------------------------------------------

async def shows_two_versions(node: Any, r: Any, A: Closed, U2: list[int], U3: list[int], sets: Any) -> list[int]:
    """To one half of the clients client 1 has survived, to the other half it has dropped out."""
    left, right = U3[:len(U3) // 2], U3[len(U3) // 2:]
    without = [i for i in U3 if i != 1]
    if not r.active:
        node.broadcast(left, Unmask(id_array(U3), id_array([])))
        node.broadcast(right, Unmask(id_array(without), id_array([1])))
        return U3
    node.broadcast(left, Survived(id_array(U3)))
    node.broadcast(right, Survived(id_array(without)))
    consents = await node.gather(messages.Consent, U3)
    for half, seen in ((left, U3), (right, without)):
        signed = [i for i in seen if i in consents]
        node.broadcast(half, Consents(id_array(signed), np.stack([consents[i].signature for i in signed])))
    return U3


@pytest.mark.parametrize(("t", "adversary", "exposed"), [
    (5, "semi_honest", True), (6, "semi_honest", False), (6, "active", False)])
def test_two_versions_of_the_survivors_give_both_secrets_only_up_to_half_of_the_clients(
        t: int, adversary: str, exposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "asked_survivors", shows_two_versions)
    found = sums("secagg", 10, {"threshold": t, "adversary": adversary, "route": "server"})
    assert (both_revealed(found.arrays, t) == [(1, 1, 0)]) is exposed
    if adversary == "active":               # nobody has seen t signatures of what it was shown
        assert not [row for row in found.rows if row[0] == rows.SEND and row[5] == "Reveal"]
        whys = {row[4] for row in found.rows if row[0] == rows.LEAVE and row[2] != 0}
        assert whys == {"Refused: inconsistent_sets: 5 neighbours have signed the survivors that I was shown, "
                        "threshold t = 6"}


def test_keys_that_their_owner_has_not_signed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in the middle puts a key of its own in the place of client 2's."""
    real = hub.key_ring

    def in_the_middle(advertised: Any, near: Any) -> Any:
        ring = real(advertised, near)
        keys = ring.keys.copy()
        keys[1, 32:64] = np.frombuffer(bytes(range(1, 33)), np.uint8)
        return messages.KeyRing(ring.ids, keys)

    monkeypatch.setattr(hub, "key_ring", in_the_middle)
    plain, active = (sums("secagg", 5, {"adversary": a}) for a in ("semi_honest", "active"))
    sent = [{row[2] for row in found.rows if row[0] == rows.SEND and row[5] == "Shares"} for found in (plain, active)]
    assert sent == [{1, 3, 4, 5}, set()]        # client 2 sees that its own was changed


# --- 5: what Flower 1.41 does --------------------------------------------------------------------------------------

COMPLETE, RING = ("secagg", {"route": "server"}), ("secagg_plus", {"neighbours": 6, "threshold": 3})


@pytest.mark.parametrize(("scheme", "params"), [COMPLETE, RING])
@pytest.mark.parametrize("stage", [*STAGES, None])
def test_A4_a_client_that_drops_out_at_any_stage_leaves_an_exact_sum(scheme: str, params: dict[str, Any],
                                                                   stage: str | None) -> None:
    assert sums(scheme, 12, params, drops={3: stage} if stage else {}).verdict() == "exact"


@pytest.mark.parametrize(("stage", "verdict"), [("AdvertiseKeys", "too_few_shares"), ("SharesUp", "too_few_shares"),
                                                ("Masked", "exact"), ("Reveal", "exact")])
def test_A4_a_dead_set_of_all_that_were_selected_loses_the_round(stage: str, verdict: str,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """(a): selected minus active, in place of U2 minus U3."""
    real = hub.asked_survivors

    async def selected(node: Any, r: Any, A: Any, U2: Any, U3: Any, sets: Any) -> Any:
        return await real(node, r, A, sets["U0"], U3, sets)

    monkeypatch.setattr(hub, "asked_survivors", selected)
    assert sums("secagg", 12, {"route": "server"}, drops={3: stage}).verdict() == verdict


@pytest.mark.parametrize(("scheme", "params"), [COMPLETE, RING])
def test_A4_masks_taken_off_with_all_neighbours_give_a_wrong_sum_without_an_error(
        scheme: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """(b): a client lost at the sharing, and a neighbour of it lost at the masking."""
    pairs = [{3: "SharesUp", other: "Masked"} for other in (4, 5, 6, 7, 8, 9, 10, 11, 12)]
    assert {sums(scheme, 12, params, drops=drops).verdict() for drops in pairs[:3]} == {"exact"}
    right = hub.dropped_pair_seeds
    monkeypatch.setattr(hub, "dropped_pair_seeds", lambda keys, advertised, A, U3, round_: {
        j: {i: seed for i, seed in seeds.items() if i != j}
        for j, seeds in right(keys, advertised, A, list(advertised), round_).items()})
    found = [sums(scheme, 12, params, drops=drops) for drops in pairs]
    assert {one.rounds[1] for one in found} == {""}             # nobody notices
    assert "wrong" in {one.verdict() for one in found}
    assert sums(scheme, 12, params, drops={4: "Masked", 5: "Masked"}).verdict() == "exact"      # by luck


def test_a_threshold_over_clients_that_are_gone_gives_up_healthy_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """(c): of a ring of four neighbours a client that is gone needs nobody around it any more."""
    real = hub.neighbourhoods

    def over_all(stage: str, node: Any, A: Any, U: Any, asked: int, t: int) -> Any:
        real(stage, node, {**A, U[0]: min((A[i] for i in A), key=lambda near: len(near.intersection(U)))}, U, asked, t)
        return real(stage, node, A, U, asked, t)

    params, drops = {"neighbours": 4, "threshold": 3}, [dict.fromkeys(pair, "AdvertiseKeys") for pair in (
        (1, 2, 3), (1, 4, 7), (2, 5, 8), (3, 6, 9), (2, 3, 4), (5, 6, 7))]
    healthy = [one for one in drops if sums("secagg_plus", 10, params, drops=one).verdict() == "exact"]
    monkeypatch.setattr(hub, "neighbourhoods", over_all)
    assert [one for one in healthy if sums("secagg_plus", 10, params, drops=one).verdict() != "exact"]


# --- A10 ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("n", "p", "t", "least", "most"), [(100, 0.5, 36, 0.60, 0.90), (200, 0.4, 52, 0.06, 0.20)])
def test_A10_thinner_graphs_with_the_published_threshold_lose_rounds(n: int, p: float, t: int, least: float,
                                                                    most: float) -> None:
    rng, lost, draws = np.random.default_rng(5), 0, 150
    q = graphs.stage_loss(0.1)
    for _ in range(draws):
        A = graphs.random(range(1, n + 1), p, 0, rng)
        gone = rng.random((4, n)) < q
        first = np.where(gone.any(axis=0), gone.argmax(axis=0), 4)
        drops = {i: STAGES[first[i - 1]] for i in range(1, n + 1) if first[i - 1] < 4}
        lost += predicted(A, n, t, drops) != "exact"
    assert least <= lost / draws <= most
