"""The algebra of EBS-CFL. Numbers are those of the acceptance checks, section 21 of its specification."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from masked_round import masked_round
from message_elements import layer_elements

from emul.primitives.robust.fltrust import fltrust
from emul.primitives.robust.rfca import rfca
from emul.schemes.ebs_cfl.masking import blocks, rounds, srfc
from emul.schemes.ebs_cfl.masking.blocks import Shape
from emul.schemes.ebs_cfl.masking.keys import draw_keys, renewed, restarted, server_keys, verification_keys
from emul.schemes.ebs_cfl.masking.rounds import directions_of, group_sums, trust


def rng_of(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


# --- 1: blocks --------------------------------------------------------------------------------------------------------

@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=25)
def test_1_blocks_are_mutually_orthogonal(seed: int, count: int, d: int) -> None:
    B = blocks.orthogonal_blocks(rng_of(seed), count, d)
    flat = B.reshape(count * d, -1)
    assert np.abs(flat @ flat.T - np.eye(count * d)).max() < 1e-12


@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(2, 40), st.floats(0.1, 100))
@settings(max_examples=40)
def test_rows_have_their_norm_and_their_sum(seed: int, n: int, size: int, norm: float) -> None:
    rng = rng_of(seed)
    total = rng.standard_normal((size,))
    total *= 0.9 * norm / np.linalg.norm(total)
    rows = blocks.rows_with_sum(rng, n, total, norm)
    assert np.abs(rows.sum(0) - total).max() < 1e-13 * n * max(1.0, norm)
    assert np.abs(np.linalg.norm(rows, axis=1) - norm).max() < 1e-13 * max(1.0, norm)


@pytest.mark.parametrize(("n", "size", "length", "said"), [
    (1, 4, 0.0, r"^1 masks of 4 numbers: expected 2 or more of both$"),
    (3, 1, 0.0, r"^3 masks of 1 numbers: expected 2 or more of both$"),
    (2, 4, 3.0, r"^2 masks of norm 1\.0 cannot have a sum of norm 3$"),
])
def test_rows_that_cannot_be_are_refused(n: int, size: int, length: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        blocks.rows_with_sum(rng_of(1), n, np.full(size, length / np.sqrt(size)), 1.0)


@given(st.integers(0, 2**32), st.integers(1, 20))
@settings(max_examples=25)
def test_matrices_are_invertible_and_roots_undo_squares(seed: int, d: int) -> None:
    rng = rng_of(seed)
    assert np.linalg.cond(blocks.invertible(rng, d)) <= 2 + 1e-9
    x = rng.standard_normal(d)
    assert np.allclose(blocks.signed_root(blocks.signed_square(x)), x, atol=1e-14)
    row = rng.standard_normal(d)
    assert abs(row @ blocks.right_inverse(row) - 1) < 1e-12


# --- 2: VOMCA ---------------------------------------------------------------------------------------------------------

def test_2_encodings_decode_alone_and_in_sum_and_altered_masks_are_found() -> None:
    n, d, rng = 4, 3, rng_of(2)
    B = blocks.orthogonal_blocks(rng, 2 * n, d)
    x, V = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    R = blocks.zero_sum(rng, n, (d,))
    chi = [blocks.encode((x[i], B[i]), (R[i], B[n + i])) for i in range(n)]
    dk = blocks.decode_key(B)
    vk, e = blocks.verification_key(zip(V, B[n:], strict=True)), [blocks.checks([(R[i], V[i])]) for i in range(n)]
    assert max(np.abs(c @ dk.T - x[i] - R[i]).max() for i, c in enumerate(chi)) < 1e-12
    assert np.abs(np.add.reduce(chi) @ dk.T - x.sum(0)).max() < 1e-12
    assert max(blocks.residual(c, vk, e[i]) for i, c in enumerate(chi)) < 1e-12
    other = blocks.encode((5 * x[0], B[0]), (R[0], B[n]))
    assert blocks.residual(other, vk, e[0]) < 1e-12, "a payload is free"
    tau = rounds.tolerances(1.0, d)[0]
    assert blocks.residual(blocks.encode((x[0], B[0]), (1.01 * R[0], B[n])), vk, e[0]) > tau
    assert blocks.residual(chi[0] + 1e-3 * rng.standard_normal(chi[0].shape), vk, e[0]) > tau


@pytest.mark.slow
def test_how_often_a_random_change_passes_is_as_foretold() -> None:
    D, rho, tau, rng = 24, 1e-3, 1e-6, rng_of(3)
    vk = rng.standard_normal(D)
    change = rng.standard_normal((400_000, D))
    change *= rho / np.linalg.norm(change, axis=1, keepdims=True)
    passed = (np.abs(change @ vk) <= tau).mean()
    assert passed == pytest.approx(0.8 * tau * np.sqrt(D) / (rho * np.linalg.norm(vk)), rel=0.15)


# --- 3, 4: SRFC -------------------------------------------------------------------------------------------------------

def relu_error(x: np.ndarray, d: int, seed: int, least: float = 1.0) -> tuple[float, float, float]:
    """(|W - sum ReLU|, the largest error of an entry of E, sum ReLU). least: R1 is drawn from [least, least + 1]."""
    n, rng = len(x), rng_of(seed)
    members = srfc.draw(rng, blocks.orthogonal_blocks(rng, 2 * n, d))
    if least < 1:
        smaller = [np.where(a.R1 > 0, a.R1 - 1 + least, 0.0) for a in members]
        R0 = srfc.closing(rng, smaller)
        members = [srfc.Relu(a.M1, a.M2, a.K, R0[i], smaller[i], a.R2) for i, a in enumerate(members)]
    zeta = rng.standard_normal((n, d, d))
    zeta -= np.trace(zeta, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
    keys = srfc.evaluation_keys(members, list(zeta))
    E = srfc.evaluate(keys, [xi * a.phi + a.psi for xi, a in zip(x, members, strict=True)])
    right = np.add.reduce([max(xi, 0) * a.M1 + z @ a.M2 / 2 for xi, a, z in zip(x, members, zeta, strict=True)])
    total = float(np.maximum(x, 0).sum())
    return abs(srfc.value(E, keys.beta) - total), float(np.abs(E - right).max()), total


def test_3_the_sum_of_relus_is_exact() -> None:
    found = [relu_error(rng_of(seed).uniform(-1, 1, 4), 12, seed) for seed in range(40)]
    assert max(f[0] for f in found) < 1e-8
    assert max(f[1] for f in found) < 1e-6
    assert max(relu_error(np.zeros(4), 12, seed)[0] for seed in range(10)) < 1e-5


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=4), st.integers(2, 6), st.integers(0, 2**32))
@settings(max_examples=30)
def test_3_for_any_scalars_of_at_most_one(x: list[float], d: int, seed: int) -> None:
    assert relu_error(np.array(x), d, seed)[0] < 1e-5


def test_4_masks_as_printed_err() -> None:
    errors = [relu_error(np.abs(rng_of(seed).uniform(-1, 1, 4)), 12, seed, least=0.0) for seed in range(10)]
    assert np.median([error / total for error, _, total in errors]) > 1e-3


def test_4_the_trace_by_l_doubles_the_weight_for_two_clusters() -> None:
    found = masked_round(4, 2, 6, 6, 4)
    encoded, = found.trusts()
    printed = float(np.vdot(encoded.E, found.server.betaG)) / found.shape.length
    assert printed == pytest.approx(2 * encoded.W)


# --- 5 to 10: the whole round -----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("n", "m", "l"), [(4, 2, 6), (3, 1, 5), (5, 3, 2)])
def test_5_unsegmented_in_one_group_it_is_rfca(n: int, m: int, l: int) -> None:  # noqa: E741
    assert max(masked_round(n, m, l, l, n, seed=seed).error() for seed in range(5)) < 1e-6


@pytest.mark.parametrize("m", [1, 2, 3])
def test_6_an_upload_has_norm_three_and_as_printed_m_and_two(m: int) -> None:
    found = masked_round(4, m, 60, 2, 1)
    assert max(abs(np.vdot(u, u) - 3) for u in found.uploads.values()) < 1e-9
    printed = masked_round(4, m, 60, 2, 1, sigma=float(np.sqrt(m)))       # norm 1 of the rows of each of m clusters
    assert max(abs(np.vdot(u, u) - (m + 2)) for u in printed.uploads.values()) < 1e-9


@pytest.mark.parametrize(("n", "q"), [(5, 1), (7, 3)])
def test_7_full_and_compact_keys_say_the_same(n: int, q: int) -> None:
    found = masked_round(n, 2, 60, 2, q)
    (compact,), (full,) = found.alphas(), found.alphas(full=True)
    assert max(np.abs(compact[i] - full[i]).max() for i in compact) < 1e-12
    h = rounds.directions(found.references)
    Gamma, = rounds.gammas(found.shape, found.keys.A, h, "joint")
    other = rounds.compact(found.keys.members[1], Gamma, 0) if q > 1 else None
    if other is not None:               # of another member of the group: nothing
        encoded = rounds.encoded(rounds.factor(other, Gamma), rounds.product(Gamma, found.uploads[0]))
        assert np.abs(encoded).max() < 1e-12


@pytest.mark.parametrize(("n", "m", "l", "t", "q"), [(10, 2, 1000, 2, 1), (9, 3, 500, 1, 3), (20, 3, 5000, 2, 1),
                                                     (6, 1, 100, 4, 1)])
def test_8_segmented_and_layered_it_is_rfca(n: int, m: int, l: int, t: int, q: int) -> None:  # noqa: E741
    found = masked_round(n, m, l, t, q)
    assert found.error() < 1e-6
    assert not any(found.checked(i, u) for i, u in found.uploads.items())
    e = rounds.expected(dict(enumerate(found.keys.members)), found.rows)
    vk = verification_keys(found.keys)
    assert max(blocks.residual(u, vk[found.group_of(i)], e[i]) for i, u in found.uploads.items()) <= 1e-12


@pytest.mark.parametrize(("n", "m", "l", "t", "q", "layers"), [
    (8, 2, 300, 2, 1, (2,)), (12, 2, 200, 2, 1, (2, 6)), (7, 3, 100, 1, 1, (2, 4)), (12, 1, 64, 4, 2, (6,))])
def test_8_with_more_layers_it_is_rfca_in_either_order(n: int, m: int, l: int, t: int, q: int,      # noqa: E741
                                                       layers: tuple[int, ...]) -> None:
    found = masked_round(n, m, l, t, q, layers=layers)
    assert len(found.server.lifts) == len(layers)
    assert found.error() < 1e-6
    assert found.error(order="sum_first") < 1e-6
    assert found.error("per_cluster") < 1e-5
    masked = masked_round(n, m, l, t, q, layers=layers, skt_mask="zero_sum")
    assert masked.error() < 1e-6


def test_8_a_correction_mends_a_tree_too() -> None:
    found = masked_round(12, 2, 200, 2, layers=(2, 6), missing=(0, 1, 7))
    assert found.error() > 1e-2
    assert found.error(correction=found.corrected()) < 1e-6


def tree_size(clients: int, d: int, below: Sequence[int], parts: int) -> int:
    """Elements of the re-keying material of a tree, and of its decode key. Section 10 of the specification.

    below: q_1 .. q_x, the clients below a node of each layer, the last one N. parts: blocks that a client has, 2 of
    SRFC, 3 of uploads. Every client keeps its slot.
    """
    layers = sum(-(-clients // q) * (parts * d * q) * (parts * d * up) for q, up in pairwise(below))
    return layers + d * parts * d * below[-1]


def printed_tree_size(d: int, fan_in: Sequence[int]) -> int:
    """The paper's S(n, {xi}) = 2 d xi_x + sum_i 4 d^2 xi_i xi_{i+1} prod_{j > i} xi_j. Its last term counts columns;
    beyond two layers it assumes merged slots, which destroy the weights: a model of sizes, and no way to aggregate.
    """
    total = 2 * d * fan_in[-1]
    for i in range(len(fan_in) - 1):
        total += 4 * d * d * fan_in[i] * fan_in[i + 1] * int(np.prod(fan_in[i + 1:]))
    return total


def test_the_keys_of_a_tree_are_as_large_as_the_formula_says() -> None:
    """Equation 21 of the paper, each client with a slot of its own: 1 -> 2 -> 6 -> 24 clients below a node."""
    shape = Shape(24, 2, 100, 2, 1, (2, 6))
    keys = server_keys(draw_keys(shape, 21))
    layers = [(keys.tk0, keys.tk1), *((each.tk0, each.tk1) for each in keys.lifts)]
    sizes = [sum(key.size for layer in layers for key in layer[kind]) for kind in (0, 1)]
    assert sizes[0] + keys.betaG.size == tree_size(24, 4, [1, 2, 6, 24], 2)
    assert sizes[1] + 4 * 3 * 4 * 24 == tree_size(24, 4, [1, 2, 6, 24], 3)
    assert [sum(key.size for kind in layer for key in kind) for layer in layers] == [
        layer_elements(shape, layer) for layer in range(3)]
    assert printed_tree_size(4, [1, 2, 3, 4]) < tree_size(24, 4, [1, 2, 6, 24], 2), "it merges slots"


def test_9_the_order_of_sums_changes_nothing_and_a_tree_neither() -> None:
    found = masked_round(8, 2, 300, 2, 1)
    plain = found.result()
    assert np.abs(found.result(order="sum_first") - plain).max() <= 1e-10 * np.abs(plain).max()
    # groups of 1 -> 2 -> 8: uploads through blocks of their own for each pair of clients
    d, rng, keys = found.shape.d, rng_of(9), found.keys
    encoded, = found.trusts()
    right = (encoded.E @ found.server.dk / encoded.W).T
    total = np.zeros(())
    for pair in range(4):
        T = blocks.orthogonal_blocks(rng, 6, d).reshape(3, 2, d, -1)
        low = {i: blocks.rekeying([(keys.members[i].P[b], T[b, i % 2]) for b in range(3)])
               for i in (2 * pair, 2 * pair + 1)}
        high = blocks.rekeying([(T[b, i % 2], keys.members[i].GP[b]) for i in low for b in range(3)])
        total = total + np.add.reduce([found.uploads[i] @ low[i] for i in low]) @ high @ right
    tree = np.stack([found.shape.flatten(total @ slot.T) for slot in keys.A])
    assert np.abs(tree - plain).max() < 1e-9


def test_10_ten_rounds_with_fresh_mask_rows_only() -> None:
    keys = draw_keys(Shape(6, 2, 200, 2), 10)
    assert max(masked_round(6, 2, 200, 2, seed=10, keys=keys, number=k).error() for k in range(1, 11)) < 1e-8


# --- 11: SKT ----------------------------------------------------------------------------------------------------------

def test_11_encodings_move_alone_in_permuted_sums_and_by_composition() -> None:
    n, d, rng = 4, 3, rng_of(11)
    A, B, C = (blocks.orthogonal_blocks(rng, 2 * n, d) for _ in range(3))
    x, r = rng.standard_normal((n, 5, d)), rng.standard_normal((n, d))
    rho = blocks.zero_sum(rng, n, (A.shape[2],))
    turn = rng.permutation(n)
    chi = [blocks.encode((x[i], A[i]), (r[i], A[n + i])) for i in range(n)]
    tk = [blocks.rekeying([(A[i], B[turn[i]]), (A[n + i], blocks.with_mask(B[n + turn[i]], r[i], rho[i]))])
          for i in range(n)]
    moved = [blocks.encode((x[i], B[turn[i]]), (r[i], B[n + turn[i]])) + rho[i] for i in range(n)]
    assert max(np.abs(chi[i] @ tk[i] - moved[i]).max() for i in range(n)) < 1e-12
    both = np.add.reduce(chi) @ np.add.reduce(tk)
    plain = np.add.reduce([blocks.encode((x[i], B[turn[i]]), (r[i], B[n + turn[i]])) for i in range(n)])
    assert np.abs(both - plain).max() < 1e-12
    ab, bc = blocks.rekeying(zip(A, B, strict=True)), blocks.rekeying(zip(B, C, strict=True))
    assert np.abs(chi[0] @ ab @ bc - blocks.encode((x[0], C[0]), (r[0], C[n]))).max() < 1e-12


def test_11_merged_slots_lose_the_weights() -> None:
    found = masked_round(4, 2, 60, 2)
    keys, merged = found.keys, found.keys.members[0]
    encoded, = found.trusts()
    key = (encoded.E @ found.server.dk / encoded.W).T
    total = np.add.reduce([u @ blocks.rekeying(zip(keys.members[i].P, merged.GP, strict=True))
                           for i, u in found.uploads.items()]) @ key
    wrong = np.stack([found.shape.flatten(total @ slot.T) for slot in keys.A])
    right = found.plain().directions
    assert np.abs(wrong - right).max() > 0.1 * np.abs(right).max()


def test_printed_and_true_sizes_agree_for_two_layers_but_for_the_last_term() -> None:
    assert tree_size(8, 4, [1, 8], 2) - 256 == printed_tree_size(4, [1, 8]) - 64 == 4096


# --- 12: who is missing -----------------------------------------------------------------------------------------------

def test_12_sampling_and_dropouts_are_mended_by_a_correction() -> None:
    S = [0, 1, 4, 5, 7, 9, 12, 19]
    errors, without = [], []
    for number in range(1, 11):
        found = masked_round(20, 2, 100, 2, seed=12, participants=S, missing=(1, 5, 9), number=number)
        errors.append(found.error(correction=found.corrected()))
        without.append(found.error() / float(np.abs(found.plain().directions).max()))
        assert found.error("per_cluster", correction=found.corrected()) < 1e-5
    assert max(errors) < 1e-6
    assert max(without) > 1, "without it the masks stay, larger than the result"


@given(st.integers(0, 2**32), st.integers(4, 10), st.data())
@settings(max_examples=15)
def test_12_whoever_is_missing(seed: int, n: int, data: st.DataObject) -> None:
    missing = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 2))
    found = masked_round(n, 2, 40, 2, seed=seed % 2**20, missing=tuple(sorted(missing)), pull=1.0)
    assert found.error(correction=found.corrected() if missing else None) < 1e-6


@pytest.mark.parametrize(("zeta", "skt_mask", "q"), [("traceless", "off", 1), ("zero_sum", "zero_sum", 1),
                                                     ("traceless", "off", 3)])
def test_12_stand_ins_work_with_every_key(zeta: str, skt_mask: str, q: int) -> None:
    found = masked_round(9, 2, 100, 2, q, missing=(1, 5), zeta=zeta, skt_mask=skt_mask)     # type: ignore[arg-type]
    for i in (1, 5):
        found.uploads[i] = rounds.round_key(found.keys.members[i], found.rows[i])
        found.updates[i] = np.zeros(100, np.float32)
    assert found.error() < 1e-5


@pytest.mark.parametrize(("zeta", "skt_mask", "q"), [("traceless", "off", 1), ("zero_sum", "zero_sum", 1),
                                                     ("zero_sum", "zero_sum", 3)])
def test_12_a_restart_makes_keys_for_those_that_are_there(zeta: str, skt_mask: str, q: int) -> None:
    keys = draw_keys(Shape(7, 2, 100, 2, q), 5, zeta, skt_mask)             # type: ignore[arg-type]
    present = [0, 2, 3, 6]
    again = restarted(keys, 5, present, (1, 1), zeta, skt_mask)             # type: ignore[arg-type]
    found = masked_round(7, 2, 100, 2, q, seed=5, participants=present, keys=again)
    # the server's keys of those that are gone stay in the sums of their groups: nothing of them is added up
    here = [i for i, _ in enumerate(keys.members) if i in present]
    assert here == present
    new, old = renewed(again, present), server_keys(keys)
    tau1, tk1 = {g: pair[0] for g, pair in new.items()}, {g: pair[1] for g, pair in new.items()}
    found_trust = [trust(keys.shape, old, found.alphas()[0], tau1)]
    result = directions_of(keys.shape, old, group_sums(keys.shape, found.uploads), found_trust, tk1=tk1)
    assert np.abs(result - found.plain().directions).max() < 1e-6


# --- 13, 14, 16, 17 ---------------------------------------------------------------------------------------------------

def test_13_what_is_tampered_with_is_rejected() -> None:
    found = masked_round(6, 2, 100, 2)
    keys, shape = found.keys.members[0], found.shape
    honest = found.uploads[0]
    ek1 = rounds.round_key(keys, found.rows[0])
    scaled = 5 * (honest - ek1) + ek1
    assert np.vdot(scaled, scaled) == pytest.approx(27)
    assert found.checked(0, honest) == ""
    assert found.checked(0, scaled) == "norm"
    # all mask rows replaced by their mean, and the payload made longer by what that saves
    flat = np.tile(ek1.mean(0), (shape.segments, 1))
    payload = honest - ek1
    room = 3 - float(np.vdot(flat, flat))
    evil = payload * np.sqrt(room) + flat
    assert np.sqrt(room) > 1.3
    assert found.checked(0, evil) == "masks"
    printed = masked_round(6, 2, 100, 2, verify="per_client")
    ek1 = rounds.round_key(printed.keys.members[0], printed.rows[0])
    flat = np.tile(ek1.mean(0), (shape.segments, 1))
    evil = (printed.uploads[0] - ek1) * np.sqrt(3 - float(np.vdot(flat, flat))) + flat
    assert printed.checked(0, evil, "per_client") == "", "one scalar a client does not see it"
    assert printed.checked(0, printed.uploads[0], "per_client") == ""


def test_14_without_trust_nothing_moves() -> None:
    found = masked_round(6, 2, 200, 2, pull=-2.0)
    assert all(c < 0 for c in found.plain().cosines)
    assert abs(found.trusts()[0].W) <= 1e-9
    assert not found.result().any()


def test_16_a_mixed_payload_passes_and_is_seen_by_weights_of_clusters() -> None:
    phi = np.pi / 8
    found = masked_round(6, 2, 400, 2, seed=16)
    h = rounds.directions(found.references)
    h[1] -= (h[1] @ h[0]) * h[0]
    h[1] /= np.linalg.norm(h[1])
    found.references = h
    shape, a = found.shape, found.keys.members[0]
    X = np.cos(phi) * shape.segment(h[0]) @ found.keys.A[0] - np.sin(phi) * shape.segment(h[1]) @ found.keys.A[1]
    found.uploads = {0: X @ a.P[0] + rounds.round_key(a, found.rows[0])}
    assert found.checked(0, found.uploads[0]) == ""
    assert abs(found.trusts()[0].W - 0.541196) < 1e-6
    each = found.trusts("per_cluster")
    assert abs(each[0].W - np.cos(phi)) < 1e-6
    assert abs(each[1].W) < 1e-6


def test_16_weights_of_clusters_equal_their_plaintext() -> None:
    assert max(masked_round(10, 2, 100, 2, seed=seed).error("per_cluster") for seed in range(5)) < 1e-5


def test_17_rfca_with_one_cluster_is_fltrust() -> None:
    rng = rng_of(17)
    updates, g0 = rng.standard_normal((8, 50)) + 0.3, rng.standard_normal(50) + 0.3
    found = rfca(list(updates), [0] * 8, g0[None])
    other = fltrust(updates, g0)
    assert np.abs(found.directions[0] * np.linalg.norm(g0) - other.aggregate).max() < 1e-12


def test_rfca_refuses_a_cluster_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"^clusters = \[0, 2\]: expected numbers below 2$"):
        rfca([np.ones(3), np.ones(3)], [0, 2], np.ones((2, 3)))


def test_rfca_gives_a_cluster_without_reference_nothing() -> None:
    found = rfca([np.ones(3), np.ones(3)], [0, 1], np.stack([np.ones(3), np.zeros(3)]))
    assert found.weights == pytest.approx([1, 0])
    assert not found.directions[1].any()
