"""Checks of `groups`: are their devices and links in the tables, can they have their members, is every `@name` one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from emul.base.errors import ScenarioError
from emul.base.plain import PlainMapping
from emul.base.tables import in_short
from emul.network import Network, parse_match
from emul.network.models.churn import read_availability
from emul.network.rules import MARK, LinkRule
from emul.scenario.churn import Availability
from emul.scenario.devices import Devices
from emul.scenario.groups import ClientGroup, short_of
from emul.scenario.sections import SoundParts
from emul.scenario.wording import Finding, nearest, shown


def sound_groups(groups: Sequence[ClientGroup], devices: Devices | None) -> tuple[list[ClientGroup], list[Finding]]:
    """The groups, those whose device or link is in no table without these; and what is wrong with them."""
    own, sound, found = devices or Devices(()), [], list(_schedules(groups))
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


def _schedules(groups: Sequence[ClientGroup]) -> Iterator[Finding]:
    """Problems of the files of availability of groups."""
    for i, group in enumerate(groups):
        if isinstance(group.absence, Availability):
            try:
                read_availability(group.absence.file, group.absence.period_ns)
            except ScenarioError as error:
                yield ("groups", i, "availability", "file"), *in_short(error)


def lacking(groups: Sequence[ClientGroup], network: Network) -> tuple[list[Finding], list[str]]:
    """Fractions that are more than is left; warnings of groups without members."""
    wrong, told = short_of(groups, network.names, network.roles, network.groups)
    return [(("groups", i, "fraction"), found, expected) for i, found, expected in wrong], told


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
