"""The attacks of Fang et al., of Cao et al. and Sine against their definitions: check 18."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.attacks.adaptive import Adaptive, Game, _turn
from emul.attacks.fang import KrumAttack, TrimAttack
from emul.attacks.sine import Sine, bent
from emul.attacks.updates import Known
from emul.primitives.robust import choose
from emul.primitives.robust.krum import krum
from emul.registry import attacks

N, F = 10, 4


def updates(d: int = 50, n: int = N, seed: int = 0, about: float = 0.5, spread: float = 1.0) -> np.ndarray:
    """Honest updates that agree in part."""
    rng = np.random.default_rng(seed)
    return (about * rng.standard_normal(d) + spread * rng.standard_normal((n, d))).astype(np.float32)


def knowing(rows: np.ndarray, f: int = F, row: int = 0, how: str = "all", **more: Any) -> Known:
    """What attacker `row` knows; the first f are attackers."""
    bad = np.arange(len(rows)) < f
    if how == "colluders":
        return Known(rows[:f], bad[:f], len(rows), f, row=row, seed=9, **more)
    return Known(rows, bad, len(rows), f, row=row, seed=9, **more)


def all_said(attack: Any, rows: np.ndarray, f: int = F, how: str = "all", **more: Any) -> np.ndarray:
    """What the f attackers say, each for itself."""
    return np.stack([attack(rows[i], np.random.default_rng(i), knowing(rows, f, i, how, **more)) for i in range(f)])


# --- check 18: Krum -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("how", ["all", "colluders"])
def test_check_18_the_krum_attack_makes_krum_choose_an_attacker(seed: int, how: str) -> None:
    rows = updates(seed=seed, about=1.0)
    before = krum(rows, F, unproven=True)
    said = all_said(KrumAttack(), rows, how=how)
    after = krum(np.concatenate([said, rows[F:]]), F, unproven=True)
    if how == "all":
        assert after.kept[0] < F
        assert (np.sign(after.aggregate) == -np.sign(before.aggregate)).mean() > 0.95
    assert len(np.unique(np.abs(said[0]))) == 1
    distances = np.linalg.norm(said - said[0], axis=1)
    assert distances[0] == 0
    assert (distances[1:] > 0).all()
    assert (distances <= 0.01 + 1e-6).all()


def test_attackers_of_krum_agree_whoever_computes_first() -> None:
    rows, scratch = updates(), {}
    shared = [KrumAttack()(rows[i], np.random.default_rng(0), knowing(rows, row=i, scratch=scratch)) for i in (2, 0)]
    np.testing.assert_array_equal(shared, all_said(KrumAttack(), rows)[[2, 0]])
    assert len(scratch) == 1


# --- check 18: trim ------------------------------------------------------------------------------------------------

def test_check_18_the_trim_attack_moves_the_trimmed_mean_of_the_honest() -> None:
    rng = np.random.default_rng(1)
    rows = (1 + 0.5 * rng.standard_normal((20, 400))).astype(np.float32)
    benign = float(rows[8:].mean())
    said = all_said(TrimAttack(), rows, f=8)
    moved = float(choose({"trimmed_mean": {"f": 8}})(np.concatenate([said, rows[8:]])).aggregate.mean())
    assert benign == pytest.approx(1.0, abs=0.02)
    assert moved < 0.5


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(max_examples=40)
def test_trim_draws_beyond_the_honest_on_the_side_that_the_mean_comes_from(seed: int, d: int) -> None:
    rows = np.random.default_rng(seed).normal(0, 1, (N, d)).astype(np.float32)
    said = all_said(TrimAttack(), rows).astype(np.float64)
    honest = rows[F:].astype(np.float64)
    for j in range(d):
        high, low = honest[:, j].max(), honest[:, j].min()
        ends = ((high, 2 * high) if high > 0 else (high, high / 2)) if honest[:, j].sum() < 0 else \
            ((low / 2, low) if low > 0 else (2 * low, low))
        assert (said[:, j] >= ends[0] - 1e-6).all()
        assert (said[:, j] <= ends[1] + 1e-6).all()
    assert len(np.unique(said[:, 0])) == F                              # each draws its own


# --- check 18: adaptive -----------------------------------------------------------------------------------------------

def h(rows: np.ndarray, said: np.ndarray, g0: np.ndarray) -> float:
    """As the paper writes it, for a g_0 of length 1."""
    e = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    said = said / np.linalg.norm(said, axis=1, keepdims=True)
    trust = np.maximum(e @ g0, 0)
    a = trust @ e / trust.sum()
    both = np.concatenate([said, e[F:]])
    weights = np.maximum(both @ g0, 0)
    return float(np.sign(a) @ (a - weights @ both / weights.sum()))


def reference(rows: np.ndarray) -> np.ndarray:
    g0 = rows[F:].mean(axis=0).astype(np.float64)
    return g0 / np.linalg.norm(g0)


@pytest.mark.parametrize("seed", range(3))
def test_check_18_the_adaptive_attack_raises_h_above_its_start(seed: int) -> None:
    rows = updates(seed=seed)
    g0 = reference(rows)
    start = all_said(Adaptive(passes=0), rows, offered={"reference": g0})
    said = all_said(Adaptive(), rows, offered={"reference": g0})
    assert h(rows.astype(float), said, g0) > h(rows.astype(float), start, g0) + 0.1
    np.testing.assert_allclose(np.linalg.norm(said, axis=1), 1.0, rtol=1e-5)
    longer = all_said(Adaptive(), rows, offered={"reference": 7 * g0})
    np.testing.assert_allclose(longer, 7 * said, rtol=1e-4, atol=1e-6)


def test_the_adaptive_attack_can_estimate_a_reference_that_the_server_offers() -> None:
    rows = updates()
    offered = {"reference": np.ones_like(rows[0])}
    np.testing.assert_array_equal(all_said(Adaptive(reference="estimated"), rows, offered=offered),
                                  all_said(Adaptive(), rows, offered={}))


@given(st.integers(0, 10**6), st.integers(0, F - 1))
@settings(max_examples=20)
def test_the_value_of_h_is_that_of_its_formula(seed: int, i: int) -> None:
    rows = updates(d=8, seed=seed).astype(np.float64)
    g0 = reference(rows)
    rng = np.random.default_rng(seed)
    said = rng.standard_normal((F, 8)) + g0
    said /= np.linalg.norm(said, axis=1, keepdims=True)
    game = Game(rows, np.arange(N) < F, g0, said.copy())
    other = rng.standard_normal(8) + g0
    other /= np.linalg.norm(other)
    changed = said.copy()
    changed[i] = other
    assert game.value(i, other) == pytest.approx(h(rows, changed, g0))
    game.put(i, other)
    assert game.value(i, said[i]) == pytest.approx(h(rows, said, g0))


def test_all_steps_of_a_walk_are_those_of_one_at_a_time() -> None:
    rows = updates(d=8).astype(np.float64)
    g0 = reference(rows)
    rng = np.random.default_rng(0)
    said = rng.standard_normal((F, 8)) + 3 * g0
    said /= np.linalg.norm(said, axis=1, keepdims=True)
    how = Adaptive(steps=5, gamma=0.01, eta=0.1)
    plain, quick = (Game(rows, np.arange(N) < F, g0, said.copy()) for _ in range(2))
    for u in torch.empty(5, 8).normal_(0.0, 0.5 ** 0.5, generator=torch.Generator().manual_seed(7)).numpy():
        e = plain.said[1]
        slope = (plain.value(1, e + 0.01 * u) - plain.value(1, e)) / 0.01
        plain.put(1, (e + 0.1 * slope * u) / np.linalg.norm(e + 0.1 * slope * u))
    how._walk(quick, 1, torch.Generator().manual_seed(7))
    assert np.abs(plain.said[1] - said[1]).max() > 1e-2
    np.testing.assert_allclose(quick.said, plain.said, atol=1e-6)


@pytest.mark.parametrize("d", [50, 3000])
def test_a_search_in_the_plane_is_better_than_one_by_steps_which_falls_in_many_dimensions(d: int) -> None:
    rows = updates(d=d)
    g0 = reference(rows)

    def reached(**how: Any) -> float:
        return h(rows.astype(float), all_said(Adaptive(**how), rows, offered={"reference": g0}), g0)

    start, steps, plane = reached(passes=0), reached(), reached(search="plane", passes=3)
    assert plane > max(start, steps) + 0.1
    assert (steps < 0.8 * start) == (d == 3000)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_no_direction_is_better_than_the_best_in_the_plane(seed: int) -> None:
    rows = updates(d=8, seed=seed).astype(np.float64)
    g0 = reference(rows)
    rng = np.random.default_rng(seed)
    said = np.stack([g0] * F)
    game = Game(rows, np.arange(N) < F, g0, said)
    _turn(game, 2)
    best = game.value(2, game.said[2])
    others = rng.standard_normal((200, 8))
    others = np.concatenate([others, game.said[2] + 0.05 * others])
    assert max(game.value(2, e / np.linalg.norm(e)) for e in others) <= best + 1e-3 * abs(best)


def test_without_the_lift_a_start_without_trust_stays_where_it_is() -> None:
    rows = updates(d=1000)
    g0 = reference(rows)
    assert all_said(TrimAttack(), rows)[0] @ g0 < 0

    def gained(lift: bool) -> float:
        start, said = (all_said(Adaptive(passes=passes, lift=lift), rows, offered={"reference": g0})
                       for passes in (0, 10))
        return h(rows.astype(float), said, g0) - h(rows.astype(float), start, g0)

    assert abs(gained(False)) < 1e-9
    assert gained(True) > 0.1


def test_in_a_cluster_its_own_reference_counts_and_without_one_the_mean_of_the_honest() -> None:
    rows = updates()
    g0 = reference(rows)
    alone = all_said(Adaptive(), rows, offered={"reference": g0})
    stacked = all_said(Adaptive(), rows, offered={"reference": np.stack([-g0, g0])}, group=1)
    np.testing.assert_array_equal(alone, stacked)
    size = np.linalg.norm(rows[F:].astype(np.float64).mean(axis=0))
    np.testing.assert_allclose(all_said(Adaptive(), rows), size * alone, rtol=1e-4, atol=1e-6)


# --- check 18: Sine ------------------------------------------------------------------------------------------------

def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@given(st.integers(0, 10**6), st.integers(2, 60), st.floats(0.1, 1))
@settings(max_examples=60, deadline=None)
def test_check_18_sine_keeps_the_size_of_its_cosine_with_the_base_and_leaves_the_honest_update(
        seed: int, d: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    c, b = rng.standard_normal(d), rng.standard_normal(d)
    p = bent(c, b, 1.0, share)
    assert abs(abs(cosine(p, b)) - abs(cosine(c, b))) < 1e-12 + 1e-9 * (d < 4)
    assert cosine(p, c) <= 1.0 + 1e-12
    assert np.linalg.norm(b) / 100 < np.linalg.norm(p) < 100 * np.linalg.norm(b) or np.array_equal(p, c)


def test_check_18_sine_goes_far_and_with_a_larger_kappa_to_the_other_side() -> None:
    rng = np.random.default_rng(3)
    b = rng.standard_normal(2000)
    c = b + rng.standard_normal(2000)
    found = [cosine(bent(c, b, kappa), c) for kappa in (1, 3, 6)]
    assert found[0] < 0.5
    assert found[2] < -0.5


def test_a_step_of_sine_solves_its_equation() -> None:
    c, b = np.array([3.0, 1.0, -2.0]), np.array([1.0, 2.0, 0.5])
    p = bent(c, b, 1.0, share=1 / 3)                                    # the largest c - b: the first coordinate
    np.testing.assert_array_equal(p[1:], c[1:])
    ratio, d, n2 = (c @ b) ** 2 / (c @ c), c[1:] @ b[1:], c[1:] @ c[1:]
    roots = np.roots([ratio - 1, -2 * d, ratio * n2 - d * d]).real
    assert p[0] == pytest.approx(roots[np.argmax(np.abs(roots - 3.0))])


def test_whose_update_is_bent_follows_from_what_is_known() -> None:
    rows, base = updates(), updates(n=1, seed=4)[0]
    def said(how: str, **options: Any) -> np.ndarray:
        known = Known(rows[:1], np.array([True]), N, F, proxy=lambda: base) if how == "own" else \
            knowing(rows, how=how, proxy=lambda: base)
        return np.asarray(Sine(**options)(rows[0], np.random.default_rng(0), known))
    for how, c in (("own", rows[0]), ("colluders", rows[:F].astype(float).mean(0)),
                   ("all", rows[F:].astype(float).mean(0))):
        np.testing.assert_allclose(said(how), bent(c.astype(float), base.astype(float), 3.0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(said("all", whose="colluders"), said("colluders"))
    third = Sine()(rows[0], np.random.default_rng(0), knowing(rows, proxy=lambda: base, round=3))
    expected = bent(rows[F:].astype(float).mean(0), base.astype(float), 5.0)
    np.testing.assert_allclose(third, expected, rtol=1e-5, atol=1e-6)


def test_the_base_can_be_the_servers_and_must_be_there() -> None:
    rows = updates()
    g0 = reference(rows)
    found = Sine(base="server", kappa=1)(rows[0], np.random.default_rng(0), knowing(rows, offered={"reference": g0}))
    c = rows[F:].astype(float).mean(0)
    assert abs(cosine(found, g0)) == pytest.approx(abs(cosine(c, g0)), abs=1e-5)
    with pytest.raises(ValueError, match=r"^sine: base: server needs knows: all, and a scheme whose server offers"):
        Sine(base="server")(rows[0], np.random.default_rng(0), knowing(rows, how="colluders"))
    with pytest.raises(ValueError, match=r"^sine: the scheme has no `honest`"):
        Sine()(rows[0], np.random.default_rng(0), knowing(rows))
    with pytest.raises(ValueError, match=r"^sine: whose: honest needs knows: all$"):
        Sine(whose="honest")(rows[0], np.random.default_rng(0), knowing(rows, how="colluders", proxy=lambda: g0))


def test_a_hundred_thousand_coordinates_take_no_minutes() -> None:
    rng = np.random.default_rng(0)
    c, b = rng.standard_normal((2, 100_000))
    begin = time.process_time()
    bent(c, b, 3.0)
    assert time.process_time() - begin < 3.0


def test_their_parameters_are_checked_and_they_are_known_by_name() -> None:
    known = attacks.known("update")
    assert {"adaptive", "krum_attack", "sine", "trim_attack"} <= set(known)
    assert [attacks.needs(known[name]) for name in ("adaptive", "krum_attack", "sine", "trim_attack")] == [
        "all", "colluders", "own", "colluders"]
    for wrong in (lambda: KrumAttack(-1), lambda: Sine(share=0), lambda: Sine(rho=1)):
        with pytest.raises(ValueError, match="expected"):
            wrong()
