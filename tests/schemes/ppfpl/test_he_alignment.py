"""The two servers' computation on ciphertexts against the same rule in the clear; what each of them sees."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from emul.primitives.he.ckks import COMPARISON, PROTOTYPES, Box, Ckks, Keys, Plain, available
from emul.schemes.ppfpl import ciphertexts as he
from emul.schemes.ppfpl.ciphertexts import Cohort, Seeds
from emul.schemes.ppfpl.decisions import WeightRule, aligned_classes
from emul.schemes.ppfpl.slots import Layout

needs_tenseal = pytest.mark.skipif(not available(), reason="TenSEAL, the extra `he`, is not installed")

Own = dict[int, dict[int, np.ndarray]]          # client -> class -> u


@dataclass
class Parties:
    """Who has which keys; A and V by their letters, K a client."""

    Av: Box
    Vv: Box
    Kv: Box
    Ax: Box
    Vx: Box
    Kx: Box
    Ac: Box
    Vc: Box


PLAIN = Parties(*(Plain(PROTOTYPES) for _ in range(6)), *(Plain(COMPARISON) for _ in range(2)))     # type: ignore


@cache
def ckks(rotates: bool = False) -> Parties:
    v, x, c = Keys(PROTOTYPES, rotates), Keys(PROTOTYPES), Keys(COMPARISON)
    return Parties(Ckks(PROTOTYPES, v.part(relin=True, galois=rotates)), Ckks(PROTOTYPES, v.part(secret=True)),
                   Ckks(PROTOTYPES, v.part()), Ckks(PROTOTYPES, x.part(relin=True)), Ckks(PROTOTYPES, x.part()),
                   Ckks(PROTOTYPES, x.part(secret=True)), Ckks(COMPARISON, c.part(relin=True)),
                   Ckks(COMPARISON, c.part(secret=True)))


def prototypes(n: int = 50, K: int = 20, J: int = 10, every: bool = False, bad: int = 4, seed: int = 0) -> Own:
    """Unit vectors around a direction of each class; the first `bad` clients send the opposite of theirs."""
    rng = np.random.default_rng(seed)
    centre = np.abs(rng.standard_normal((J, n)))
    found: Own = {}
    for m in range(K):
        held = range(J) if every else sorted(rng.permutation(J)[:rng.integers(2, 6)].tolist())
        drawn = {k: (centre[k] + 0.5 * rng.standard_normal(n)) * (-1 if m < bad else 1) for k in held}
        found[m] = {k: u / np.linalg.norm(u) for k, u in drawn.items()}
    return found


def seeds_of(number: int = 0) -> Seeds:
    return Seeds(*(hashlib.sha256(f"{number} {i}".encode()).digest() for i in range(6)))


@dataclass
class Came:
    """What came of one pass through the servers."""

    C: dict[int, np.ndarray]
    accepted: dict[int, set[int]]           # class -> clients
    left: list[int]                         # clients whose norms were good
    refreshes: int
    to_V: dict[str, list[np.ndarray]]       # decrypted slots of what V gets, by message
    squares: list[np.ndarray]


def servers(own: Own, rule: WeightRule, who: Parties, packed: bool = True, uploads: dict[int, Any] | None = None,
            J: int = 10) -> Came:
    """One round of both servers, step after step."""
    n = len(next(iter(next(iter(own.values())).values())))
    layout, seeds = Layout(J, n, packed=packed), seeds_of()
    sent = {m: who.Kv.seal([who.Kv.encrypt(row) for _, row in sorted(layout.table(u).items())], 0)
            for m, u in own.items()} | (uploads or {})
    cohort = Cohort(layout, {m: tuple(sorted(u)) for m, u in own.items()})
    squares = he.norm(who.Av, cohort, sent, seeds.norm)
    good = he.check_norm(who.Vv, cohort, squares)
    to_V = {"NormCheck": opened(who.Vv, squares)}
    left = [m for m, fine in zip(cohort.held, good, strict=True) if fine]
    cohort = cohort.only(left)
    T, squares = he.class_sum(who.Av, cohort, sent, seeds.sums)
    to_V["ClassNorm"] = opened(who.Vv, squares)
    told = he.square_norms(who.Vv, cohort, squares)
    pairs, t = he.compared(cohort, told), np.sqrt(told)
    products, hidden = he.products(who.Av, cohort, sent, T, pairs, seeds)
    to_V["products"], to_V["prototypes"] = opened(who.Vv, products), opened(who.Vv, hidden)
    values = he.hidden_products(who.Vv, cohort, products, pairs)
    refreshes = 0
    if rule.weight == "uniform":
        b, j, scale = np.ones(len(pairs), bool), np.ones(len(pairs)), np.ones(J)
    elif rule.compare == "masked_sign":
        signs = he.signs(who.Av, he.pack(who.Vv, values), pairs, t, rule.chi, seeds)
        to_V["Signs"] = opened(who.Vv, signs)
        b = he.decide(who.Vv, signs, len(pairs))
        j, scale = np.where(b, values, 0.0), t * (2 if rule.weight == "shifted" else 1)
    else:
        now = he.start(who.Ac, he.pack(who.Vc, values), pairs, t, rule, seeds)
        for i in range(rule.d):
            if now.spent:
                refreshes, seed = refreshes + 1, hashlib.sha256(bytes([i])).digest()
                behind = he.masked(who.Ac, now, seed)
                to_V.setdefault("Refresh", []).extend(opened(who.Vc, behind.a) + opened(who.Vc, behind.u))
                fresh = [he.refreshed(who.Vc, rows) for rows in (behind.a, behind.u)]
                now = he.masked(who.Ac, he.Iterates(now.q, *fresh, (0, 0)), seed, -1)
            now = he.step(who.Ac, now)
        p, reference = he.references(J, rule.chi, seeds)
        over, _ = he.excess_of(who.Ac, now, pairs, p, rule.scaled)
        (b, j), scale = he.decide_excess(who.Vc, over, pairs, reference, rule), p
    sums, spread, again = he.reencrypt(who.Vv, who.Vx, cohort, hidden, pairs, j)
    weights = he.weigh(pairs, b.tolist(), sums, t, scale, rule, seeds)
    rows, C = he.combine(who.Ax, cohort, spread, again, weights, seeds)
    table = dict(zip(rows, map(who.Kx.decrypt, who.Kx.open(C)), strict=True))
    kept: dict[int, set[int]] = {}
    for (m, k), bit in zip(pairs, b.tolist(), strict=True):
        kept.setdefault(k, set()).update([m] if bit else [])
    return Came({k: layout.vector(k, table[layout.place(k)[0]]) for k in weights.classes}, kept, left, refreshes,
                to_V, [told])


def opened(box: Box, rows: np.ndarray) -> list[np.ndarray]:
    return [box.decrypt(cipher) for cipher in box.open(rows)]


def error(came: Came, own: Own, rule: WeightRule) -> float:
    """The largest difference of a coordinate from the oracle; classes and decisions must be the same."""
    wanted = aligned_classes(own, rule)
    assert sorted(came.C) == [k for k, one in wanted.items() if one.prototype is not None]
    if rule.weight != "uniform":
        assert came.accepted == {k: set(one.accepted) for k, one in wanted.items()}
    return max(float(np.abs(came.C[k] - wanted[k].prototype).max()) for k in came.C)


RULES = [WeightRule(), WeightRule(chi=0.8), WeightRule(weight="shifted", chi=-0.5), WeightRule(weight="uniform"),
         WeightRule(min_holders=6),
         WeightRule(compare="max_iter"), WeightRule(compare="max_iter", weight="shifted", chi=-1.0, scaled=False, d=4)]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_steps_on_plain_numbers_are_the_oracle(rule: WeightRule, packed: bool):
    own = prototypes()
    assert error(servers(own, rule, PLAIN, packed), own, rule) < 1e-5 if rule.compare == "max_iter" else 1e-9


@pytest.mark.parametrize("who", [PLAIN, pytest.param(None, marks=needs_tenseal)], ids=["plain", "ckks"])
def test_what_a_client_puts_into_the_slots_after_a_vector_counts_for_nothing(who: Parties | None):
    """99 % of a length of 1 there left a prototype of a tenth of the length, which no other party could see."""
    own, layout, who = prototypes(bad=0, K=6), Layout(10, 50), who or ckks()
    rows = {m: layout.table(u) for m, u in own.items()}
    for k in own[2]:                        # hides most of its length
        row, place = layout.place(k)
        rows[2][row][place] *= 0.1
        rows[2][row][place.stop - 1] = np.sqrt(0.99)
    for k in own[4]:                        # hides something beside a whole prototype
        row, place = layout.place(k)
        rows[4][row][place.stop - 3] = 7.0
    sent = {m: who.Kv.seal([who.Kv.encrypt(row) for _, row in sorted(rows[m].items())], 0) for m in (2, 4)}
    came = servers(own, WeightRule(), who, uploads=sent)
    assert came.left == [0, 1, 3, 4, 5]
    assert error(came, {m: u for m, u in own.items() if m != 2}, WeightRule()) < 1e-6


@pytest.mark.slow
@needs_tenseal
@pytest.mark.parametrize(("n", "every"), [(50, False), (512, False), (50, True)])
def test_check_2_masked_signs_under_ckks_equal_the_oracle(n: int, every: bool):
    own = prototypes(n, every=every)
    assert error(servers(own, WeightRule(chi=0.2), ckks()), own, WeightRule(chi=0.2)) < 1e-6


@needs_tenseal
@pytest.mark.parametrize(("d", "refreshes"), [(3, 1), pytest.param(9, 4, marks=pytest.mark.slow),
                                               pytest.param(18, 9, marks=pytest.mark.slow)])
def test_check_3_the_iterated_maximum_under_ckks_equals_the_oracle_with_as_many_iterations(d: int, refreshes: int):
    own, rule = prototypes(), WeightRule(compare="max_iter", d=d)
    came = servers(own, rule, ckks())
    assert error(came, own, rule) < 1e-5
    assert came.refreshes == refreshes


@needs_tenseal
@pytest.mark.slow
@pytest.mark.parametrize("rule", [WeightRule(weight="shifted", chi=0.5), WeightRule(weight="uniform"),
                                  WeightRule(compare="max_iter", weight="shifted", chi=-1.0, scaled=False, d=4)],
                         ids=str)
def test_the_other_weights_under_ckks_equal_the_oracle(rule: WeightRule):
    own = prototypes()
    assert error(servers(own, rule, ckks()), own, rule) < 1e-5


@needs_tenseal
@pytest.mark.slow
def test_one_ciphertext_for_each_class_gives_the_same():
    own = prototypes(K=6)
    assert error(servers(own, WeightRule(), ckks(True), packed=False), own, WeightRule()) < 1e-6


@needs_tenseal
def test_check_6_one_holder_nobody_accepted_and_an_empty_class_sum():
    u = prototypes(K=1, bad=0)[0]
    own: Own = {0: {0: u[min(u)]}, 1: {1: u[min(u)], 2: u[min(u)]}, 2: {2: -u[min(u)]}}
    came = servers(own, WeightRule(), ckks())
    assert sorted(came.C) == [0, 1]                                 # of class 2 the sum is 0: it keeps what it has
    assert np.abs(came.C[0] - u[min(u)]).max() < 1e-6
    nobody = servers({0: {3: np.eye(50)[0]}, 1: {3: np.eye(50)[1]}}, WeightRule(chi=0.9), ckks())
    assert nobody.C == {}


@needs_tenseal
def test_check_7_what_is_amplified_or_under_a_foreign_key_is_left_out_and_the_rest_counts():
    own = prototypes(bad=0)
    wrong = {3: 10.0, 5: 1.001}
    changed = {m: {k: v * wrong.get(m, 1.0004 if m == 6 else 1.0) for k, v in u.items()} for m, u in own.items()}
    stranger = Ckks(PROTOTYPES, Keys(PROTOTYPES).part())
    foreign = stranger.seal([stranger.encrypt(row) for row in Layout(10, 50).table(own[8]).values()], 0)
    came = servers(changed, WeightRule(), ckks(), uploads={8: foreign})
    assert came.left == [m for m in own if m not in (3, 5, 8)]
    assert error(came, {m: u for m, u in changed.items() if m in came.left}, WeightRule()) < 1e-6


@needs_tenseal
def test_values_in_a_block_of_no_class_are_found():
    own = prototypes(K=3, bad=0)
    row, = Layout(10, 50).table(own[1]).values()
    spoilt = row.copy()
    spoilt[-20] = 0.1           # within a vector of the last block; what lies after one counts in no sum
    who = ckks()
    assert servers(own, WeightRule(), who, uploads={1: who.Kv.seal([who.Kv.encrypt(spoilt)], 0)}).left == [0, 2]


def test_two_rounds_with_one_seed_have_one_mask_and_with_others_none():
    own = prototypes(K=2)
    layout = Layout(10, 50)
    sent = {m: PLAIN.Kv.seal(list(layout.table(u).values()), 0) for m, u in own.items()}
    cohort = Cohort(layout, {m: tuple(sorted(u)) for m, u in own.items()})
    first, again, other = (he.norm(PLAIN.Av, cohort, sent, seeds_of(i).norm) for i in (0, 0, 1))
    assert np.array_equal(first, again)
    assert np.abs(first - other).min() > 0


def test_a_cohort_knows_whose_ciphertext_is_which():
    cohort = Cohort(Layout(10, 512), {2: (1, 9), 5: (3,)})
    assert cohort.sent() == [(2, 0), (2, 1), (5, 0), (5, 1)]
    assert cohort.pairs() == [(2, 1), (2, 9), (5, 3)]
    assert cohort.rows() == [0, 1]
    apart = replace(cohort, layout=Layout(10, 512, packed=False))
    assert apart.sent() == cohort.pairs()
    assert apart.only([2]).rows() == [1, 9]
