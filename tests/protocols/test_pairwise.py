"""The pairwise protocol over any graph: when a round succeeds, what it sends, what a server that deviates gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.summing import SumOutcome, sums
from emul.base import rows
from emul.message.wire import Message, encode
from emul.primitives.crypto import graphs
from emul.primitives.crypto.graphs import Closed
from emul.primitives.crypto.keys import SEAL_OVERHEAD_BYTES
from emul.protocols.pairwise import client as members
from emul.protocols.pairwise import messages
from emul.protocols.pairwise import server as hub
from emul.protocols.pairwise.messages import Consents, Survived, Unmask, id_array
from emul.record.audit import both_revealed

STAGES = ("AdvertiseKeys", "SharesUp", "Masked", "Reveal")


def predicted(A: Closed, n: int, t: int, drops: dict[int, str], prune: bool = False) -> tuple[str, list[int]]:
    """Section 2 of the specification, word for word: what a round comes to in which these clients drop out, and U3."""
    alive = list(range(1, n + 1))
    sets = []
    for stage in STAGES:
        alive = [i for i in alive if drops.get(i) != stage]
        while prune and stage in STAGES[:2] and any(len(A[i].intersection(alive)) < t for i in alive):
            alive = [i for i in alive if len(A[i].intersection(alive)) >= t]
        sets.append(alive)
        if stage != "Reveal" and (len(alive) < t or any(len(A[i].intersection(alive)) < t for i in alive)):
            return "too_few", []
    _, U2, U3, U5 = sets
    needed = [j for j in U2 if j not in U3 and not A[j].isdisjoint(U3)]
    if len(U3) < 2 or any(len(A[i].intersection(U5)) < t for i in [*U3, *needed]):
        return "too_few", []
    return "exact", U3


def watched(scheme: str, n: int, params: dict[str, Any], drops: dict[int, str], seed: int) -> tuple[SumOutcome, Closed]:
    """A round, and the graph that was drawn for it."""
    drawn: list[Closed] = []
    real = hub.secure_sum

    async def see(node: Any, U0: Any, graph: Any, *rest: Any) -> Any:
        def noted(nodes: Sequence[int]) -> Closed:
            drawn.append(graph(nodes))
            return drawn[-1]
        return await real(node, U0, noted, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "secure_sum", see)
        found = sums(scheme, n, params, drops=drops, seed=seed)
    return found, drawn[0]


def is_as_predicted(scheme: str, n: int, params: dict[str, Any], drops: dict[int, str], seed: int) -> str:
    """Exact over U3, or given up, and nobody exposed (A5): as the predicate says, which is returned."""
    found, A = watched(scheme, n, params, drops, seed)
    prune = params.get("small_neighbourhood") == "prune"
    expected, U3 = predicted(A, n, params["threshold"], drops, prune)
    assert found.verdict() == expected if expected == "exact" else found.verdict().startswith("too_few")
    assert not found.exposed
    if expected == "exact":
        assert found.included[1] == U3
        if not prune:
            assert [i for i in range(1, n + 1) if drops.get(i, "Reveal") == "Reveal"] == U3
            bytes_are_those_of_the_formulas(found, A, drops)
    return expected


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["secagg_plus", "ccesa"]), st.integers(5, 13), st.integers(2, 4), st.integers(0, 999),
       st.dictionaries(st.integers(1, 13), st.sampled_from(STAGES), max_size=5))
def test_A1_a_round_over_a_sparse_graph_is_exact_iff_the_predicate_says_so(scheme: str, n: int, t: int, seed: int,
                                                                         drops: dict[int, str]) -> None:
    params = {"neighbours": 4} if scheme == "secagg_plus" else {"p": 0.7}
    is_as_predicted(scheme, n, {**params, "threshold": t}, {i: kind for i, kind in drops.items() if i <= n}, seed)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["secagg_plus", "ccesa"]), st.sampled_from(["server", "direct"]), st.integers(6, 12),
       st.integers(3, 4), st.integers(0, 999), st.dictionaries(st.integers(1, 12), st.sampled_from(STAGES[:2]),
                                                               min_size=2, max_size=6))
def test_A1_who_has_too_few_neighbours_left_is_pruned_like_one_that_dropped_out(
        scheme: str, route: str, n: int, t: int, seed: int, drops: dict[int, str]) -> None:
    """Also of those that come to have too few by it; the round goes on with who is left."""
    params = {"neighbours": 4} if scheme == "secagg_plus" else {"p": 0.5}
    sent = {"SharesUp": "SharesUp" if route == "server" else "Shares"}
    found, A = watched(scheme, n, {**params, "threshold": t, "small_neighbourhood": "prune", "route": route},
                       {i: sent.get(kind, kind) for i, kind in drops.items() if i <= n}, seed)
    expected, U3 = predicted(A, n, t, drops, prune=True)
    assert found.verdict() == "exact" if expected == "exact" else found.verdict().startswith("too_few")
    assert found.included.get(1, []) == U3
    assert not found.exposed


def test_pruning_saves_a_round_that_is_given_up_else() -> None:
    """Of client 1's neighbours on the ring all but one are gone: with `abort` that ends the round for everybody."""
    params = {"neighbours": 4, "threshold": 3}
    given_up, A = watched("secagg_plus", 12, params, {}, 5)
    gone = sorted(A[1] - {1})[:3]
    drops = dict.fromkeys(gone, "AdvertiseKeys")
    assert watched("secagg_plus", 12, params, drops, 5)[0].verdict() == "too_few_neighbours"
    kept, _ = watched("secagg_plus", 12, {**params, "small_neighbourhood": "prune"}, drops, 5)
    assert given_up.verdict() == kept.verdict() == "exact"
    assert 1 not in kept.included[1]
    assert kept.rounds[1] == ""


@pytest.mark.release
@pytest.mark.parametrize(("most", "heavy", "prune"), [(50, False, False), (15, True, False), (15, True, True)])
@pytest.mark.parametrize("scheme", ["secagg", "secagg_plus", "ccesa"])
def test_A1_A2_A5_300_patterns_are_exact_iff_the_predicate_says_so(scheme: str, most: int, heavy: bool,
                                                                  prune: bool) -> None:
    """n = 5 to 50 with a loss of 0 to 20 % at random stages, or n = 5 to 15 with a third, which gives up many."""
    rng, found = np.random.default_rng(11), []
    for seed in range(300):
        n = int(rng.integers(5, (most if seed % 15 == 0 else 15) + 1))
        k = min(n - 1, 2 * int(rng.integers(2, 5)))
        density = {"secagg": 1.0, "secagg_plus": k / n, "ccesa": 0.7}[scheme]
        own: dict[str, Any] = {"secagg": {"route": "server"}, "secagg_plus": {"neighbours": k}, "ccesa": {"p": 0.7}}
        if prune and scheme != "secagg":
            own[scheme]["small_neighbourhood"] = "prune"
        params = {**own[scheme], "threshold": max(2, round(density * n * float(rng.uniform(0.4, 0.7))))}
        loss = 1 / 3 if heavy else float(rng.uniform(0, 0.2))
        drops = {i: str(rng.choice(STAGES)) for i in range(1, n + 1) if rng.random() < loss}
        found.append(is_as_predicted(scheme, n, params, drops, seed))
    assert found.count("exact") >= 100
    assert not heavy or found.count("exact") <= 270


# --- A2 -------------------------------------------------------------------------------------------------------------

def array_bytes(found: SumOutcome, kind: str, example: Message) -> int:
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


def bytes_are_those_of_the_formulas(found: SumOutcome, A: Closed, drops: dict[int, str]) -> None:
    """A2 for any pattern: the arrays of each stage, over who sends. What is lost with its sender is sent, too."""
    sent = {kind: [row for row in found.rows if row[0] == rows.SEND and row[5] == kind] for kind in (
        "AdvertiseKeys", "SharesUp", "SharesDown", "Masked", "Reveal")}
    U1 = {i for i in A if drops.get(i) != "AdvertiseKeys"}
    U2 = {i for i in U1 if drops.get(i) != "SharesUp"}
    a, b = ({i: len(A[i] & U) - 1 for i in U} for U in (U1, U2))
    senders = {kind: [row[2] for row in of] for kind, of in sent.items()}

    def u8(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.uint8)

    def ids(count: int) -> np.ndarray:
        return np.zeros(count, np.uint32)

    boxes = {i: 84 * b[i] for i in U2}
    expected = {"AdvertiseKeys": (64 * len(A), messages.AdvertiseKeys(u8(64))),
                "SharesUp": (sum(84 * a[i] for i in senders["SharesUp"]), messages.SharesUp(ids(9), u8(9, 80))),
                "SharesDown": (sum(boxes.values()), messages.SharesDown(ids(9), u8(9, 80))),
                "Masked": (32 * len(senders["Masked"]), messages.Masked(ids(8))),
                "Reveal": (sum(36 * (b[i] + 1) for i in senders["Reveal"]), messages.Reveal(ids(9), u8(9, 32)))}
    assert set(senders["SharesUp"]) == U1
    assert set(senders["Masked"]) == U2
    for kind, (arrays, example) in expected.items():
        heads = array_bytes(found, kind, example) - arrays
        assert abs(heads) <= 8 * len(sent[kind]), kind              # of a shape, whose digits vary


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


@pytest.mark.parametrize(("verify", "verdict"), [(False, "wrong"), (True, "inconsistent_sets")])
def test_a_client_that_reveals_false_shares_is_seen_by_spare_ones(verify: bool, verdict: str,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    real = members.reveal

    def lies(i: int, *rest: Any) -> messages.Reveal:
        told: messages.Reveal = real(i, *rest)
        return messages.Reveal(told.ids, told.shares ^ np.uint8(i == 2))

    monkeypatch.setattr(members, "reveal", lies)
    params = {"threshold": 5, "verify_spare": verify}
    assert sums("secagg", 8, params).verdict() == verdict
    monkeypatch.undo()
    assert sums("secagg", 8, params, drops={3: "Masked"}).verdict() == "exact"


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


@pytest.mark.parametrize("kind", STAGES)
def test_A4_one_lost_message_is_not_waited_for_for_ever(kind: str) -> None:
    """(d): no timeout by default. Here a round without deadlines goes on when the fate of what is lost is known."""
    lengths = {}
    for deadline_s in (None, 0.08, 1e6):                # the last: a server that waits as good as for ever
        found = sums("secagg", 12, {"route": "server", "stage_deadline_s": deadline_s},
                     lost=lambda sent, source, *_: (sent, source) == (kind, 3))
        assert found.verdict() == "exact"
        lengths[deadline_s] = next(row[1] for row in found.rows if row[0] == rows.LEAVE and row[2] == 0) / 1e9
    assert lengths[None] == pytest.approx(0.08, abs=0.02)           # eight trips of 10 ms
    assert lengths[0.08] < 0.08 + 0.08
    assert lengths[1e6] > 1e6


# --- A10 ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("n", "p", "t", "least", "most"), [(100, 0.5, 36, 0.70, 0.82), (200, 0.4, 52, 0.10, 0.15)])
def test_A10_thinner_graphs_with_the_published_threshold_lose_rounds(n: int, p: float, t: int, least: float,
                                                                    most: float) -> None:
    """2,000 draws by the predicate, which is that of the other tests; that no sum is wrong is theirs, A1."""
    rng, lost, draws = np.random.default_rng(5), 0, 2000
    q = graphs.stage_loss(0.1)
    for draw in range(draws):
        edges = np.triu(rng.random((n, n)) < p, 1)
        if draw < 5:
            A = graphs.random(range(n), p, 0, rng)
            edges = np.array([[j in A[i] and j > i for j in range(n)] for i in range(n)])
        near = (edges | edges.T | np.eye(n, dtype=bool)).astype(np.float32)
        gone = rng.random((4, n)) < q
        first = np.where(gone.any(axis=0), gone.argmax(axis=0), 4)
        fails = fails_on(near, t, first)
        if draw < 5:
            drops = {i + 1: STAGES[at] for i, at in enumerate(first.tolist()) if at < 4}
            shifted = {i + 1: frozenset(j + 1 for j in closed) for i, closed in A.items()}
            assert fails == (predicted(shifted, n, t, drops)[0] != "exact")
        lost += fails
    assert least <= lost / draws <= most


def fails_on(near: np.ndarray, t: int, first: np.ndarray) -> bool:
    """The predicate, of closed neighbourhoods as a matrix. first: the stage at which each drops out; 4: at none."""
    U1, U2, U3, U5 = ((first > stage).astype(np.float32) for stage in range(4))
    if any((near @ U < t)[U > 0].any() or U.sum() < t for U in (U1, U2, U3)):
        return True
    needed = (U3 > 0) | ((U2 > U3) & (near @ U3 > 0))
    return bool((near @ U5 < t)[needed].any())
