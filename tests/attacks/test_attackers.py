"""Attackers on updates in whole runs: what they send, what they know, and that nobody else's bits or times change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.attacks.updates import Alie, Ipm
from emul.base import rows as R
from emul.learning import Task
from emul.record.journal import MemoryJournal
from emul.scenario import loads
from emul.testing import Shuffled
from emul.workers.pool import Workers
from emul.workers.twin import Twin, one_thread

TEXT = """
emul: 1
name: attacked
seed: 5
topology: {generator: star, clients: 6}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task:
  data: {set: digits}
  partition: {dirichlet: 0.5}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 3, batch: 16}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 3}
"""
MESH = TEXT.replace("star", "star_mesh")
ALIE = "attacks: [{nodes: [client2, client5], update: alie, knows: KNOWS}]\n"


class Ran:
    """A run in the twin, or in `pool`; and every message that arrived."""

    def __init__(self, text: str, scheme: str = "fedavg", pool: Any = None):
        pool = pool or Twin()
        scenario = loads(text.replace("SCHEME", scheme))
        (name, raw), = scenario.schemes
        self.wiring = engine.wire(scenario, name, raw, pool.workers)
        journal = MemoryJournal(engine.header(self.wiring))
        self.finished = engine.execute(self.wiring, pool, journal)
        self.digest, self.rows = journal.close(), journal.rows
        self.facts = engine.facts(self.finished, self.digest)

    def models(self) -> list[str]:
        return [row[5] for row in self.rows if row[0] == R.REPORT]

    def times(self) -> list[tuple[Any, ...]]:
        return [tuple(row[:5]) for row in self.rows if row[0] == R.SEND]

    def values(self, name: str) -> list[float]:
        return [o.values[name] for o in self.finished.observations if name in o.values]


def fresh(text: str = TEXT, clients: int = 6) -> Task:
    scenario = loads(text.replace("SCHEME", "fedavg"))
    return Task(scenario.task, clients, scenario.seed)


def update(task: Task, client: int, model: np.ndarray, round_: int = 1) -> np.ndarray:
    return task.for_node(f"client{client}", client - 1, lambda: round_).local_update(model)[0]


def weighted(task: Task, updates: dict[int, np.ndarray]) -> np.ndarray:
    n = {k: task.samples(k - 1) for k in updates}
    return sum(n[k] * updates[k].astype(np.float64) for k in updates) / sum(n.values())


def first_model(text: str, scheme: str = "fedavg") -> np.ndarray:
    """The model that the server reports in round 1."""
    seen = []

    class Looking(Twin):
        def open(self, setups: Any) -> None:
            super().open(setups)
            core = self._core
            assert core is not None
            observe = core._observe

            def see(node: int, round: int, parameters: np.ndarray, evaluate: Any) -> str:
                seen.append(parameters.copy())
                return observe(node, round, parameters, evaluate)
            core._observe = see         # type: ignore[method-assign]
    Ran(text.replace("rounds: 3", "rounds: 1"), scheme, Looking())
    return seen[0]


@pytest.mark.parametrize("knows", ["colluders", "all"])
def test_the_server_averages_what_a_little_is_enough_says(knows: str) -> None:
    task = fresh()
    w = task.initial_parameters()
    honest = {k: update(task, k, w) for k in range(1, 7)}
    going_by = [honest[k] for k in ((2, 5) if knows == "colluders" else (1, 3, 4, 6))]
    rows = np.stack(going_by).astype(np.float64)
    z = 0.0         # n = 6, m = 2: s = 2, half of the honest ones
    assert Alie().z is None
    said = (rows.mean(0) - z * rows.std(0)).astype(np.float32)
    expected = w + weighted(task, {k: said if k in (2, 5) else honest[k] for k in honest})
    np.testing.assert_allclose(first_model(TEXT + ALIE.replace("KNOWS", knows)), expected, atol=1e-6)


def test_what_is_computed_again_is_what_was_sent_to_the_bit() -> None:
    ran = Ran(TEXT + ALIE.replace("KNOWS", "all"))
    assert ran.facts.attackers_knew == {"population": "cohort", "computed_again": 3 * 2 * 6, "equal": 3 * 2 * 6}
    ran = Ran(TEXT + ALIE.replace("KNOWS", "colluders"))
    assert ran.facts.attackers_knew == {"population": "cohort", "computed_again": 3 * 2 * 2, "equal": 3 * 2 * 2}
    assert Ran(TEXT + "attacks: [{nodes: [client2], update: sign_flip}]\n").facts.attackers_knew is None


def test_the_population_is_the_cohort_that_the_server_names() -> None:
    ran = Ran(TEXT + ALIE.replace("KNOWS", "all"), "{name: fedavg, fraction: 0.5}")
    attackers_drawn = sum(row[0] == R.COMPUTE and row[2] in (2, 5) for row in ran.rows if len(row) > 2)
    knew = ran.facts.attackers_knew
    assert attackers_drawn
    assert knew is not None
    assert knew["computed_again"] == knew["equal"]
    assert knew["computed_again"] % 3 == 0          # three of six each round
    every = {"computed_again": 36, "equal": 36}
    assert Ran(TEXT + ALIE.replace("KNOWS", "all"), "secagg").facts.attackers_knew == {"population": "cohort"} | every
    assert Ran(MESH + ALIE.replace("KNOWS", "all"), "dnc_private").facts.attackers_knew == {
        "population": "clients"} | every


def test_bits_do_not_depend_on_who_computes_what(pools: list[Workers]) -> None:
    text = TEXT + ("attacks: [{nodes: {fraction: 0.4}, update: min_max, knows: all, data: backdoor},"
                   " {nodes: [client1], update: {name: gaussian, std: 0.1}, rounds: 2..}]\n")
    for fuse in ("", "fuse: {clients: 3, lanes: 2}\n"):
        runs = [Ran(text + fuse, pool=pool) for pool in (Twin(), Shuffled(3, 4), pools[1])]
        assert len({run.digest for run in runs}) == 1
        assert len({str(run.models()) for run in runs}) == 1
        assert len({str(run.facts.attackers_knew) for run in runs}) == 1
        assert len({str(run.values("attack_success")) for run in runs}) == 1
        assert len(runs[0].values("attack_success")) == 3


def test_attacks_change_no_time_and_no_other_nodes_updates() -> None:
    clean, attacked = Ran(TEXT), Ran(TEXT + ALIE.replace("KNOWS", "all"))
    assert clean.models()[0] != attacked.models()[0]
    assert clean.times() == attacked.times()
    assert clean.finished.kernel.end_ns == attacked.finished.kernel.end_ns
    first = [{(n.node, n.digest) for n in run.finished.notes if not n.again and n.round == 1} for run in (attacked,)]
    task = fresh()
    from emul.workers.attacking import _digest
    with one_thread():                                  # as workers have
        honest = {(k, _digest(update(task, k, task.initial_parameters()))) for k in range(1, 7)}
    assert first[0] == honest


def test_an_attack_holds_in_its_rounds_alone() -> None:
    clean, late = Ran(TEXT), Ran(TEXT + "attacks: [{nodes: [client2], update: sign_flip, rounds: 2}]\n")
    assert clean.models()[0] == late.models()[0]
    assert clean.models()[1] != late.models()[1]
    data = Ran(TEXT + "attacks: [{nodes: [client2], data: label_flip, rounds: 3..}]\n")
    assert clean.models()[:2] == data.models()[:2]
    assert clean.models()[2] != data.models()[2]


def test_attackers_hide_behind_secure_aggregation_as_elsewhere() -> None:
    """What is masked, quantised and summed is the attacked update: the scheme knows nothing of it."""
    task = fresh()
    w = task.initial_parameters()
    honest = {k: update(task, k, w) for k in range(1, 7)}
    said = Ipm(0.5)(honest[1], np.random.default_rng(0), _known([honest[k] for k in (1, 3, 4, 6)]))
    expected = w + np.mean([said if k in (2, 5) else honest[k] for k in honest], axis=0)
    text = TEXT + "attacks: [{nodes: [client2, client5], update: ipm, knows: all}]\n"
    np.testing.assert_allclose(first_model(text, "secagg"), expected, atol=1e-4)
    flipped = TEXT + "attacks: [{nodes: [client2, client5], update: sign_flip}]\n"
    mean = w + np.mean([-honest[k] if k in (2, 5) else honest[k] for k in honest], axis=0)
    np.testing.assert_allclose(first_model(flipped, "secagg"), mean, atol=1e-4)
    coded = first_model(flipped.replace("star", "star_mesh"), "{name: fair_seccogc, s: 3, lambda: 0.1}")
    np.testing.assert_allclose(coded, mean, atol=1e-4)


def _known(rows: list[np.ndarray]) -> Any:
    from emul.roles.attackers import Known

    return Known(np.stack(rows), np.zeros(len(rows), bool), 6, 2)


def test_a_backdoor_works_on_the_mean_and_is_seen_beside_the_accuracy() -> None:
    """Model replacement: two of six attackers scale their backdoored update in the last round."""
    text = TEXT.replace("rounds: 3", "rounds: 12").replace("steps: 3", "epochs: 2")
    honest = Ran(text + "attacks: [{nodes: [client2, client5], data: {name: backdoor, target: 7}, rounds: 13..}]\n")
    replaced = Ran(text + "attacks: [{nodes: [client2, client5], data: {name: backdoor, target: 7, share: 0.8},"
                   " update: scale, rounds: 9..}]\n")
    assert honest.values("attack_success")[-1] < 0.3
    assert replaced.values("attack_success")[-1] > 0.9
    assert replaced.values("accuracy")[-1] > 0.6
    assert not Ran(TEXT).values("attack_success")


def test_personal_models_of_honest_nodes_show_the_backdoor_too() -> None:
    ran = Ran(TEXT.replace("logistic", "digits_classic").replace("rounds: 3", "rounds: 1")
              + "attacks: [{nodes: [client2], data: backdoor}]\n", "fedper")
    assert len(ran.values("attack_success")) == 5


def test_a_plug_ins_attack_that_returns_another_shape_is_named(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "short_attack.py").write_text(
        "def short(own, rng, knows):\n    return own[:3]\nATTACKS = {'update': {'short': short}}\n")
    monkeypatch.syspath_prepend(tmp_path)
    scenario = loads(TEXT.replace("SCHEME", "fedavg") + "attacks: [{nodes: [client2], update: short}]\n",
                     plugins=["short_attack"])
    wiring = engine.wire(scenario, "fedavg", {}, plugins=["short_attack"])
    with pytest.raises(Exception, match=r"attack short: expected a vector of shape \(650,\), it returned \(3,\)"):
        engine.execute(wiring, Twin(), MemoryJournal({}))


# --- where clients choose among models of clusters --------------------------------------------------------------------

CLUSTERED = TEXT.replace("data: {set: digits}", "data: {set: digits}\n  root: {samples: 40}\n"
                                                "  clusters: {rotate: [0, 90]}").replace("steps: 3", "steps: 15")
IFCA = "{name: ifca, root_steps: 20}"


class Telling:
    """An attack that says nothing false and remembers what it was told."""

    def __init__(self) -> None:
        self.knew: list[Any] = []

    def __call__(self, own: np.ndarray, rng: np.random.Generator, knows: Any) -> np.ndarray:
        self.knew.append((own.copy(), knows, None if knows.proxy is None else knows.proxy()))
        return own


@pytest.mark.parametrize("knows", ["own", "colluders", "all"])
def test_an_attacker_knows_those_that_have_chosen_its_cluster(knows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from emul import attacks

    telling = Telling()
    monkeypatch.setitem(attacks.UPDATES, "telling", lambda own, rng, k: telling(own, rng, k))
    attack = f"attacks: [{{nodes: [client1, client3, client4], update: telling, knows: {knows}}}]\n"
    clean = Ran(CLUSTERED, IFCA)
    ran = Ran(CLUSTERED + attack, IFCA)
    assert ran.models() == clean.models()                               # nothing false was said
    expected = {"own": (1, 6, 3), "colluders": (2, 6, 3), "all": (3, 3, 2)}[knows]      # client1 and client3: cluster 0
    own, known, proxy = telling.knew[-3]                                # of 1, 3, 5; client4's has 2, 4, 6
    assert (len(known.updates), known.population, known.corrupted) == expected
    np.testing.assert_array_equal(known.updates[known.row], own)
    if knows == "own":
        assert proxy is None
        return
    assert proxy.shape == own.shape
    assert np.abs(proxy - own).max() > 1e-3                             # other samples, or another order of them
    last = telling.knew[-2]
    assert last[1].seed == known.seed
    assert last[1].row == 1
    np.testing.assert_array_equal(last[2], proxy)
    assert len({k.group for _, k, _ in telling.knew[-3:]}) == 2


# --- attacks that know a good deal, in whole runs --------------------------------------------------------------------

ROOTED = TEXT.replace("data: {set: digits}", "data: {set: digits}\n  root: {samples: 40}") \
    .replace("rounds: 3", "rounds: 2")
STRONG = ["krum_attack", "trim_attack", "{name: adaptive, passes: 2, steps: 2}", "sine",
          "{name: sine, base: server}, knows: all"]


def with_attack(update: str, text: str = ROOTED) -> str:
    return text + f"attacks: [{{nodes: [client2, client5], update: {update}}}]\n"


@pytest.mark.parametrize("update", STRONG)
def test_strong_attacks_are_the_same_for_any_number_of_workers(update: str, pools: list[Workers]) -> None:
    runs = [Ran(with_attack(update), "fltrust", pool) for pool in (None, pools[1])]
    assert runs[0].digest == runs[1].digest
    assert runs[0].models() != Ran(ROOTED, "fltrust").models()
    assert runs[0].times() == Ran(ROOTED, "fltrust").times()


@pytest.mark.parametrize("update", STRONG[:4])
def test_strong_attacks_meet_every_kind_of_server(update: str) -> None:
    for scheme in ("fedavg", "median", "ifca"):
        assert Ran(with_attack(update), scheme).models() != Ran(ROOTED, scheme).models()


def test_the_krum_attack_is_what_krum_takes() -> None:
    ran = Ran(with_attack("krum_attack, knows: all"), "{name: krum, f: 1}")     # proven for f = 1 of 6
    kept = [row[4]["attackers_kept"] for row in ran.rows if row[0] == R.REPORT and "attackers_kept" in row[4]]
    assert kept == [1, 1]


def test_a_backdoor_shows_in_models_of_clusters_too() -> None:
    door = "attacks: [{nodes: [client2, client5], data: {name: backdoor, share: none, copies: true}, " \
           "update: {name: scale, factor: 6}}]\n"
    assert len(Ran(CLUSTERED + door, IFCA).values("attack_success")) == 3
