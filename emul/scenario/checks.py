"""Checks that need the other layers: does the network exist, can the task be done, do the schemes know their keys.

Each part is looked at if what it needs is sound, so that one mistake does not hide the others. Three modules look, one
after the other: `network_checks`, `task`, `scheme_checks`. They change nothing and know no lines: they say what they
found and where it stands, and `load` adds the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emul import learning
from emul.base.plain import PlainMapping
from emul.learning.declared import DECLARED, declared
from emul.network import Network
from emul.roles.scheme import AnyScheme
from emul.scenario.compress import growing, who_know_others
from emul.scenario.network_checks import check_network
from emul.scenario.placing import holders, islands_at
from emul.scenario.scheme_checks import Unsound, check_schemes
from emul.scenario.sections import SoundParts, without_none
from emul.scenario.task import cannot_fuse, dimension, mistakes, tried
from emul.scenario.untrained import SKIP
from emul.scenario.wording import Finding, Verdicts


def check_world(parts: SoundParts, tree: PlainMapping, plugins: Sequence[str] = ()) -> Verdicts:
    """The mistakes that show when the `parts` of a scenario, each sound by itself, are put together. tree: the values
    of its file, as they are written."""
    network, parts, checked = check_network(parts, tree)
    task = parts.get("task")
    clients = 1 if network is None else len(holders(network))       # one asks the least of a task
    wrong = [] if task is None else mistakes(task, clients, plugins)
    schemes, of_schemes = check_schemes({**parts, "task": Unsound()} if wrong or task is None else parts, network, tree,
                                        plugins)
    checked += of_schemes
    checked.found += [] if wrong else _without_rates(parts, network)
    if "compute" in parts and parts["compute"].device == "cuda" and not learning.gpus():
        checked.warnings.append("compute.device: cuda, but torch finds no GPU on this machine: workers are to be "
                                "elsewhere (--on)")
    checked.found += [(("task", *below), value[:60], expected) for below, value, expected in wrong]
    if task is not None and not wrong:
        of_data = tried(task, clients, parts.get("seed", 0), plugins, any(scheme.disguises for scheme in schemes),
                        _targets(parts, schemes))
        checked += of_data
        wrong = of_data.found
    if task is not None and not wrong and next(iter(task["solver"].values())).get("keep"):
        checked.found += [(("attacks", i, "knows"), "", "the updates of others cannot be computed again without "
                           "the moments that they keep: expected knows: own, or a solver without keep")
                          for i in who_know_others(parts.get("attacks", []), plugins)]
    if task is not None and not wrong:
        checked.warnings += growing(parts.get("schemes", []), lambda: dimension(task, plugins))
        reason = None if parts.get("fuse") is None else cannot_fuse(task)
        checked.found += [] if reason is None else [(("fuse",), "", reason)]
    return checked


def _targets(parts: SoundParts, schemes: Sequence[AnyScheme]) -> dict[str, float]:
    """The targets of a stop on what the task's evaluations measure: schemes of users, and apps of Flower, may measure
    in a way of their own."""
    stop = parts.get("stop")
    if stop is None or parts.get("training") == SKIP or any(
            scheme.name == "flower" or not scheme.module.startswith("emul.schemes.") for scheme in schemes):
        return {}
    return without_none(accuracy=stop.accuracy, loss=stop.loss)


def _without_rates(parts: SoundParts, network: Network | None) -> Iterator[Finding]:
    """A declared model needs the rates of those who train it, and rates need a declared model."""
    task, rules = parts.get("task"), parts.get("node_speeds")
    if task is None or rules is None:           # wrong themselves
        return
    if declared(task) is None:
        yield from ((("nodes", i, "flops"), f"{rule.island.flops:g}", "is used only with task.declared")
                    for i, rule in enumerate(rules) if rule.island is not None)
    elif network is not None:
        known = islands_at(rules, parts.get("seed", 0), network)
        lacking = [network.names[vertex] for vertex in holders(network) if vertex not in known]
        if lacking:
            yield ("task", DECLARED), "", (f"{lacking[0]} has no rate to train it at: expected such as nodes: "
                                           "[{match: \"*\", flops: 989e12, gpus: 8, mfu: 0.4}]")
