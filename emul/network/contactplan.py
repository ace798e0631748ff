"""The contact plan of a network: the contacts of its links by the numbers of their ends, and mistakes of the plan."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.network.graph.topology import Topology
from emul.network.links.features import Switching
from emul.network.models.contacts import Contacts, ContactSpec, Fate, Plan, read_plan
from emul.network.models.profiles import NEVER
from emul.network.rules import LinkParameters, LinkRule

_ENOUGH = 20


class PlannedNetwork(Protocol):
    """The part of `emul.network.Network` that a plan asks for."""

    @property
    def topology(self) -> Topology:
        """The values that the network was built from."""
        ...

    def stated(self, u: int, v: int) -> LinkParameters:
        """Of the link u -> v, by topology and rules."""
        ...


class ContactsError(NetworkError):
    """Rows of a contact plan that the network cannot have: `problems`, with their lines in the file."""

    def __init__(self, file: str, problems: list[Problem]):
        self.problems = problems
        super().__init__(str(ScenarioError(file, problems)))


class ContactPlan:
    """`links`: (u, v) -> contacts, of the links that the plan names. `sources`: their first ends."""

    def __init__(self, spec: ContactSpec | None, network: PlannedNetwork):
        self._network = network
        self._strange: list[Problem] = []
        self.links: dict[tuple[int, int], Contacts] = {}
        self.constellation = None if spec is None else spec.constellation
        if spec is not None:
            gap: Fate = "return" if spec.gap == "again" and spec.routes == "earliest" else spec.gap
            number = {name: v for v, name in enumerate(network.topology.names)}
            for (source, destination), contacts in _plan_of(spec).items():
                strange = [(column, name) for column, name in (("source", source), ("destination", destination))
                           if name not in number]
                if strange:
                    self._strange += [Problem(column, f'"{name}"', "unknown vertex", contacts.line)
                                      for column, name in strange]
                else:
                    u, v = number[source], number[destination]
                    self.links[u, v] = self._rated(u, v, contacts, spec).with_gap(gap)
        self.sources = {u for u, _ in self.links}

    def _rated(self, u: int, v: int, contacts: Contacts, spec: ContactSpec) -> Contacts:
        """A file has the rates; the contacts of a constellation have those that topology and rules state."""
        if spec.constellation is None:
            return contacts
        rate = self._network.stated(u, v).bandwidth_bps
        if isinstance(rate, int | float):
            return contacts.at_rate(rate)
        names = self._network.topology.names
        self._strange.append(Problem("", f"{names[u]} -> {names[v]}", (
            "expected a constant bandwidth, by topology.capacity or a rule of links: a contact has a rate")))
        return contacts

    def open_all(self) -> None:
        """Let every link of the plan transmit at all times, at its mean rate and with its median latency. Before links
        are made."""
        for ends, one in self.links.items():
            self.links[ends] = Contacts(array("q", [0]), array("q", [NEVER]), array("q", [one.mean_bps]),
                                        array("q", [one.typical_ns]), one.line, one.gap)

    def problems(self) -> list[Problem]:
        """The mistakes of the plan, of its first lines: vertices, links, and links that cannot have contacts."""
        found = list(self._strange)
        names = self._network.topology.names
        for (u, v), contacts in self.links.items():
            if not self._network.topology.linked(u, v):
                expected = "expected a link of the topology"
            else:
                expected = _refusal(self._network.stated(u, v))
            if expected:
                found.append(Problem("", f"{names[u]} -> {names[v]}", expected, contacts.line))
        return sorted(found, key=lambda one: one.line or 0)[:_ENOUGH]


def _plan_of(spec: ContactSpec) -> Plan:
    if spec.constellation is None:
        return read_plan(spec)
    from emul.network.graph import constellation  # few networks are one

    return constellation.plan(spec.constellation, spec.step_ns or constellation.STEP_NS)


def _refusal(p: LinkParameters) -> str:
    """The reason why a link cannot have contacts; "": it can."""
    if p.transport != "datagram":
        return "has a transport: contacts are known to links with transport: datagram alone, without windows of TCP"
    if p.switching != "store_and_forward":
        return "has switching: contacts are known to links with switching: store_and_forward alone"
    return ""


def unrouted(rules: Sequence[LinkRule]) -> list[Problem]:
    """The mistakes of links over which routes cannot be chosen by the time: messages have to be whole at vertices."""
    found = []
    for rule in rules:
        if isinstance(rule.switching, Switching):
            found.append(Problem(rule.match, f"switching {rule.switching.mode}", (
                "contacts with routes: earliest are for links with switching: store_and_forward alone"), rule.line))
    return found
