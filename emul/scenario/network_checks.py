"""Checks of what a scenario says of its network: do files and tables exist, is it one, are nodes and groups there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.names import MARK, is_pattern, matches
from emul.base.plain import PlainMapping
from emul.base.tables import in_short
from emul.base.units import format_duration
from emul.network import LinkRule, Network, TopologyError, TopologySpec, build, parse_match, realisation
from emul.network.classes import whole_message_losses
from emul.network.contactplan import ContactsError
from emul.network.links.connections import MSS_BYTES
from emul.network.mediumoutlook import radio_problems
from emul.network.models import contacts, latency, outages, radiofiles, traces
from emul.network.models.background import OnOffRate, Traffic, WalkRate
from emul.network.models.churn import read_availability
from emul.network.models.contacts import ContactSpec
from emul.network.network import LinksError
from emul.scenario.churn import Availability, Churn
from emul.scenario.devices import WATTS, Devices, equipment, unknown_devices, unknown_links, unknown_to
from emul.scenario.faults import Slow
from emul.scenario.groups import ClientGroup, short_of
from emul.scenario.running import ComputeTime, NetworkUse, read_trace
from emul.scenario.sections import SoundParts
from emul.scenario.topology import key_of_file
from emul.scenario.wording import MISSING, Finding, Path, Verdicts, nearest, shown, there_are


def check_network(parts: SoundParts, tree: PlainMapping,
                  ) -> tuple[Network | None, SoundParts, Verdicts]:
    """(the network, the parts that are sound so far, what is said). None: nobody knows the network yet."""
    network: Network | None = None
    checked = Verdicts()
    if "network" in parts:
        checked.found += _record(parts["network"])
    # What names a device or a class of links that no table has is left out of what follows, which looks names up in
    # these tables and takes them for found.
    devices = parts.get("devices")
    if devices is not None and (unsound := [*_devices(devices, parts.get("compute")), *_link_classes(devices)]):
        checked.found += unsound
        parts = {key: value for key, value in parts.items() if key != "devices"}
    groups, unsound = sound_groups(parts.get("groups", ()), parts.get("devices"))
    checked.found += unsound
    parts = {**parts, "groups": groups, "devices": equipment(parts.get("devices"), groups)}
    # A network is built only where all that makes it is sound, and each of its files can be read: what `build` says of
    # the rest would be consequences of mistakes that are told already.
    if all(key in parts for key in ("topology", "link_rules", "media", "radio")):
        unsound = list(_files(parts))
        if not unsound:
            network, unsound = _built(parts)
        checked.found += unsound
    if network is not None:
        shortages, empty = lacking(groups, network)
        checked.found += [*shortages, *_unknown_names(parts, tree, network.names), *unknown_in_rules(parts, tree)]
        checked.warnings += [*empty, *overruled(groups, parts["link_rules"]), *_unmatched(parts, network.names)]
        checked.warnings += [*_no_effect(parts), *_beyond(parts), *_dropped_rows(parts["link_rules"])]
        checked.found += [(("radio", *below), shown(written), expected)
                          for below, written, expected in radio_problems(network)]
        used = {rule.medium for rule in parts["link_rules"]}
        checked.warnings += [f"media: {name} is the medium of no link" for name in network.media if name not in used]
        unsound = list(_traffic(parts, network))
        checked.found += unsound
        if network.background is not None and not unsound:
            checked.warnings += network.background.warnings()
        checked.warnings += [] if parts.get("devices") is None else _whole_losses(parts["devices"], network)
    if "compute" in parts and parts["compute"].trace is not None:
        given = devices is not None or any(group.device for group in groups)
        checked.found += _cost_trace(parts, given, None if network is None else network.names, checked.warnings)
    checked.found += _schedules((("faults", i), fault) for i, fault in _absences(parts.get("faults", []), tree))
    checked.found += _too_many_changes(parts)
    return network, parts, checked


def _record(use: NetworkUse) -> Iterator[Finding]:
    """The record of a network that is to be replayed can be read."""
    if use.replay is None:
        return
    # here, since few scenarios replay a network, and `emul check` reads no run otherwise
    from emul.record.journal import RecordError
    from emul.record.rundir import require_sealed

    try:
        require_sealed(use.replay)
        realisation.read(use.replay)
    except RecordError as error:
        yield ("network", "replay"), str(use.replay), f"is not as the run wrote it: {error}"
    except ScenarioError as error:
        yield ("network", "replay"), *in_short(error)


# --- devices --------------------------------------------------------------------------------------------------------

def _devices(devices: Devices, compute: ComputeTime | None) -> Iterator[Finding]:
    """The table of devices, what names them, and what is asked of them that the table does not say."""
    try:
        unknown = unknown_devices(devices)
        for i, name, expected in unknown:
            yield ("devices", "nodes", i, "device"), shown(name), expected
        if not unknown:
            yield from _lacking_numbers(devices, compute)
    except ScenarioError as error:
        yield ("devices", "table"), *in_short(error)


def _lacking_numbers(devices: Devices, compute: ComputeTime | None) -> Iterator[Finding]:
    known = devices.devices()
    divided = compute is not None and (compute.mode in ("measured", "profile") or (
        bool(compute.default_ns) and compute.mode != "model"))
    for i, rule in enumerate(devices.rules):
        for name in rule.weights or ():
            if divided and known[name].speed is None:
                yield ("devices", "nodes", i, "device"), shown(name), (
                    "the table says no speed of it, which divides costs: expected compute mode: model, or a table with "
                    "speeds")
            if rule.battery_j is not None and (lacking := known[name].lacking(WATTS)):
                yield ("devices", "nodes", i, "battery"), shown(name), f"the table says no {', '.join(lacking)} of it"
    if devices.population is not None and not devices.shares():
        yield ("devices", "population"), devices.population, "no device of the table has a steam_share"
    elif devices.population is not None and divided and any(known[name].speed is None for name in devices.shares()):
        yield ("devices", "population"), devices.population, "the table says no speeds: expected compute mode: model"


def _link_classes(devices: Devices) -> Iterator[Finding]:
    """The table of links, and what names its classes."""
    try:
        for i, name, expected in unknown_links(devices):
            yield ("devices", "nodes", i, "link"), shown(name), expected
    except ScenarioError as error:
        yield ("devices", "links"), *in_short(error)


def _cost_trace(parts: SoundParts, given: bool, names: Sequence[str] | None, warnings: list[str]) -> Iterator[Finding]:
    """A file of what computations took. given: there are devices, sound or not. names: of the nodes; None: not known.

    A file may have more nodes than a network: lines of others are passed over, with a warning.
    """
    try:
        trace = read_trace(parts["compute"].trace)
    except ScenarioError as error:
        yield ("compute", "trace"), *in_short(error)
        return
    if trace.by_device and not given:
        yield ("compute", "trace"), "device", "a file by device needs devices: who has which"
    devices = parts.get("devices")
    for name in () if devices is None else unknown_to(devices, trace.by_device):
        yield ("compute", "trace"), shown(name), "a device that the table lacks"
    unknown = [] if names is None else trace.unknown(names)
    if unknown and len(unknown) == len(trace.by_node):
        name, expected = unknown[0]
        yield ("compute", "trace"), shown(name), f"{expected}; expected lines of a node of the network, found none"
    elif unknown:
        some = ", ".join(f"{shown(name)} ({expected})" for name, expected in unknown[:3])
        warnings.append(f"compute.trace: lines of {len(unknown)} {'nodes' if len(unknown) > 1 else 'node'} are passed "
                        f"over: {some}{', ...' * (len(unknown) > 3)}")


def _whole_losses(devices: Devices, network: Network) -> list[str]:
    """Warnings of classes in which the loss of a packet is that of a message of any size."""
    classes = devices.link_classes()
    of = network.classes
    found = [] if not classes else whole_message_losses(
        classes, (({of[u], of[v]}, network.parameters(u, v)) for u, v in network.pairs()))
    if not found:
        return []
    names, each = ", ".join(one.name for one in found), ", ".join(f"{one.loss:.3g}" for one in found)
    of_many = ", ".join(f"{1 - (1 - one.loss) ** -(-10**6 // MSS_BYTES):.3g}" for one in found)
    return [f"devices: links of {names} lose a message of any size with the loss of a packet, {each}, since no "
            f"overhead of theirs has an mtu; with overhead: {{preset: ipv4_tcp}} one of 1 MB is lost with {of_many}"]


# --- topology and links ---------------------------------------------------------------------------------------------

def _files(parts: SoundParts) -> Iterator[Finding]:
    """Mistakes in the files and media that links, traffic, contacts and radio name."""
    for i, rule in enumerate(parts["link_rules"]):
        found: list[tuple[str, tuple[str, str, str] | None]] = []
        if isinstance(rule.outage, outages.LossTraceSpec):
            found.append(("outage", outages.problem(rule.outage)))
        if isinstance(rule.latency_ns, latency.EmpiricalSpec | latency.LatencyTraceSpec):
            found.append(("latency", latency.problem(rule.latency_ns)))
        if isinstance(rule.bandwidth_bps, traces.TraceSpec):
            found.append(("bandwidth", traces.problem(rule.bandwidth_bps)))
        for key, wrong in found:
            if wrong is not None:
                yield ("links", i, key, wrong[0]), wrong[1], wrong[2]
    for i, entry in enumerate(parts.get("traffic", [])):
        wrong = traces.problem(entry.rate) if isinstance(entry.rate, traces.TraceSpec) else None
        if wrong is not None:
            yield ("traffic", i, "rate", wrong[0]), wrong[1], wrong[2]
    yield from _plan(parts.get("contacts"))
    yield from _unknown_media(parts)
    for below, written, expected in () if parts["radio"] is None else radiofiles.problems(parts["radio"]):
        yield ("radio", *below), written, expected


def _unknown_media(parts: SoundParts) -> Iterator[Finding]:
    """The media that rules name and the scenario lacks; nothing where its own media are not sound."""
    if "media" not in parts:
        return
    known = [one.name for one in parts["media"]]
    for i, rule in enumerate(parts["link_rules"]):
        if rule.medium is not None and rule.medium not in known:
            yield ("links", i, "medium"), shown(rule.medium), "unknown medium" + (
                nearest(rule.medium, known) or "; expected media: {NAME: {efficiency: ...}} with it")


def _plan(spec: ContactSpec | None) -> list[Finding]:
    """The file of a contact plan, and keys that a constellation makes useless."""
    if spec is None:
        return []
    if spec.constellation is not None:
        return [] if spec.file is None else [(("contacts", "file"), shown(spec.file.name),
                                              "is not used with a constellation, which makes the contacts")]
    if spec.file is None:
        return [(("contacts", "file"), MISSING, "is required")]
    if spec.step_ns is not None:
        return [(("contacts", "step"), format_duration(spec.step_ns),
            "is of a constellation: a file has its latencies")]
    try:
        contacts.read_plan(spec)
    except ScenarioError as error:
        return _of_plan(spec, error.problems)
    wrong = contacts.problem(spec)
    return [] if wrong is None else [(("contacts", "sha256"), *wrong)]


def _of_plan(spec: ContactSpec, problems: Sequence[Problem]) -> list[Finding]:
    """All that is wrong with a contact plan, with its lines."""
    if spec.file is None:               # of a constellation
        return [(("topology", "constellation"), one.found, one.expected) for one in problems]
    return [(("contacts", "file"), ", ".join(part for part in (
        str(spec.file).rpartition("/")[2], f"line {one.line}" if one.line else "", one.place, one.found) if part),
        one.expected) for one in problems]


def _traffic(parts: SoundParts, network: Network) -> Iterator[Finding]:
    """Entries of background traffic that match nothing, have no way, or meet a link that cannot have any."""
    for i, expected in () if network.background is None else network.background.problems():
        entry: Traffic = parts["traffic"][i]
        key = "link" if entry.flow is None else "flow"
        strange = [name for side in parse_match(entry.match) for name in side
                   if not is_pattern(name) and not name.startswith(MARK) and name not in network.names]
        yield ("traffic", i, key), shown(entry.match), (
            f'unknown node "{strange[0]}"{nearest(strange[0], network.names)}' if strange else expected)


def _built(parts: SoundParts) -> tuple[Network | None, list[Finding]]:
    """The network, or why there is none."""
    topology: TopologySpec = parts["topology"]
    try:
        return build(topology, parts["link_rules"], parts.get("seed", 0), joined=parts.get("devices"),
                     traffic=parts.get("traffic", ()), contacts=parts.get("contacts"),
                     media=parts.get("media", ()), radio=parts.get("radio")), []
    except TopologyError as error:
        return None, [_of_topology(problem, topology, error.file) for problem in error.problems]
    except ContactsError as error:
        return None, _of_plan(parts["contacts"], error.problems)
    except LinksError as error:
        return None, [(("links",), problem.place, f"{problem.found}: {problem.expected}") for problem in error.problems]
    except NetworkError as error:
        # the network lists its own findings below a heading, one a line
        lines = str(error).splitlines()
        key: Path = ("topology", "file") if lines[0].startswith(str(topology.file)) else ("topology",)
        return None, [(key, "", " ".join(line.split())) for line in lines[1:] or lines]


def _of_topology(problem: Problem, topology: TopologySpec, file: str) -> Finding:
    """A problem of the topology: where its key is written, or in the file that it names."""
    steps = problem.place.split(".")
    if steps[0] == "topology":
        return tuple(steps), problem.found, problem.expected
    line = "" if problem.line is None else f"line {problem.line}: "
    said = ": ".join(part for part in (problem.place, problem.found, problem.expected) if part)
    key = key_of_file(topology, file)
    return key, "" if len(key) == 1 else file.rpartition("/")[2], line + said


# --- names of nodes -------------------------------------------------------------------------------------------------

def _unknown_names(parts: SoundParts, tree: PlainMapping, names: list[str]) -> Iterator[Finding]:
    """Names and patterns of faults and attacks that are those of no node and of no group."""
    known = set(names)
    entries = tree.get("faults") or []
    for i, entry in enumerate(entries if "faults" in parts else []):
        for below, name in _named(entry):
            if name in known or (is_pattern(name) and any(matches(known_name, name, known) for known_name in names)):
                continue
            expected = "matches no node" + there_are(names) if is_pattern(name) else _no_node(name, names, parts)
            if expected:
                yield ("faults", i, *below), shown(name), expected
    for i, attack in enumerate(parts.get("attacks", [])):
        alone = isinstance(tree["attacks"][i]["nodes"], str)            # a group
        for j, name in enumerate(attack.nodes):
            if name not in known and (expected := _no_node(name, names, parts)):
                yield ("attacks", i, "nodes", *([] if alone else [j])), shown(name), expected


def _no_node(name: str, names: list[str], parts: SoundParts) -> str:
    """The mistake in a name that no node has; "" if it is that of a group."""
    return unknown_mark(name, parts) if name.startswith(MARK) else "unknown node" + nearest(name, names)


def _named(entry: PlainMapping) -> list[tuple[Path, str]]:
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


def _unmatched(parts: SoundParts, names: list[str]) -> list[str]:
    known = frozenset(names)
    return [f'nodes[{i}] {shown(rule.match)} matches no node' for i, rule in enumerate(parts.get("node_speeds", []))
            if rule.match is not None and not rule.match.startswith(MARK) and rule.match not in known
            and not (is_pattern(rule.match) and any(matches(name, rule.match, known) for name in names))]


def _no_effect(parts: SoundParts) -> list[str]:
    """Warnings of speeds on which the cost of computations does not depend."""
    compute = parts.get("compute")
    if compute is None or compute.mode not in ("zero", "recorded") or compute.default_ns:
        return []
    said = ["groups: speed"] * any(group.speed is not None for group in parts.get("groups", ()))
    declared = bool(parts.get("task", {}).get("declared"))      # stated times, which speeds divide
    rules = [] if declared else parts.get("node_speeds", [])
    said += ["nodes: speed"] * any(rule.speed is not None for rule in rules)
    if compute.trace is None:           # such a fault slows computations whose times come from a trace
        said += ["faults: slow"] * any(isinstance(fault, Slow) for fault in parts.get("faults", []))
    return [f"{what} has no effect with compute mode: {compute.mode}" for what in said]


def _dropped_rows(rules: Sequence[LinkRule]) -> list[str]:
    """Warnings of traces that begin anew at their last row, which has another rate than the first, and never holds."""
    found = []
    for i, rule in enumerate(rules):
        spec = rule.bandwidth_bps
        if isinstance(spec, traces.TraceSpec) and spec.loop and spec.period_ns is None and not spec.drawn:
            trace = spec.trace()
            if 0 < trace.times_ns[-1] == trace.length_ns and trace.rates_bps[-1] != trace.rates_bps[0]:
                found.append(f"links[{i}].bandwidth: {spec.file.name} begins anew after "
                             f"{format_duration(trace.length_ns)}, at its last row, whose rate never holds; period "
                             "gives it a time")
    return found


_MOST_CHANGES = 10_000_000       # of one link, entry of traffic or node: more take a run hours of real time


def _too_many_changes(parts: SoundParts) -> Iterator[Finding]:
    """Losses, traffic and absences that change more often, up to the end of virtual time, than a run can follow."""
    stop = parts.get("stop")
    if stop is None or stop.virtual_time_ns is None:
        return
    means: list[tuple[Path, float]] = []
    for i, rule in enumerate(parts.get("link_rules", ())):
        if isinstance(rule.outage, outages.OnOffSpec):
            means.append((("links", i, "outage"), (rule.outage.up_ns + rule.outage.down_ns) / 2))
        elif isinstance(rule.outage, outages.GilbertSpec) and rule.outage.slot_ns is not None:
            means.append((("links", i, "outage"), rule.outage.slot_ns / max(rule.outage.p, rule.outage.r, 1e-12)))
    for i, entry in enumerate(parts.get("traffic", ())):
        if entry.messages is not None:
            means.append((("traffic", i, "messages", "every"), entry.messages.every.mean))
        elif isinstance(entry.rate, WalkRate):
            means.append((("traffic", i, "rate", "walk", "every"), entry.rate.every.mean))
        elif isinstance(entry.rate, OnOffRate):
            means.append((("traffic", i, "rate", "on_off"),
                          (entry.rate.on.mean + entry.rate.off.mean) / 2))
    for i, fault in enumerate(parts.get("faults", ())):
        if isinstance(fault, Churn):
            means.append((("faults", i, "churn"), (fault.up.mean + fault.down.mean) / 2))
    least_ns = -(-stop.virtual_time_ns // _MOST_CHANGES)
    for path, mean_ns in means:
        if mean_ns < least_ns:
            yield path, f"{format_duration(round(mean_ns))} in the mean", (
                f"expected {format_duration(least_ns)} or more: at most {_MOST_CHANGES:,} up to stop.virtual_time")


def _beyond(parts: SoundParts) -> list[str]:
    """A warning of a run that goes on when the contacts of a constellation have ended."""
    spec, stop = parts["topology"].constellation, parts.get("stop")
    if spec is None or stop is None or (stop.virtual_time_ns or 0) <= spec.span_ns:
        return []
    span = format_duration(spec.span_ns)
    return [f"stop.virtual_time: contacts end after {span} (topology.constellation.for): then nothing is carried"]


def _absences(faults: Sequence[object], tree: PlainMapping) -> Iterator[tuple[int, object]]:
    """(place in the file, fault) of those whose times are in a file: an entry may stand for several faults, so that
    the places of both differ."""
    chosen = [fault for fault in faults if isinstance(fault, Availability)]
    if chosen:
        yield from zip((i for i, entry in enumerate(tree["faults"]) if (entry.get("availability") or {}).get("file")),
                       chosen, strict=True)


def _schedules(absences: Iterable[tuple[Path, object]]) -> Iterator[Finding]:
    """Problems of the files of availability, below the places where they are named."""
    for path, absence in absences:
        if isinstance(absence, Availability):
            try:
                read_availability(absence.file, absence.period_ns)
            except ScenarioError as error:
                yield (*path, "availability", "file"), *in_short(error)


# ---- groups ----

def sound_groups(groups: Sequence[ClientGroup], devices: Devices | None) -> tuple[list[ClientGroup], list[Finding]]:
    """The groups, those whose device or link is in no table without these; and what is wrong with them."""
    if not groups:                              # then nobody asks for the tables, which take a while to read
        return [], []
    own, sound, found = devices or Devices(()), [], list(_schedules(
        (("groups", i), group.absence) for i, group in enumerate(groups)))
    try:
        known, links = own.devices(), own.known_links()
    except ScenarioError:                       # told of `devices`, which names the table
        return [replace(group, device=None, link=None) for group in groups], found
    for i, group in enumerate(groups):
        bad_devices = [name for name in group.device or () if name not in known]
        bad_links = [name for name in group.link or () if name not in links]
        found += [(("groups", i, "device"), shown(name), "unknown device" + nearest(name, sorted(known)))
                  for name in bad_devices]
        found += [(("groups", i, "link"), shown(name), "unknown class of links" + nearest(name, sorted(links)))
                  for name in bad_links]
        if group.name in links:
            found.append((("groups", i, "name"), shown(group.name),
                          "is the name of a class of links, too: @ would mean both"))
        sound.append(replace(group, device=None if bad_devices else group.device,
                             link=None if bad_links else group.link))
    return sound, found


def lacking(groups: Sequence[ClientGroup], network: Network) -> tuple[list[Finding], list[str]]:
    """Fractions that are more than is left; warnings of groups without members."""
    wrong, empty = short_of(groups, network.names, network.roles, network.groups)
    return [(("groups", i, "fraction"), found, expected) for i, found, expected in wrong], empty


def overruled(groups: Sequence[ClientGroup], rules: Sequence[LinkRule]) -> list[str]:
    """Warnings of groups whose class of links has no say in latencies and bandwidths: rules for all links give both."""
    given = {what: i for i, rule in enumerate(rules) if rule.match == "*"
             for what, value in (("latency", rule.latency_ns), ("bandwidth", rule.bandwidth_bps)) if value is not None}
    if len(given) < 2:
        return []
    where = " and ".join(f"links[{i}]" for i in sorted(set(given.values())))
    return [f"groups[{i}].link: {', '.join(group.link)}: {where} gives latency and bandwidth of every link, which go "
            "before those of a class: its losses alone are left" for i, group in enumerate(groups) if group.link]


def unknown_mark(name: str, parts: SoundParts) -> str:
    """The mistake in `@name`: it is neither a group nor a class of links; "" if it is one."""
    devices = parts.get("devices") or Devices(())
    known = [group.name for group in parts.get("groups", ())]
    with contextlib.suppress(ScenarioError):
        known += devices.known_links()
    return "" if name[len(MARK):] in known else _no_group(name, known)


def _no_group(name: str, known: Sequence[str]) -> str:
    return "unknown group" + (nearest(name, [MARK + one for one in known]) or ": there are no groups")


def unknown_in_rules(parts: SoundParts, tree: PlainMapping) -> Iterator[Finding]:
    """Names behind "@" that are none, in rules of links, of speeds and of devices."""
    for section, rules in (("links", parts["link_rules"]), ("nodes", parts.get("node_speeds", ()))):
        for i, rule in enumerate(rules):
            sides = [] if rule.match is None else parse_match(rule.match)[0] if section == "links" else [rule.match]
            for side in dict.fromkeys(side for side in sides if side.startswith(MARK)):
                if expected := unknown_mark(side, parts):
                    yield (section, i, "match"), shown(rule.match), expected
    drawn = [group.name for group in parts.get("groups", ())]       # a class of links is given by these rules
    written = tree.get("devices")
    entries = written.get("nodes") if isinstance(written, dict) else None
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        match = entry.get("match") if isinstance(entry, dict) else None
        if isinstance(match, str) and match.startswith(MARK) and match[len(MARK):] not in drawn:
            yield ("devices", "nodes", i, "match"), shown(match), _no_group(match, drawn)
