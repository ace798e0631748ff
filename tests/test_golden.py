"""What happens in small scenarios, line by line, and what comes out to the bit. A refactoring leaves all unchanged.

The scenarios are the EXAMPLE of every scheme and some that show faults. A golden log holds no float of a model, so
it is the same on every machine. `golden/digests.json` has the digests of journal and models, by processor and torch.
`pytest tests/test_golden.py --golden-rewrite` writes both anew; the commit that does so says why.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from emul import engine
from emul.base.machine import processor
from emul.record.columns import columns
from emul.record.golden import golden_text
from emul.record.journal import MemoryJournal
from emul.record.summary import digest_model
from emul.registry import schemes
from emul.scenario import loads
from emul.workers.twin import Twin

FOLDER = Path(__file__).with_name("golden")
DIGESTS = FOLDER / "digests.json"

HEAD = """
emul: 1
name: golden
seed: 7
topology: {generator: star, clients: 4}
links:
  - {match: "*", latency: 20 ms, bandwidth: 1 Mbit/s}
  - {match: "client3<->server", latency: 65 ms}
task:
  data: {set: digits}
  partition: iid
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}
compute: {mode: zero}
stop: {rounds: 3}
"""
OUTAGE = 'links[0].outage={model: bernoulli, p: 0.3, per: round}'

SCENARIOS: dict[str, tuple[str, list[str]]] = {
    "fedavg_outage": (HEAD + "schemes: [fedavg]\n", [OUTAGE]),
    "fedavg_deadline": (HEAD + "schemes: [{name: fedavg, deadline: 200 ms, fraction: 0.75}]\n", [OUTAGE]),
    "fedavg_crash": (HEAD + "schemes: [fedavg]\n"
                            "faults:\n"
                            "  - {at: 150 ms, node: client1, crash: true, for: 100 ms}\n"
                            "  - {at: 200 ms, node: client2, crash: true}\n"
                            "  - {at: 30 ms, link: client4->server, down: true, for: 90 ms}\n", []),
    "secagg_outage": (HEAD + "schemes: [{name: secagg, threshold: 3}]\n", [OUTAGE, "stop.rounds=2"]),
    **{name: (schemes.find(name).example, []) for name in schemes.known()},
}
FUSED = [name for name in SCENARIOS if name in schemes.known()]


@cache
def ran(name: str, *sets: str) -> MemoryJournal:
    """The journal of a scenario, run in this process."""
    text, always = SCENARIOS[name]
    scenario = loads(text, name, [*always, *sets])
    scheme, raw = scenario.schemes[0]
    wiring = engine.wire(scenario, scheme, raw)
    journal = MemoryJournal(engine.header(wiring))
    engine.execute(wiring, Twin(), journal)
    return journal


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_log_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    journal = ran(name)
    log = golden_text(journal.rows, journal.header)
    path = FOLDER / f"{name}.log"
    if request.config.getoption("--golden-rewrite"):
        path.write_text(log)
    assert log == path.read_text()


def digests(name: str) -> dict[str, str]:
    """Of journal and models: each client trained alone, and two clients trained as one."""
    found: dict[str, Any] = {"alone": ran(name)}
    if name in FUSED:
        found["fused"] = ran(name, "fuse={clients: 2, lanes: 3}")
    return {how: f"{journal.close()} {digest_model(columns(journal.rows))}" for how, journal in found.items()}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_has_the_digest_that_it_had(name: str, request: pytest.FixtureRequest) -> None:
    known = json.loads(DIGESTS.read_text())
    if request.config.getoption("--golden-rewrite"):
        known.setdefault(processor(), {})[name] = digests(name)
        DIGESTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    if name not in known.get(processor(), {}):
        pytest.skip(f"no digests of {processor()} are known: --golden-rewrite notes them")
    assert digests(name) == known[processor()][name]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.log")), ids=lambda p: p.stem)
def test_a_golden_log_belongs_to_a_scenario_and_holds_no_float_of_a_model(path: Path) -> None:
    assert path.stem in SCENARIOS
    for line in path.read_text().splitlines():
        time, what = line.split(" ", 1)
        assert re.fullmatch(r"\d+\.\d{9}", time)
        assert not re.search(r"\d\.\d", re.sub(r"for \d+\.\d{9} s", "", what)), line
