"""`groups`: clients that are drawn together and share a speed, a device, a link, and how they come and go.

    groups:
      - {name: slow, fraction: 0.3, speed: 0.25, link: lte, availability: {diurnal: {mean: 0.6}}}
      - {name: far, match: "client[1-9]", link: dsl_slow}

A node is in one group at most: each group takes its share of those that no group before it has. The draw of a group
depends on the seed and its name, in one order of all that it may draw, so a larger fraction keeps those of a smaller
one. `@slow` in a `match` means its members. The values of a group go before `nodes` and `devices`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator

from emul.base.names import MARK, matches
from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.scenario.churn import (
    Absence,
    OwnAvailability,
    OwnChurn,
    absence_document,
    availability_value,
    churn_value,
)
from emul.scenario.sections import (
    AnyWeights,
    Fraction,
    Positive,
    Section,
    Text,
    Weights,
    findings,
    given,
    plain_weights,
    without_none,
)
from emul.scenario.wording import MISSING, Finding

OTHERS = "others"               # the name in tables of those in no group
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class ClientGroup:
    """Nodes that match and that no group before it has; `fraction`: this share of all that match, or, without `match`,
    of all that hold data. The rest is what they share; None: the group does not say.
    """

    name: str
    match: str | None = None
    fraction: float | None = None
    speed: float | None = None
    device: Weights | None = None
    battery_j: float | None = None
    link: Weights | None = None
    absence: Absence | None = None

    @property
    def mark(self) -> str:
        """The pattern of its members."""
        return MARK + self.name


def holders_of(roles: Mapping[str, Sequence[int]]) -> list[int]:
    """Shard -> vertex of the node that holds it: the clients, or every node of a topology without clients."""
    return list(roles.get("client") or hosts_of(roles))


def hosts_of(roles: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """The vertices that host a node, kind by kind."""
    return (vertex for vertices in roles.values() for vertex in vertices)


def members(groups: Sequence[ClientGroup], names: Sequence[str], roles: Mapping[str, Sequence[int]], seed: int,
            ) -> list[str | None]:
    """Vertex -> the name of its group; None: it is in none. names: of the vertices; roles: kind -> its vertices."""
    found: list[str | None] = [None] * len(names)
    for group in groups:
        pool = _pool(group, names, roles)
        order, wanted = pool, len(pool)
        if group.fraction is not None:
            order = [pool[i] for i in generator(seed, "members", group.name).permutation(len(pool))]
            wanted = round(group.fraction * len(pool))
        for vertex in [vertex for vertex in order if found[vertex] is None][:wanted]:
            found[vertex] = group.name
    return found


def _pool(group: ClientGroup, names: Sequence[str], roles: Mapping[str, Sequence[int]]) -> list[int]:
    if group.match is None:
        return holders_of(roles)
    known = set(names)
    return [v for v in hosts_of(roles) if matches(names[v], group.match, known)]


def short_of(groups: Sequence[ClientGroup], names: Sequence[str], roles: Mapping[str, Sequence[int]],
             of: Sequence[str | None]) -> tuple[list[tuple[int, str, str]], list[str]]:
    """The mistakes for `members`: (number of a group, found, expected) where a fraction is more than groups before it
    have left; and the warnings: groups without members."""
    wrong, told = [], []
    for i, group in enumerate(groups):
        pool, has = _pool(group, names, roles), sum(one == group.name for one in of)
        wanted = None if group.fraction is None else round(group.fraction * len(pool))
        if wanted is not None and has < wanted:
            wrong.append((i, str(group.fraction), f"is {wanted} of {len(pool)}, and the groups before it leave {has}"))
        elif not has:
            told.append(f"groups[{i}]: {group.name} has no members" if wanted is None else
                        f"groups[{i}]: {group.name} has no members: {group.fraction:g} of {len(pool)} is none")
    return wrong, told


# --- models ---------------------------------------------------------------------------------------------------------

def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value == OTHERS:
        raise ValueError(f"expected a name of letters, digits and _ . -, not {OTHERS}, which those in no group are "
                         "called")
    return value


class ClientGroupRule(Section):
    # Letters, digits and `_ . -`. `others` and names of classes of links are taken.
    name: Annotated[str, PlainValidator(_name, json_schema_input_type=str)]
    # A name or a pattern. Without `fraction`: all nodes that match and are in no group above.
    match: Text | None = None
    # Its share of the nodes that hold data, drawn by the seed. With `match`: of the nodes that match.
    fraction: Fraction | None = None
    # As in `nodes`. It goes before the speed of a device, also of the group's own.
    speed: Positive | None = None
    # As in `devices`: a class, or several by weight.
    device: AnyWeights | None = None
    # With `device`: joules at the start.
    battery: Positive | None = None
    # A class of links, or several by weight.
    link: AnyWeights | None = None
    # As in faults, without `match`.
    availability: OwnAvailability | None = None
    # As in faults, without `match`. One of `availability` and `churn`.
    churn: OwnChurn | None = None

    def wrong(self) -> list[Finding]:
        """About no node, a battery without a device, or absences of two kinds."""
        found: list[Finding] = []
        if not given(self, "match", "fraction"):
            found.append(((), MISSING, "expected match, fraction or both"))
        if self.match is not None and self.match.startswith(MARK):
            found.append((("match",), self.match, "expected a name or a pattern of nodes"))
        if self.battery is not None and self.device is None:
            found.append((("battery",), "", "is used only with device"))
        if self.churn is not None and self.availability is not None:
            found.append((("churn",), "", "cannot be used with availability"))
        return found


def distinct_groups(groups: list[ClientGroupRule]) -> list[ClientGroupRule]:
    """The groups. Raises where one is called as one before it."""
    first: dict[str, int] = {}
    wrong: list[Finding] = [((i, "name"), group.name, f"groups[{first[group.name]}] is called so already")
                            for i, group in enumerate(groups) if first.setdefault(group.name, i) != i]
    if wrong:
        raise findings(wrong)
    return groups


# --- conversion -----------------------------------------------------------------------------------------------------

def group_values(rules: Sequence[ClientGroupRule], base: Path) -> list[ClientGroup]:
    """In the order of the file; files of availability are looked for beside the scenario."""
    return [ClientGroup(rule.name, rule.match, rule.fraction, rule.speed, rule.device, rule.battery, rule.link,
                        _absence(rule, base)) for rule in rules]


def _absence(rule: ClientGroupRule, base: Path) -> Absence | None:
    mark = MARK + rule.name
    if rule.churn is not None:
        return churn_value(rule.churn, mark)
    return None if rule.availability is None else availability_value(rule.availability, mark, base)


def client_group_document(group: ClientGroup) -> PlainDict:
    """As a scenario file says it."""
    return without_none(name=group.name, match=group.match, fraction=group.fraction, speed=group.speed,
                        device=plain_weights(group.device), battery=group.battery_j, link=plain_weights(group.link),
                        **_own(group.absence))


def _own(absence: Absence | None) -> PlainDict:
    """The absences without their `match`."""
    found: PlainDict = {} if absence is None else absence_document(absence)
    return {key: {name: value for name, value in below.items() if name != "match"} for key, below in found.items()}
