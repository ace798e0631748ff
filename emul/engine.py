"""The one place that wires scenario, network, kernel, workers and record into a run.

    with Workers(2) as pool:
        results = run(load("scenarios/quickstart.yaml"), workers=pool, out=Path("runs"))
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from emul import schemes
from emul.base.errors import Problem, ReplayMismatch, RunError, ScenarioError, WorkerDied
from emul.base.streams import generator
from emul.dynamics import dynamics
from emul.kernel import Fusing, Journal, Kernel, Plan, Stop
from emul.learning import gpus
from emul.learning.data import DIRECTORY, NEED_FILES
from emul.network import LinkRule, Network, build, realisation
from emul.network.models.loss import GilbertSpec, OutageSpec
from emul.network.recorded import Realisation, Row
from emul.record import rundir
from emul.record.columns import columns
from emul.record.journal import Journal as FileJournal
from emul.record.journal import MemoryJournal, RecordError, read
from emul.record.progress import Progress
from emul.record.summary import Facts, digest_model, versions, write_results
from emul.record.tables import recorded_costs
from emul.roles.analysis import NoAnalysis, Setting
from emul.roles.events import Observation
from emul.scenario import Behaviour, Scenario, build_params, load
from emul.workers.collections import rare_collections
from emul.workers.core import Setup, Timing
from emul.workers.pool import Workers
from emul.workers.twin import Twin

FUSED = "train"                     # the label of computations that `fuse` does together


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
    record: Realisation | None = None       # what its links drew in another run, and draw again

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
    ideal = [LinkRule("*", outage="none")] if getattr(module, "LINKS", None) == "ideal" else []
    record = recorded_network(scenario)
    network = build(scenario.topology, [*scenario.link_rules, *ideal], scenario.seed,
                    record.without_losses() if record is not None and ideal else record)
    placed = [(role, vertex) for role, vertices in network.roles.items() for vertex in vertices]
    names = [network.names[vertex] for _, vertex in placed]
    roles: dict[str, list[int]] = {}
    for node, (role, _) in enumerate(placed):
        roles.setdefault(role, []).append(node)
    unknown = [role for role in roles if role not in module.ROLES]
    if unknown:
        raise ScenarioError(str(scenario.path or scenario.name), [Problem(
            "topology", ", ".join(unknown), f'scheme "{scheme}" has the roles {", ".join(module.ROLES)}')])
    change = dynamics(scenario, network, names, lossless=bool(ideal))
    behaviours: dict[int, list[list[Any]]] = {}
    for f in scenario.faults:
        if isinstance(f, Behaviour):
            behaviours.setdefault(names.index(f.node), []).append([f.behave, f.first or 1, f.last or 0])
    fuse = scenario.fuse
    lanes = range(len(names)) if fuse is None else [node % fuse.lanes for node in range(len(names))]
    worker_of = [lane % workers for lane in lanes]
    costs = costs or load_costs(scenario)
    plan = Plan(
        names=names, roles=[role for role, _ in placed], vertices=[vertex for _, vertex in placed], workers=worker_of,
        deciders=[n for n in schemes.deciders(module, roles) if n not in behaviours],
        stop=Stop(scenario.stop.rounds, scenario.stop.accuracy, scenario.stop.virtual_time_ns),
        faults=change.faults, streams=change.streams, evaluate_every=scenario.evaluation.every,
        fuse=None if fuse is None else Fusing(FUSED, fuse.clients, lanes))
    speeds = _speeds(scenario, names)
    poisons, tampers = (poisoned(scenario, roles, names, what) for what in ("data", "prototypes"))
    held = _held(record, names)
    setups = [Setup(
        worker=w, scheme=scheme, plugins=list(plugins), params=_given(params), seed=scenario.seed,
        names=names, roles=roles, speeds=speeds, workers=worker_of, behaviours=behaviours,
        poisons=poisons, tampers=tampers, slowdowns=change.slowdowns,
        task=located(scenario.task), cost_mode=costs.mode, profile=costs.profile, recorded=costs.recorded,
        held=held, held_beyond=scenario.network.beyond,
        evaluate_every=scenario.evaluation.every, evaluate_scope=scenario.evaluation.scope,
        fuse="" if fuse is None else FUSED, device=device(scenario.compute.device, w), delays=list(delays))
        for w in range(workers)]
    warnings = [*scenario.warnings, *network.warnings(), *change.warnings,
                *(f'links: the rule "{rule.match}" matches no link' for rule in network.unmatched_rules()),
                *([] if record is None else _strangers(record, network)),
                *([f"fuse: {fuse.lanes} lanes for {workers} workers: some will train nothing"]
                  if fuse is not None and fuse.lanes < workers else [])]
    return Wiring(scheme, module, params, network, plan, setups, sorted(set(warnings)), record)


def execute(wiring: Wiring, pool: Any, journal: Journal, progress: Any = None) -> Outcome:
    """Run it. Raises RunError; the pool can take the next run afterwards, unless it lost a worker."""
    begin = time.perf_counter()
    try:
        with rare_collections():
            pool.open(wiring.setups)
            kernel = Kernel(wiring.plan, wiring.network, pool, journal, progress)
            kernel.run()
        observations, timings = pool.finish()
    except Exception:                   # not at an interrupt: closing the pool must not wait for a computation
        pool.abort()
        raise
    return Outcome(kernel, observations, timings, time.perf_counter() - begin, wiring)


Watch = Callable[[int, int, float | None], None]


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
        out: Path = Path("runs"), plugins: Sequence[str] = (), quiet: bool = True,
        watch: Watch | None = None) -> list[Result]:
    """Run the schemes of a scenario, or the one named, a directory each; one that fails does not stop the others.

    workers: a number of processes (0: none; None: one a core) or an open pool. watch: told (round, virtual ns, newest
    accuracy) at the end of every round of a deciding node, in place of the progress line. Raises ScenarioError before
    anything runs if something is wrong with the files.
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
                results.append(_run_one(scenario, wiring, pool, out, quiet, watch))
                if isinstance(count, int) and results[-1].worker_died:
                    break
    return results


def _run_one(scenario: Scenario, wiring: Wiring, pool: Any, out: Path, quiet: bool,
             watch: Watch | None = None) -> Result:
    directory = rundir.create(out, scenario.name, wiring.scheme)
    only = dataclasses.replace(scenario, schemes=[s for s in scenario.schemes if s[0] == wiring.scheme])
    directory.write(rundir.SCENARIO, only.resolved())
    progress = Progress(wiring.scheme, scenario.stop.rounds, scenario.stop.virtual_time_ns, quiet)
    tell = progress.update if watch is None else watch
    journal = FileJournal(directory.journal, header(wiring))
    try:
        outcome = execute(wiring, pool, journal, lambda k: tell(k.entered, k.now, pool.accuracy))
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
                                    latencies(wiring.network), wiring.network.unordered(),
                                    drawn(outcome) if scenario.network.record else ())
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
                 rounds_missed=kernel.rounds_missed, uncharged=kernel.uncharged, **_beyond(outcome),
                 poisoned=_poisoned_names(outcome.wiring), analysis=analysis(outcome.wiring, kernel.entered))


def _poisoned_names(wiring: Wiring) -> list[str]:
    setup = wiring.setups[0]
    return [setup.names[n] for n in sorted({*setup.poisons, *setup.tampers})]


def drawn(outcome: Outcome) -> Iterator[Row]:
    """Everything that the links drew in a run, as rows of its table `network`."""
    return outcome.wiring.network.realised(max(outcome.kernel.end_ns, outcome.kernel.now))


def _beyond(outcome: Outcome) -> dict[str, Any]:
    """Of a run on a recorded network: what the record did not hold of the links' draws, and the costs that it holds."""
    record = outcome.wiring.record
    if record is None:
        return {}
    return {"network_beyond": record.beyond_counts(drawn(outcome)),
            "computations_held": {key: len(costs) for key, costs in record.computations.items()}}


def analysis(wiring: Wiring, rounds: int) -> dict[str, Any]:
    """What the scheme's theory says of a run of so many rounds; {} if it has none, or none for these links."""
    theory = getattr(wiring.module, "analysis", None)
    if theory is None or not rounds:
        return {}
    setup, network = wiring.setups[0], wiring.network
    vertex = dict(zip(setup.names, wiring.plan.vertices, strict=True))
    roles = {role: tuple(setup.names[n] for n in nodes) for role, nodes in setup.roles.items()}
    solver: dict[str, Any] = next(iter((setup.task or {}).get("solver", {}).values()), {})

    @cache
    def outage(source: str, target: str) -> float:
        arrives = 1.0
        for u, v in itertools.pairwise(network.route(vertex[source], vertex[target])):
            parameters = network.parameters(u, v)
            if parameters.transport != "reliable":
                arrives *= 1.0 - _outage_probability(parameters.outage)
        return 1.0 - arrives

    try:
        return dict(theory(wiring.params, Setting(roles, outage, setup.seed, rounds, solver.get("steps"))))
    except NoAnalysis as e:
        return {"not_analysed": str(e)}


def _outage_probability(spec: Any) -> float:
    """That one message is lost, at any time of the run. Raises NoAnalysis where that depends on more than the model."""
    if spec is None:
        return 0.0
    whole = spec.per in ("message", "round") or (spec.per == "slot" and spec.span == "at_start") if isinstance(
        spec, (OutageSpec, GilbertSpec)) else False         # not by packets, nor by every slot that a message lasts
    if whole and isinstance(spec, OutageSpec):
        return spec.p
    if whole and isinstance(spec, GilbertSpec):
        bad = spec.p / (spec.p + spec.r) if spec.p + spec.r else 0.0
        return bad * spec.loss_bad + (1 - bad) * spec.loss_good
    raise NoAnalysis("a link's outages depend on sizes or times of messages, and have no single probability")


def device(kind: str, worker: int) -> str:
    """Where a worker computes; workers share the GPUs, each with a context and a stream of its own."""
    return kind if kind == "cpu" else f"{kind}:{worker % max(1, gpus())}"


def recorded_network(scenario: Scenario) -> Realisation | None:
    """The record that takes the place of the links' models, if the scenario names one. Raises ScenarioError."""
    use = scenario.network
    return None if use.replay is None else realisation.read(use.replay, cast(Any, use.beyond))


def _held(record: Realisation | None, names: Sequence[str]) -> dict[int, dict[str, list[int]]]:
    """node -> label -> costs, of the nodes that are in the record."""
    found: dict[int, dict[str, list[int]]] = {}
    if record is None or not record.computations:
        return found
    number = {name: node for node, name in enumerate(names)}
    for (name, label), costs in record.computations.items():
        if name in number:
            found.setdefault(number[name], {})[label] = costs
    return found


def _strangers(record: Realisation, network: Network) -> list[str]:
    known = set(network.names)
    strange = [f"{u} -> {v}" for u, v in record.links if u not in known or v not in known]
    return [f"network.replay: {len(strange)} links of the record are not in this network, such as {strange[0]}"
            ] if strange else []


def _given(params: Any) -> dict[str, Any]:
    """The parameters that `Params` takes, as plain values; a variant's fixed ones are not among them."""
    values = dataclasses.asdict(params)
    return {f.name: values[f.name] for f in dataclasses.fields(params) if f.init}


def observed(outcome: Outcome) -> list[tuple[int, int, dict[str, float]]]:
    """What was observed up to the last round that a deciding node entered; others may have begun a further one."""
    last = outcome.kernel.entered
    return [(o.node, o.round, o.values) for o in outcome.observations if o.round <= last]


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


def poisoned(scenario: Scenario, roles: dict[str, list[int]], names: Sequence[str], what: str) -> dict[int, str]:
    """node -> attack on its data or prototypes; a fraction is drawn from the clients (peers, where there are none)."""
    found: dict[int, str] = {}
    for number, attack in enumerate(scenario.attacks):
        if attack.fraction is None:
            nodes = [names.index(name) for name in attack.nodes]
        else:
            pool = roles.get("client") or list(range(len(names)))
            count = round(attack.fraction * len(pool))
            drawn = generator(scenario.seed, "attack", number).choice(len(pool), count, replace=False)
            nodes = [pool[i] for i in sorted(drawn)]
        kind = getattr(attack, what)
        found |= {} if kind is None else dict.fromkeys(nodes, kind)
    return found


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

