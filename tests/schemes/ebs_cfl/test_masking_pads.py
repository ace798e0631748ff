"""RFCA under one-time pads, profile `pad` of EBS-CFL."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.primitives.robust.rfca import rfca
from emul.schemes.ebs_cfl import pad
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.rounds import unit


def padded(updates: np.ndarray, clusters: list[int], g0: np.ndarray, scale: float = 1.0,
           ) -> tuple[np.ndarray, list[int]]:
    """(directions (m, l), whom the dealer rejects); the first client's payload is scaled."""
    m, n = len(g0), len(updates)
    h = pad.fixed(rounds.directions(g0).reshape(-1))
    seeds = [bytes([i]) * 32 for i in range(n)]
    pads = {i: pad.pad(seeds[i], h.size) for i in range(n)}
    Y = {i: pad.fixed(pad.payload(unit(updates[i]), clusters[i], m) * (scale if i == 0 else 1.0)) + pads[i]
         for i in range(n)}
    sketched = dict(enumerate(pad.sketches([Y[i] for i in range(n)], 7, 3)))
    w, rejected = pad.weights({i: pad.product(Y[i], h) for i in Y}, sketched, pads, h, 7, 3)
    weights = np.array(list(w.values()))
    total = pad.weighted_sum([Y[i] for i in w], weights)
    lifted = pad.weighted_sum([pads[i] for i in w], weights)
    return pad.decoded(total, lifted, m) / (weights.sum() / 2**pad.BITS), rejected


def case(seed: int, n: int, m: int, l: int) -> tuple[np.ndarray, list[int], np.ndarray]:  # noqa: E741
    rng = np.random.Generator(np.random.Philox(key=seed))
    g0 = rng.standard_normal((m, l))
    clusters = [int(c) for c in rng.integers(0, m, n)]
    return 0.5 * g0[clusters] + rng.standard_normal((n, l)), clusters, g0


def test_19_the_sum_under_pads_is_rfca() -> None:
    updates, clusters, g0 = case(19, 8, 2, 1000)
    found, rejected = padded(updates, clusters, g0)
    assert not rejected
    assert np.abs(found - rfca(list(updates), clusters, g0).directions).max() < 1e-6


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 3), st.integers(5, 60))
@settings(max_examples=20)
def test_19_for_any_size(seed: int, n: int, m: int, l: int) -> None:  # noqa: E741
    updates, clusters, g0 = case(seed, n, m, l)
    plain = rfca(list(updates), clusters, g0)
    if plain.totals[0] > 0.1:
        assert np.abs(padded(updates, clusters, g0)[0] - plain.directions).max() < 1e-5


def test_a_payload_that_is_too_long_is_found_by_its_sketch() -> None:
    updates, clusters, g0 = case(20, 8, 2, 1000)
    assert padded(updates, clusters, g0, scale=2.0)[1] == [0]


def test_a_sketch_of_many_columns_is_the_sum_of_its_signs() -> None:
    rng = np.random.Generator(np.random.Philox(key=1))
    x = rng.standard_normal(150_000)
    x /= np.linalg.norm(x)
    y = pad.pad(bytes(32), x.size)
    both = pad.sketches([pad.fixed(x) + y, y], 3, 2)
    assert abs(pad.squared_norm(both[0] - both[1]) - 1) < 0.6
    other = pad.sketches([pad.fixed(2 * x)], 3, 2)[0]
    assert np.isclose(pad.squared_norm(other), 4 * pad.squared_norm(both[0] - both[1]), rtol=1e-4)
