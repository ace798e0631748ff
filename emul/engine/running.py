"""Run the schemes of a scenario: a scheme after the other on one pool of workers, a session and a directory each."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from emul.base.errors import Problem, ScenarioError
from emul.base.machine import cores
from emul.engine.costs import load_costs, unequal
from emul.engine.keeping import Command, Keeping, command_of
from emul.engine.session import Companion, Result, Session, Watch
from emul.engine.wiring import Wiring, wire
from emul.learning import gpus
from emul.scenario import Scenario, chosen
from emul.workers.cluster import SLURM, Cluster
from emul.workers.launcher import Launcher
from emul.workers.pool import Workers
from emul.workers.twin import Twin

AnyPool = int | Cluster | Workers | Twin | None
MOST_WORKERS = 1024                 # of one machine: each is a process of some hundred MB


def run(scenario: Scenario, *, scheme: str | None = None, workers: AnyPool = None,
        out: Path = Path("runs"), plugins: Sequence[str] = (), quiet: bool = True,
        watch: Watch | None = None, keeping: Keeping | None = None, command: Command | None = None,
        which: Sequence[int] | None = None, companions: Sequence[Companion] = (),
        recalled: Path | None = None) -> list[Result]:
    """Run the schemes of a scenario, a directory each; one that fails does not stop the others.

    scheme: the label of the only one to run, or a name: all entries of that scheme.
    workers: a number of processes (0: none; None: one a core), a cluster, or an open pool. watch: told (round, virtual
    ns, newest accuracy) at the end of every round of a deciding node, in place of the progress line. keeping: where
    trainings are kept. command, which: of one that is gone on with, and which of its schemes. companions: context
    managers, entered with each run's directory while the run in it goes. recalled: the directory of a run whose
    volatile results are taken. Raises ScenarioError before anything runs if something is wrong with the files.
    """
    schemes = chosen(scenario.schemes, scheme, str(scenario.path or scenario.name))
    keeping = keeping or (Keeping() if command is None else command.keeping)
    command = command or command_of(keeping, dataclasses.replace(scenario, schemes=schemes).resolved(), plugins)
    which = range(len(schemes)) if which is None else which
    entries = [schemes[place] for place in which]
    _require_gpu(scenario, workers)
    costs = load_costs(scenario)
    count, wirings = wired(workers, lambda size: [
        wire(scenario, name, raw, size, plugins, costs) for name, raw in entries])
    results: list[Result] = []
    while len(results) < len(wirings):          # once, unless a pool of ours loses a worker: then a new one goes on
        with pool_of(count, scenario.workers.timeout_s) as pool:
            for place, entry, wiring in list(zip(which, entries, wirings, strict=True))[len(results):]:
                one = dataclasses.replace(scenario, schemes=[entry])
                # the text of a scenario with one scheme is there: that of thousands of rules takes seconds to write
                text = command.scenario if len(schemes) == 1 else one.resolved()
                session = Session(one, wiring, pool, keeping, quiet, watch)
                results.append(session.start(out, dataclasses.replace(command, place=place), text, companions,
                                             recalled))
                if isinstance(count, int | Cluster) and results[-1].worker_died:
                    break
    uneven = tuple(unequal(costs.profile, sorted({charge for result in results for charge in result.charged})))
    return [dataclasses.replace(result, warnings=result.warnings + uneven) for result in results]


def _require_gpu(scenario: Scenario, workers: AnyPool) -> None:
    """Raises ScenarioError: workers of this machine shall use a GPU, and it has none."""
    if scenario.compute.device == "cuda" and (workers is None or isinstance(workers, int)) and not gpus():
        raise ScenarioError(str(scenario.path or scenario.name), [
            Problem("compute.device", '"cuda"', "torch finds no GPU on this machine")])


def wired(workers: AnyPool, wire_for: Callable[[int], list[Wiring]]) -> tuple[int | Cluster | Workers | Twin,
                                                                          list[Wiring]]:
    """(what `pool_of` takes, runs wired for so many workers); None: a worker a core. No more than the largest run has
    nodes: the others would have nothing to do, and each takes a quarter of a second to start. Raises ScenarioError."""
    count = cores() if workers is None else workers
    _require_bearable(count)
    size = max(1, count if isinstance(count, int) else count.workers)
    wirings = wire_for(size)
    if not isinstance(count, Twin) and any(one.scheme.guided for one in wirings):
        return 0, wirings if size == 1 else wire_for(1)     # its roles follow one program, and share its orders
    nodes = max((len(one.plan.names) for one in wirings), default=size)
    if not isinstance(count, int | Cluster) or size <= nodes:
        return count, wirings
    return nodes if isinstance(count, int) else dataclasses.replace(count, workers=nodes), wire_for(nodes)


def _require_bearable(workers: int | Cluster | Workers | Twin) -> None:
    """Raises ScenarioError."""
    if isinstance(workers, int) and workers > MOST_WORKERS:
        raise ScenarioError("command line", [Problem("--workers", str(workers), (
            f"expected at most {MOST_WORKERS:,} processes on one machine"))])


@contextlib.contextmanager
def pool_of(workers: int | Cluster | Workers | Twin, timeout_s: float = 30.0) -> Iterator[object]:
    """A pool to run on: the one given, which stays open, or one of that many workers (0: the in-process twin)."""
    _require_bearable(workers)
    if workers == 0:
        with Twin() as twin:
            yield twin
    elif isinstance(workers, int):
        with Workers(workers, timeout_s) as pool:
            yield pool
    elif isinstance(workers, Cluster):
        with Workers(workers.workers, timeout_s, _launcher(workers)) as pool:
            yield pool
    else:
        yield workers


def _launcher(cluster: Cluster) -> Launcher:
    """Of workers on other machines; nothing of the others is imported."""
    if cluster.address == SLURM:
        from emul.workers.slurm import Steps

        return Steps(cluster)
    from emul.workers.ray_actors import Actors

    return Actors(cluster)
