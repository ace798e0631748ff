"""`aggregate:` of synchronous schemes: each rule against the rule itself, its state, its reference, what it reports."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.primitives import robust
from emul.primitives.robust import Given
from emul.record.journal import MemoryJournal
from emul.scenario import loads
from emul.testing import Shuffled, run_text
from emul.workers.pool import Workers
from emul.workers.twin import Twin, one_thread

TEXT = """
emul: 1
name: robust
seed: 5
topology: {generator: star, clients: 7}
task:
  data: {set: digits, held_out: 60}
  partition: {dirichlet: 1.0}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 3, batch: 16}}
compute: {mode: zero}
schemes: [{name: fedavg, aggregate: RULE}]
stop: {rounds: 3}
"""
RULES: list[Any] = ["median", {"krum": {"f": 2}}, {"multi_krum": {"f": 2}}, {"trimmed_mean": {"f": 2}},
                    "geometric_median", "foolsgold", "fltrust", {"norm_clipping": {"bound": 0.5}},
                    {"centred_clipping": {"radius": 0.3}}, {"bulyan": {"f": 1}}]
FLIP = "attacks: [{nodes: [client2, client5], update: {name: sign_flip, factor: 3}}]\n"


def text(rule: Any) -> str:
    return TEXT.replace("RULE", str(rule).replace("'", ""))


def expected_models(rule: Any, rounds: int = 3) -> list[np.ndarray]:
    """By the rule alone, with the state that it wants back."""
    scenario = loads(text(rule))
    task, chosen, state = Task(scenario.task, 7, scenario.seed), robust.choose(rule), None
    w, found = task.initial_parameters(), []
    for round_ in range(1, rounds + 1):
        def train(name: str, client: int | None, w: np.ndarray = w, round_: int = round_) -> np.ndarray:
            return task.for_node(name, client, lambda: round_).local_update(w)[0]
        updates = [train(f"client{k}", k - 1) for k in range(1, 8)]
        samples = np.array([task.samples(k) for k in range(7)])
        reference = train("server", None) if chosen.rule.reference else None
        made = chosen(updates, Given(tuple(range(1, 8)), samples, reference, state))
        state = made.state
        w = (w + made.aggregate).astype(np.float32)
        found.append(w)
    return found


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_server_does_what_the_rule_says_in_every_round(rule: Any) -> None:
    ran = run_text(text(rule))
    with one_thread():                      # as workers have: sums of several threads round otherwise
        expected = expected_models(rule)
    assert ran.models == [hashlib.sha256(w.data).hexdigest() for w in expected]
    assert [values["judged"] for values in ran.rounds] == [7, 7, 7]
    assert all(0 < values["kept"] <= 7 and "attackers_kept" not in values for values in ran.rounds)


def test_the_mean_is_the_default() -> None:
    bare = TEXT.replace(", aggregate: RULE", "")
    assert run_text(bare).digest == run_text(text("mean")).digest


def test_how_many_attackers_were_kept_is_reported() -> None:
    kept = run_text(text({"multi_krum": {"f": 2}}) + FLIP).rounds
    assert all(v["attackers_judged"] == 2 and v["kept"] == 3 for v in kept)
    assert all(v["attackers_kept"] == 0 and v["attackers_weight"] == 0 for v in kept)
    spared = run_text(text({"norm_clipping": {"bound": 100}}) + FLIP).rounds
    assert all(v["attackers_kept"] == 2 and abs(v["attackers_weight"] - 2 / 7) < 1e-9 for v in spared)
    assert all("attackers_weight" not in v for v in run_text(text("median") + FLIP).rounds)


def test_an_attacker_that_knows_all_knows_the_reference(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "reference_attack.py").write_text(
        "import numpy as np\n\n\n"
        "def reference(own, rng, knows):\n"
        "    assert knows.population == 7 and knows.corrupted == 1\n"
        "    return np.asarray(knows.offered['reference'])\n\n\n"
        "reference.NEEDS = 'all'\n"
        "ATTACKS = {'update': {'reference': reference}}\n")
    monkeypatch.syspath_prepend(tmp_path)
    scenario = loads(text("fltrust") + "attacks: [{nodes: [client2], update: reference}]\n",
                     plugins=["reference_attack"])
    for pool in (Twin(), Shuffled(3, 1)):           # the server's worker is another one than the attacker's
        wiring = engine.wire(scenario, *scenario.schemes[0], workers=pool.workers, plugins=["reference_attack"])
        finished = engine.execute(wiring, pool, MemoryJournal(engine.header(wiring)))
        assert finished.observations[-1].round == 3


def test_digests_do_not_depend_on_the_workers(pools: list[Workers]) -> None:
    written = text("fltrust") + "attacks: [{nodes: {fraction: 0.4}, update: ipm, knows: all}]\n"
    assert len({run_text(written, pool=pool).digest for pool in (Twin(), pools[1])}) == 1


@pytest.mark.parametrize(("rule", "said"), [
    ("{krumm: {f: 2}}", r'schemes\[0\].aggregate  aggregate = krumm  unknown rule "krumm"; did you mean "krum"\?'),
    ("{krum: {}}", r"line 12  schemes\[0\].aggregate  aggregate = krum  krum: f is missing"),
    ("{krum: {f: 3}}", r"aggregate = krum  needs 9 updates, 7 clients take part in a round"),
    ("{bulyan: {f: 1}}, fraction: 0.5", r"bulyan  needs 7 updates, 4 clients take part in a round"),
    ("{norm_clipping: {bound: -1}}", r"norm_clipping: bound = -1: expected a number above 0"),
    ("7", r"schemes\[0\].aggregate  7  expected text or a mapping"),
])
def test_a_rule_is_checked_where_it_is_written(rule: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(text(rule))


def test_a_rule_that_needs_root_data_says_where_it_comes_from() -> None:
    with pytest.raises(ScenarioError, match="fltrust  needs root data at the server: root of the task"):
        loads(text("fltrust").replace(", held_out: 60", ""))


def test_fewer_updates_than_a_rule_needs_fail_the_round_and_none_leave_the_model() -> None:
    lossy = 'links: [{match: "client*->server", outage: {model: bernoulli, p: P, per: round}}]\n'
    some = run_text(text({"bulyan": {"f": 1}}) + lossy.replace("P", "0.3"))
    assert not [row for row in some.rounds if "kept" in row]
    none = run_text(text("median") + lossy.replace("P", "1")).models
    assert len(set(none)) == 1
    assert len(none) == 3


def test_the_baselines_of_other_schemes_take_rules_too() -> None:
    lossy = TEXT.replace("fedavg", "fl_lossy").replace("RULE", "median")
    assert run_text(lossy).models[0] == run_text(text("median")).models[0]
