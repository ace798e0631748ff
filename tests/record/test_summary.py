"""What really happened in a run, as the analysis of a scheme gets it; and privacy that is accounted by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base import rows as R
from emul.primitives.privacy import ldp
from emul.record.columns import columns
from emul.record.summary import realised
from emul.record.tables import derive
from emul.roles import Message, Node, Realised, Scheme, Setting
from emul.scenario import loads
from emul.testing import run_world


def test_passages_are_those_that_were_sent_and_those_that_came_in_time(rows: Any, header: Any) -> None:
    run = realised(derive(columns(rows), header))
    assert (run.rounds, run.completed) == ((1, 2, 3), (1,))
    assert run.sent("Update") == run.arrived("Update") == {(1, "client1", "server")}
    assert run.sent("Model") == {*((t, "server", to) for t in (1, 2) for to in ("client1", "client2")),
                                 (3, "server", "client1")}
    assert run.arrived("Model") == {(1, "server", "client1"), (1, "server", "client2")}
    assert run.participation("Model") == {"server": 3}
    assert run.heard("Model", "client1") == {1: frozenset({"server"})}
    assert run.sent("Unknown") == run.arrived("Unknown") == frozenset()
    assert run.reported("received") == {(1, "server"): 1, (2, "server"): 0}


def test_a_late_copy_was_sent_but_has_not_come_in_time(rows: Any, header: Any) -> None:
    late = [*rows, (R.LATE, 210, 1, 0)]
    run = realised(derive(columns(late), header))
    assert run.participation("Update") == {"client1": 1}
    assert run.heard("Update", "server") == {}


@dataclass(frozen=True)
class Noised(Message):
    value: float


MESSAGES = (Noised,)


async def server(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Noised(0.0))
            await node.gather(Noised, node.clients, timeout_s=1)


async def client(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Noised, node.server)
            noise = node.rng.standard_normal()
            node.report(noise=noise)
            if node.index != round_ - 1:                # every client leaves out a round of its own
                node.send(node.server, Noised(1 + noise))


def test_an_analysis_gets_what_its_clients_have_drawn_and_who_took_part() -> None:
    seen: list[Realised] = []

    def analysis(params: Any, setting: Setting, run: Realised) -> dict[str, Any]:
        seen.append(run)
        drawn = list(run.reported("noise").values())
        return {"noise_power": (1.0, float(np.mean(np.square(drawn)))),
                "budget": (None, math.inf), "answers": 3.0}

    scheme = Scheme(params=NoParams, roles={"server": server, "client": client}, messages=MESSAGES, analysis=analysis)
    world = run_world(scheme, clients=3)
    found = world.summary["analysis"]
    run, = seen
    drawn = run.reported("noise")
    assert sorted(drawn) == [(1, f"client{k}") for k in (1, 2, 3)]
    assert found["noise_power"] == {"theory": 1.0, "measured": pytest.approx(np.mean(np.square(list(drawn.values()))))}
    assert found["budget"] == {"theory": None, "measured": "infinite"}
    assert found["answers"] == {"theory": 3.0}
    assert run.heard("Noised", "server") == {1: frozenset({"client2", "client3"})}


@dataclass(frozen=True)
class NoParams:
    pass


# --- by schemes -----------------------------------------------------------------------------------------------------

SCENARIO = """
emul: 1
name: private
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->client*", outage: {model: bernoulli, p: 0.3, per: round}}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.2, per: round}}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [SCHEME]
faults: FAULTS
stop: {rounds: 12}
"""


def summary(scheme: str, out: Path, faults: str = "[]") -> dict[str, Any]:
    scenario = loads(SCENARIO.replace("SCHEME", scheme).replace("FAULTS", faults))
    result, = engine.run(scenario, workers=0, out=out)
    assert result.summary is not None
    assert result.directory is not None
    return {**result.summary, "path": result.directory}


@pytest.mark.parametrize("scheme", ["fl_private", "dnc_private"])
def test_a_client_spends_as_much_as_it_took_part(scheme: str, tmp_path: Path) -> None:
    found = summary(f"{{name: {scheme}, lambda: 0.1, clip: 0.05}}", tmp_path)["analysis"]["ldp_update_run_epsilon"]
    mu = ldp.peer_mu(0.05, 0.1)
    assert found["theory"] == found["measured"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(12) * mu))


def test_clients_that_were_away_have_spent_less(tmp_path: Path) -> None:
    whole = summary("{name: fl_private, lambda: 0.1, clip: 0.05, uplink: 100 ms}", tmp_path)
    half = f"{whole['virtual_seconds'] / 2} s"
    faults = "[" + ", ".join(f"{{at: {half}, node: client{k}, crash: true}}" for k in range(1, 6)) + "]"
    found = summary("{name: fl_private, lambda: 0.1, clip: 0.05, uplink: 100 ms}", tmp_path, faults)
    spent = found["analysis"]["ldp_update_run_epsilon"]
    sends = engine.replay(found["path"], 0) and _sends(found["path"], "Update")
    most = max(len({t for t, s in sends if s == k}) for k in range(1, 6))
    assert most < 12
    assert spent["measured"] == pytest.approx(ldp.epsilon(1e-5, math.sqrt(most) * ldp.peer_mu(0.05, 0.1)))
    assert spent["measured"] < spent["theory"]


def _sends(path: Path, kind: str) -> set[tuple[int, int]]:
    """(round, source) of what was sent, from the table."""
    from emul import load_run

    m = load_run(path).messages
    return set(zip(m["round"][m.type == kind], m.source[m.type == kind], strict=True))


def test_who_listens_to_a_masked_update_learns_from_those_that_it_heard(tmp_path: Path) -> None:
    from emul import load_run

    found = summary("{name: fair_seccogc, s: 2, lambda: 0.1, clip: 0.05, share: 1 s, uplink: 1 s}", tmp_path)
    analysis, m = found["analysis"], load_run(found["path"]).messages
    masked = m[(m.type == "Masked") & (m.fate == "delivered") & ~m.unread]
    heard = len(masked[(masked.source_name == "client2") & (masked.target_name == "client1")])
    assert 0 < heard < 12
    peer = analysis["ldp_peer_run_epsilon"]
    assert peer["theory"] > peer["measured"] > analysis["ldp_peer_epsilon"]["theory"]
    outsider = analysis["ldp_outsider_run_epsilon"]["measured"]
    rounds = {n: ldp.epsilon(1e-5, math.sqrt(n) * ldp.peer_mu(0.05, 0.1)) for n in range(13)}
    assert any(outsider == pytest.approx(epsilon) for epsilon in rounds.values())
    relay = analysis["ldp_partial_sum_run_epsilon"]
    assert relay["theory"] is None
    assert relay["measured"] > 0


def test_groups_that_change_are_accounted_by_theory_alone(tmp_path: Path) -> None:
    analysis = summary("{name: fair_seccogc, s: 2, lambda: 0.1, clip: 0.05, rekey_at: [3], share: 1 s, uplink: 1 s, "
                       "setup: 1 s}", tmp_path)["analysis"]
    assert "measured" not in analysis["ldp_peer_run_epsilon"]
    assert "ldp_partial_sum_run_epsilon" not in analysis
