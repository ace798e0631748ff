"""The remains of an ended run in the kernel and the workers (`Finished`), in the forms that `emul.record` writes.

`header` heads the journal, before anything runs. `facts` are all that the summary says and no row of the journal does;
the rest of the summary is made of the rows, in `emul.record.summary`. `observed`, `timed` and `drawn` become columns
and tables, `analysis` has the predictions of the scheme's theory for this network, and `samples_held` counts the data
of the nodes. `emul.engine.session` asks for all of them in this order.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path

import msgspec
import numpy as np

from emul.base.kept import model_file
from emul.base.plain import PlainDict
from emul.engine.costs import Charge
from emul.engine.wiring import Wiring
from emul.kernel import Kernel
from emul.learning import Task
from emul.learning.columns import NAME as BY_COLUMNS
from emul.learning.partition import parse
from emul.network.linkrecord import PacketRow, Row
from emul.network.models.contacts import Contacts
from emul.network.models.outages import GilbertSpec, OutageSpec
from emul.network.network import TrafficRow
from emul.record import payloads
from emul.record.energy import Power, PowerDraw
from emul.record.side_tables import SampleCount, traffic_totals
from emul.record.summary import Facts
from emul.roles.analysis import NoAnalysis, Realised, Setting
from emul.roles.desk import LANE
from emul.roles.evaluation import kind_of
from emul.roles.events import Observation
from emul.workers.attacking import Note
from emul.workers.core import FittedGroups, StoreUse
from emul.workers.jobs import Timing
from emul.workers.keeping import KeptValue

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finished:
    """The remains of a run that has ended, before they are written anywhere."""

    kernel: Kernel
    observations: list[Observation]
    timings: list[Timing]
    notes: list[Note]
    kept: list[KeptValue]
    real_seconds: float
    store: StoreUse | None                  # the use of a store of trainings; None: there was none
    fitted: FittedGroups                    # the limits of memory on groups that were trained as one
    wiring: Wiring = field(repr=False)

    @cached_property
    def background(self) -> list[TrafficRow]:
        """The bytes of the background traffic on the links that the run used, as rows of its table `traffic`."""
        return list(self.wiring.network.traffic(max(self.kernel.end_ns, self.kernel.now)))

    @property
    def plan(self) -> dict[tuple[str, str], Contacts]:
        """The contacts of all links that have some, by the names of their ends."""
        network = self.wiring.network
        return {(network.names[u], network.names[v]): one for (u, v), one in network.planned.links.items()}


def header(wiring: Wiring) -> PlainDict:
    """The head of a journal."""
    plan, setup = wiring.plan, wiring.setups[0]
    told = {"parameters": setup.params, "parameters_given": wiring.given, "poisoned": _poisoned_names(wiring),
            "idle": wiring.idle,        # of a run that is cut off the summary says them, too
            "accuracy_of": kind_of(setup.accuracy_of, setup.evaluate_scope)}
    return {"scheme": wiring.scheme.name, "label": wiring.label, "seed": setup.seed, "names": list(plan.names),
            "roles": list(plan.roles), "vertices": list(plan.vertices), "deciders": list(plan.deciders),
            "network": list(wiring.network.names), **msgspec.msgpack.decode(msgspec.msgpack.encode(told)),
            **({"groups": wiring.groups} if wiring.groups else {}),
            **({} if (lanes := wiring.scheme.lanes_under(wiring.params)) == [LANE] else {"lanes": lanes}),
            **({} if wiring.scheme.repeats(wiring.params) else {"deterministic": False})}


def facts(finished: Finished, digest_journal: str, directory: Path | None = None) -> Facts:
    """Facts of the summary that are not in the journal. directory: where the run has left what it keeps."""
    kernel, wiring, store, fitted = finished.kernel, finished.wiring, finished.store, finished.fitted
    return Facts(scheme=wiring.scheme.name, label=wiring.label, parameters=wiring.setups[0].params,
                 modules=[name for name in dict.fromkeys([wiring.scheme.module, *wiring.setups[0].plugins])
                          if name and name.partition(".")[0] != "emul"],
                 given=wiring.given, virtual_ns=kernel.end_ns, real_seconds=finished.real_seconds,
                 store=None if store is None else {
                     "found": store.found, "missed": store.missed, "stored": store.stored,
                     "saved_s": store.saved_ns / 1e9, "failure": store.failure or None},
                 fitted={"most": fitted.most, "halved": fitted.halved} if fitted.most else None,
                 digest_journal=digest_journal, activations=kernel.activations, oracle_waits=kernel.oracle_waits,
                 rounds_missed=kernel.rounds_missed, uncharged=kernel.uncharged, **_beyond(finished),
                 poisoned=_poisoned_names(wiring), idle=wiring.idle, energy=_energy(wiring, kernel.end_ns),
                 attackers_knew=knowledge(finished.notes, kernel.end_ns),
                 background=traffic_totals(finished.background),
                 payloads={} if directory is None else payloads.counted(directory, kernel.end_ns),
                 analysis=partial(analysis, wiring, kernel.entered), **_kept(finished))


def _energy(wiring: Wiring, end_ns: int) -> PowerDraw | None:
    """The power that the nodes' devices draw; None: the scenario has no devices."""
    if wiring.devices is None:
        return None
    batteries = wiring.plan.batteries
    powers = [None if one is None else Power(one.name, one.kind, one.idle_w, one.compute_w, one.send_w, one.receive_w,
                                             batteries[node].joules if node in batteries else None)
              for node, one in enumerate(wiring.devices)]

    def rate(u: int, v: int) -> float:
        found = wiring.network.bandwidth(u, v)
        return math.inf if found is None else float(found)      # of a trace the mean

    return PowerDraw(powers, rate, end_ns)


def _kept(finished: Finished) -> PlainDict:
    """The arrays that nodes left in the run directory, by their names."""
    models: dict[str, int] = {}
    artefacts: dict[str, dict[str, str]] = {}
    for one in finished.kept:
        node = finished.wiring.plan.names[one.node]
        if one.name:
            artefacts.setdefault(node, {})[one.name] = one.digest
        elif not one.each:
            models[node] = one.round
    return {"models": models, "artefacts": artefacts}


def drop_later(finished: Finished, directory: Path) -> None:
    """Remove the models of rounds that nodes reported ahead of the others, after the end of the run."""
    for one in finished.kept:
        if one.each and one.now_ns > finished.kernel.end_ns:
            model_file(directory, finished.wiring.plan.names[one.node], one.round).unlink(missing_ok=True)


def _poisoned_names(wiring: Wiring) -> list[str]:
    setup = wiring.setups[0]
    return [setup.names[n] for n in sorted(setup.attacks)]


def knowledge(notes: Sequence[Note], end_ns: int) -> PlainDict | None:
    """The knowledge that attackers had of others, for the summary; None: nothing was computed again.

    population: "cohort" where the scheme named one, else "clients". computed_again: updates of one node in one round
    that an attacker computed again; equal: those that are, to the bit, what the node's own training gave. Computations
    that end after the run do not count: whether they were really done depends on the machine.
    """
    done = [n for n in notes if n.due_ns <= end_ns]
    trained = {(n.node, n.round, n.digest) for n in done if not n.again}
    again = [n for n in done if n.again]
    if not again:
        return None
    return {"population": "cohort" if all(n.named for n in again) else "clients", "computed_again": len(again),
            "equal": sum((n.node, n.round, n.digest) in trained for n in again)}


def _beyond(finished: Finished) -> PlainDict:
    """Of a run on a recorded network: what the record did not hold of the links' draws, and the costs that it holds."""
    realisation = finished.wiring.realisation
    if realisation is None:
        return {}
    return {"network_beyond": realisation.beyond_counts(drawn(finished)),
            "computations_held": {key: len(costs) for key, costs in realisation.computations.items()}}


def drawn(finished: Finished) -> Iterator[Row | PacketRow]:
    """Everything that the links drew in a run, as rows of its table `network`."""
    return finished.wiring.network.realised(max(finished.kernel.end_ns, finished.kernel.now))


def observed(finished: Finished) -> list[tuple[int, int, dict[str, float]]]:
    """(node, round, values) up to the last round that a deciding node entered; others may have begun a further one."""
    last = finished.kernel.entered
    return [(o.node, o.round, o.values) for o in finished.observations if o.round <= last]


def timed(finished: Finished) -> list[tuple[int, str, float, int]]:
    """(node, label, work, CPU time in ns) of every computation."""
    return [(t.node, t.label, t.work, t.cpu_ns) for t in finished.timings]


def charges(wiring: Wiring, timings: Iterable[Timing]) -> set[Charge]:
    """The entries that a profile needs: (entry, label of the computation, work) of each computation."""
    return {(f"{wiring.scheme.name}/{wiring.plan.roles[t.node]}/{t.label}", t.same, t.work) for t in timings}


# --- the predictions of a scheme's theory, with the facts of this network ---------------------------------------------

def analysis(wiring: Wiring, rounds: int, run: Realised | None = None) -> PlainDict:
    """The predictions of the scheme's theory for a run of so many rounds; {} if it has none, or none for these links.

    run: what really happened; None: nothing has yet.
    """
    theory = wiring.scheme.analysis
    if theory is None or not rounds:
        return {}
    setup = wiring.setups[0]
    roles = {role: tuple(setup.names[n] for n in nodes) for role, nodes in setup.roles.items()}
    solver: PlainDict = next(iter((setup.task or {}).get("solver", {}).values()), {})
    try:
        return dict(theory(wiring.params, Setting(roles, _outages(wiring), setup.seed, rounds, solver.get("steps")),
                           run or Realised()))
    except NoAnalysis as e:
        return {"not_analysed": str(e)}


def _outages(wiring: Wiring) -> Callable[[str, str], float]:
    """(source, target) -> probability that a message is lost on its way. Raises NoAnalysis where there is no one."""
    network = wiring.network
    if network.earliest is not None:
        raise NoAnalysis("the routes of messages depend on the time")
    vertex = dict(zip(wiring.plan.names, wiring.plan.vertices, strict=True))

    @cache
    def outage(source: str, target: str) -> float:
        arrives = 1.0
        for u, v in itertools.pairwise(network.route(vertex[source], vertex[target])):
            parameters = network.parameters(u, v)
            if parameters.transport != "reliable":
                arrives *= 1.0 - _outage_probability(parameters.outage)
        return 1.0 - arrives

    return outage


def _outage_probability(spec: object) -> float:
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


# --- the training samples of each class at each node, counted in the coordinator when the run is over -----------------

MOST_NODES = 1000           # with more, no picture of all of them can be read, and drawing their samples takes seconds


def samples_held(wiring: Wiring) -> list[SampleCount]:
    """A count for each class that a node has samples of, nodes in order. Empty: the run has no learning task, trains
    nothing, has more than MOST_NODES nodes with data, or gives its nodes columns in place of samples."""
    setup = wiring.setups[0]
    if setup.task is None or not setup.trains or not 0 < setup.holders <= MOST_NODES:
        return []
    if parse(setup.task.get("partition") or "iid")[0] == BY_COLUMNS:
        return []
    try:
        task = Task(setup.task, setup.holders, setup.seed, plugins=setup.plugins)
        shards = [(first + i, shard + i) for first, shard, count in setup.shards for i in range(count)]
        names = task.data.class_names
        return [(node, setup.names[node], label, count, None if label is None or label >= len(names) else names[label])
                for node, shard in shards for label, count in _counts(task, shard)]
    except Exception as error:          # whatever a user's data set raises when it is read again; the run is over
        _log.warning("the samples of the nodes were not counted: %s: %s", type(error).__name__, error)
        return []


def _counts(task: Task, shard: int) -> list[tuple[int | None, int]]:
    """(class, samples) of a client, or (None, samples) where targets are no labels."""
    if not task.data.labelled:
        return [(None, task.samples(shard))]
    counts = np.bincount(task.data.train_y[task.indices(shard)], minlength=task.data.classes)
    return [(label, int(counts[label])) for label in np.flatnonzero(counts).tolist()]
