"""The predictions of a scheme's theory for a run: its `analysis` with the facts of this network."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from emul.base.plain import PlainDict
from emul.network.models.outages import GilbertSpec, OutageSpec
from emul.roles.analysis import NoAnalysis, Realised, Setting

if TYPE_CHECKING:
    from emul.engine.wiring import Wiring


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
