"""Checks that need the other layers: does the network exist, can the task be done, do the schemes know their keys.

Each part is looked at if what it needs is sound, so that one mistake does not hide the others: first `network_checks`,
then `task`, then the schemes and attacks below. All change nothing and know no lines: they say what they found and
where it stands, and `load` adds the lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from emul import learning
from emul.base.errors import EmulError
from emul.base.plain import PlainMapping
from emul.base.units import format_duration
from emul.learning.declared import DECLARED, declared
from emul.network import Network
from emul.network.reachability import cut_off
from emul.network.terrain import Terrain
from emul.registry import attacks, schemes
from emul.roles import Scheme, World
from emul.roles.scheme import AnyScheme
from emul.scenario.attacks import AttackSpec, NamedAttack
from emul.scenario.faults import Behaviour, LinkSet, Slow
from emul.scenario.network_checks import check_network
from emul.scenario.params import check_params, scenario_keys
from emul.scenario.placing import Placed, chart_for, holders, islands, islands_at, node_speeds, placed_or_wrong
from emul.scenario.schemes import (
    COMPRESS,
    OF_ENTRY,
    SKIP,
    cannot_compress,
    cannot_skip,
    growing,
    label_of,
    needs_training,
    who_know_others,
)
from emul.scenario.schemes import parameters as own_parameters
from emul.scenario.sections import SoundParts, without_none
from emul.scenario.task import cannot_fuse, dimension, mistakes, tried
from emul.scenario.topology import key_of_file
from emul.scenario.wording import Finding, Path, Verdicts, nearest, shown


def check_world(parts: SoundParts, tree: PlainMapping, plugins: Sequence[str] = ()) -> Verdicts:
    """The mistakes that show when the `parts` of a scenario, each sound by itself, are put together. tree: the values
    of its file, as they are written."""
    network, parts, checked = check_network(parts, tree)
    task = parts.get("task") or None            # {}: of a loop, which has one of its own
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
    if not task or rules is None:               # wrong themselves, or a network for a loop: it says what it counts
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


# --- schemes and attacks --------------------------------------------------------------------------------------------

def check_schemes(parts: SoundParts, network: Network | None, tree: PlainMapping, plugins: Sequence[str],
                  ) -> tuple[list[AnyScheme], Verdicts]:
    """(the schemes that exist, what is said). A scheme is asked what it finds where its parameters are sound."""
    found: list[AnyScheme] = []
    checked = Verdicts()
    for i, (name, entry) in enumerate(parts.get("schemes", [])):
        scheme, wrong = _existing(name, plugins)
        if scheme is not None:
            found.append(scheme)
            of_entry, apart = _entry(scheme, entry, parts, network, plugins)
            checked.warnings += [f"{label_of(name, entry)}: {text}" for text in of_entry.warnings]
            wrong = of_entry.found
            if network is not None and apart is not None:
                # of the topology, and not of the entry: told once, whichever schemes it keeps apart
                key = key_of_file(parts["topology"], network.topology.where)
                finding = key, network.topology.where.rpartition("/")[2] * (len(key) > 1), apart
                checked.found += [finding] * (finding not in checked.found)
        checked.found += [(("schemes", i, *below), value, expected) for below, value, expected in wrong]
    if parts.get("training") == SKIP:
        checked.found += [(path, value, f"training: skip: {expected}") for path, value, expected in cannot_skip(parts)]
    if parts.get("faults"):
        checked.found += _only_offered("behave", "behaviour", _behaviours_of, found, tree, plugins)
        checked.found += _only_offered("stage", "message", _types_of, found, tree, plugins)
    checked.found += _attacks(parts.get("attacks", []), found, tree, plugins)
    checked.found += _payloads(parts["record"].payloads if "record" in parts else (), found, plugins)
    return found, checked


_LONG_WAIT_S = 60


# --- an entry of `schemes` ------------------------------------------------------------------------------------------

def _existing(name: str, plugins: Sequence[str]) -> tuple[Scheme[object] | None, list[Finding]]:
    """The scheme of that name, or why there is none."""
    try:
        return schemes.find(name, plugins), []
    except schemes.UnknownScheme:
        expected = "unknown scheme" + nearest(name, schemes.known(plugins)) + schemes.plugin_hint(name)
        return None, [(("name",), shown(name), expected)]
    except EmulError as error:
        return None, [(("name",), shown(name), str(error))]


def _entry(scheme: AnyScheme, entry: PlainMapping, parts: SoundParts, network: Network | None,
           plugins: Sequence[str]) -> tuple[Verdicts, str | None]:
    """An entry's parameters, then its places, then the scheme's own judgement of both; and why its nodes are apart."""
    params, wrong = check_params(scheme.params, own_parameters(entry), OF_ENTRY)
    if network is None or params is None:
        return Verdicts(wrong), None
    placed, wrong = placed_or_wrong(scheme, params, entry, network)
    if placed is None:
        return Verdicts(wrong), None
    world = _world(scheme, params, placed, network, parts, entry)
    judged = _judged(scheme.check, params, world)
    found = [_at(text, scheme.name, entry) for text in judged or ()]
    found += cannot_compress(scheme, entry, parts.get("attacks", []), plugins)
    task = parts.get("task")
    if isinstance(task, dict) and task.get(DECLARED) and not scheme.declares:
        found.append((("name",), scheme.name, "cannot be used with task.declared: its messages and trainings are not "
                                              "those of a larger model (declares)"))
    sound = judged is not None and not judged           # what a function of the parameters takes for granted
    if parts.get("training") == SKIP and (sound or not callable(scheme.oblivious)):
        found += [(below, value, f"training: skip: {expected}")
                  for below, value, expected in needs_training(scheme, params, entry)]
    warnings = [*(_judged(scheme.warn, params, world) or ()), *_unstated_waits(scheme, params, entry, parts)]
    return Verdicts(found, warnings), _apart(scheme, params, placed, network)


def _unstated_waits(scheme: AnyScheme, params: object, entry: PlainMapping, parts: SoundParts) -> Iterator[str]:
    """Warnings of timeouts of a minute and more that nobody states where messages are lost or nodes fail.

    A comparison then tells the default, not the schemes: `fedbuff`, which waits 10 min for a client that dropped out,
    was 168 times slower than `fedavg` with a deadline of 2 s.
    """
    rules = parts["link_rules"]
    lost = any(rule.outage not in (None, "none") for rule in rules) and not any(rule.transport for rule in rules)
    if not lost and not any(not isinstance(fault, Slow | LinkSet | Behaviour) for fault in parts.get("faults", [])):
        return
    for key, field in scenario_keys(scheme.params).items():
        wait_s = getattr(params, field.name)
        if field.name in scheme.timeouts and key not in entry and wait_s is not None and wait_s >= _LONG_WAIT_S:
            yield (f"{key} is not stated: by default {format_duration(round(wait_s * 1e9))} are waited for whoever is "
                   "lost, which may decide all times")


def _apart(scheme: AnyScheme, params: object, placed: Placed, network: Network) -> str | None:
    """The reason why two nodes of a scheme that talk cannot reach each other; None: all can.

    The nodes that decide talk with all others, if over further ones. Where nobody forwards, it depends on the scheme
    who talks to whom beside that: `emul check` tries a round then.
    """
    nodes = placed.vertices
    if not network.topology.forward and (len(placed.roles) == 1 or scheme.knows(params)):
        return None
    first = scheme.deciders(placed.roles)
    if network.topology.forward:
        first = first[:1] or [0]        # whom it reaches, and who reaches it, reach each other
    return cut_off(network, ((nodes[i], v) for i in first for v in nodes if v != nodes[i]))


def _world(scheme: AnyScheme, params: object, placed: Placed, network: Network, parts: SoundParts,
           entry: PlainMapping) -> World:
    known = chart_for(scheme, params, network, placed)
    seed = parts.get("seed", 0)
    speeds = node_speeds(parts.get("node_speeds", []), seed, placed, network, parts.get("devices"),
                         parts.get("groups", ()))
    return World(scheme.name, seed, placed.names, placed.roles, speeds, task=parts.get("task", {}),
                 compress=entry.get(COMPRESS, {}),
                 root=scheme.root(placed.roles), terrain=None if known is None else Terrain(known),
                 islands=[() if one is None else (one.rate, one.jitter) for one in islands(
                     parts.get("node_speeds", []), seed, placed, network)])


def _judged(judge: Callable[[Any, World], Sequence[str]] | None, params: object, world: World) -> Sequence[str] | None:
    """The sentences of a scheme's `check` or `warn`; None if it looks at a task that is wrong itself."""
    try:
        return () if judge is None else judge(params, world)
    except UnsoundError:
        return None


def _at(text: str, name: str, parameters: PlainMapping) -> Finding:
    """A scheme's own "f = 5: needs n >= 13 clients" in its place: at `f` if that is one of the keys written."""
    head, colon, rest = text.partition(": ")
    key = head.split(" ")[0]
    if colon and len(head) <= 40:
        return ((key,) if key in parameters else ()), head, rest
    return (), name, text


class UnsoundError(EmulError):
    """A scheme has asked for a part of a task that is wrong."""


class Unsound(Mapping[str, Any]):
    """A task with mistakes, as a scheme's check sees it: whatever that says of it would be of no use."""

    def __getitem__(self, key: str) -> Any:
        raise UnsoundError(key)

    def __iter__(self) -> Iterator[str]:
        raise UnsoundError("task")

    def __len__(self) -> int:
        raise UnsoundError("task")


# --- what only some schemes have ------------------------------------------------------------------------------------

def _behaviours_of(scheme: AnyScheme) -> list[str]:
    return [name for faulty in scheme.behaviours.values() for name in faulty]


def _types_of(scheme: AnyScheme) -> list[str]:
    return list(scheme.types)


def _only_offered(key: str, what: str, offer: Callable[[AnyScheme], list[str]], found: list[AnyScheme],
                  tree: PlainMapping, plugins: Sequence[str]) -> Iterator[Finding]:
    """Problems of faults whose `key` names what no scheme has."""
    offered = {name for scheme in found for name in offer(scheme)}
    for i, entry in enumerate(tree.get("faults") or []):
        name = entry.get(key)
        if name is not None and name not in offered and not _offered_elsewhere(name, offer, plugins):
            expected = (f"unknown {what}" + nearest(name, sorted(offered)) if offered else
                        f"unknown {what}: no scheme of this scenario has any")
            yield ("faults", i, key), shown(name), expected


def _offered_elsewhere(name: str, offer: Callable[[AnyScheme], list[str]], plugins: Sequence[str]) -> bool:
    """True if a scheme that this scenario does not run has it: a run keeps the scenario of its scheme alone, with the
    faults of all."""
    for scheme in schemes.known(plugins):
        with contextlib.suppress(EmulError):
            if name in offer(schemes.find(scheme, plugins)):
                return True
    return False


def _payloads(kinds: Sequence[str], found: list[AnyScheme], plugins: Sequence[str]) -> Iterator[Finding]:
    """Types of messages that are to be kept and that no scheme has, of this scenario or of one that its run is part
    of."""
    known = sorted({kind for scheme in found for kind in scheme.types})
    for i, kind in enumerate(kinds if found else ()):
        if kind not in known and not _offered_elsewhere(kind, _types_of, plugins):
            yield ("record", "payloads", i), shown(kind), ("no scheme of this scenario sends such messages"
                                                           + nearest(kind, known))


# --- attacks --------------------------------------------------------------------------------------------------------

def _attacks(entries: Sequence[AttackSpec], found: list[AnyScheme], tree: PlainMapping,
             plugins: Sequence[str]) -> Iterator[Finding]:
    """Problems of names, of parameters, and of what an attacker is to know."""
    silent = [scheme.name for scheme in found if scheme.honest is None]
    for i, entry in enumerate(entries):
        for kind, chosen in entry.chosen().items():
            yield from _attack(chosen, kind, ("attacks", i, kind), isinstance(tree["attacks"][i][kind], str), plugins)
        if entry.update is None or entry.update.name not in attacks.known("update", plugins):
            continue
        needs = attacks.needs(attacks.known("update", plugins)[entry.update.name])
        knows = entry.knows or needs
        if attacks.KNOWS.index(knows) < attacks.KNOWS.index(needs):
            yield ("attacks", i, "knows"), knows, f"{entry.update.name} needs to know at least: {needs}"
        elif knows != "own" and silent:
            yield ("attacks", i, "knows"), knows, (f"expected own: scheme {silent[0]} does not say what an honest node "
                                                   "sends (honest), so that nobody can compute it again")


def _attack(chosen: NamedAttack, kind: str, path: Path, short: bool, plugins: Sequence[str]) -> Iterator[Finding]:
    """Of one attack. short: the file gives its name alone, and no mapping."""
    known = attacks.known(kind, plugins)
    if chosen.name not in known:
        what = f"unknown attack on {'an ' if kind == 'update' else ''}{kind}"
        yield path if short else (*path, "name"), shown(chosen.name), what + nearest(chosen.name, known)
        return
    _, found = check_params(attacks.parameters(known[chosen.name]), chosen.params)
    for below, value, expected in found:
        if not below:
            below, value, expected = _at(expected, chosen.name, chosen.params)
        yield (*path, *below), value, expected
