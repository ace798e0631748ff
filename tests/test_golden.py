"""Golden logs: what happens in small scenarios, line by line. A refactoring leaves all of them unchanged.

`pytest tests/test_golden.py --golden-rewrite` writes them anew; the commit that does so says why.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emul import engine
from emul.record.golden import golden_text
from emul.record.journal import MemoryJournal
from emul.scenario import loads
from emul.workers.twin import Twin

FOLDER = Path(__file__).with_name("golden")

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

SCENARIOS = {
    "fedavg_outage": (HEAD + "schemes: [fedavg]\n", [OUTAGE]),
    "fedavg_deadline": (HEAD + "schemes: [{name: fedavg, deadline: 200 ms, fraction: 0.75}]\n", [OUTAGE]),
    "fedavg_crash": (HEAD + "schemes: [fedavg]\n"
                            "faults:\n"
                            "  - {at: 150 ms, node: client1, crash: true, for: 100 ms}\n"
                            "  - {at: 200 ms, node: client2, crash: true}\n"
                            "  - {at: 30 ms, link: client4->server, down: true, for: 90 ms}\n", []),
    "secagg_outage": (HEAD + "schemes: [{name: secagg, threshold: 3}]\n", [OUTAGE, "stop.rounds=2"]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_log_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    text, sets = SCENARIOS[name]
    scenario = loads(text, name, sets)
    scheme, raw = scenario.schemes[0]
    wiring = engine.wire(scenario, scheme, raw)
    journal = MemoryJournal(engine.header(wiring))
    engine.execute(wiring, Twin(), journal)
    log = golden_text(journal.rows, journal.header)
    path = FOLDER / f"{name}.log"
    if request.config.getoption("--golden-rewrite"):
        path.write_text(log)
    assert log == path.read_text()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.log")), ids=lambda p: p.stem)
def test_a_golden_log_belongs_to_a_scenario_and_holds_no_float_of_a_model(path: Path) -> None:
    assert path.stem in SCENARIOS
    for line in path.read_text().splitlines():
        time, what = line.split(" ", 1)
        assert re.fullmatch(r"\d+\.\d{9}", time)
        assert not re.search(r"\d\.\d", re.sub(r"for \d+\.\d{9} s", "", what)), line
