"""Training fused over whole runs: the same run but for rounding, whoever computes it; and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.record.journal import MemoryJournal
from emul.scenario import FusedTraining, loads
from emul.testing import Shuffled
from emul.workers.pool import Workers
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: fused
seed: 3
topology: {generator: star, clients: 12}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.1, per: round}}
task:
  data: {set: digits}
  partition: {dirichlet: 0.3}
  model: digits_classic
  solver: {sgd: {lr: 0.1, momentum: 0.5, epochs: 1, batch: 16}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 6}
"""


@pytest.mark.parametrize("scheme", ["fedavg", "fedproto", *(pytest.param(name, marks=pytest.mark.slow)
                                                           for name in ("{name: fedprox, mu: 0.05}", "fedrep"))])
def test_a_fused_run_is_the_same_but_for_rounding(scheme: str) -> None:
    scenario = loads(TEXT.replace("SCHEME", scheme))
    (name, raw), = scenario.schemes
    alone, fused = (engine.execute(engine.wire(s, name, raw), Twin(), MemoryJournal({}))
                    for s in (scenario, dataclasses.replace(scenario, fuse=FusedTraining(5, 2))))
    assert fused.kernel.end_ns == alone.kernel.end_ns
    assert [(o.node, o.round) for o in fused.observations] == [(o.node, o.round) for o in alone.observations]
    for one, other in zip(alone.observations, fused.observations, strict=True):
        assert other.values.keys() == one.values.keys()
        assert other.values.get("accuracy", 0.0) == pytest.approx(one.values.get("accuracy", 0.0), abs=0.02)
    assert {(t.node, t.label) for t in fused.timings} == {(t.node, t.label) for t in alone.timings}
    assert all(t.cpu_ns > 0 for t in fused.timings if t.label == "train")


@pytest.mark.slow
def test_its_digest_does_not_depend_on_who_computes_it(pools: list[Workers]) -> None:
    scenario = loads(TEXT.replace("SCHEME", "fedavg") + "fuse: {clients: 5, lanes: 2}\n")
    digests = set()
    for pool in (Twin(), Shuffled(2, 4), *pools):
        wiring = engine.wire(scenario, "fedavg", {}, pool.workers)
        journal = MemoryJournal(engine.header(wiring))
        engine.execute(wiring, pool, journal)
        digests.add(journal.close())
    assert len(digests) == 1


def test_a_replay_fuses_as_the_run_did(tmp_path: Path) -> None:
    scenario = loads(TEXT.replace("SCHEME", "fedavg") + "fuse: 4\n")
    result, = engine.run(scenario, workers=0, out=tmp_path)
    assert result.summary is not None
    assert result.directory is not None
    assert engine.replay(result.directory, workers=0) == result.summary["digest"]


@pytest.mark.parametrize(("change", "said"), [
    ({"compute: {mode: zero}": "compute: {mode: measured}"}, "fuse.*cannot be used with compute mode: measured"),
    ({"momentum: 0.5": "clip: 1.0"}, "fuse.*the solver: expected sgd or adam without clip"),
    ({"fuse: 4": "fuse: 1"}, "fuse.*expected off, a number of clients of 2 or more"),
    ({"fuse: 4": "fuse: {clients: 4, lane: 2}"}, 'fuse.lane +2 +unknown key'),
])
def test_what_cannot_be_fused_is_refused(change: dict[str, str], said: str) -> None:
    text = TEXT.replace("SCHEME", "fedavg") + "fuse: 4\n"
    for old, new in change.items():
        text = text.replace(old, new)
    with pytest.raises(ScenarioError, match=said):
        loads(text)


@pytest.mark.parametrize("off", ["off", "none", "false"])
def test_it_is_off_unless_asked_for(off: str) -> None:
    assert loads(TEXT.replace("SCHEME", "fedavg") + f"fuse: {off}\n").fuse is None
    assert loads(TEXT.replace("SCHEME", "fedavg")).fuse is None
    said = loads(TEXT.replace("SCHEME", "fedavg") + "fuse: 8\n")
    assert said.fuse == FusedTraining(8, 4)
    assert loads(said.resolved()) == said
