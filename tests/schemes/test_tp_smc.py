"""TP-SMC: sums under threshold Paillier equal plain ones, bytes, declared costs, losses, refusals, privacy."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.primitives.dp import sigma_over_sensitivity
from emul.primitives.privacy import ldp
from emul.registry import schemes
from emul.roles import Realised, Setting
from emul.scenario import loads
from emul.schemes import tp_smc
from emul.testing import run_text
from emul.workers.pool import Workers

REAL = "schemes.tp_smc.real_up_to=1000"
CLEAN = "links[1].outage.p=0"
run = partial(run_text, tp_smc.EXAMPLE)


def test_decrypted_sums_are_the_plain_fixed_point_sums_and_what_is_declared_is_what_it_comes_to() -> None:
    """Check 15: a run whose ciphertexts are real and one that adds plain integers have the same models, to the bit."""
    declared, real = run("stop.rounds=1", CLEAN), run("stop.rounds=1", CLEAN, REAL)
    assert declared.summary["digest_model"] == real.summary["digest_model"]
    assert real.summary["bytes_declared"] == {} != declared.summary["bytes_declared"]
    one, other = declared.payloads, real.payloads
    assert one.keys() == other.keys()
    for kind, sizes in one.items():
        assert sizes == pytest.approx(other[kind], rel=0.01, abs=8), kind


@pytest.mark.parametrize(("t", "tbar"), [
    (2, 4), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((5, 1), (4, 2)))])
def test_a_round_has_so_many_vectors_of_ciphertexts(t: int, tbar: int) -> None:
    """K vectors up; tbar sums down and as many partial decryptions up, ceil(d / 42) ciphertexts of 512 bytes each."""
    ran = run("schemes.tp_smc.bits=2048", "stop.rounds=1", f"schemes.tp_smc.t={t}", CLEAN)
    C = -(-650 // 42)
    for kind, count in (("Upload", 5), ("Ask", tbar), ("Partial", tbar)):
        assert ran.payloads[kind] == pytest.approx([C * 512] * count, abs=120), kind
    assert ran.payloads["Model"] == pytest.approx([4 * 650] * 5, abs=60)


def test_declared_seconds_are_those_of_the_operations() -> None:
    summary = run("schemes.tp_smc.bits=2048", "stop.rounds=1", CLEAN).summary
    client, server = (summary["seconds_declared"][role] for role in ("client", "server"))
    assert client["encrypt"] == pytest.approx(5 * 16 * 8.9e-3)
    assert client["partial"] == pytest.approx(2 * 16 * 17.5e-3, rel=0.01)       # tbar = 2
    assert server["add"] == pytest.approx(4 * 16 * 5e-6)
    assert server["combine"] > 0


def test_who_is_silent_at_the_decryption_is_replaced_by_another() -> None:
    ran = run("stop.rounds=1", CLEAN, REAL, "schemes.tp_smc.t=3",
              "faults=[{node: client2, stage: Partial, drop: true, rounds: 1..1}]")
    assert [v["why"] for v in ran.rounds] == [""]
    assert len(ran.payloads["Ask"]) == 4                       # three, and one for client2
    whole = run("stop.rounds=1", CLEAN, "schemes.tp_smc.t=3")
    assert ran.summary["digest_model"] == whole.summary["digest_model"]


def test_fewer_than_tbar_partial_decryptions_abort_the_round_and_leave_the_model() -> None:
    """Check 15: too few shares are refused."""
    silent = ", ".join(f"{{node: client{k}, stage: Partial, drop: true, rounds: 1..1}}" for k in (1, 2, 3))
    ran = run("stop.rounds=2", CLEAN, "schemes.tp_smc.t=3", f"faults=[{silent}]")
    first, second = ran.rounds
    assert "TooFewClients: 2 partial decryptions, tbar = 3" in first["why"]
    assert second["why"] == ""


def test_who_is_lost_before_its_upload_is_missing_in_the_sum_and_too_few_abort() -> None:
    ran = run("stop.rounds=2", CLEAN, "schemes.tp_smc.t=3", "schemes.tp_smc.least=4",
              "faults=[{node: client1, stage: Upload, drop: true, rounds: 1..2}, "
              "{node: client2, stage: Upload, drop: true, rounds: 2..2}]")
    first, second = ran.rounds
    assert (first["received"], first["why"]) == (4, "")
    assert "TooFewClients: 3 uploads, least = 4" in second["why"]


def test_without_noise_a_round_is_a_step_along_the_mean_of_the_clipped_gradients() -> None:
    """To the resolution of fixed point, against plain sums in float64 of the same gradients."""
    seen: dict[str, list[np.ndarray]] = {"gradients": [], "sums": []}
    original, stepped = tp_smc.fixed, tp_smc.stepped

    def watched(values: np.ndarray, *bits: int) -> np.ndarray:
        seen["gradients"].append(values.astype(np.float64))
        return original(values, *bits)

    def step(model: np.ndarray, summed: np.ndarray, count: int, lr: float) -> np.ndarray:
        seen["sums"].append(summed)
        return stepped(model, summed, count, lr)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tp_smc, "fixed", watched)
        patch.setattr(tp_smc, "stepped", step)
        run("stop.rounds=1", CLEAN, REAL, "schemes.tp_smc.sigma=0", "schemes.tp_smc.clip=0.5")
    assert len(seen["gradients"]) == 5
    assert all(np.linalg.norm(g) <= 0.5 + 1e-6 for g in seen["gradients"])
    plain = sum(np.rint(g * 2**20) for g in seen["gradients"]) / 2**20
    assert np.array_equal(seen["sums"][0], plain)


def test_a_run_repeats_itself_for_any_number_of_workers(pools: list[Workers]) -> None:
    assert run("stop.rounds=1", REAL).digest == run("stop.rounds=1", REAL, pool=pools[1]).digest


def test_a_client_draws_its_part_of_the_noise() -> None:
    full = sigma_over_sensitivity(3.0, 1e-5)
    for t, divide, part in ((5, "t-1", 4), (5, "t", 5), (2, "t-1", 1), (1, "t-1", 1), (1, "t", 1)):
        p = tp_smc.Params(t=t, divide=divide)               # type: ignore[arg-type]
        assert tp_smc.share_of(p, 5) == pytest.approx(full / math.sqrt(part))
    sizes = tp_smc.Threshold.of(tp_smc.Params(t=4), 5)
    assert (sizes.tbar, sizes.least) == (2, 3)


def realised(uploads: dict[int, set[str]], opened: set[int]) -> Realised:
    kinds = {"Upload": frozenset((r, k, "server1") for r, names in uploads.items() for k in names),
             "Partial": frozenset((r, "client1", "server1") for r in opened)}
    return Realised(arrived=lambda kind: kinds.get(kind, frozenset()), sent=lambda kind: kinds.get(kind, frozenset()))


def test_the_guarantee_is_that_of_the_noise_of_those_whose_uploads_were_in_the_sum() -> None:
    names = tuple(f"client{k}" for k in range(1, 6))
    setting = Setting({"client": names, "server": ("server1",)}, lambda a, b: 0.0, 7, 3)
    p = tp_smc.Params(t=4, divide="t")
    got = tp_smc.analysis(p, setting, realised({1: set(names), 2: set(names[:3]), 3: set(names)}, {1, 2}))
    mu = 1 / sigma_over_sensitivity(3.0, 1e-5)
    full, thin = mu, mu * math.sqrt(4 / 2)                  # 4 honest ones of 5, and 2 of 3
    assert got["server_epsilon_round"] == pytest.approx(ldp.epsilon(1e-5, thin))
    assert got["server_epsilon"] == pytest.approx(ldp.epsilon(1e-5, math.hypot(full, thin)))
    assert got["client_epsilon_round"] == pytest.approx(ldp.epsilon(1e-5, mu * 2))       # one's noise is left
    honest = tp_smc.analysis(tp_smc.Params(divide="t"), setting, realised({1: set(names)}, {1}))
    assert honest["server_epsilon_round"] == pytest.approx(3.0)
    alone = tp_smc.analysis(p, setting, realised({1: {"client1"}}, {1}))
    assert alone["server_epsilon_round"] == pytest.approx(ldp.epsilon(1e-5, mu * 2))        # the client's own noise
    bare = tp_smc.analysis(tp_smc.Params(sigma=0.0), setting, realised({1: set(names)}, {1}))
    assert bare["server_epsilon"] == "unbounded"


def test_bad_parameters_are_refused_when_the_scenario_is_read() -> None:
    for setting, message in (("t=6", "t = 6 +expected 1 to 5"), ("bits=100", "bits = 100"), ("clip=0", "clip = 0"),
                             ("least=9", "least = 9"), ("eps=-1", "eps = -1"), ("delta=1", "delta = 1"),
                             ("over=0", "over = 0")):
        with pytest.raises(ScenarioError, match=message):
            loads(schemes.find("tp_smc").example, "t", [f"schemes.tp_smc.{setting}"])
