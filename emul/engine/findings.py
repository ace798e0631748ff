"""What a run found, in the forms that the record takes: header, facts, observations, timings, latencies, draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from emul import schemes
from emul.base.kept import model_file
from emul.engine.attackers import knowledge
from emul.engine.theory import analysis
from emul.network import Network
from emul.network.linkrecord import Row
from emul.record import payloads
from emul.record.energy import Drawn, Power
from emul.record.summary import Facts

if TYPE_CHECKING:
    from emul.engine.running import Finished
    from emul.engine.wiring import Wiring
    from emul.workers.core import StoreUse


def header(wiring: Wiring) -> dict[str, Any]:
    """What stands at the head of a journal."""
    plan, setup = wiring.plan, wiring.setups[0]
    told = {"parameters": setup.params, "parameters_given": wiring.given, "poisoned": _poisoned_names(wiring),
            "idle": wiring.idle}        # of a run that is cut off the summary says them, too
    return {"scheme": wiring.scheme, "label": wiring.label, "seed": setup.seed, "names": list(plan.names),
            "roles": list(plan.roles), "vertices": list(plan.vertices), "deciders": list(plan.deciders),
            "network": list(wiring.network.names), **msgspec.msgpack.decode(msgspec.msgpack.encode(told)),
            **({} if schemes.deterministic(wiring.module, wiring.params) else {"deterministic": False})}


def facts(finished: Finished, digest_journal: str, directory: Path | None = None) -> Facts:
    """What the summary says that is not in the journal. directory: where the run has left what it keeps."""
    kernel, wiring = finished.kernel, finished.wiring
    return Facts(scheme=wiring.scheme, label=wiring.label, parameters=wiring.setups[0].params,
                 given=wiring.given, virtual_ns=kernel.end_ns, real_seconds=finished.real_seconds,
                 store=_stored(finished.store),
                 digest_journal=digest_journal, activations=kernel.activations, oracle_waits=kernel.oracle_waits,
                 rounds_missed=kernel.rounds_missed, uncharged=kernel.uncharged, **_beyond(finished),
                 poisoned=_poisoned_names(wiring), idle=wiring.idle, energy=_energy(wiring, kernel.end_ns),
                 attackers_knew=knowledge(finished.notes, kernel.end_ns),
                 payloads={} if directory is None else payloads.counted(directory, kernel.end_ns),
                 analysis=partial(analysis, wiring, kernel.entered), **_kept(finished))


def _energy(wiring: Wiring, end_ns: int) -> Drawn | None:
    """What the nodes' devices draw; None: the scenario has no devices."""
    if wiring.devices is None:
        return None
    batteries = wiring.plan.batteries
    powers = [None if one is None else Power(one.name, one.kind, one.idle_w, one.compute_w, one.send_w, one.receive_w,
                                             batteries[node].joules if node in batteries else None)
              for node, one in enumerate(wiring.devices)]

    def rate(u: int, v: int) -> float:
        found = wiring.network.bandwidth(u, v)
        return math.inf if found is None else float(found)      # of a trace the mean

    return Drawn(powers, rate, end_ns)


def _kept(finished: Finished) -> dict[str, Any]:
    """What nodes left in the run directory, by their names."""
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


def _stored(use: StoreUse | None) -> dict[str, Any] | None:
    return None if use is None else {"found": use.found, "missed": use.missed, "stored": use.stored,
                                     "saved_s": use.saved_ns / 1e9, "failure": use.failure or None}


def _poisoned_names(wiring: Wiring) -> list[str]:
    setup = wiring.setups[0]
    return [setup.names[n] for n in sorted(setup.attacks)]


def _beyond(finished: Finished) -> dict[str, Any]:
    """Of a run on a recorded network: what the record did not hold of the links' draws, and the costs that it holds."""
    record = finished.wiring.record
    if record is None:
        return {}
    return {"network_beyond": record.beyond_counts(drawn(finished)),
            "computations_held": {key: len(costs) for key, costs in record.computations.items()}}


def drawn(finished: Finished) -> Iterator[Row]:
    """Everything that the links drew in a run, as rows of its table `network`."""
    return finished.wiring.network.realised(max(finished.kernel.end_ns, finished.kernel.now))


def observed(finished: Finished) -> list[tuple[int, int, dict[str, float]]]:
    """(node, round, values) up to the last round that a deciding node entered; others may have begun a further one."""
    last = finished.kernel.entered
    return [(o.node, o.round, o.values) for o in finished.observations if o.round <= last]


def timed(finished: Finished) -> list[tuple[int, str, float, int]]:
    """(node, label, work, CPU time in ns) of every computation."""
    return [(t.node, t.label, t.work, t.cpu_ns) for t in finished.timings]


def latencies(network: Network) -> dict[tuple[int, int], int]:
    """(vertex, next vertex) -> ns of every link that was used, for the check of causality."""
    return network.latencies()
