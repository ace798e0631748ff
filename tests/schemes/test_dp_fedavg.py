"""Central and local noise: its variance, clipping, what is spent by who took part."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul
from emul.base.errors import ScenarioError
from emul.primitives.dp import sigma_over_sensitivity
from emul.primitives.privacy import ldp
from emul.protocols.rounds import Model
from emul.record.progress import table
from emul.registry import schemes
from emul.report import cards
from emul.roles import Realised, Setting
from emul.scenario import loads
from emul.schemes import dp_fedavg
from emul.schemes.dp_fedavg import Gradient, Params, ServerState, analysis
from emul.testing import drive

D = 4000
NAMES = tuple(f"client{k}" for k in range(1, 6))
SETTING = Setting({"client": NAMES, "server": ("server1",)}, lambda a, b: 0.0, 7, 3)
SIGMA = sigma_over_sensitivity(3.0, 1e-5)


class Task:
    dimension = D

    def initial_parameters(self) -> np.ndarray:
        return np.zeros(D, np.float32)

    def gradient(self, parameters: np.ndarray) -> tuple[np.ndarray, int]:
        return np.full(D, 3, np.float32), 5


def first_model(p: Params) -> np.ndarray:
    """w after one round in which three of four clients send the gradient 3 everywhere."""
    role = drive(dp_fedavg.server, p, clients=[1, 2, 3, 4], task=Task(), rounds=2)
    role.deliver({k: Gradient(np.full(D, 3, np.float32)) for k in (1, 2, 3)})
    role.advance_to(role.deadline)
    return role.sent(Model)[1].parameters


def test_a_trusted_server_clips_what_it_gets_and_adds_noise_once() -> None:
    clean = first_model(Params(sigma=0.0, deadline_s=1.0, clip=0.5, lr=0.2))
    assert clean == pytest.approx(-0.2 * 0.5 / math.sqrt(D) * np.ones(D), rel=1e-5)
    noisy = first_model(Params(deadline_s=1.0, clip=0.5, lr=0.2))
    assert np.std(noisy - clean) == pytest.approx(0.2 / 3 * SIGMA * 0.5, rel=0.05)


def test_with_local_noise_the_server_takes_the_mean_of_what_comes() -> None:
    found = first_model(Params(noise_at="local", deadline_s=1.0, lr=0.1))
    assert found == pytest.approx(-0.3 * np.ones(D), rel=1e-5)


@pytest.mark.parametrize(("noise_at", "std"), [("central", 0.0), ("local", 0.5 * SIGMA)])
def test_a_client_clips_and_adds_noise_only_if_it_is_its_own(noise_at: Any, std: float) -> None:
    role = drive(dp_fedavg.client, Params(noise_at=noise_at, clip=0.5), clients=[1], task=Task(), id=1)
    role.deliver({0: Model(np.zeros(D, np.float32))})
    off = role.sent(Gradient)[0].gradient - 0.5 / math.sqrt(D)
    assert np.std(off) == pytest.approx(std, rel=0.05, abs=1e-6)


def realised(heard: dict[int, set[str]], lost: dict[int, set[str]]) -> Realised:
    came = frozenset((r, k, "server1") for r, names in heard.items() for k in names)
    gone = frozenset((r, k, "server1") for r, names in lost.items() for k in names)
    return Realised(arrived=lambda kind: came if kind == "Gradient" else frozenset(),
                    sent=lambda kind: came | gone if kind == "Gradient" else frozenset())


RUN = realised({1: set(NAMES), 2: {"client1", "client2"}}, {2: {"client3"}, 3: {"client3"}})


def test_a_trusted_server_knows_all_and_clients_spend_in_the_rounds_that_they_were_in() -> None:
    found = analysis(Params(), SETTING, RUN)
    assert (found["server_epsilon_round"], found["server_epsilon"]) == ("unbounded", "unbounded")
    assert found["client_epsilon_round"] == pytest.approx(3.0)
    assert found["client_epsilon"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(2) / SIGMA))


def test_local_noise_counts_what_was_sent_against_the_server_and_sums_against_others() -> None:
    found = analysis(Params(noise_at="local"), SETTING, RUN)
    assert found["server_epsilon_round"] == pytest.approx(3.0)
    assert found["server_epsilon"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(3) / SIGMA))     # client3 sent thrice
    assert found["client_epsilon_round"] == pytest.approx(3.0)                  # of two, one's own noise is known
    assert found["client_epsilon"] == pytest.approx(ldp.epsilon(1e-5, math.hypot(1, 0.5) / SIGMA))


def test_a_hundred_rounds_spend_what_the_guarantee_over_all_of_them_says() -> None:
    """Check 10, by the rounds that took place: 55.74 with noise for one round, 3 with noise for a hundred."""
    run = realised({r: set(NAMES) for r in range(1, 101)}, {})
    one, all_ = (analysis(Params(over=over), SETTING, run)["client_epsilon"] for over in (1, 100))
    assert one == pytest.approx(55.74, abs=0.05)
    assert all_ == pytest.approx(3.0, abs=1e-6)


def gaussian_delta(eps: float, mu: float) -> float:
    """Balle and Wang 2018, Theorem 8: of a Gaussian mechanism, mu its sensitivity over its deviation."""
    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return phi(mu / 2 - eps / mu) - math.exp(eps) * phi(-mu / 2 - eps / mu)


def test_the_total_over_the_run_stands_beside_that_of_a_round_wherever_privacy_is_told(tmp_path: Path) -> None:
    lossless = loads(schemes.find("dp_fedavg").example, "t", ["links=[{match: '*', latency: 1 ms}]"])
    run, = emul.run(lossless, out=tmp_path, workers=0, quiet=True)
    said = run.summary["privacy"]
    assert (said["delta"], said["epsilon_in_total"]["server"]) == (1e-5, "unbounded")
    mu = 1 / SIGMA                              # all clients are in all three rounds, whose mu^2 add up
    for rounds, eps in ((1, said["epsilon_of_a_round"]["client"]), (3, said["epsilon_in_total"]["client"])):
        assert gaussian_delta(eps, mu * math.sqrt(rounds)) == pytest.approx(1e-5, rel=1e-6)
    assert "epsilon in total" in table([run.summary]).splitlines()[0]
    assert ["epsilon in total, delta 1e-05", f"server unbounded, client {said['epsilon_in_total']['client']:.3g}"] in [
        list(card) for card in cards.of_run(run.summary, 1)]


def test_bad_parameters_are_refused_when_the_scenario_is_read() -> None:
    for setting in ("fraction=0", "sigma=-1", "lr=0"):
        with pytest.raises(ScenarioError, match=setting.replace("=", " = ")):
            loads(schemes.find("dp_fedavg").example, "t", [f"schemes.dp_fedavg.{setting}"])


def test_random_cohorts_that_are_secret_spend_less() -> None:
    """The specification's number: 100 rounds at q = 0.1, with noise for eps = 3 a round, are 3.98 at delta = 1e-5."""
    run = Realised(completed=tuple(range(1, 101)))
    secret = Params(sampling="poisson", fraction=0.1)
    assert analysis(secret, SETTING, run)["outsider_epsilon"] == pytest.approx(3.98, abs=0.01)
    assert analysis(replace(secret, sigma=0.0), SETTING, run)["outsider_epsilon"] == "unbounded"
    assert analysis(secret, SETTING, Realised())["outsider_epsilon"] == 0.0
    assert "outsider_epsilon" not in analysis(Params(fraction=0.1), SETTING, run)


def test_a_poisson_cohort_may_be_empty_and_its_round_adds_noise_all_the_same() -> None:
    p = Params(sampling="poisson", fraction=1e-9, deadline_s=1.0, sigma=2.0, clip=0.5, lr=0.2)
    role = drive(dp_fedavg.server, p, clients=[1, 2, 3, 4], task=Task(), rounds=1)
    assert not role.sent(Model)
    assert (role.reports[-1]["received"], role.reports[-1]["cohort"]) == (0, 0)
    model = role.node.state(ServerState(np.zeros(D))).model
    assert np.std(model) == pytest.approx(0.2 / (4 * 1e-9) * 2.0 * 0.5, rel=0.05)


def test_poisson_cohorts_are_drawn_one_by_one_and_the_mean_is_over_their_expected_number() -> None:
    p = Params(sampling="poisson", fraction=0.25, deadline_s=1.0, sigma=0.0, clip=0.5, lr=0.2)
    role = drive(dp_fedavg.server, p, clients=range(1, 401), task=Task(), rounds=20)
    sizes = []
    for _ in range(19):
        cohort = sorted(role.waiting.sources)
        sizes.append(len(cohort))
        if len(sizes) == 2:
            first = role.sent(Model)[cohort[0]].parameters
        role.deliver({k: Gradient(np.full(D, 3, np.float32)) for k in cohort})
    assert len(set(sizes)) > 5
    assert np.mean(sizes) == pytest.approx(100, abs=4 * np.sqrt(400 * 0.25 * 0.75 / 19))
    assert first == pytest.approx(-0.2 * sizes[0] / 100 * 0.5 / math.sqrt(D) * np.ones(D), rel=1e-4)


def test_poisson_cohorts_need_a_trusted_server() -> None:
    with pytest.raises(ScenarioError, match="expected noise_at: central, since the server"):
        loads(schemes.find("dp_fedavg").example, "t",
              ["schemes.dp_fedavg.sampling=poisson", "schemes.dp_fedavg.noise_at=local"])
