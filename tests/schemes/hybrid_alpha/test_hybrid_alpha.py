"""HybridAlpha: decrypted sums equal plain ones, the filter, losses, bytes and declared costs, privacy."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from emul.base.errors import NotDecodable, ScenarioError
from emul.primitives.dp import sigma_over_sensitivity
from emul.primitives.he import paillier, threshold
from emul.primitives.privacy import ldp
from emul.registry import schemes
from emul.roles import Realised, Setting
from emul.scenario import loads
from emul.schemes import hybrid_alpha
from emul.schemes.hybrid_alpha import Begin, Key, Refusal, RoundKey, Weights, mife
from emul.schemes.hybrid_alpha.mife import PartyKey, SafePrimeGroup
from emul.testing import drive, run_text
from emul.workers.pool import Workers

CLEAN = "links[1].outage.p=0"
SMALL = SafePrimeGroup(270879301064224537994111741402185690679)
run = partial(run_text, hybrid_alpha.EXAMPLE)


def test_what_is_declared_is_what_encryption_for_real_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a group of 128 bits, so that 650 coordinates of 5 clients are encrypted in seconds; a client is lost."""
    monkeypatch.setattr(hybrid_alpha, "GROUP", SMALL)
    lost = "faults=[{node: client2, stage: Upload, drop: true, rounds: 1..1}]"
    sets = ["stop.rounds=1", CLEAN, lost, "schemes.hybrid_alpha.least=2"]
    declared, real = run(*sets), run(*sets, "schemes.hybrid_alpha.real_up_to=1000")
    assert declared.summary["digest_model"] == real.summary["digest_model"]
    assert [v["received"] for v in real.rounds] == [4]
    assert real.summary["bytes_declared"] == {} != declared.summary["bytes_declared"]
    one, other = declared.payloads, real.payloads
    assert one.keys() == other.keys()
    for kind, sizes in one.items():
        assert sizes == pytest.approx(other[kind], rel=0.01, abs=8), kind


def sealed_sum(d: int) -> tuple[np.ndarray, np.ndarray]:
    """What five clients encrypt in group 14, added up; and what the server decrypts of it."""
    rng = np.random.default_rng(3)
    keys = {k: PartyKey(hybrid_alpha.GROUP, rng.bytes(32)) for k in range(1, 6)}
    rows = {k: hybrid_alpha.fixed(rng.standard_normal(d), hybrid_alpha.FRACTION, hybrid_alpha.VALUE) for k in keys}
    uploads = {k: hybrid_alpha.seal(keys[k].seed, rows[k], rng, True) for k in keys}
    key = hybrid_alpha.key_for(keys, np.ones(5, np.int64), d, True)
    hybrid_alpha.of_sum(5, d, True)(key)
    for one in uploads.values():
        hybrid_alpha.of_length(d, True)(hybrid_alpha.Upload(one))
    with pytest.raises(NotDecodable, match="no inner product"):
        hybrid_alpha.opened({**uploads, 1: uploads[2]}, key)
    return np.sum(list(rows.values()), axis=0), hybrid_alpha.opened(uploads, key)


@pytest.mark.parametrize("d", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_decrypted_sums_of_five_clients_are_the_plain_fixed_point_sums(d: int) -> None:
    """Check 15."""
    plain, found = sealed_sum(d)
    assert np.array_equal(plain, found)


def test_bytes_of_a_round() -> None:
    """768 d bytes up a client; 32 bytes of key each; 256 (d + 2 |S|) bytes of functional key."""
    ran = run("stop.rounds=1", CLEAN)
    assert ran.payloads["Upload"] == pytest.approx([768 * 650] * 5, abs=120)
    assert ran.payloads["Model"] == pytest.approx([4 * 650] * 5, abs=60)
    assert ran.payloads["RoundKey"] == pytest.approx([32] * 5, abs=30)
    assert ran.payloads["Key"] == pytest.approx([256 * (650 + 10)], abs=150)
    assert ran.payloads["Weights"] == pytest.approx([8 * 5], abs=60)


def test_declared_seconds_are_those_of_the_operations() -> None:
    summary = run("stop.rounds=1", CLEAN).summary
    assert summary["seconds_declared"]["client"]["encrypt"] == pytest.approx(5 * 650 * 4 * 2.6e-3)
    assert summary["seconds_declared"]["server"]["decrypt"] > 650 * 11 * 2.6e-3


@pytest.mark.parametrize("clients", [5, 100])
def test_at_the_size_of_resnet20_a_round_takes_much_longer_than_one_of_threshold_paillier(clients: int) -> None:
    """Section 13's ordering: TP-SMC << HybridAlpha, each with half of the clients honest, on measured costs."""
    d, tbar = 270_000, (clients + 1) // 2
    C, each = -(-d // 42), paillier.seconds(2048)
    tp_smc = C * (each.encrypt + threshold.partial_seconds(2048, clients) + clients * each.add
                  + threshold.combine_seconds(2048, range(1, tbar + 1), clients))
    ours = mife.encrypt_seconds(d) + mife.decrypt_seconds(d, clients, clients << hybrid_alpha.VALUE)
    assert 100 < tp_smc < ours / 10


# --- the filter -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("y", "reason"), [
    ([0, 1, 0, 0], "1 weights, expected at least 2"), ([0, 0, 0, 0], "0 weights"),
    ([1000, 1, 1, 1], "weights that are neither 0 nor 1"), ([1, 1, -1, 0], "weights that are neither 0 nor 1"),
    ([1, 1, 0, 0], ""), ([1, 1, 1, 1], "")])
def test_weights_that_isolate_a_client_are_refused(y: list[int], reason: str) -> None:
    """Check 15."""
    class Task:
        dimension = 1000

    role = drive(hybrid_alpha.authority, hybrid_alpha.Params(), task=Task(), id=5, role="authority",
                 roles={"server": [0], "client": [1, 2, 3, 4], "authority": [5]})
    role.deliver({0: Begin()})
    assert sorted(role.sent(RoundKey)) == [1, 2, 3, 4]
    assert len({m.seed for m in role.sent(RoundKey).values()}) == 4
    role.deliver({0: Weights(np.array(y, np.int64))})
    if reason:
        assert role.sent(Refusal)[0].reason.startswith(reason)
        assert not role.sent(Key)
    else:
        assert len(role.sent(Key)[0].parts) == 2 * sum(y)
    role.deliver({0: Weights(np.ones(4, np.int64))})        # a second y in a round has no answer
    assert len([kind for kind in (Key, Refusal) if role.sent(kind)]) == 1


def test_a_round_with_too_few_uploads_is_refused_and_the_next_goes_on() -> None:
    lost = ", ".join(f"{{node: client{k}, stage: Upload, drop: true, rounds: 1..1}}" for k in (1, 2, 3))
    first, second = run("stop.rounds=2", CLEAN, f"faults=[{lost}]").rounds
    assert "Refused: 2 weights, expected at least 3" in first["why"]        # t = 4 of 5
    assert (second["why"], second["received"]) == ("", 5)


def test_a_silent_authority_fails_the_round() -> None:
    first, second = run("stop.rounds=2", CLEAN, "faults=[{node: server2, stage: Key, drop: true, rounds: 1..1}]").rounds
    assert "the authority has not answered" in first["why"]
    assert second["why"] == ""


def test_a_run_repeats_itself_for_any_number_of_workers(pools: list[Workers]) -> None:
    assert run("stop.rounds=1").digest == run("stop.rounds=1", pool=pools[1]).digest


# --- privacy --------------------------------------------------------------------------------------------------------

def test_the_guarantee_is_that_of_the_noise_of_those_whose_uploads_were_in_the_sum() -> None:
    names = tuple(f"client{k}" for k in range(1, 6))
    came = frozenset((r, k, "server1") for r, some in ((1, names), (2, names[:3]), (3, names)) for k in some)
    keys = frozenset((r, "server2", "server1") for r in (1, 2))
    kinds = {"Upload": came, "Key": keys}
    run_ = Realised(arrived=lambda kind: kinds.get(kind, frozenset()), sent=lambda kind: kinds.get(kind, frozenset()))
    setting = Setting({"client": names, "server": ("server1",)}, lambda a, b: 0.0, 7, 3)
    found = hybrid_alpha.analysis(hybrid_alpha.Params(t=4), setting, run_)
    mu = 1 / sigma_over_sensitivity(3.0, 1e-5)
    assert found["server_epsilon_round"] == pytest.approx(ldp.epsilon(1e-5, mu * math.sqrt(2)))
    assert found["server_epsilon"] == pytest.approx(ldp.epsilon(1e-5, mu * math.sqrt(3)))
    assert found["client_epsilon_round"] == pytest.approx(ldp.epsilon(1e-5, mu * 2))


def test_bad_parameters_are_refused_when_the_scenario_is_read() -> None:
    for setting, message in (("t=6", "t = 6 +expected 1 to 5"), ("least=9", "least = 9"), ("clip=0", "clip = 0"),
                             ("clip=50", "clip = 50.0 +with its noise values would exceed 64"),
                             ("real_up_to=-1", "real_up_to = -1")):
        with pytest.raises(ScenarioError, match=message):
            loads(schemes.find("hybrid_alpha").example, "t", [f"schemes.hybrid_alpha.{setting}"])
