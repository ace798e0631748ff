"""Checks that need the other layers: does the network exist, can the task be done, do the schemes know their keys.

Each part is looked at if what it needs is sound, so that one mistake does not hide the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from emul import attacks, learning, schemes
from emul.base.errors import EmulError, NetworkError, Problem, ScenarioError
from emul.network import LinkRule, Network, TopologyError, TopologySpec, build, realisation
from emul.network.links.fifo import LinksError
from emul.network.models import latency, outages, traces
from emul.network.models.churn import read_availability
from emul.network.models.csvfile import in_short
from emul.network.terrain import Terrain
from emul.roles import World
from emul.scenario.attacks import Attack, Chosen
from emul.scenario.churn import Availability
from emul.scenario.compress import cannot_compress
from emul.scenario.costtrace import read_trace
from emul.scenario.devices import Devices, unknown_devices, unknown_links, unknown_to
from emul.scenario.faults import Fault, Slow, is_pattern, matches
from emul.scenario.labels import COMPRESS, label_of
from emul.scenario.labels import parameters as own_parameters
from emul.scenario.network import NetworkUse
from emul.scenario.params import check_params
from emul.scenario.placing import Placed, chart_for, holders, node_speeds, placed_or_wrong
from emul.scenario.source import Path, Source, shown
from emul.scenario.task import cannot_fuse, mistakes, tried
from emul.scenario.untrained import SKIP, cannot_skip, needs_training
from emul.scenario.values import nearest
from emul.wire import message_types


def check_world(parts: dict[str, Any], source: Source, plugins: Sequence[str] = ()) -> list[str]:
    """Add to `source` what is wrong with the sound `parts`; the warnings are returned."""
    network: Network | None = None
    warnings: list[str] = []
    if "network" in parts:
        _record(parts["network"], source)
    devices = parts.get("devices")
    if devices is not None and not _devices(devices, source):
        parts = {key: value for key, value in parts.items() if key != "devices"}
    if "topology" in parts and "link_rules" in parts and _files(parts["link_rules"], source):
        network = _network(parts, source)
        if network is not None:
            warnings = [*_names(parts, network.names, source), *_no_effect(parts)]
    if "compute" in parts and parts["compute"].trace is not None:
        _cost_trace(parts, devices is not None, source, None if network is None else network.names)
    modules = _schemes(parts, network, source, plugins, warnings)
    if parts.get("training") == SKIP:
        for place, value, expected in cannot_skip(parts):
            source.problem(place, value, f"training: skip: {expected}")
    _behaviours(parts.get("faults", []), modules, source, plugins)
    _attacks(parts.get("attacks", []), modules, source, plugins)
    _schedules(parts.get("faults", []), source)
    _payloads(parts["record"].payloads if "record" in parts else (), modules, source, plugins)
    if "compute" in parts and parts["compute"].device == "cuda" and not learning.gpus():
        warnings.append("compute.device: cuda, but torch finds no GPU on this machine: workers are to be elsewhere "
                        "(--on)")
    if "task" in parts:
        sound = _task(parts["task"], parts.get("seed", 0), network, source, plugins)
        reason = cannot_fuse(parts["task"]) if sound and parts.get("fuse") is not None else None
        if reason is not None:
            source.problem(("fuse",), "", reason)
    return warnings


def _files(rules: Sequence[LinkRule], source: Source) -> bool:
    """Whether the files that rules name are sound; their problems are added, where the file is named."""
    sound = True
    for i, rule in enumerate(rules):
        found: list[tuple[str, tuple[str, str, str] | None]] = []
        if isinstance(rule.outage, outages.LossTraceSpec):
            found.append(("outage", outages.problem(rule.outage)))
        if isinstance(rule.latency_ns, latency.EmpiricalSpec):
            found.append(("latency", latency.problem(rule.latency_ns)))
        if isinstance(rule.bandwidth_bps, traces.TraceSpec):
            found.append(("bandwidth", traces.problem(rule.bandwidth_bps)))
        for key, wrong in found:
            if wrong is not None:
                source.problem(("links", i, key, wrong[0]), wrong[1], wrong[2])
                sound = False
    return sound


def _devices(devices: Devices, source: Source) -> bool:
    """Whether the tables of devices and links, and what names them, are sound; problems are added where they are named.
    """
    sound = True
    try:
        for i, name, expected in unknown_devices(devices):
            source.problem(("devices", "nodes", i, "device"), shown(name), expected)
            sound = False
    except ScenarioError as error:
        source.problem(("devices", "table"), *in_short(error))
        sound = False
    return _link_classes(devices, source) and sound


def _cost_trace(parts: dict[str, Any], given: bool, source: Source, names: Sequence[str] | None) -> None:
    """A file of what computations took. given: there are devices, sound or not. names: of the nodes; None: not known.
    """
    try:
        trace = read_trace(parts["compute"].trace)
    except ScenarioError as error:
        source.problem(("compute", "trace"), *in_short(error))
        return
    if trace.by_device and not given:
        source.problem(("compute", "trace"), "device", "a file by device needs devices: who has which")
    devices = parts.get("devices")
    for name in () if devices is None else unknown_to(devices, trace.by_device):
        source.problem(("compute", "trace"), shown(name), "a device that the table lacks")
    for name, expected in () if names is None else trace.unknown(names):
        source.problem(("compute", "trace"), shown(name), expected)


def _link_classes(devices: Devices, source: Source) -> bool:
    """Whether the table of links, and what names its classes, are sound."""
    try:
        unknown = unknown_links(devices)
    except ScenarioError as error:
        source.problem(("devices", "links"), *in_short(error))
        return False
    for i, name, expected in unknown:
        source.problem(("devices", "nodes", i, "link"), shown(name), expected)
    return not unknown


def _record(use: NetworkUse, source: Source) -> None:
    """The record of a network that is to be replayed can be read."""
    if use.replay is None:
        return
    try:
        realisation.read(use.replay)
    except ScenarioError as error:
        source.problem(("network", "replay"), *in_short(error))


def _network(parts: dict[str, Any], source: Source) -> Network | None:
    try:
        return build(parts["topology"], parts["link_rules"], parts.get("seed", 0), joined=parts.get("devices"))
    except TopologyError as error:
        for problem in error.problems:
            _of_topology(problem, parts["topology"], source)
    except LinksError as error:
        for problem in error.problems:
            source.problem(("links",), problem.place, f"{problem.found}: {problem.expected}")
    except NetworkError as error:
        # the network lists its own findings below a heading, one a line
        lines = str(error).splitlines()
        of_file = parts["topology"].file is not None and lines[0].startswith(str(parts["topology"].file))
        for line in lines[1:] or lines:
            source.problem(("topology", "file") if of_file else ("topology",), "", " ".join(line.split()))
    return None


def _of_topology(problem: Problem, topology: TopologySpec, source: Source) -> None:
    """A problem of the topology: where its key is written, or in the file that it names."""
    steps = problem.place.split(".")
    if steps[0] == "topology":
        source.problem(tuple(steps), problem.found, problem.expected)
        return
    line = "" if problem.line is None else f"line {problem.line}: "
    said = ": ".join(part for part in (problem.place, problem.found, problem.expected) if part)
    key = ("topology", "file") if topology.file is not None else ("topology",)
    source.problem(key, "" if topology.file is None else str(topology.file).rpartition("/")[2], line + said)


def _names(parts: dict[str, Any], names: list[str], source: Source) -> list[str]:
    known = set(names)
    entries = source.tree.get("faults") or []
    for i, entry in enumerate(entries if "faults" in parts else []):
        for below, name in _named(entry):
            if name in known or (is_pattern(name) and any(matches(known_name, name) for known_name in names)):
                continue
            expected = "matches no node" if is_pattern(name) else "unknown node" + nearest(name, names)
            source.problem(("faults", i, *below), shown(name), expected)
    for i, attack in enumerate(parts.get("attacks", [])):
        for j, name in enumerate(attack.nodes):
            if name not in known:
                source.problem(("attacks", i, "nodes", j), shown(name), "unknown node" + nearest(name, names))
    return [f'nodes[{i}] {shown(rule.match)} matches no node' for i, rule in enumerate(parts.get("node_speeds", []))
            if rule.match is not None and not any(matches(name, rule.match) for name in names)]


def _no_effect(parts: dict[str, Any]) -> list[str]:
    """What is said of speeds where computations cost what does not depend on them."""
    compute = parts.get("compute")
    if compute is None or compute.mode not in ("zero", "recorded"):
        return []
    said = ["nodes: speed"] * bool(parts.get("node_speeds")) + ["faults: slow"] * any(
        isinstance(fault, Slow) for fault in parts.get("faults", []))
    return [f"{what} has no effect with compute mode: {compute.mode}" for what in said]


def _named(entry: dict[str, Any]) -> list[tuple[Path, str]]:
    """(place below the fault, name or pattern) of what a fault of the file names."""
    key = next(key for key in ("node", "link", "partition", "churn", "availability", "group")
               if entry.get(key) is not None)
    below = entry[key]
    if key == "node":
        return [((key,), below)]
    if key == "link":
        return [((key,), name.strip()) for name in below.replace("<->", "->").split("->")]
    if key == "partition":
        return [((key, g, n), name) for g, group in enumerate(below) for n, name in enumerate(group)]
    named: list[tuple[Path, str]] = [((key, "match"), below["match"])] if below.get("match") is not None else []
    return named + [((key, "nodes", n), name) for n, name in enumerate(below.get("nodes") or ())]


def _schedules(faults: Sequence[Any], source: Source) -> None:
    """Problems of the files of availability, where they are named."""
    chosen = [fault for fault in faults if isinstance(fault, Availability)]
    if not chosen:
        return
    places = [i for i, entry in enumerate(source.tree["faults"]) if (entry.get("availability") or {}).get("file")]
    for i, fault in zip(places, chosen, strict=True):
        try:
            read_availability(fault.file, fault.period_ns)
        except ScenarioError as error:
            source.problem(("faults", i, "availability", "file"), *in_short(error))


def _schemes(parts: dict[str, Any], network: Network | None, source: Source, plugins: Sequence[str],
             warnings: list[str]) -> list[ModuleType]:
    """The modules found; problems of names, parameters and places are added to `source`, what schemes warn of to
    `warnings`.
    """
    modules = []
    for i, (name, entry) in enumerate(parts.get("schemes", [])):
        try:
            module = schemes.find(name, plugins)
        except schemes.UnknownScheme:
            expected = "unknown scheme" + nearest(name, schemes.known(plugins)) + schemes.plugin_hint(name)
            source.problem(("schemes", i, "name"), shown(name), expected)
            continue
        except EmulError as error:
            source.problem(("schemes", i, "name"), shown(name), str(error))
            continue
        modules.append(module)
        params, found = check_params(module.Params, own_parameters(entry))
        if network is not None and params is not None:
            placed, found = placed_or_wrong(module, params, entry, network)
            if placed is not None:
                world = _world(name, module, placed, network, parts, entry)
                _scheme(name, module, params, entry, ("schemes", i), world, source)
                found = cannot_compress(name, module, entry, parts.get("attacks", []), plugins)
                if parts.get("training") == SKIP:
                    found += [(below, value, f"training: skip: {expected}")
                              for below, value, expected in needs_training(name, module, params, entry)]
                warn = getattr(module, "warn", None)
                warnings += [] if warn is None else [f"{label_of(name, entry)}: {text}" for text in warn(params, world)]
        for below, value, expected in found:
            source.problem(("schemes", i, *below), value, expected)
    return modules


def _world(scheme: str, module: ModuleType, placed: Placed, network: Network, parts: dict[str, Any],
           entry: dict[str, Any]) -> World:
    known = chart_for(module, network, placed)
    seed = parts.get("seed", 0)
    speeds = node_speeds(parts.get("node_speeds", []), seed, placed, network, parts.get("devices"))
    return World(scheme, seed, placed.names, placed.roles, speeds, task=parts.get("task", {}),
                 compress=entry.get(COMPRESS, {}),
                 root=schemes.root(module, placed.roles), terrain=None if known is None else Terrain(known))


def _scheme(name: str, module: ModuleType, params: Any, entry: dict[str, Any], path: Path, world: World,
            source: Source) -> None:
    """What the scheme itself finds wrong."""
    if hasattr(module, "check"):
        for text in module.check(params, world):
            source.problem(*_said(text, name, entry, path))


def _said(text: str, name: str, parameters: dict[str, Any], path: Path) -> tuple[Path, str, str]:
    """A scheme's own "f = 5: needs n >= 13 clients" in its place: at `f` if that is one of the keys written."""
    head, colon, rest = text.partition(": ")
    key = head.split(" ")[0]
    if colon and len(head) <= 40:
        return ((*path, key) if key in parameters else path), head, rest
    return path, name, text


def _behaviours(faults: list[Fault], modules: list[ModuleType], source: Source, plugins: Sequence[str]) -> None:
    if faults:
        _only_offered("behave", "behaviour", _behaviours_of, modules, source, plugins)
        _only_offered("stage", "message", schemes.message_names, modules, source, plugins)


def _behaviours_of(module: ModuleType) -> list[str]:
    return list(getattr(module, "BEHAVIOURS", {}))


def _only_offered(key: str, what: str, offer: Callable[[ModuleType], list[str]], modules: list[ModuleType],
                  source: Source, plugins: Sequence[str]) -> None:
    """Problems of faults whose `key` names what no scheme has."""
    offered = {name for module in modules for name in offer(module)}
    for i, entry in enumerate(source.tree.get("faults") or []):
        name = entry.get(key)
        if name is not None and name not in offered and not _offered_elsewhere(name, offer, plugins):
            expected = (f"unknown {what}" + nearest(name, sorted(offered)) if offered else
                        f"unknown {what}: no scheme of this scenario has any")
            source.problem(("faults", i, key), shown(name), expected)


def _attacks(entries: Sequence[Attack], modules: list[ModuleType], source: Source, plugins: Sequence[str]) -> None:
    """Problems of names, of parameters, and of what an attacker is to know."""
    silent = [m.__name__.rpartition(".")[2] for m in modules if not hasattr(m, "HONEST")]
    for i, entry in enumerate(entries):
        for kind, chosen in entry.chosen().items():
            _attack(chosen, kind, ("attacks", i, kind), source, plugins)
        if entry.update is None or entry.update.name not in attacks.known("update", plugins):
            continue
        needs = attacks.needs(attacks.known("update", plugins)[entry.update.name])
        knows = entry.knows or needs
        if attacks.KNOWS.index(knows) < attacks.KNOWS.index(needs):
            source.problem(("attacks", i, "knows"), knows, f"{entry.update.name} needs to know at least: {needs}")
        elif knows != "own" and silent:
            source.problem(("attacks", i, "knows"), knows, f"expected own: scheme {silent[0]} does not say what an "
                           "honest node sends (HONEST), so that nobody can compute it again")


def _attack(chosen: Chosen, kind: str, path: Path, source: Source, plugins: Sequence[str]) -> None:
    known = attacks.known(kind, plugins)
    short = isinstance(source.tree["attacks"][path[1]][kind], str)
    if chosen.name not in known:
        what = f"unknown attack on {'an ' if kind == 'update' else ''}{kind}"
        source.problem(path if short else (*path, "name"), shown(chosen.name), what + nearest(chosen.name, known))
        return
    _, found = check_params(attacks.parameters(known[chosen.name]), chosen.params)
    for below, value, expected in found:
        where, value, expected = ((*path, *below), value, expected) if below else _said(
            expected, chosen.name, dict(chosen.params), path)
        source.problem(where, value, expected)


def _offered_elsewhere(name: str, offer: Callable[[ModuleType], list[str]], plugins: Sequence[str]) -> bool:
    """Whether a scheme that this scenario does not run has it: a run keeps the scenario of its scheme alone, with the
    faults of all."""
    for scheme in schemes.known(plugins):
        with contextlib.suppress(EmulError):
            if name in offer(schemes.find(scheme, plugins)):
                return True
    return False


def _payloads(kinds: Sequence[str], modules: list[ModuleType], source: Source, plugins: Sequence[str]) -> None:
    """Types of messages that are to be kept and that no scheme has, of this scenario or of one that its run is part
    of."""
    known = sorted({kind for module in modules for kind in message_types(module)})
    if not modules:
        return
    for i, kind in enumerate(kinds):
        if kind not in known and not _sent_elsewhere(kind, plugins):
            source.problem(("record", "payloads", i), shown(kind), "no scheme of this scenario sends such messages"
                           + nearest(kind, known))


def _sent_elsewhere(kind: str, plugins: Sequence[str]) -> bool:
    for scheme in schemes.known(plugins):
        with contextlib.suppress(EmulError):
            if kind in message_types(schemes.find(scheme, plugins)):
                return True
    return False


def _task(task: dict[str, Any], seed: int, network: Network | None, source: Source, plugins: Sequence[str]) -> bool:
    """Whether it is sound."""
    # one client asks the least of it where the network is unknown
    clients = 1 if network is None else len(holders(network))
    found = mistakes(task, clients, plugins) or tried(task, clients, seed, plugins)
    for below, value, expected in found:
        source.problem(("task", *below), value[:60], expected)
    return not found
