"""MP-DP end to end: the aggregate against FedSGD, masks, dropouts and their repair, and what is said of privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from descent import fedsgd
from torch import nn

from emul.base import rows as R
from emul.base.errors import RoleFailed, ScenarioError
from emul.learning.disguise import BlockScalars, CannotBeDisguised
from emul.learning.node_task import NodeTask
from emul.learning.objectives import Batch
from emul.learning.parameters import FlatModule
from emul.learning.task import Task
from emul.primitives.dp import complete, theta
from emul.primitives.privacy import ldp
from emul.protocols.pairwise import client as members
from emul.protocols.pairwise.messages import Reveal
from emul.scenario import loads
from emul.schemes import mp_dp
from emul.schemes.mp_dp import Params, check, warn
from emul.schemes.mp_dp import server_role as hub
from emul.testing import run_text

EXACT = "eps: null, clip: off, additive: full, dtype: float64, ring_fraction: 40"


def scenario(params: str, clients: int = 5, rounds: int = 2, faults: Iterable[str] = (), seed: int = 7,
             partition: str = "iid", links: str = "", model: str = "digits_mlp", batch: int = 32) -> str:
    return f"""
emul: 1
name: mp
seed: {seed}
topology: {{generator: star, clients: {clients}}}
links: [{{match: "*", latency: 5 ms}}{links}]
task: {{data: {{set: digits}}, partition: {partition}, model: {model},
       solver: {{sgd: {{lr: 0.1, steps: 1, batch: {batch}}}}}}}
compute: {{mode: zero}}
schemes: [{{name: mp_dp, {params}}}]
faults: [{", ".join(faults)}]
stop: {{rounds: {rounds}}}
"""


class Done:
    """A run: what the server made of each round, and what was recorded."""

    def __init__(self, params: str, **how: Any):
        self.models: list[np.ndarray] = []
        self.means: list[np.ndarray] = []
        self.opened: list[Any] = []
        real = hub.stepped

        def seen(model: np.ndarray, mean: np.ndarray, task: Any, opened: Any, lr: float) -> np.ndarray:
            self.means.append(mean)
            self.opened.append(opened)
            self.models.append(real(model, mean, task, opened, lr))
            return self.models[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hub, "stepped", seen)
            self.world = run_text(scenario(params, **how))
        self.rounds = self.world.rounds
        self.analysis = self.world.summary["analysis"]

    def said(self, name: str) -> list[Any]:
        return [row[name] for row in self.rounds]


def drop(client: int, stage: str, round_: int) -> str:
    return f"{{node: client{client}, stage: {stage}, drop: true, rounds: {round_}}}"


# --- check 6 ----------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize(("clients", "params"), [
    (5, "preset: masked"), (20, "preset: masked"), (5, "preset: masked, repair: seeds"),
    (5, "preset: paper, repair: seeds, sigma_delta: 1"), (20, "preset: paper, repair: seeds, sigma_delta: 1"),
    (5, "preset: paper, repair: shamir, sigma_delta: 1"),
    (5, "preset: sound, scales: chi3")])
def test_check_6_without_noise_the_model_is_that_of_fedsgd_with_dropouts_repaired(clients: int, params: str) -> None:
    stage = "Blocks" if "seeds" in params else "Masked"
    done = Done(f"{params}, {EXACT}", clients=clients, rounds=6, faults=[drop(2, stage, 2), drop(4, stage, 5)])
    expected = fedsgd(scenario("", clients), 6, gone={2: {2}, 5: {4}})
    assert done.said("U3") == [clients - (n in (2, 5)) for n in range(1, 7)]
    for model, right in zip(done.models, expected, strict=True):
        assert np.abs(model - right).max() < 1e-10
    assert np.abs(expected[-1] - expected[0]).max() > 1e-3


def test_check_6_compact_and_in_float32() -> None:
    expected = fedsgd(scenario(""), 3)[-1]
    compact = Done(f"preset: masked, {EXACT.replace('full', 'compact')}, directions: 2", rounds=3).models[-1]
    assert np.abs(compact - expected).max() < 1e-10
    single = Done("preset: sound, eps: null, clip: off", rounds=3).models[-1]
    assert np.abs(single - expected).max() < 1e-5


@pytest.mark.parametrize("params", ["preset: sound", "preset: masked"])
def test_check_6_batch_norm_with_running_statistics_that_are_summed_behind_masks(params: str) -> None:
    """What is trained is as FedSGD has it; statistics move by their momentum to the mean of those of the batches."""
    how: dict[str, Any] = {"clients": 2, "model": "resnet20_bn", "batch": 6}
    final = Done(f"{params}, {EXACT.replace('full', 'off')}", rounds=1, **how).models[0]
    spec = loads(scenario("", **how), "t").task
    task = Task(spec, 2, 7)
    inner = task._model
    before = task.initial_parameters(0).astype(np.float64)
    seen = [moved_by(inner, before, NodeTask(task, f"client{k}", k - 1, lambda: 1).batch().x) for k in (1, 2)]
    statistics = [place.ravel() for name, place in inner.named(np.arange(inner.dimension)).items() if "running" in name]
    for place in statistics:
        assert np.abs(final[place] - np.mean(seen, axis=0)[place]).max() < 1e-5
        assert np.abs(final[place] - before[place]).max() > 1e-3
    right = fedsgd(scenario("", **how), 1)[0][:inner.trained]
    assert np.abs(final[:inner.trained] - right).max() < 1e-9


def moved_by(model: FlatModule, parameters: np.ndarray, x: Any) -> np.ndarray:
    """The model's state after a forward pass in training."""
    model.load(parameters.astype(np.float32))
    model.module.train()(x)
    return model.read().astype(np.float64)


def test_clients_count_by_their_samples_over_the_mean_before_they_are_clipped() -> None:
    few = "{classes: 3}"
    exact = EXACT.replace("clip: off", "clip: message").replace("full", "off")
    expected = fedsgd(scenario("", partition=few), 2, mean_samples=300.0)
    weighted = Done(f"preset: sound, {exact}, bound: 1e6, mean_samples: 300", partition=few).models
    assert np.abs(weighted[-1] - expected[-1]).max() < 1e-10
    assert np.abs(expected[-1] - fedsgd(scenario("", partition=few), 2)[-1]).max() > 1e-4
    first = weighted[0] - Done(f"preset: sound, {exact}, bound: 1e-3, mean_samples: 300", partition=few).models[0]
    assert np.abs(first).max() > 1e-4                       # B bounds what a large client contributes


# --- check 7 ----------------------------------------------------------------------------------------------------------

def test_check_7_noise_of_pairs_cancels_in_the_sum() -> None:
    plain, masked = (Done(f"preset: paper, {EXACT}, sigma_delta: {sigma}", rounds=1).means[0] for sigma in (0, 1e4))
    assert 0 < np.abs(plain - masked).max() < 1e-9
    rings = [Done(f"preset: masked, {EXACT}, repair: {repair}", rounds=1).means[0] for repair in ("shamir", "seeds")]
    np.testing.assert_array_equal(rings[0], rings[1])
    assert np.abs(plain - rings[0]).max() < 2.0**-40


# --- check 11 ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("law", "factor"), [("gaussian", 1.0), ("uniform", math.sqrt(2 / 3))])
def test_check_11_an_unrepaired_dropout_leaves_the_noise_of_its_pairs(law: str, factor: float) -> None:
    """In the message domain; times R, of which E R^2 = 3/2, the uniform one is sigma sqrt(cut) / K', too."""
    base = f"preset: sound, masks: real, eps: null, clip: off, dtype: float64, sigma_delta: 5, noise: {law}"
    left, repaired = (Done(f"{base}, repair: {repair}", rounds=1, faults=[drop(2, "Blocks", 1)])
                      for repair in ("off", "seeds"))
    assert left.said("cut_edges") == repaired.said("cut_edges") == [4]
    error = (left.means[0] - repaired.means[0])[0]
    assert error.std() == pytest.approx(factor * 5 * math.sqrt(4) / 4, rel=0.03)


@pytest.mark.parametrize("masks", ["real", "ring"])
def test_check_11_seeds_repair_a_dropout_exactly(masks: str) -> None:
    exact = "preset: sound, eps: null, clip: off, dtype: float64, ring_fraction: 45"
    sigma = ", sigma_delta: 1" if masks == "real" else ""
    done = Done(f"{exact}, masks: {masks}, repair: seeds{sigma}", rounds=1, faults=[drop(2, "Blocks", 1)])
    shamir = Done(f"{exact}, repair: shamir", rounds=1, faults=[drop(2, "Masked", 1)])
    assert np.abs(done.means[0] - shamir.means[0]).max() < 1e-12


def test_check_11_seeds_fail_if_a_survivor_drops_out_too_and_shamir_does_not() -> None:
    done = Done("masks: real, repair: seeds", rounds=2, faults=[drop(2, "Blocks", 1), drop(3, "Seeds", 1)])
    left = [row[4] for row in done.world.of("server", R.LEAVE)]
    assert "repair: client3 has not sent the seeds of 1 dropped neighbours" in left[0]
    assert len(done.models) == 1
    assert len(Done("n: 5", rounds=2, faults=[drop(2, "Masked", 1), drop(3, "Reveal", 1)]).models) == 2


def test_check_11_below_tau_answers_the_round_is_aborted_and_theta_is_of_the_survivors() -> None:
    done = Done("n: 5", rounds=2, faults=[drop(k, "Reveal", 1) for k in (1, 2, 3)])
    left = [row[4] for row in done.world.of("server", R.LEAVE)]
    assert "shares" in left[0]
    assert "threshold t = 3" in left[0]
    assert len(done.models) == 1                                           # the model of round 1 stays as it was
    some = Done("losses: 1", clients=6, rounds=2, faults=[drop(3, "Masked", 2)])
    mu = Params().settled().mu
    assert mu is not None
    assert some.said("mu") == pytest.approx([mu * math.sqrt(5 / 6), mu])    # made for one loss
    sigma = some.opened[0].message.sigma_eta
    assert some.said("mu")[1] == pytest.approx(math.sqrt(theta(complete(range(5)), range(5), sigma, math.inf)))


@pytest.mark.parametrize("law", ["gaussian", "uniform"])
def test_check_11_shares_repair_real_noise_exactly_too(law: str) -> None:
    """The sum under double masking by real noise is that of a ring, where somebody has dropped out."""
    exact = "preset: sound, eps: null, clip: off, dtype: float64"
    real, ring = (Done(f"{exact}, repair: shamir, {masks}", rounds=1, faults=[drop(2, "Masked", 1)])
                  for masks in (f"masks: real, sigma_delta: 5, noise: {law}", "ring_fraction: 45"))
    assert real.said("U3") == [4]
    assert np.abs(real.means[0] - ring.means[0]).max() < 1e-12

@pytest.mark.parametrize("params", ["", "masks: real, sigma_delta: 1, "])
def test_a_client_that_reveals_false_shares_is_seen_by_spare_ones(params: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five clients, a threshold of three: two shares are spare."""
    exact = f"{params}eps: null, clip: off, "
    right, checked = (Done(exact + f"verify_spare: {verify}", rounds=1, faults=[drop(4, "Masked", 1)])
                      for verify in ("false", "true"))
    assert np.array_equal(right.means[0], checked.means[0])
    real = members.reveal

    def lies(i: int, *rest: Any) -> Reveal:
        told: Reveal = real(i, *rest)
        return Reveal(told.ids, told.shares ^ np.uint8(i == 2))

    monkeypatch.setattr(members, "reveal", lies)
    wrong = Done(exact + "verify_spare: false", rounds=1, faults=[drop(4, "Masked", 1)])
    assert [row[4] for row in wrong.world.of("server", R.LEAVE)] == [""]
    assert np.abs(wrong.means[0] - right.means[0]).max() > 0.1, "it is wrong without an error"
    seen = Done(exact + "verify_spare: true", rounds=1, faults=[drop(4, "Masked", 1)])
    assert not seen.means
    assert "inconsistent_sets: " in seen.world.of("server", R.LEAVE)[0][4]



def test_check_11_theta_of_real_masks_is_of_the_survivors_and_of_a_round_that_was_given_up_too() -> None:
    """What was seen was seen, whether or not enough shares come."""
    done = Done("masks: real", rounds=2, faults=[drop(2, "Masked", 1), *(drop(k, "Reveal", 2) for k in (1, 3, 4))])
    assert len(done.models) == 1
    opened = done.opened[0]
    expected = [math.sqrt(theta(opened.edges, heard, opened.message.sigma_eta, opened.sigma_delta))
                for heard in ([1, 3, 4, 5], [1, 2, 3, 4, 5])]
    assert done.said("mu") == pytest.approx(expected)


# --- late messages ----------------------------------------------------------------------------------------------------

LATE = ', {match: "client2->server*", bandwidth: 1 Mbit/s}'      # keys and shares in time, blocks a round later


@pytest.mark.parametrize(("params", "factor"), [
    ("masks: ring, repair: shamir", 0.0), ("masks: real, repair: shamir", 1.0),
    ("masks: real, repair: seeds", math.sqrt(5) / 1.05), ("masks: ring, repair: seeds", math.sqrt(5))])
def test_a_late_message_costs_what_noise_is_left_of_its_own(params: str, factor: float) -> None:
    """Once the noise of its pairs was revealed: nothing under a self mask of the ring, mu of a round under a real one,
    all but a client's own noise with seeds."""
    s = Params(masks=params[7:11], repair=params.split()[-1]).settled()           # type: ignore[arg-type]
    assert s.mu is not None
    assert s.mu_late(5) == pytest.approx(factor * s.mu)
    done = Done(f"{params}, stage_deadline: 60 ms", rounds=5, links=LATE)
    assert done.said("U1")[0] == 5
    assert done.said("U3")[0] == 4
    worst = max(*done.said("mu"), s.mu_late(5))
    assert done.analysis["epsilon_of_a_round"]["measured"] == pytest.approx(ldp.epsilon(1e-5, worst))
    assert done.analysis["epsilon_in_total"]["measured"] >= ldp.epsilon(1e-5, worst)


# --- what is said -----------------------------------------------------------------------------------------------------

def test_the_analysis_says_preset_and_guarantee_by_who_took_part() -> None:
    done = Done("preset: sound", rounds=3, faults=[drop(2, "Masked", 2)])
    found = done.analysis
    assert found["preset"]["theory"] == "sound"
    assert found["guarantee"]["theory"].startswith("(eps, delta)-DP")
    mus = done.said("mu")
    assert found["epsilon_of_a_round"]["theory"] == pytest.approx(3.0)
    assert found["epsilon_of_a_round"]["measured"] == pytest.approx(ldp.epsilon(1e-5, max(mus)))
    assert found["epsilon_in_total"]["theory"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(3) * mus[0]))
    assert found["epsilon_in_total"]["measured"] == pytest.approx(ldp.epsilon(1e-5, ldp.composed(mus)))
    paper = Done("preset: paper").analysis
    assert paper["guarantee"]["theory"].startswith("none: ")
    assert {name for name in paper if "epsilon" in name} == {"nominal_epsilon_of_a_round", "nominal_epsilon_in_total"}


def test_the_warnings_of_paper_and_masked_are_in_the_words_of_the_errata() -> None:
    world = loads(mp_dp.EXAMPLE, "t")
    setup: Any = type("World", (), {"clients": 5})
    assert world.name == "mp_dp"
    assert warn(Params(), setup) == []
    paper, masked = (" ".join(warn(Params(preset=preset), setup)) for preset in ("paper", "masked"))
    assert "uniform and bounded" in paper
    assert "give away the inputs" in paper
    assert "least squares" in paper
    assert "stays in the sum" in paper
    assert "the sums of Psi and Phi are exact" in masked
    assert "least squares" in masked


@pytest.mark.parametrize(("params", "said"), [
    (Params(records=32, additive="full"), "records = 32: expected additive: off"),
    (Params(records=8), "records = 8: expected the batch of task.solver, which is 32"), (Params(records=0), "records"),
    (Params(masks="ring", repair="off"), "repair = off"), (Params(masks="real", threshold=1), "threshold = 1"),
    (Params(clip="bound", scales="chi3"), "scale_bound = None: expected a number with clip: bound"),
    (Params(clip="bound", additive="full"), "output_bound = None: expected a number with clip: bound"),
    (Params(scale_bound=2.0), "scale_bound = 2.0: expected with clip: bound"),
    (Params(clip="bound", scale_bound=0.0), "scale_bound = 0.0"),
    (Params(sigma_delta=1.0), "sigma_delta"), (Params(masks="real", inflation=1.0), "inflation"),
    (Params(threshold=9), "threshold = 9"), (Params(losses=4), "losses = 4"), (Params(eps=-1.0), "eps"),
    (Params(budget="total"), "rounds = None"), (Params(rounds=3), "rounds = 3"), (Params(kappa=1.0), "kappa"),
    (Params(preset="masked", loss="task"), "loss = task"), (Params(fraction=0.2), "fraction"),
    (Params(repair="seeds", verify_spare=True), "verify_spare = True: expected with repair: shamir"),
    (Params(ring_bits=32, bound=1e6), "ring_bits")])
def test_parameters_that_make_no_sense_are_refused(params: Params, said: str) -> None:
    setup: Any = type("World", (), {"clients": 5, "task": {"solver": {"sgd": {"batch": 32}}}})
    assert any(error.startswith(said) for error in check(params, setup)), check(params, setup)


def test_two_clients_need_no_threshold_of_their_own() -> None:
    """tau = floor(2 / 3) + 1 would let one neighbour have a client's secrets."""
    assert Params().settled().rules(2).t == 2
    done = Done("preset: sound, eps: null, clip: off, dtype: float64", clients=2, rounds=2)
    assert np.abs(done.models[-1] - fedsgd(scenario("", 2), 2)[-1]).max() < 1e-6


def test_clipping_by_public_bounds_is_for_the_true_gradient_and_accounted_for_the_message() -> None:
    done = Done("clip: bound", rounds=2)
    for mean in done.means:
        assert np.isfinite(mean).all()
    s = Params(clip="bound").settled()
    assert (s.largest_scale, s.sensitivity) == (1.5, 1 / 1.5)
    assert s.guarantee.startswith("(eps, delta)-DP")
    assert done.said("mu") == pytest.approx([s.mu / 1.5] * 2)       # type: ignore[operator]
    hidden = Done("preset: masked, clip: bound, scale_bound: 6, output_bound: 1", rounds=1)
    assert len(hidden.models) == 1
    narrow = Done("preset: masked, clip: bound, scale_bound: 1, output_bound: 1", rounds=1)
    assert "unbounded: none of 100 draws of secrets" in narrow.world.of("server", R.LEAVE)[0][4]


def test_records_are_clipped_one_by_one_and_noise_is_made_for_one_of_a_batch() -> None:
    """Section 6.4: each sample's gradient is clipped to B, the mean is over b: sensitivity B / b."""
    bound = 5.0
    how: dict[str, Any] = {"clients": 3, "rounds": 1, "batch": 16}
    done = Done(f"records: 16, bound: {bound}, eps: null, dtype: float64, ring_fraction: 40", **how)
    task = Task(loads(scenario("", **how), "t").task, 3, 7)
    disguise, opened = task.disguise, done.opened[0]
    hidden = task.initial_parameters(0) * disguise.multipliers(opened.known.secrets)
    alone, run = BlockScalars(None, disguise.outputs, False), disguise.forward(opened.message.diagonals)
    each = []
    for k in (1, 2, 3):
        node = NodeTask(task, f"client{k}", k - 1, lambda: 1)
        batch = node.batch()
        samples = [Batch(batch.x[i:i + 1], batch.y[i:i + 1]) for i in range(16)]
        each += [node.gradients(hidden, alone, batch=sample, forward=run)[0][0] for sample in samples]
    norms = np.linalg.norm(each, axis=1)
    assert 5 < (norms > bound).sum() < 43
    expected = np.minimum(1.0, bound / norms) @ each / 48
    assert np.abs(done.means[0][0] - expected).max() < 1e-9
    whole, single = (Params(records=records).settled() for records in (None, 16))
    assert single.sigma_eta(5) == whole.sigma_eta(5) / 16
    assert "of one record of a client" in single.guarantee
    assert Done("records: 16", **how).said("mu") == pytest.approx([single.mu])


def test_records_need_a_model_in_which_samples_are_alone() -> None:
    with pytest.raises(RoleFailed, match=r"CannotBeDisguised: layer .* makes a sample.s gradient depend on others"):
        Done("records: 6", clients=2, rounds=1, batch=6, model="resnet20_bn")


def test_a_32_bit_ring_has_as_many_bits_after_the_point_as_fit() -> None:
    s = Params(ring_bits=32, eps=0.1).settled()
    most = 5 * (1 + 8 * s.sigma_eta(5))
    assert s.f(5) < 24
    assert most * 2.0**s.f(5) < 2**31 <= most * 2.0**(s.f(5) + 1)
    wide, narrow = (Done(f"ring_bits: {bits}", rounds=1).means[0] for bits in (64, 32))
    assert np.abs(wide - narrow).max() < 2.0 ** -s.f(5)


def test_a_model_that_cannot_be_disguised_is_named() -> None:
    task = Task({"data": {"set": "digits"}, "model": "normed", "solver": {"sgd": {"lr": 0.1, "steps": 1}}}, 2, 1)
    task.__dict__["_model"] = FlatModule(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.ReLU(),
                                                       nn.Linear(8, 10)))
    with pytest.raises(CannotBeDisguised, match=r'layer "2" \(LayerNorm\) cannot be disguised'):
        NodeTask(task, "server", None, lambda: 1).disguise()


def test_an_unknown_preset_is_an_error_of_the_scenario() -> None:
    with pytest.raises(ScenarioError, match="preset"):
        Done("preset: nobody")


# --- bytes ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("params", "blocks", "octets"), [
    ("preset: sound", 1, 8), ("preset: masked", 12, 8), ("preset: masked, additive: compact", 3, 8),
    ("preset: sound, ring_bits: 32", 1, 4), ("preset: paper", 12, 8), ("masks: real", 1, 4),
    ("masks: real, repair: seeds", 1, 4), ("preset: paper, repair: shamir", 12, 8)])
def test_check_15_bytes_of_an_upload_are_those_of_section_9(params: str, blocks: int, octets: int) -> None:
    done = Done(params, rounds=1)
    kinds = {"Masked", "Blocks"}
    sizes = {row[6] for row in done.world.rows if row[0] == R.SEND and row[5] in kinds}
    d = 64 * 50 + 50 + 50 * 10 + 10
    (size,) = sizes
    assert 0 < size - blocks * d * octets < 200                            # the header
    down = {row[6] for row in done.world.rows if row[0] == R.SEND and row[5] == "Disguised"}
    q = 8 if "paper" in params or "masked" in params else 4
    assert 0 < down.pop() - q * (d + 50) - (80 if "compact" in params else 0) < 400
