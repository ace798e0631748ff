"""The remains of an ended run, and the forms that the record takes it in: header, facts, observations, draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import msgspec

from emul.base.kept import model_file
from emul.base.plain import PlainDict
from emul.engine.attackers import knowledge
from emul.engine.costs import Charge
from emul.engine.theory import analysis
from emul.engine.wiring import Wiring
from emul.kernel import Kernel
from emul.network.linkrecord import PacketRow, Row
from emul.network.models.contacts import Contacts
from emul.network.network import TrafficRow
from emul.record import payloads
from emul.record.energy import Power, PowerDraw
from emul.record.side_tables import traffic_totals
from emul.record.summary import Facts
from emul.roles.desk import LANE
from emul.roles.evaluation import kind_of
from emul.roles.events import Observation
from emul.workers.attacking import Note
from emul.workers.core import FittedGroups, StoreUse
from emul.workers.jobs import Timing
from emul.workers.keeping import KeptValue


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
            **({} if list(wiring.scheme.lanes) == [LANE] else {"lanes": list(wiring.scheme.lanes)}),
            **({} if wiring.scheme.repeats(wiring.params) else {"deterministic": False})}


def facts(finished: Finished, digest_journal: str, directory: Path | None = None) -> Facts:
    """Facts of the summary that are not in the journal. directory: where the run has left what it keeps."""
    kernel, wiring = finished.kernel, finished.wiring
    return Facts(scheme=wiring.scheme.name, label=wiring.label, parameters=wiring.setups[0].params,
                 modules=[name for name in dict.fromkeys([wiring.scheme.module, *wiring.setups[0].plugins])
                          if name and name.partition(".")[0] != "emul"],
                 given=wiring.given, virtual_ns=kernel.end_ns, real_seconds=finished.real_seconds,
                 store=_stored(finished.store), fitted=_fitted(finished.fitted),
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


def _stored(use: StoreUse | None) -> PlainDict | None:
    return None if use is None else {"found": use.found, "missed": use.missed, "stored": use.stored,
                                     "saved_s": use.saved_ns / 1e9, "failure": use.failure or None}


def _fitted(found: FittedGroups) -> dict[str, int] | None:
    return {"most": found.most, "halved": found.halved} if found.most else None


def _poisoned_names(wiring: Wiring) -> list[str]:
    setup = wiring.setups[0]
    return [setup.names[n] for n in sorted(setup.attacks)]


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
