"""MP-DP's relatives without masks: mp_dp_naive and mp_cdp against FedSGD, their noise, and what they spend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from descent import fedsgd
from torch import nn

from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.learning.disguise import Disguise
from emul.learning.parameters import FlatModule
from emul.primitives.dp import sigma_over_sensitivity
from emul.primitives.privacy import ldp
from emul.protocols.mp_dp import plain
from emul.protocols.mp_dp.algebra import SecretsLaw, drawn
from emul.schemes import mp_cdp, mp_dp_naive
from emul.testing import Ran, run_text

CLEAN = "links[1].outage.p=0"
SIGMA = sigma_over_sensitivity(3.0, 1e-5)
EXAMPLES = {"mp_cdp": mp_cdp.EXAMPLE, "mp_dp_naive": mp_dp_naive.EXAMPLE}


def played(scheme: str, *sets: str) -> tuple[Ran, list[np.ndarray], list[np.ndarray]]:
    """A run, its models, and the gradients that they have stepped along, (d,) float64."""
    models: list[np.ndarray] = []
    steps: list[np.ndarray] = []
    stepped = plain.stepped

    def seen(model: np.ndarray, *rest: Any) -> np.ndarray:
        models.append(stepped(model, *rest))
        steps.append((model - models[-1]) / 0.1)
        return models[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "stepped", seen)
        ran = run_text(EXAMPLES[scheme], *(one.replace("P.", f"schemes.{scheme}.") for one in sets))
    return ran, models, steps


# --- without noise ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("scheme", "sets"), [
    ("mp_cdp", ["P.additive=full", "P.bound=1e9"]),
    ("mp_cdp", ["P.additive=off", "P.scales=log_uniform", "P.bound=1e9"]),
    ("mp_dp_naive", ["P.scales=chi3", "P.additive=compact", "P.clip=off"]),
    ("mp_dp_naive", ["P.scales=uniform", "P.additive=full", "P.clip=off"]),
    ("mp_dp_naive", ["P.scales=uniform", "P.transitional=true", "P.clip=off"])])
def test_without_noise_the_model_is_that_of_fedsgd(scheme: str, sets: list[str]) -> None:
    lost = "faults=[{node: client2, stage: Blocks, drop: true, rounds: 2}]"
    _, models, _ = played(scheme, CLEAN, "P.eps=null", lost, *sets)
    for model, right in zip(models, fedsgd(EXAMPLES[scheme], 3, gone={2: {2}}), strict=True):
        assert np.abs(model - right).max() < 1e-9


def test_a_trusted_server_clips_each_gradient_by_its_true_norm() -> None:
    _, _, steps = played("mp_cdp", CLEAN, "P.eps=null", "stop.rounds=1", "P.bound=0.01")
    assert 0.005 < np.linalg.norm(steps[0]) <= 0.01 + 1e-12         # of gradients much longer than that


# --- noise ------------------------------------------------------------------------------------------------------------

def noise_of(scheme: str, *sets: str) -> np.ndarray:
    """The noise in the gradient of one round."""
    base = (CLEAN, "stop.rounds=1", "P.additive=off", "P.bound=0.5", *sets)
    return played(scheme, *base)[2][0] - played(scheme, *base, "P.eps=null")[2][0]


def test_central_noise_is_of_the_mean_and_does_not_pass_the_disguise() -> None:
    noise = noise_of("mp_cdp")
    assert noise.std() == pytest.approx(0.5 * SIGMA / 5, rel=0.04)
    assert (noise**4).mean() / noise.var()**2 == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(("sigma", "variance"), [("ldp", 1 / 5), ("cdp", 1 / 25)])
def test_noise_of_each_client_is_enough_for_it_alone_or_its_share(sigma: str, variance: float) -> None:
    """With log-uniform r, R_ij = r_i / r_j, so E R^2 = (sinh(log kappa) / log kappa)^2, nearly 1."""
    noise = noise_of("mp_dp_naive", "P.scales=log_uniform", "P.kappa=1.05", f"P.sigma={sigma}")
    assert noise.std() == pytest.approx(0.5 * SIGMA * math.sqrt(variance), rel=0.04)


def network() -> Disguise:
    module = nn.Sequential(nn.Linear(8, 900), nn.ReLU(), nn.Linear(900, 700), nn.ReLU(), nn.Linear(700, 5))
    return Disguise(FlatModule(module), (8,))


def test_the_published_law_of_r_expands_noise_and_a_transitional_layer_does_not() -> None:
    """Erratum 16. R = r_i / r_j of two uniforms passes x with probability 1 / (2 x); of two chi_3, E R^2 = 3."""
    own, rng = network(), np.random.default_rng(0)
    hidden = slice(8 * 900 + 900, 8 * 900 + 900 + 900 * 700)        # of the second layer
    R_ = {name: own.multipliers(drawn(own, law, rng).secrets)[hidden] for name, law in {
        "published": SecretsLaw("uniform", 1.5, "off", 1, tied=True), "chi3": SecretsLaw("chi3", 1.5, "off", 1,
                                                                                         tied=True),
        "expanded": SecretsLaw("chi3", 1.5, "off", 1)}.items()}
    assert (R_["published"] > 10).mean() == pytest.approx(0.05, abs=0.01)
    assert np.square(R_["published"]).mean() > 100
    assert np.square(R_["chi3"]).mean() == pytest.approx(3, rel=0.25)
    assert np.square(R_["expanded"]).mean() == pytest.approx(1.5, rel=0.1)


def test_tied_scales_leave_transitional_layers_at_one() -> None:
    own = network()
    secrets = drawn(own, SecretsLaw("uniform", 1.5, "off", 1, tied=True), np.random.default_rng(1)).secrets
    assert own.transitions(secrets) == pytest.approx(np.ones(1600), abs=1e-12)


# --- what is said -----------------------------------------------------------------------------------------------------

def test_naive_says_what_each_message_has_spent_lost_ones_too() -> None:
    ran, _, _ = played("mp_dp_naive", CLEAN, "faults=[{node: client2, stage: Blocks, drop: true, rounds: 1..2}]")
    found = ran.summary["analysis"]
    assert found["guarantee"]["theory"].startswith("(eps, delta)-DP")
    assert found["epsilon_of_a_round"] == pytest.approx({"theory": 3.0, "measured": 3.0})
    assert found["epsilon_in_total"]["measured"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(3) / SIGMA))
    assert [row["mu"] for row in ran.rounds] == pytest.approx([1 / SIGMA] * 3)
    share = played("mp_dp_naive", CLEAN, "stop.rounds=1", "P.sigma=cdp")[0].summary["analysis"]
    assert share["epsilon_of_a_round"]["measured"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(5) / SIGMA))
    published = played("mp_dp_naive", CLEAN, "stop.rounds=1", "P.clip=oracle", "P.additive=compact")[0]
    assert published.summary["analysis"]["guarantee"]["theory"].startswith("none: Psi and Phi travel")
    assert "nominal_epsilon_of_a_round" in published.summary["analysis"]


def test_central_noise_protects_from_clients_those_whose_gradients_were_in_a_sum() -> None:
    drops = ", ".join(f"{{node: client{k}, stage: Blocks, drop: true, rounds: 2..3}}" for k in range(1, 6))
    found = played("mp_cdp", CLEAN, f"faults=[{drops}]")[0].summary["analysis"]
    assert found["guarantee"]["theory"].endswith("none against the server, which is trusted with every gradient")
    assert found["epsilon_of_a_round"] == pytest.approx({"theory": 3.0, "measured": 3.0})
    assert found["epsilon_in_total"]["theory"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(3) / SIGMA))
    assert found["epsilon_in_total"]["measured"] == pytest.approx(3.0)      # two rounds failed: nothing came out
    bare = played("mp_cdp", CLEAN, "P.eps=null", "stop.rounds=1")[0].summary["analysis"]
    assert bare["guarantee"]["theory"] == "none: no noise is added"


@pytest.mark.parametrize(("scheme", "blocks"), [("mp_cdp", 3), ("mp_dp_naive", 1)])
def test_bytes_of_a_round(scheme: str, blocks: int) -> None:
    ran, _, _ = played(scheme, CLEAN, "stop.rounds=1")
    d, D = 64 * 50 + 50 + 50 * 10 + 10, 50
    assert ran.payloads["Blocks"] == pytest.approx([8 * blocks * d] * 5, abs=120)
    assert ran.payloads["Disguised"] == pytest.approx([8 * (d + D) + (80 if blocks == 3 else 0)] * 5, abs=400)


def test_a_round_without_blocks_fails_and_keeps_the_model() -> None:
    drops = ", ".join(f"{{node: client{k}, stage: Blocks, drop: true, rounds: 1..1}}" for k in range(1, 6))
    ran, models, _ = played("mp_cdp", CLEAN, "stop.rounds=2", f"faults=[{drops}]")
    assert "TooFewClients: no blocks have come" in next(row[4] for row in ran.of("server", R.LEAVE))
    assert len(models) == 1


def test_bad_parameters_are_refused_when_the_scenario_is_read() -> None:
    for scheme, setting, message in (("mp_cdp", "eps=-1", "eps = -1"), ("mp_cdp", "budget=total", "rounds = None"),
                                     ("mp_dp_naive", "kappa=1", "kappa = 1"), ("mp_dp_naive", "bound=0", "bound = 0"),
                                     ("mp_cdp", "loss=task", "loss = task"), ("mp_dp_naive", "scales=gamma", "scales")):
        with pytest.raises(ScenarioError, match=message):
            run_text(EXAMPLES[scheme], f"schemes.{scheme}.{setting}")
