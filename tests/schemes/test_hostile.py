"""Every scheme survives what one of its nodes may send: `benchmarks.forger` has the forger and its behaviours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks import forger
from emul import engine
from emul.base import rows as R
from emul.base.errors import RoleFailed
from emul.registry import schemes
from emul.roles import Message, Node, Scheme
from emul.scenario import Limits
from emul.testing.world import NoParams, run_wiring
from emul.workers.twin import Twin

FAST = ("fedavg", "secagg")


def learner(name: str) -> str:
    return "client" if "client" in schemes.find(name).roles else "peer"


@pytest.mark.parametrize(("name", "role"), [*((name, learner(name)) for name in schemes.known()), ("fedrfq", "server")])
def test_a_scheme_survives_one_that_sends_all_kinds_of_wrong_messages(name: str, role: str) -> None:
    world, who = forger.forged(name, role, forger.BEHAVIOURS)
    found = forger.blamed(world, who)
    assert found.keys() <= {who}, "nobody else is blamed"
    if name != "local":
        assert "unknown message type 'Strange'" in found[who]
        assert len(found[who]) >= 3


@pytest.mark.parametrize(("case", "together"), [
    *((case, True) if case in FAST else pytest.param(case, True, marks=pytest.mark.slow) for case in forger.cases()),
    *(pytest.param(case, False, marks=pytest.mark.release) for case in forger.cases())])
def test_no_message_of_any_role_ends_a_run_when_it_is_forged(case: str, together: bool) -> None:
    assert [one for one in forger.hunt([case], together) if one.error] == []


@dataclass(frozen=True)
class Number(Message):
    value: int


async def trusting(node: Node, p: NoParams) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Number(1))
            got = await node.gather(Number, node.clients)
            if any(number.value < 0 for number in got.values()):
                raise LookupError("a bug that a peer brings about")
            node.report(answers=len(got))


async def counting(node: Node, p: NoParams) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Number, node.server)
            node.send(node.server, Number(2))


PLANTED = Scheme(name="planted", params=NoParams, roles={"server": trusting, "client": counting}, messages=(Number,),
                 example="""
emul: 1
name: planted
seed: 1
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
topology: {generator: star, clients: 2}
links: [{match: "*", latency: 1 ms}]
compute: {mode: zero}
schemes: [planted]
stop: {rounds: 2}
""")


@pytest.mark.parametrize("forks_from_s", [0.0, 1e9])
def test_the_forks_of_one_honest_run_end_as_runs_of_their_own_and_find_a_receiver_that_fails(
        monkeypatch: pytest.MonkeyPatch, forks_from_s: float) -> None:
    monkeypatch.setattr(forger, "FORKS_FROM_S", forks_from_s)
    with schemes.lend("planted", PLANTED):
        found = {case.behaviour: case for case in forger.hunt(["planted"], together=False) if case.role == "client"}
        assert found.keys() == set(forger.BEHAVIOURS)
        ended = {name for name, case in found.items() if case.error}
        assert ended == {"zeros", "negative ids"}
        for name in ended:
            assert found[name].error.endswith("LookupError: a bug that a peer brings about")
            with pytest.raises(RoleFailed, match="a bug that a peer brings about"):
                forger.forged("planted", "client", (name,), "Number")
        honest = forger.forged("planted", "client", (), "Number")[0].digest
        unlike = {name for name in found.keys() - ended
                  if forger.forged("planted", "client", (name,), "Number")[0].digest != honest}
        assert unlike <= {name for name, case in found.items() if case.forged}
        assert "NaN" not in unlike
        assert "not at all" in unlike


def huge(message: Message) -> Iterable[Message]:
    """100 MB in the first field that can hold them, then the message."""
    values = forger.fields_of(message)
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.ndim:
            values[name] = np.zeros((100_000_000 // value.dtype.itemsize // max(1, int(np.prod(value.shape[1:]))),
                                     *value.shape[1:]), value.dtype)
            break
        if isinstance(value, bytes):
            values[name] = bytes(100_000_000)
            break
    return [forger.made(message, values), message]


@pytest.mark.slow
@pytest.mark.parametrize("name", schemes.known())
def test_a_scheme_survives_100_MB(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forger.SPOILS, "100 MB", huge)
    world, who = forger.forged(name, learner(name), ("100 MB",), limits=Limits())
    assert forger.blamed(world, who).keys() <= {who}


@pytest.mark.parametrize("name", FAST)
def test_honest_divergence_is_an_outcome_of_its_rounds(name: str) -> None:
    scenario = forger.example(name)
    task: dict[str, Any] = {**scenario.task, "solver": {"sgd": {"lr": 1e38, "steps": 8, "batch": 16}}}
    scenario = dataclasses.replace(scenario, task=task)
    world = run_wiring(engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1), Twin())
    why = {row[4] for row in world.rows if row[0] == R.LEAVE and row[2] != 0 and row[4]}
    assert any(text.startswith("NotSendable: ") for text in why), why
    assert not world.summary["violations"]


@pytest.mark.parametrize(("name", "kind"), [("async_diloco", "Model"), ("fedasync", "Model"), ("fedat", "Model"),
                                            ("fedbuff", "Model"), ("flower", "Train")])
def test_a_client_trains_once_for_a_model_that_a_server_sends_in_floods(name: str, kind: str) -> None:
    if name == "flower":
        pytest.importorskip("flwr")
    honest, flooded = (forger.forged(name, "server", ("flood",), sent)[0] for sent in ("no class", kind))
    trained, again = (sum(row[0] == R.COMPUTE and row[2] != 0 for row in world.rows) for world in (honest, flooded))
    assert again <= 2 * trained
    assert {row[4] for row in flooded.rows if row[0] == R.REJECT} & {
        "a hand-out that this client has trained for", "a call that this client has answered"}


def test_an_empty_alignment_is_a_violation() -> None:
    world, _ = forger.forged("vertical", "server", ("empty",), "Aligned")
    assert {row[4] for row in world.rows if row[0] == R.REJECT} == {"positions: no sample in common"}


@pytest.mark.parametrize(("scheme", "role", "kind", "behaviour", "said"), [
    ("pefl", "server", "Blinded", "empty", "updates: expected a vector"),
    ("pefl", "cloud", "Weights", "one dimension more", "weights: expected 5 floats"),
    ("pefl", "cloud", "Weights", "largest", "weights: expected numbers with a sum of 1 at most"),
    ("pefl", "cloud", "Weights", "absurd values", "weights: expected numbers with a sum of 1 at most"),
    ("shieldfl", "server", "Blinded", "empty", "vectors: expected a vector"),
    ("shieldfl", "server", "Baseline", "zeros", "index: no such update"),
    ("shieldfl", "server", "Baseline", "ids of nobody", "index: no such update"),
    ("seccogc", "server", "Deal", "zeros", "dimension: expected 650"),
    ("seccogc", "server", "Deal", "too large for a machine", "dimension: expected 650")])
def test_a_message_between_servers_that_no_server_can_have_made_is_a_violation(
        scheme: str, role: str, kind: str, behaviour: str, said: str) -> None:
    world, who = forger.forged(scheme, role, (behaviour,), kind)
    assert said in forger.blamed(world, who)[who]
