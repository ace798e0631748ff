"""The one place that wires scenario, network, kernel, workers and record into a run.

    with Workers(2) as pool:
        results = run(load("scenarios/quickstart.yaml"), workers=pool, out=Path("runs"))
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from emul import schemes
from emul.base.errors import NetworkError, Problem, ReplayMismatch, RunError, ScenarioError, WorkerDied
from emul.base.streams import generator
from emul.kernel import Crash, Journal, Kernel, LinkChange, Plan, Stop
from emul.learning.data import DIRECTORY, NEED_FILES
from emul.network import Network, build
from emul.record import rundir
from emul.record.columns import columns
from emul.record.journal import Journal as FileJournal
from emul.record.journal import MemoryJournal, RecordError, read
from emul.record.progress import Progress
from emul.record.summary import Facts, digest_model, versions, write_results
from emul.record.tables import recorded_costs
from emul.roles.events import Observation
from emul.scenario import Behaviour, LinkDown, Scenario, build_params, load
from emul.scenario import Crash as NodeCrash
from emul.workers.collections import rare_collections
from emul.workers.core import Setup, Timing
from emul.workers.pool import Workers
from emul.workers.twin import Twin


@dataclass(frozen=True)
class Wiring:
    """One scheme of a scenario, ready to run: what every layer needs to know of it."""

    scheme: str
    module: ModuleType
    params: Any
    network: Network
    plan: Plan
    setups: list[Setup]
    warnings: list[str]

    @property
    def vertex_names(self) -> list[str]:
        return list(self.network.names)


@dataclass(frozen=True)
class Outcome:
    """What a run left behind, before it is written anywhere."""

    kernel: Kernel
    observations: list[Observation]
    timings: list[Timing]
    real_seconds: float
    wiring: Wiring = field(repr=False)


def wire(scenario: Scenario, scheme: str, raw: dict[str, Any], workers: int = 1, plugins: Sequence[str] = (),
         costs: Costs | None = None, delays: Sequence[float] = ()) -> Wiring:
    """Build everything for one scheme. Raises ScenarioError for what is wrong with the scenario's files."""
    module = schemes.find(scheme, plugins)
    params = build_params(module.Params, raw, f"parameters of scheme {scheme}")
    network = build(scenario.topology, scenario.link_rules, scenario.seed)
    placed = [(role, vertex) for role, vertices in network.roles.items() for vertex in vertices]
    names = [network.names[vertex] for _, vertex in placed]
    roles: dict[str, list[int]] = {}
    for node, (role, _) in enumerate(placed):
        roles.setdefault(role, []).append(node)
    unknown = [role for role in roles if role not in module.ROLES]
    if unknown:
        raise ScenarioError(str(scenario.path or scenario.name), [Problem(
            "topology", ", ".join(unknown), f'scheme "{scheme}" has the roles {", ".join(module.ROLES)}')])
    faults = _faults(scenario, network, names)
    behaviours = {names.index(f.node): f.behave for f in scenario.faults if isinstance(f, Behaviour)}
    worker_of = [node % workers for node in range(len(names))]
    costs = costs or load_costs(scenario)
    plan = Plan(
        names=names, roles=[role for role, _ in placed], vertices=[vertex for _, vertex in placed], workers=worker_of,
        deciders=[n for n in schemes.deciders(module, roles) if n not in behaviours],
        stop=Stop(scenario.stop.rounds, scenario.stop.accuracy, scenario.stop.virtual_time_ns),
        faults=faults, evaluate_every=scenario.evaluation.every)
    setups = [Setup(
        worker=w, scheme=scheme, plugins=list(plugins), params=dataclasses.asdict(params), seed=scenario.seed,
        names=names, roles=roles, speeds=_speeds(scenario, names), workers=worker_of, behaviours=behaviours,
        poisons=poisoned(scenario, roles, names),
        task=located(scenario.task), cost_mode=costs.mode, profile=costs.profile, recorded=costs.recorded,
        evaluate_every=scenario.evaluation.every, evaluate_scope=scenario.evaluation.scope, delays=list(delays))
        for w in range(workers)]
    warnings = [*scenario.warnings, *(f'links: the rule "{rule.match}" matches no link'
                                      for rule in network.unmatched_rules())]
    return Wiring(scheme, module, params, network, plan, setups, sorted(set(warnings)))


def execute(wiring: Wiring, pool: Any, journal: Journal, progress: Any = None) -> Outcome:
    """Run it. Raises RunError; the pool can take the next run afterwards, unless it lost a worker."""
    begin = time.perf_counter()
    try:
        pool.open(wiring.setups)
        kernel = Kernel(wiring.plan, wiring.network, pool, journal, progress)
        with rare_collections():
            kernel.run()
        observations, timings = pool.finish()
    except Exception:                   # not at an interrupt: closing the pool must not wait for a computation
        pool.abort()
        raise
    return Outcome(kernel, observations, timings, time.perf_counter() - begin, wiring)


@dataclass(frozen=True)
class Result:
    """One scheme's run: its directory and summary, or why it failed."""

    scheme: str
    directory: Path | None = None
    summary: dict[str, Any] | None = None
    violations: tuple[str, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    worker_died: bool = False


def run(scenario: Scenario, *, scheme: str | None = None, workers: int | Workers | Twin | None = None,
        out: Path = Path("runs"), plugins: Sequence[str] = (), quiet: bool = True) -> list[Result]:
    """Run the schemes of a scenario, or the one named, a directory each; one that fails does not stop the others.

    workers: a number of processes (0: none; None: one a core) or an open pool. Raises ScenarioError before anything
    runs if something is wrong with the files.
    """
    chosen = [(name, raw) for name, raw in scenario.schemes if scheme in (None, name)]
    if not chosen:
        names = ", ".join(name for name, _ in scenario.schemes)
        raise ScenarioError(str(scenario.path or scenario.name),
                            [Problem("schemes", f'"{scheme}"', f"expected one of its schemes: {names}")])
    count = _cores() if workers is None else workers
    size = count if isinstance(count, int) else count.workers
    costs = load_costs(scenario)
    wirings = [wire(scenario, name, raw, max(1, size), plugins, costs) for name, raw in chosen]
    results: list[Result] = []
    while len(results) < len(wirings):          # once, unless a pool of ours loses a worker: then a new one goes on
        with pool_of(count, scenario.workers.timeout_s) as pool:
            for wiring in wirings[len(results):]:
                results.append(_run_one(scenario, wiring, pool, out, quiet))
                if isinstance(count, int) and results[-1].worker_died:
                    break
    return results


def _run_one(scenario: Scenario, wiring: Wiring, pool: Any, out: Path, quiet: bool) -> Result:
    directory = rundir.create(out, scenario.name, wiring.scheme)
    only = dataclasses.replace(scenario, schemes=[s for s in scenario.schemes if s[0] == wiring.scheme])
    directory.write(rundir.SCENARIO, only.resolved())
    progress = Progress(wiring.scheme, scenario.stop.rounds, scenario.stop.virtual_time_ns, quiet)
    journal = FileJournal(directory.journal, header(wiring))
    try:
        outcome = execute(wiring, pool, journal, lambda k: progress.update(k.entered, k.now, pool.accuracy))
    except RunError as e:
        journal.close(complete=False)
        directory.write("error.txt", f"{type(e).__name__}: {e}\n")
        return Result(wiring.scheme, directory.path, error=f"{type(e).__name__}: {e}",
                      warnings=tuple(wiring.warnings), worker_died=isinstance(e, WorkerDied))
    except BaseException:
        journal.close(complete=False)
        raise
    finally:
        progress.done()
    summary, report = write_results(directory, facts(outcome, journal.close()), observed(outcome), timed(outcome),
                                    latencies(wiring.network))
    return Result(wiring.scheme, directory.path, summary,
                  tuple(f"{v.name}: {v.detail}" for v in report.violations), warnings=tuple(wiring.warnings))


def header(wiring: Wiring) -> dict[str, Any]:
    """What stands at the head of a journal."""
    plan = wiring.plan
    return {"scheme": wiring.scheme, "seed": wiring.setups[0].seed, "names": list(plan.names),
            "roles": list(plan.roles), "vertices": list(plan.vertices), "deciders": list(plan.deciders),
            "network": list(wiring.network.names)}


def facts(outcome: Outcome, digest_journal: str) -> Facts:
    kernel = outcome.kernel
    return Facts(scheme=outcome.wiring.scheme, virtual_ns=kernel.end_ns, real_seconds=outcome.real_seconds,
                 digest_journal=digest_journal, activations=kernel.activations, oracle_waits=kernel.oracle_waits,
                 rounds_missed=kernel.rounds_missed, uncharged=kernel.uncharged)


def observed(outcome: Outcome) -> list[tuple[int, int, dict[str, float]]]:
    return [(o.node, o.round, o.values) for o in outcome.observations]


def timed(outcome: Outcome) -> list[tuple[int, str, float, int]]:
    return [(t.node, t.label, t.work, t.cpu_ns) for t in outcome.timings]


def latencies(network: Network) -> dict[tuple[int, int], int]:
    """(vertex, next vertex) -> ns of every link that was used, for the check of causality."""
    return {(link.src, link.dst): link.latency_ns for link in network.links()}


def replay(directory: Path, workers: int | Workers | Twin | None = None, plugins: Sequence[str] = ()) -> str:
    """Compute the run in `directory` again; its digest. Raises ReplayMismatch, naming the first difference."""
    from emul.record.compare import first_difference

    path = directory / rundir.SCENARIO
    if not (directory / rundir.SUMMARY).is_file() or not path.is_file():
        raise RecordError(f"{directory}: no directory of a run that ended")
    summary = json.loads((directory / rundir.SUMMARY).read_text())
    scenario = load(path, plugins=plugins)
    name, raw = scenario.schemes[0]
    costs = None
    if scenario.compute.mode == "measured":         # what was measured then is what it costs now
        costs = Costs("recorded", recorded=recorded_costs(directory))
    count = _cores() if workers is None else workers
    size = count if isinstance(count, int) else count.workers
    wiring = wire(scenario, name, raw, max(1, size), plugins, costs)
    journal = MemoryJournal(header(wiring))
    with pool_of(count, scenario.workers.timeout_s) as pool:
        execute(wiring, pool, journal)
    digest_journal = journal.close()
    if digest_journal != summary["digest_journal"]:
        recorded = read(directory / rundir.JOURNAL)
        raise ReplayMismatch(f"{directory}: {first_difference(recorded, journal.rows, recorded.header)}")
    model = digest_model(columns(journal.rows))
    if model != summary["digest_model"]:
        raise ReplayMismatch(f"{directory}: the journals are equal, the models differ")
    return str(summary["digest"])


def profile(scenario: Scenario, path: Path, *, plugins: Sequence[str] = (), repeat: int = 3,
            ) -> dict[str, tuple[float, float]]:
    """Measure every computation of every scheme of a scenario, one after the other, and write a profile.

    Cost = a + b * work seconds, a least-squares line through the median measurement of each size of work; b = 0
    where the work does not vary or is not said. Raises RunError.
    """
    measured: dict[str, dict[float, list[float]]] = {}
    with Workers(1, scenario.workers.timeout_s) as pool:
        for name, raw in scenario.schemes:
            for _ in range(repeat):
                wiring = wire(scenario, name, raw, 1, plugins, Costs("measured"))
                outcome = execute(wiring, pool, MemoryJournal(header(wiring)))
                for timing in outcome.timings:
                    key = f"{name}/{wiring.plan.roles[timing.node]}/{timing.label}"
                    measured.setdefault(key, {}).setdefault(timing.work, []).append(timing.cpu_ns / 1e9)
    costs = {key: fit(points) for key, points in sorted(measured.items())}
    rundir.write_json(path, {"emul_profile": PROFILE_VERSION, "costs": {k: list(v) for k, v in costs.items()},
                             "machine": versions()})
    return costs


def fit(points: dict[float, list[float]]) -> tuple[float, float]:
    """(a, b) of seconds = a + b * work, both >= 0, through the medians of each size, weighted by their number."""
    work = np.array(sorted(points))
    seconds = np.array([np.median(points[w]) for w in work])
    weight = np.array([len(points[w]) for w in work], float)
    mean = float(np.average(seconds, weights=weight))
    if len(work) < 2:
        return mean, 0.0
    centre = np.average(work, weights=weight)
    slope = float(np.average((work - centre) * (seconds - mean), weights=weight)
                  / np.average((work - centre) ** 2, weights=weight))
    slope = max(0.0, slope)
    start = mean - slope * float(centre)
    if start < 0:                                   # a line through the origin is the nearest sound one
        return 0.0, float(np.average(work * seconds, weights=weight) / np.average(work * work, weights=weight))
    return start, slope


def _cores() -> int:
    return len(os.sched_getaffinity(0))


# --- what the layers need, from what the scenario says --------------------------------------------------------------

def _speeds(scenario: Scenario, names: Sequence[str]) -> list[float]:
    speeds = [1.0] * len(names)
    for rule in scenario.node_speeds:
        for node, name in enumerate(names):
            if name == rule.match or fnmatchcase(name, rule.match):
                speeds[node] = rule.speed
    return speeds


def located(task: dict[str, Any]) -> dict[str, Any] | None:
    """The task with $EMUL_DATA of this process written in: workers may have been started under another one."""
    directory = os.environ.get(DIRECTORY)
    if not task:
        return None
    if directory and not task["data"].get("directory") and task["data"]["set"] in NEED_FILES:
        return {**task, "data": {**task["data"], "directory": str(Path(directory).resolve())}}
    return task


def poisoned(scenario: Scenario, roles: dict[str, list[int]], names: Sequence[str]) -> dict[int, str]:
    """node -> attack on its data; a fraction is drawn from the clients (peers, where there are none) by the seed."""
    found: dict[int, str] = {}
    for number, attack in enumerate(scenario.attacks):
        if attack.fraction is None:
            nodes = [names.index(name) for name in attack.nodes]
        else:
            pool = roles.get("client") or list(range(len(names)))
            count = round(attack.fraction * len(pool))
            drawn = generator(scenario.seed, "attack", number).choice(len(pool), count, replace=False)
            nodes = [pool[i] for i in sorted(drawn)]
        found |= dict.fromkeys(nodes, attack.data)
    return found


def _faults(scenario: Scenario, network: Network, names: Sequence[str]) -> list[Crash | LinkChange]:
    """The faults by node and vertex. Raises ScenarioError for all that name what is not there."""
    faults: list[Crash | LinkChange] = []
    problems: list[Problem] = []
    vertex = {name: v for v, name in enumerate(network.names)}
    for i, fault in enumerate(scenario.faults):
        place = f"faults[{i}]"
        if isinstance(fault, LinkDown):
            ends = vertex[fault.source], vertex[fault.destination]
            try:
                network.parameters(*ends)
            except NetworkError as e:
                problems.append(Problem(f"{place}.link", f"{fault.source}->{fault.destination}", str(e)))
                continue
            faults.append(LinkChange(fault.at_ns, *ends, {"down": True}))
            if fault.for_ns is not None:
                faults.append(LinkChange(fault.at_ns + fault.for_ns, *ends, {"down": False}))
        elif fault.node not in names:
            problems.append(Problem(f"{place}.node", fault.node, "expected a vertex that hosts a node"))
        elif isinstance(fault, NodeCrash):
            until = None if fault.for_ns is None else fault.at_ns + fault.for_ns
            faults.append(Crash(fault.at_ns, names.index(fault.node), until))
        elif fault.first is not None:
            problems.append(Problem(f"{place}.rounds", f"{fault.first}..{fault.last}",
                                    "not supported: a faulty behaviour holds for the whole run"))
    if problems:
        raise ScenarioError(str(scenario.path or scenario.name), problems)
    return faults


@dataclass(frozen=True)
class Costs:
    """Where virtual compute time comes from, loaded."""

    mode: str
    profile: dict[str, list[float]] = field(default_factory=dict)
    recorded: dict[int, list[int]] = field(default_factory=dict)


PROFILE_VERSION = 1


def load_costs(scenario: Scenario) -> Costs:
    """The profile or the record that the scenario names. Raises ScenarioError naming the file."""
    mode, path = scenario.compute.mode, scenario.compute.file
    if mode == "profile":
        assert path is not None
        return Costs(mode, profile=read_profile(path))
    if mode == "recorded":
        assert path is not None
        try:
            return Costs(mode, recorded=recorded_costs(path))
        except (OSError, RecordError) as e:
            raise ScenarioError(str(scenario.path or scenario.name), [Problem(
                "compute.file", str(path), f"expected a run directory or its journal: {e}")]) from None
    return Costs(mode)


def read_profile(path: Path) -> dict[str, list[float]]:
    """{"scheme/role/label": [a, b]} from a file of `emul profile`: seconds at speed 1 = a + b * work."""
    def wrong(place: str, found: str, expected: str) -> ScenarioError:
        return ScenarioError(str(path), [Problem(place, found, expected)])
    try:
        content = json.loads(path.read_text())
    except OSError as e:
        raise wrong("", e.strerror or "unreadable", "expected a file that `emul profile` has written") from None
    except ValueError as e:
        raise wrong("", str(e), "expected JSON as `emul profile` writes it") from None
    if not isinstance(content, dict) or content.get("emul_profile") != PROFILE_VERSION:
        raise wrong("emul_profile", repr(content.get("emul_profile") if isinstance(content, dict) else content),
                    f"expected version {PROFILE_VERSION}")
    costs = content.get("costs")
    if not isinstance(costs, dict):
        raise wrong("costs", repr(costs), 'expected {"scheme/role/label": [a, b]}')
    problems = [Problem(f"costs.{key}", repr(value), "expected two numbers of seconds, [a, b]")
                for key, value in costs.items()
                if not (isinstance(value, list) and len(value) == 2
                        and all(isinstance(v, (int, float)) and v >= 0 for v in value))]
    if problems:
        raise ScenarioError(str(path), problems)
    return costs


@contextlib.contextmanager
def pool_of(workers: int | Workers | Twin, timeout_s: float = 30.0) -> Iterator[Any]:
    """A pool to run on: the one given, which stays open, or one of that many workers (0: the in-process twin)."""
    if not isinstance(workers, int):
        yield workers
    elif workers == 0:
        with Twin() as twin:
            yield twin
    else:
        with Workers(workers, timeout_s) as pool:
            yield pool

