"""What MP-DP draws, clips, adds and recovers; numbers in the ring; what a run has spent."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from emul.learning.disguise import Disguise
from emul.learning.parameters import FlatModule
from emul.primitives import ring
from emul.primitives.crypto.masks import mask_input, sum_ring, unmask
from emul.primitives.dp.laws import pair_noise
from emul.primitives.privacy import ldp
from emul.primitives.ring import RingOverflow
from emul.protocols.mp_dp.account import spent
from emul.protocols.mp_dp.algebra import Bounds, SecretsLaw, clipping_factor, drawn, noise, recovered
from emul.protocols.mp_dp.client import clipped_and_noisy
from emul.protocols.mp_dp.opening import drawn_secrets
from emul.roles import Realised
from emul.schemes import mp_dp
from emul.schemes.mp_dp import Params

PUBLISHED = SecretsLaw("chi3", 1.5, "off", 1)


def disguise() -> Disguise:
    """Three layers with biases: every kind of entry that section 5.1 tells apart."""
    module = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 5))
    return Disguise(FlatModule(module), (20,))


# --- secrets ----------------------------------------------------------------------------------------------------------

def test_log_uniform_multipliers_are_within_kappa() -> None:
    own, law = disguise(), SecretsLaw("log_uniform", 1.5, "off", 1)
    R = own.multipliers(drawn(own, law, np.random.default_rng(0)).secrets)
    assert 1 / 1.5 <= R.min() < 0.8
    assert 1.2 < R.max() <= 1.5


@pytest.mark.parametrize("scales", ["chi3", "chi3_series"])
def test_check_8_noise_of_k_clients_has_the_variance_of_central_noise_and_is_no_gaussian(scales: str) -> None:
    """K var / sigma^2 in [0.97, 1.03], kurtosis 5 - 2/K within 0.1, also of biases, whose R lacks factors."""
    own, K, sigma = disguise(), 5, 0.7
    law = SecretsLaw(scales, 1.5, "off", 1)                 # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    found = []
    for _ in range(1500 if scales == "chi3" else 300):
        known = drawn(own, law, rng)
        total = sum(noise("uniform", sigma, own, law, rng) for _ in range(K))
        found.append(recovered(own, known, total[None] / K))
    values = np.array(found)
    assert 0.97 <= K * values.var() / sigma**2 <= 1.03
    lacking = own.lacking()
    assert sorted(np.unique(lacking)) == [0, 1, 3]
    for kind in (1, 3):
        assert K * values[:, lacking == kind].var() / sigma**2 == pytest.approx(1, abs=0.06)
    if scales == "chi3":
        weights = values[:, lacking == 0]
        assert (weights**4).mean() / weights.var()**2 == pytest.approx(5 - 2 / K, abs=0.1)


def test_check_8_sound_noise_given_R_has_variance_R_squared_sigma_squared_over_K() -> None:
    own, K, sigma = disguise(), 20, 0.3
    law = SecretsLaw("log_uniform", 1.5, "off", 1)
    rng = np.random.default_rng(4)
    known = drawn(own, law, rng)
    R = own.multipliers(known.secrets)
    rounds = [recovered(own, known, np.mean([noise("gaussian", sigma, own, law, rng) for _ in range(K)], 0)[None])
              for _ in range(300)]
    standard = np.array(rounds) / (R * sigma / math.sqrt(K))
    assert standard.var() == pytest.approx(1, abs=0.03)
    assert (standard**4).mean() == pytest.approx(3, abs=0.1)


def test_a_message_is_clipped_by_what_the_client_sees_and_an_oracle_by_the_true_gradient() -> None:
    own, rng = disguise(), np.random.default_rng(5)
    known = drawn(own, PUBLISHED, rng)
    found = rng.normal(size=(1, len(own.lacking())))
    c = clipping_factor(found, 2.0, "message", own, None)
    assert np.linalg.norm(c * found) == pytest.approx(2.0)
    c = clipping_factor(found, 2.0, "oracle", own, known)
    assert np.linalg.norm(recovered(own, known, c * found)) == pytest.approx(2.0)
    assert clipping_factor(found, 2.0, "off", own, None) == clipping_factor(found, 1e9, "message", own, None) == 1
    assert clipping_factor(0 * found, 2.0, "message", own, None) == 1


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["off", "compact", "full"]), st.integers(0, 2**32 - 1), st.floats(-3, 3))
def test_the_norm_by_public_bounds_is_never_below_that_of_the_true_gradient(additive: str, seed: int, size: float,
                                                                            ) -> None:
    own, rng, public = disguise(), np.random.default_rng(seed), Bounds(5.0, 2.0)
    law = SecretsLaw("chi3", 1.5, additive, 2, 0.3, bounds=public)      # type: ignore[arg-type]
    known = drawn(own, law, rng)
    assert own.multipliers(known.secrets).max() <= 5.0
    assert np.linalg.norm(known.secrets.output) <= 2.0
    blocks = {"off": 1, "compact": 4, "full": 7}[additive]
    found = rng.normal(size=(blocks, len(own.lacking()))) * np.exp(rng.normal(size=(blocks, 1)) + size)
    c = clipping_factor(found, 2.0, "bound", own, known=None, bounds=public, directions=known.directions)
    assert np.linalg.norm(recovered(own, known, c * found)) <= 2.0
    assert np.linalg.norm(c * found[0]) <= 2.0 / 5.0 * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["message", "bound", "oracle"]), st.integers(2, 9), st.integers(0, 2**32 - 1), st.floats(-3, 3))
def test_one_record_less_moves_a_message_by_no_more_than_it_is_accounted_for(clip: str, b: int, seed: int,
                                                                             size: float) -> None:
    s = Params(records=b, bound=2.0, clip=clip, eps=None).settled()      # type: ignore[arg-type]
    own, rng = disguise(), np.random.default_rng(seed)
    task: Any = SimpleNamespace(disguise=lambda: own)
    opening: Any = SimpleNamespace(sigma_eta=0.0)
    each = rng.normal(size=(b, len(own.lacking()))) * np.exp(rng.normal(size=(b, 1)) + size)
    message, fewer = (clipped_and_noisy(found, task, s, opening, seed, 1, rng)[0] for found in (each, each[1:]))
    moved = message - fewer
    if clip == "oracle":                                        # bounds the true gradient, not the message
        moved = recovered(own, drawn_secrets(own, s, seed, 1), moved[None])
    assert np.linalg.norm(moved) <= s.sensitivity * (1 + 1e-9)
    assert s.sensitivity == pytest.approx(2.0 / b / (1.5 if clip == "bound" else 1.0))


# --- masks and rings --------------------------------------------------------------------------------------------------

@settings(max_examples=40, deadline=None)
@given(st.sampled_from([32, 64]), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_masks_of_both_rings_cancel_and_leave_the_sum(bits: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-3, 3, size=(n, 7))
    f = 20
    seeds = {(i, j): rng.bytes(32) for i in range(n) for j in range(i + 1, n)}
    b = [rng.bytes(32) for _ in range(n)]
    near = [{j: seeds[min(i, j), max(i, j)] for j in range(n) if j != i} for i in range(n)]
    xs = [ring.encode(v, f, bits, n) for v in values]
    ys = [mask_input(x, i, b[i], near[i]) for i, x in enumerate(xs)]
    alive = range(n - 1)                                    # the last one drops out
    total = sum_ring((ys[i] for i in alive), 7, xs[0].dtype.type)
    unmask(total, {i: b[i] for i in alive}, {n - 1: near[n - 1]})
    np.testing.assert_allclose(ring.decode(total, f), values[:-1].sum(0), atol=n * 2.0**-f)
    assert (ys[0] != xs[0]).all()


def test_values_that_could_pass_the_ring_are_refused() -> None:
    ring.encode(np.array([1.0]), 24, 32, 127)
    with pytest.raises(RingOverflow, match="ring_overflow: 128 values"):
        ring.encode(np.array([-1.0]), 24, 32, 128)
    assert ring.largest_fraction(1.0, 32, 127) == 24
    assert ring.largest_fraction(1.0, 32, 128) == 23


@pytest.mark.parametrize("law", ["uniform", "gaussian"])
def test_noise_of_a_pair_cancels_and_has_its_law(law: str) -> None:
    seed, d, sigma = bytes(range(32)), 40_000, 2.0
    a, b = pair_noise(1, {2: seed}, d, sigma, law), pair_noise(2, {1: seed}, d, sigma, law)     # type: ignore[arg-type]
    np.testing.assert_array_equal(a, -b)
    assert a.std() == pytest.approx(sigma * (math.sqrt(2 / 3) if law == "uniform" else 1), rel=0.02)
    assert abs(a.mean()) < 0.05
    if law == "uniform":
        assert np.abs(a).max() <= math.sqrt(2) * sigma


# --- guarantees -------------------------------------------------------------------------------------------------------

def test_only_sound_has_a_guarantee_and_every_flaw_takes_it_away() -> None:
    assert Params().settled().guarantee.startswith("(eps, delta)-DP")
    assert Params(masks="real").settled().guarantee.startswith("(eps, delta)-DP")
    for flawed in (Params(preset="paper"), Params(preset="masked"), Params(eps=None), Params(additive="full"),
                   Params(noise="uniform"), Params(clip="off"), Params(clip="oracle")):
        assert flawed.settled().guarantee.startswith("none: "), flawed
    assert "Psi and Phi travel without any noise" in Params(preset="paper").settled().guarantee
    assert "the sums of Psi and Phi are exact" in Params(preset="masked").settled().guarantee


def test_a_preset_says_what_is_not_given() -> None:
    s = Params(preset="paper", additive="compact").settled()
    assert (s.scales, s.additive, s.clip, s.noise, s.masks, s.repair) == ("chi3", "compact", "oracle", "uniform",
                                                                          "real", "off")
    assert Params(masks="real").settled().repair == "shamir"


def test_sigma_eta_is_that_of_section_6_3() -> None:
    assert Params().settled().sigma_eta(5) == pytest.approx(1.3906 / math.sqrt(5), rel=1e-4)
    assert Params(masks="real").settled().sigma_eta(100) == pytest.approx(0.1460, abs=1e-4)
    s = Params(masks="real", graph="complete").settled()
    assert s.sigma_pair(s.edges(list(range(100)), np.random.default_rng(0)), list(range(100))) == pytest.approx(
        0.454, rel=0.01)
    total = Params(budget="total", rounds=100).settled()
    assert total.sigma_eta(1) == pytest.approx(13.906, rel=1e-4)


def test_a_client_spends_in_the_rounds_in_which_it_sent_something() -> None:
    mus = {1: 0.5, 2: 1.0, 4: 2.0}
    found = spent(mus, [(1, "a"), (2, "a"), (2, "b"), (3, "b"), (4, "b")])
    assert found == {"a": pytest.approx(math.hypot(0.5, 1.0)), "b": pytest.approx(math.hypot(1.0, 2.0))}
    found = spent(mus, [(1, "a"), (2, "a"), (3, "b")], late={(1, "a"): 3.0, (2, "a"): 0.5, (3, "c"): 0.25})
    assert found == {"a": pytest.approx(math.hypot(3.0, 1.0)), "c": 0.25}


def test_check_10_rounds_compose_as_the_accountant_of_dp_accounting_has_it() -> None:
    found = mp_dp.account(Params().settled(), Realised(), 100, 5)
    assert found["epsilon_in_total"] == pytest.approx(55.74, abs=0.05)
    total = mp_dp.account(Params(budget="total", rounds=100).settled(), Realised(), 100, 5)
    assert total["epsilon_in_total"] == pytest.approx(3.0, abs=1e-6)
    privacy = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    mus = [0.3, 0.7, 0.5]
    accountant = PLDAccountant()
    for mu in mus:
        accountant.compose(privacy.GaussianDpEvent(1 / mu))
    assert ldp.epsilon(1e-5, ldp.composed(mus)) == pytest.approx(accountant.get_epsilon(1e-5), abs=0.01)
