"""EBS-CFL between nodes equals RFCA in the clear, whatever is lost. Numbers: acceptance checks of its specification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from message_elements import elements, layer_elements

from emul import engine
from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.protocols.trust import Clusters
from emul.registry import schemes
from emul.roles import Node, World
from emul.scenario import loads
from emul.schemes import ebs_cfl, rfca
from emul.schemes.ebs_cfl.masking.blocks import Shape
from emul.schemes.ebs_cfl.messages import Correction, Missing, NotHeld, Participants, RoundKey
from emul.testing import Ran, drive
from emul.testing.world import run_wiring
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: masked
seed: 3
topology: {generator: star_mesh, clients: 6, servers: 2}
links:
  - {match: "*", latency: 5 ms}
  - {match: "client*->server1", outage: {model: bernoulli, p: LOSS, per: round}}
task: {data: {set: digits}, root: {samples: 80}, clusters: {rotate: [0, 90]}, model: logistic,
       solver: {sgd: {lr: 0.3, steps: 3, batch: 16}}}
compute: {mode: zero}
attacks: ATTACKS
faults: FAULTS
schemes: [{name: NAME, PARAMS}]
stop: {rounds: ROUNDS}
"""
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
L = 650                                 # parameters of the model


@dataclass
class Seen:
    """What a server had after each round that it finished, and what it reported."""

    models: list[np.ndarray] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    ran: Ran | None = None

    def sizes(self, kind: str) -> list[int]:
        """Bytes of each copy sent."""
        assert self.ran is not None
        return [r[6] for r in self.ran.rows if r[0] == R.SEND and r[5] == kind]


@contextmanager
def watching() -> Iterator[Seen]:
    from emul.protocols import trust
    from emul.schemes.ebs_cfl import pad
    from emul.schemes.ebs_cfl import server_role as server

    seen, original = Seen(), trust.tell

    def tell(node: Any, s: Clusters, clients: Any, weights: Any, total: float, **values: float) -> None:
        assert s.models is not None
        seen.models.append(s.models.copy())
        seen.values.append({"W": total, "weights": weights, **values})
        original(node, s, clients, weights, total, **values)

    with pytest.MonkeyPatch.context() as patch:
        for module in (trust, server, pad):
            patch.setattr(module, "tell", tell)
        yield seen


def run(name: str, params: str = "", rounds: int = 2, loss: float = 0.0, attacks: str = "[]", faults: str = "[]",
        text: str = TEXT) -> Seen:
    for key, value in {"NAME": name, "PARAMS": params, "ROUNDS": str(rounds), "LOSS": str(loss), "ATTACKS": attacks,
                       "FAULTS": faults}.items():
        text = text.replace(key, value)
    scenario = loads(text, "t", check=True)
    (scheme, raw), = scenario.schemes
    with watching() as seen:
        seen.ran = run_wiring(engine.wire(scenario, scheme, raw), Twin())
    return seen


def apart(masked: Seen, plain: Seen) -> float:
    assert len(masked.models) == len(plain.models) > 0
    return max(float(np.abs(a - b).max()) for a, b in zip(masked.models, plain.models, strict=True))


# --- equal to plaintext -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("params", "of_plain"), [
    ("", ""), ("alpha: full, order: sum_first, mask_norm: 10", ""),
    ("weighting: per_cluster", "weighting: per_cluster"),
    ("q: 4, recovery: standin", ""), ("layers: [2]", ""), ("layers: [2, 4], q: 1, order: sum_first", ""),
    ("q: 2, layers: [4], recovery: restart, zeta: zero_sum", ""),
    ("rate: 0.5, rate_decay: 1", "rate: 0.5, rate_decay: 1"),
    ("zeta: zero_sum, skt_mask: zero_sum, verify: per_client, recovery: restart", ""),
    ("t: 7, resend: 1, reference: {refresh: 1}, step_norm: g0, step_scale: 1, rate: 0.5",
     "reference: {refresh: 1}, step_norm: g0, step_scale: 1, rate: 0.5"),
    ("profile: pad, fraction: 0.6", "fraction: 0.6"), ("fraction: 0.6, parts: chosen", "fraction: 0.6, parts: chosen"),
])
def test_20_without_losses_it_is_rfca(params: str, of_plain: str) -> None:
    masked, plain = run("ebs_cfl", params), run("rfca", of_plain)
    assert np.abs(masked.models[0] - plain.models[0]).max() < 1e-6
    assert apart(masked, plain) < 5e-6
    assert [m["W"] for m in masked.values] == pytest.approx([p["W"] for p in plain.values], abs=1e-4)
    assert not np.array_equal(plain.models[0], plain.models[1]), "the comparison would show nothing"


@pytest.mark.parametrize("params", ["", "recovery: standin", "recovery: restart", "profile: pad",
                                    "recovery: restart, q: 2", "layers: [2]", "recovery: restart, layers: [3]",
                                    "recovery: restart, zeta: zero_sum, skt_mask: zero_sum",
                                    "deadline: 100 ms, dealer_timeout: 50 ms",
                                    "recovery: restart, deadline: 100 ms, dealer_timeout: 50 ms",
                                    "recovery: standin, q: 3, deadline: 100 ms, dealer_timeout: 50 ms"])
def test_20_with_outages_it_is_rfca_of_those_that_are_there(params: str) -> None:
    masked, plain = run("ebs_cfl", params, rounds=3, loss=0.25), run("rfca", rounds=3, loss=0.25)
    assert np.abs(masked.models[0] - plain.models[0]).max() < 1e-6
    assert apart(masked, plain) < 5e-6
    assert sum(m["missing"] for m in masked.values) > 1
    assert masked.ran is not None
    assert bool(masked.ran.summary["oracle_waits"]) == ("timeout" not in params)
    assert [m["received"] for m in masked.values] == [p["received"] for p in plain.values]
    if "standin" not in params and "zero_sum" not in params and "q:" not in params:
        for m, p in zip(masked.values, plain.values, strict=True):
            assert list(m["weights"].values()) == pytest.approx(list(p["weights"].values()), abs=1e-4)


@pytest.mark.slow
def test_20_at_the_size_of_the_paper_with_losses_and_attackers_it_is_rfca(monkeypatch: pytest.MonkeyPatch) -> None:
    """MNIST, l = 199,210, n = 20, m = 2, t = 2, 40 % label flipping, a quarter of the uploads lost and mended."""
    if not (SHARED / "mnist").is_dir():
        pytest.skip(f"no MNIST in {SHARED}")
    monkeypatch.setenv("EMUL_DATA", str(SHARED))
    text = TEXT
    for old, new in (("clients: 6", "clients: 20"), ("set: digits", "set: mnist"), ("samples: 80", "samples: 100"),
                     ("model: logistic", "model: mnist_2nn"),
                     ("lr: 0.3, steps: 3, batch: 16", "lr: 0.05, steps: 5, batch: 32")):
        assert old in text
        text = text.replace(old, new)
    flipped = "[{nodes: {fraction: 0.4}, data: label_flip}]"
    masked, plain = (run(name, "reference_steps: 100", 2, 0.25, flipped, text=text) for name in ("ebs_cfl", "rfca"))
    assert masked.models[0].shape == (2, 199_210)
    assert sum(value["missing"] for value in masked.values) > 4
    assert apart(masked, plain) < 1e-6
    assert not np.array_equal(plain.models[0], plain.models[1]), "the comparison would show nothing"


def test_20_the_elements_on_the_wire_are_those_of_the_table() -> None:
    seen = run("ebs_cfl", rounds=2, loss=0.25)
    shape = Shape(6, 2, L, 2)
    table = elements(shape, 6)
    overhead = 60                       # of a header and of each array in it
    for kind, count in table.items():
        each = 4 if kind in ("Participants", "Models") else 8
        arrays = {"ServerKeySet": 3 + 6 * 6, "VerifyKeys": 6}.get(kind, 2)
        sizes = seen.sizes(kind)
        assert sizes, kind
        assert all(0 <= size - each * count < overhead * arrays for size in sizes), (kind, sizes, count)
    copies = {kind: len(seen.sizes(kind)) for kind in table}
    assert copies == {"References": 1, "ClientKeys": 6, "ServerKeySet": 1, "AlphaKeys": 6, "VerifyKeys": 1,
                      "Participants": 2, "RoundKey": 12, "Models": 12, "Upload": 12, "Checks": 2, "Correction": 2}
    asked = seen.sizes("Missing")       # message 11: the ids of those that are missing
    gone = [int(value["missing"]) for value in seen.values]
    assert len(asked) == 2
    assert min(gone) > 0
    assert all(0 <= size - 4 * count < overhead for size, count in zip(asked, gone, strict=True))
    full = run("ebs_cfl", "alpha: full", rounds=1).sizes("AlphaTensor")
    assert len(full) == 6
    assert all(0 <= size - 8 * elements(shape, 6, full=True)["AlphaTensor"] < overhead for size in full)


def test_keys_of_further_layers_travel_in_messages_of_their_own() -> None:
    seen, two = run("ebs_cfl", "layers: [2, 4]", rounds=2), run("ebs_cfl", rounds=1)
    shape = Shape(6, 2, L, 2, 1, (2, 4))
    sizes, nodes = seen.sizes("LayerKeys"), [3, 2]
    assert len(sizes) == 2, "once, not in each round"
    assert all(0 <= size - 8 * layer_elements(shape, layer) < 60 * (1 + 2 * count)
               for layer, (size, count) in enumerate(zip(sizes, nodes, strict=True), 1))
    assert not two.sizes("LayerKeys")
    first, = seen.sizes("ServerKeySet")
    assert 0 <= first - 8 * elements(shape, 6)["ServerKeySet"] < 60 * (3 + 6 * 6)
    assert first < two.sizes("ServerKeySet")[0]


def test_a_rate_that_decays_is_that_of_its_round() -> None:
    """Round 1 moves as with a constant rate; round 2 half as far, the models and the references being the same."""
    constant, decays = (run("rfca", f"rate: 0.5, {more}step_norm: g0") for more in ("", "rate_decay: 1, "))
    assert np.array_equal(constant.models[0], decays.models[0])
    both = [seen.models[1] - seen.models[0] for seen in (constant, decays)]
    assert np.allclose(both[0], 2 * both[1], atol=1e-6)


def test_lost_keys_are_asked_for_again() -> None:
    text = TEXT.replace('"client*->server1"', '"server*->server*"').replace("per: round", "per: message")
    for key, value in {"NAME": "ebs_cfl", "PARAMS": "dealer_timeout: 50 ms, deadline: 100 ms", "ROUNDS": "6",
                       "LOSS": "0.2", "ATTACKS": "[]", "FAULTS": "[]"}.items():
        text = text.replace(key, value)
    scenario = loads(text, "t", check=True)
    (scheme, raw), = scenario.schemes
    with watching() as seen:
        ran = run_wiring(engine.wire(scenario, scheme, raw), Twin())
    assert ran.summary["rounds"] + ran.summary["rounds_failed"] == 6
    assert 0 < ran.summary["rounds"] == len(seen.models) < 6
    wanted = [r for r in ran.rows if r[0] == R.SEND and r[5] == "Wanted"]
    assert len(wanted) > 2, "nothing had to be asked for again"


@pytest.mark.parametrize(("name", "params"), [
    ("rfca", ""), ("ebs_cfl", ""), ("rfca", "step_norm: root, "), ("ebs_cfl", "step_norm: root, "),
    ("ebs_cfl", "step_norm: 0.5, "), ("ebs_cfl", "profile: pad, step_norm: 0.5, ")])
def test_a_cluster_that_no_part_prefers_stays_and_is_told(name: str, params: str) -> None:
    seen = run(name, params + "parts: chosen, start_steps: 0")
    assert seen.ran is not None
    told = [row[4]["unreferenced"] for row in seen.ran.rows if row[0] == R.REPORT and "unreferenced" in row[4]]
    assert told == [1, 1]
    first, second = seen.models
    np.testing.assert_array_equal(first[0], second[0])
    assert not np.array_equal(first[1], second[1])


# --- 13, 14, 16: who deviates -----------------------------------------------------------------------------------------

def test_14_without_trust_the_models_stay_bit_for_bit() -> None:
    seen = run("ebs_cfl", rounds=2, attacks="[{nodes: {fraction: 1.0}, update: sign_flip}]")
    plain = run("rfca", rounds=2, attacks="[{nodes: {fraction: 1.0}, update: sign_flip}]")
    assert seen.values[0]["moved"] == 0
    assert abs(seen.values[0]["W"]) < 1e-6
    np.testing.assert_array_equal(seen.models[0], seen.models[1])
    np.testing.assert_array_equal(plain.models[0], seen.models[0])


@pytest.mark.parametrize(("name", "params"), [("ebs_cfl", ""), ("ebs_cfl", "profile: pad, "),
                                              ("ebs_cfl", "weighting: per_cluster, "), ("rfca", "")])
def test_14_little_trust_moves_nothing_if_more_is_asked_for(name: str, params: str) -> None:
    usual = run(name, params.removesuffix(", "), rounds=2)
    assert not np.array_equal(usual.models[0], usual.models[1])
    seen = run(name, f"{params}least_weight: {1 + usual.values[0]['W']}", rounds=2)
    assert seen.values[0]["W"] == pytest.approx(usual.values[0]["W"])
    np.testing.assert_array_equal(seen.models[0], seen.models[1])
    assert all(value.get("moved", 0) == 0 for value in seen.values)


def test_13_a_wide_tolerance_lets_a_longer_payload_pass() -> None:
    seen = run("ebs_cfl", "tau_n: 1000", rounds=1, faults="[{node: client2, behave: scaled}]")
    assert seen.values[0]["rejected"] == 0


@pytest.mark.parametrize(("behaviour", "params", "rejected"), [
    ("scaled", "", 1), ("flat_masks", "", 1), ("flat_masks", "verify: per_client", 0), ("mixed", "", 0),
    ("scaled", "resend: 2", 1), ("scaled", "recovery: restart", 1)])
def test_13_what_is_forged_is_rejected_and_mended(behaviour: str, params: str, rejected: int) -> None:
    seen = run("ebs_cfl", params, rounds=1, faults=f"[{{node: client2, behave: {behaviour}}}]")
    value, = seen.values
    assert value["rejected"] == rejected == value["missing"]
    assert len(seen.sizes("Resend")) == (2 if "resend" in params else 0)
    honest = run("ebs_cfl", params, rounds=1)
    change = float(np.abs(seen.models[0] - honest.models[0]).max())
    assert 1e-4 < change < 1.0


def test_16_a_mixed_payload_pushes_another_cluster_back_unless_weights_are_by_cluster() -> None:
    fault = "[{node: client1, behave: mixed}]"
    joint = run("ebs_cfl", rounds=1, faults=fault)
    assert 0 < joint.values[0]["weights"][2] < np.cos(np.pi / 8)
    assert joint.values[0]["rejected"] == 0


@pytest.mark.parametrize("attack", [
    "{nodes: {fraction: 0.34}, update: sign_flip}", "{nodes: {fraction: 0.34}, update: alie, knows: all}",
    "{nodes: {fraction: 0.34}, update: {name: scale, factor: 30}}", "{nodes: {fraction: 0.34}, data: label_flip}"])
def test_attackers_on_updates_work_below_the_masks(attack: str) -> None:
    masked, plain = run("ebs_cfl", attacks=f"[{attack}]"), run("rfca", attacks=f"[{attack}]")
    assert apart(masked, plain) < 5e-6
    if "scale" in attack:               # only the direction of an update counts
        assert apart(plain, run("rfca")) < 1e-6
    else:
        assert apart(plain, run("rfca")) > 1e-4


# --- who asks the dealer, who forgets, who has nothing to say --------------------------------------------------------

@pytest.mark.parametrize(("missing", "answers"), [([[0], [0, 1]], [Correction, NotHeld]),
                                                  ([[0, 1, 2], [0]], [NotHeld, Correction])])
def test_the_dealer_mends_a_round_once_and_never_below_half(missing: list[list[int]], answers: list[type]) -> None:
    class Task:
        dimension = 20

    role = drive(ebs_cfl.kdc, ebs_cfl.Params(), roles={"server": [0], "kdc": [1], "client": [2, 3, 4, 5]}, task=Task())
    role.deliver({0: Participants(np.arange(4, dtype=np.int32))})
    role.advance_to(0.0)                # nobody says that it has its keys
    assert sorted(role.sent(RoundKey)) == [2, 3, 4, 5]
    for ids, answer in zip(missing, answers, strict=True):
        assert not role.sent(answer)
        role.deliver({0: Missing(np.array(ids, np.int32))})
        assert list(role.sent(answer)) == [0]


@pytest.mark.parametrize(("params", "least"), [("", 5), ("profile: pad", 6)])
def test_a_client_that_has_lost_its_keys_gets_them_again(params: str, least: int) -> None:
    seen = run("ebs_cfl", params, rounds=4, faults="[{at: 51 ms, node: client3, crash: true, wipe: true, for: 1 ms}]")
    assert seen.values[-1]["received"] == 6
    assert min(value["received"] for value in seen.values) == least


def test_an_update_of_zeros_is_rejected_for_its_norm_and_mended() -> None:
    seen = run("ebs_cfl", attacks="[{nodes: {fraction: 0.34}, update: {name: scale, factor: 0.0}}]")
    assert [value["missing"] for value in seen.values] == [2, 2]
    assert [value["rejected"] for value in seen.values] == [2, 2]


# --- one cluster, parameters ------------------------------------------------------------------------------------------

def test_17_with_one_cluster_and_fresh_references_it_is_fltrust() -> None:
    text = TEXT.replace(", clusters: {rotate: [0, 90]}", "")
    found: dict[str, list[Any]] = {}
    original = Node.report
    for name, params in (("rfca", "clusters: 1, reference: {refresh: 1}, step_norm: g0, start_steps: 0"),
                         ("fltrust", "")):
        models = found[name] = []

        def report(node: Node, parameters: Any = None, _models: list[Any] = models, **values: Any) -> None:
            if parameters is not None:
                _models.append(np.array(parameters))
            original(node, parameters, **values)

        this = text
        for key, value in {"NAME": name, "PARAMS": params, "ROUNDS": "2", "LOSS": "0", "ATTACKS": "[]",
                           "FAULTS": "[]"}.items():
            this = this.replace(key, value)
        scenario = loads(this, "t", check=True)
        (scheme, raw), = scenario.schemes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Node, "report", report)
            run_wiring(engine.wire(scenario, scheme, raw), Twin())
    assert len(found["rfca"]) == len(found["fltrust"]) == 2
    assert max(np.abs(a - b).max() for a, b in zip(found["rfca"], found["fltrust"], strict=True)) < 1e-6


@pytest.mark.parametrize(("params", "said"), [
    ({"clusters": 3}, "clusters = 3: the task's data have 2"),
    ({"t": 1, "clusters": 1}, "t = 1: expected t m of 2 or more: masks of one number cannot sum to zero"),
    ({"layers": (2, 3)}, "layers = [2, 3]: expected clients below a node, each a multiple of the one before it (the "
     "first of q = 1) and more than it, and less than the 6 clients"),
    ({"layers": (3,), "skt_mask": "zero_sum", "recovery": "restart"},
     "layers = [3]: a restart renews no keys above the groups, where skt_mask masks; expected recovery: standin"),
    ({"rate_decay": -1.0}, "rate_decay = -1.0: expected a number, 0 or above"),
    ({"q": 2}, "q = 2: a correction needs masks of single clients; expected recovery: standin or restart"),
    ({"zeta": "zero_sum", "recovery": "standin", "fraction": 0.5},
     "zeta = zero_sum: needs all clients in each round, expected fraction: 1"),
    ({"fraction": 0.1}, "fraction = 0.1: draws 1 of 6 clients, masks need at least 2"),
    ({"min_clients": 9}, "min_clients = 9: expected 2..6, the clients of a round"),
    ({"resend": 1, "recovery": "restart"}, "resend = 1: with recovery: restart a round begins anew instead"),
    ({"reference": {"refresh": 0}}, "reference = {'refresh': 0}: expected init or {refresh: k}, k of 1 or more rounds"),
    ({"profile": "pad", "weighting": "per_cluster"},
     "weighting = per_cluster: the profile pad has joint weights only"),
    ({"least_weight": 0.0}, "least_weight = 0.0: expected 1e-6 or more: less is rounding"),
    ({"tau_v": 0.0}, "tau_v = 0.0: expected a number above 0, or none"),
    ({"step_norm": -1.0}, "step_norm = -1.0: expected a number above 0, or none"),
])
def test_parameters_that_cannot_be_are_refused(params: dict[str, Any], said: str) -> None:
    world = World("ebs_cfl", 1, [f"n{i}" for i in range(8)], {"server": [0], "kdc": [1], "client": list(range(2, 8))},
                  [1.0] * 8, task={"root": {"samples": 80}, "clusters": {"rotate": [0, 90]}})
    assert said in ebs_cfl.check(ebs_cfl.Params(**params), world)


def test_root_data_and_a_dealer_are_needed() -> None:
    world = World("rfca", 1, ["server", "client1", "client2"], {"server": [0], "client": [1, 2]}, [1.0] * 3,
                  task={"data": {"set": "digits"}})
    assert rfca.check(rfca.Params(), world) == [
        "clusters = 2: needs root data at the server, a part for each: root of the task has 0 samples"]
    text = schemes.find("ebs_cfl").example.replace("servers: 2", "servers: 1")
    with pytest.raises(ScenarioError, match="kdc"):
        loads(text, "t", check=True)


def test_users_are_told_what_it_does_not_hide() -> None:
    world = World("ebs_cfl", 1, ["server"], {"server": [0]}, [1.0])
    said, = ebs_cfl.warn(ebs_cfl.Params(), world)
    assert "does not keep updates or cluster membership secret from the server" in said
    assert ebs_cfl.warn(ebs_cfl.Params(profile="pad"), world) == []


def test_users_are_told_that_parts_may_choose_one_model() -> None:
    world = World("rfca", 1, ["server"], {"server": [0]}, [1.0])
    said, = rfca.warn(rfca.Params(parts="chosen"), world)
    assert said.startswith("parts = chosen: a cluster whose model no part of the root data prefers has no reference")
    assert rfca.warn(rfca.Params(), world) == []
    assert ebs_cfl.warn(ebs_cfl.Params(parts="chosen", profile="pad"), world) == [said]
