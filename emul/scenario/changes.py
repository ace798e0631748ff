"""Changes of links and nodes during a run: a scenario's faults as changes that the kernel takes.

Faults of links are laid over each other before the run. A link is down while any fault has it down; of several
latencies (bandwidths, outages) that are set at one time the one set last holds, and where none is, the link has its
own. So two faults that overlap end when the later one does, and a change is made only where something changes.

Absences of nodes that come by themselves (churn, availability, groups) are endless and stay iterators: the kernel asks
for the next fault when the last has happened. Slow-downs are no events: a node's speed is a function of time, over
which the cost of a computation is integrated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any

from emul.base.errors import Problem, ScenarioError
from emul.base.names import MARK, is_pattern, listed
from emul.base.streams import key64
from emul.base.units import END_OF_TIME
from emul.kernel import LinkChange, NodeCrash, NodeDropOut
from emul.kernel.parts import Fault, NodeLeave
from emul.network import NEVER, Network
from emul.network.models import churn, outages
from emul.network.models.latency import latency, least_ns
from emul.network.models.traces import TraceSpec, digest
from emul.scenario import Behaviour, Crash, DropOut, LinkDown, Scenario
from emul.scenario.churn import Absence, Availability, Churn, Days, InRounds, Kind, ShockGroup
from emul.scenario.faults import Leave, LinkSet, LinkUp, NetworkPartition, Slow
from emul.scenario.outages import outage_document

_RARE = 0.05            # the share of time below which it is said that nodes are hardly there
_VALUES = ("bandwidth_bps", "latency_ns", "outage")


@dataclass(frozen=True)
class Changes:
    """faults: those whose times are known, in the order of the file. streams: endless ones, each in the order of time.

    slowdowns: node -> (from ns on, numerator, denominator) of how slow it is, ascending. dropouts: node -> at what it
    drops out of a round. rounds: node -> those in which alone it takes part.
    """

    faults: list[Fault] = field(default_factory=list)
    streams: list[Iterator[Fault]] = field(default_factory=list)
    slowdowns: dict[int, list[list[int]]] = field(default_factory=dict)
    dropouts: dict[int, list[NodeDropOut]] = field(default_factory=dict)
    rounds: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    ignored: list[tuple[str, str]] = field(default_factory=list)    # (place in the scenario, idle node or pattern)


def changes(scenario: Scenario, network: Network, names: Sequence[str], idle: Sequence[str] = (),
             lossless: bool = False, sent: Collection[str] | None = None) -> Changes:
    """Everything that the scenario's faults do; names: those of the nodes. lossless: outages that are set do nothing.

    idle: nodes that have no role; what happens to them is ignored. Faults of their links are as any others.
    sent: the types of messages that the scheme sends; None: nodes drop out at any.
    Raises ScenarioError for all that names what is not there, and for bad files.
    """
    # Two faults of one link may overlap, and the end of the first must not undo the second. So faults are windows that
    # are laid over each other here, before the run, and the link counts nothing
    # (`test_faults_that_overlap_end_with_the_later_one_and_up_ends_them_all`).
    maker = _Maker(scenario, network, names, idle, lossless, sent)
    for place, fault in enumerate(scenario.faults):
        maker.add(place, fault)
    for number, group in enumerate(scenario.groups):
        if group.absence is not None:
            maker.add_absence(f"groups[{number}]", group.absence)
    if maker.problems:
        raise ScenarioError(str(scenario.path or scenario.name), maker.problems)
    placed = sorted([*maker.placed, *maker.link_changes()], key=lambda one: one[0])
    return Changes([fault for _, fault in placed], maker.streams(), maker.slowdowns(), maker.dropouts,
                    dict(sorted(maker.rounds.items())), maker.warnings, maker.ignored)


@dataclass(frozen=True)
class _Window:
    """The change that one fault makes of a link from `begin` to `end`."""

    begin: int
    end: int
    place: int                      # of the fault in the file
    what: str                       # "down" or one of _VALUES
    value: Any                      # of "down": what happens to what is in flight
    told: Any = None                # the value as the journal tells it


class _Maker:
    """Gathers the faults of one scenario, by node and by link."""

    def __init__(self, scenario: Scenario, network: Network, names: Sequence[str], idle: Sequence[str],
                 lossless: bool, sent: Collection[str] | None):
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.ignored: list[tuple[str, str]] = []
        self._idle = frozenset(idle)
        self.placed: list[tuple[int, Fault]] = []
        self._seed = scenario.seed
        stop = scenario.stop.virtual_time_ns
        self._last_ns = NEVER if stop is None else 2 * stop     # a round that is running then has as long again
        self._network = network
        self._lossless = lossless
        self._sent = sent
        self._names = names
        self._nodes = {name: node for node, name in enumerate(names)}
        self._vertices = network.vertex_of
        self._hosts = {network.vertex_of[name]: None for name in names}     # of the nodes, in their order
        self._windows: dict[tuple[int, int], list[_Window]] = {}
        self._ups: dict[tuple[int, int], list[tuple[int, int]]] = {}        # (time, place) of what ends every "down"
        self._slow: dict[int, list[tuple[int, int, Fraction]]] = {}
        self.dropouts: dict[int, list[NodeDropOut]] = {}
        self.rounds: dict[int, list[tuple[int, int]]] = {}                  # of each node those of the last rule
        self._absences: dict[int, tuple[churn.Absences, Kind]] = {}         # of each node those of the last rule
        self._groups: list[tuple[int, churn.Absences, Kind]] = []
        self._labels: dict[str, int] = {}

    def add(self, place: int, fault: Any) -> None:
        where = f"faults[{place}]"
        if isinstance(fault, LinkDown | LinkUp | LinkSet):
            for link in self._links(where, fault.source, fault.destination):
                self._add_to_link(link, place, fault)
        elif isinstance(fault, NetworkPartition):
            for link in self._crossing(where, fault.groups):
                self._window(link, place, fault, "down", fault.inflight)
        elif isinstance(fault, Absence):
            self.add_absence(where, fault)
        elif isinstance(fault, Behaviour):
            if fault.node in self._idle:
                self.ignored.append((f"{where}.node", fault.node))
            elif fault.node not in self._nodes:
                self._problem(f"{where}.node", fault.node, "expected a vertex that hosts a node")
        else:
            for node in self._named(f"{where}.node", fault.node):
                self._add_to_node(node, place, fault)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _add_to_node(self, node: int, place: int, fault: Crash | Leave | Slow | DropOut) -> None:
        if isinstance(fault, DropOut):
            if self._sent is None or fault.stage in self._sent:
                self._add_dropout(node, fault)
            return
        until = None if fault.for_ns is None else fault.at_ns + fault.for_ns
        if isinstance(fault, Slow):
            factor = Fraction(str(fault.factor))
            self._slow.setdefault(node, []).append((fault.at_ns, NEVER if until is None else until, factor))
        elif isinstance(fault, Leave):
            self.placed.append((place, NodeLeave(fault.at_ns, node, until)))
        else:
            self.placed.append((place, NodeCrash(fault.at_ns, node, until, fault.wipe)))

    def _add_dropout(self, node: int, fault: DropOut) -> None:
        """The k-th rule that is drawn at a node takes the node's k-th stream, whatever its stage is called: so two
        schemes lose the same clients in the same rounds."""
        known = self.dropouts.setdefault(node, [])
        key = 0
        if fault.p is not None:
            key = key64(self._seed, "dropout", self._names[node], sum(drop.stream != 0 for drop in known))
        known.append(NodeDropOut(fault.stage, fault.first or 1, fault.last, 1.0 if fault.p is None else fault.p, key))

    def slowdowns(self) -> dict[int, list[list[int]]]:
        """Of every node the product of the factors that hold, from change to change."""
        found: dict[int, list[list[int]]] = {}
        for node, windows in sorted(self._slow.items()):
            pieces: list[list[int]] = []
            for time in sorted({t for begin, end, _ in windows for t in (begin, end) if t < NEVER}):
                factor = Fraction(1)
                for begin, end, by in windows:
                    if begin <= time < end:
                        factor *= by
                pieces.append([time, factor.numerator, factor.denominator])
            found[node] = pieces
        return found

    def add_absence(self, where: str, fault: Absence) -> None:
        """where: the place of what says it: of a fault, or of a group."""
        if isinstance(fault, ShockGroup):
            self._add_group(where, fault)
        elif isinstance(fault, Availability):
            self._add_availability(f"{where}.availability", fault)
        elif isinstance(fault, InRounds):
            spans = [(first, END_OF_TIME if last is None else last) for first, last in fault.rounds]
            self.rounds |= dict.fromkeys(self._named(f"{where}.availability.match", fault.match), spans)
        else:
            key = "churn" if isinstance(fault, Churn) else "availability"
            for name in self._matching(f"{where}.{key}.match", fault.match):
                away = (churn.alternating(fault.up, fault.down, self._seed, name, fault.stationary)
                        if isinstance(fault, Churn) else fault.diurnal.absences(self._seed, name))
                self._absences[self._nodes[name]] = away, fault.kind
            self._warn_if_rare(f"{where}.{key}", [fault.match], fault.diurnal.mean if isinstance(fault, Days) else
                               fault.up.mean / (fault.up.mean + fault.down.mean))

    def _warn_if_rare(self, where: str, names: Sequence[str], share: float) -> None:
        """share: of the time that these nodes are there."""
        if share < _RARE and names:
            self.warnings.append(f"{where}: {listed(names, 3)} will be there {share:.2g} of the time")

    def _add_availability(self, where: str, fault: Availability) -> None:
        try:
            schedules = churn.read_availability(fault.file, fault.period_ns, fault.offset_ns)
        except ScenarioError as error:
            self.problems += [Problem(f"{where}.file", f"{error.file}: {p.place} {p.found}".strip(), p.expected, p.line)
                              for p in error.problems]
            return
        if fault.sha256 is not None and fault.sha256 != digest(fault.file):
            self._problem(f"{where}.sha256", f"{digest(fault.file)[:16]}...", f"expected {fault.sha256[:16]}...: the "
                          "file is not the one that this scenario was resolved with")
        names = self._matching(f"{where}.match", fault.match)
        if fault.in_turn:
            rows = list(schedules.values())
            chosen = {name: rows[i % len(rows)] for i, name in enumerate(names)}
        else:
            chosen = {name: schedules[name] for name in names if name in schedules}
            unknown = sum(name not in self._nodes and name not in self._idle for name in schedules)
            if names and not chosen and self._idle.isdisjoint(schedules):
                self._problem(f"{where}.file", str(fault.file), "expected the name of a node among its nodes; with "
                              "assign: in_turn names do not matter")
            elif unknown:
                self.warnings.append(f"{where}: {unknown} nodes of {fault.file.name} are not in the network")
        for name, schedule in chosen.items():
            self._absences[self._nodes[name]] = schedule.absences(), fault.kind

    def _add_group(self, where: str, fault: ShockGroup) -> None:
        again = self._labels[fault.label] = self._labels.get(fault.label, 0) + 1
        label = fault.label if again == 1 else f"{fault.label} #{again}"    # else the two would always fail together
        names = ([name for pattern in fault.nodes for name in self._matching(f"{where}.group.nodes", pattern)]
                 if fault.match is None else self._matching(f"{where}.group.match", fault.match))
        self._groups += [(self._nodes[name], fault.shocks.absences(self._seed, label, name, self._last_ns), fault.kind)
                         for name in dict.fromkeys(names)]
        self._warn_if_rare(f"{where}.group", names, fault.shocks.expected_up)

    def streams(self) -> list[Iterator[Fault]]:
        return [_faults_of(node, absences, kind) for node, absences, kind in
                [*((node, *rest) for node, rest in sorted(self._absences.items())), *self._groups]]

    def _matching(self, where: str, pattern: str) -> list[str]:
        """The names of the nodes that match, in the order of the nodes."""
        if pattern in self._nodes:
            return [pattern]
        found = [self._network.names[v] for v in self._network.fitting(pattern, self._hosts)]
        if not found and self._network.fitting(pattern, {self._vertices[name] for name in self._idle}):
            self.ignored.append((where, pattern))
        elif not found and pattern.startswith(MARK):
            self.warnings.append(f"{where}: {pattern} has no member")
        elif not found:
            self._problem(where, pattern, "expected a pattern that a node's name matches" if is_pattern(pattern) else
                          "expected a vertex that hosts a node")
        return found

    def _named(self, where: str, pattern: str) -> list[int]:
        return [self._nodes[name] for name in self._matching(where, pattern)]

    # --- links ----------------------------------------------------------------------------------------------------

    def _links(self, where: str, source: str, destination: str) -> list[tuple[int, int]]:
        """The links from one pattern to another."""
        linked = self._network.topology
        if source in self._vertices and destination in self._vertices:
            u, v = self._vertices[source], self._vertices[destination]
            found = [(u, v)] if linked.linked(u, v) else []
        else:
            sources, targets = (self._vertices_of(pattern) for pattern in (source, destination))
            if min(len(sources), len(targets)) <= 4:        # a few hubs: no need to go through all that they reach
                found = [(u, v) for u in sources for v in targets if u != v and linked.linked(u, v)]
            else:
                found = [(u, v) for u in sources for v in linked.neighbours(u) if v in targets]
        empty = [pattern for pattern in (source, destination) if pattern.startswith(MARK)
                 and not self._vertices_of(pattern)]
        if empty:
            self.warnings.append(f"{where}.link: {empty[0]} has no member")
        elif not found:
            self._problem(f"{where}.link", f"{source}->{destination}", f"there is no link {source} -> {destination}")
        return found

    def _vertices_of(self, pattern: str) -> dict[int, None]:
        return dict.fromkeys(self._network.fitting(pattern, range(len(self._network.names))))

    def _crossing(self, where: str, groups: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        """The links between two groups; a vertex is of the first that it matches."""
        side: dict[int, int] = {}
        for number, group in enumerate(groups):
            for j, pattern in enumerate(group):
                members = self._vertices_of(pattern)
                if not members and pattern.startswith(MARK):
                    self.warnings.append(f"{where}.partition[{number}][{j}]: {pattern} has no member")
                elif not members:
                    self._problem(f"{where}.partition[{number}][{j}]", pattern, "matches no vertex of the network")
                for v in members:
                    side.setdefault(v, number)
        found = [(u, v) for u in sorted(side) for v in self._network.topology.neighbours(u)
                 if v in side and side[u] != side[v]]
        if not found and not self.problems:
            self._problem(f"{where}.partition", "", "no link leads from one of these groups to another")
        return found

    def _add_to_link(self, link: tuple[int, int], place: int, fault: LinkDown | LinkUp | LinkSet) -> None:
        if isinstance(fault, LinkUp):
            self._ups.setdefault(link, []).append((fault.at_ns, place))
        elif isinstance(fault, LinkDown):
            self._window(link, place, fault, "down", fault.inflight)
        else:
            if fault.latency_ns is not None:
                self._window(link, place, fault, "latency_ns", fault.latency_ns, fault.latency_ns)
            if fault.bandwidth_bps == "infinite" and self._network.parameters(*link).medium is not None:
                self._problem(f"faults[{place}].set.bandwidth", "infinite", "expected a bandwidth: the link shares the "
                              "time of a medium")
            elif fault.bandwidth_bps is not None:
                self._window(link, place, fault, "bandwidth_bps", fault.bandwidth_bps, fault.bandwidth_bps)
            wrong = outages.problem(fault.outage) if isinstance(fault.outage, outages.SPECS) else None
            if wrong is not None:
                self._problem(f"faults[{place}].set.outage.{wrong[0]}", *wrong[1:])
            elif fault.outage is not None and not self._lossless:
                names = self._network.names
                ends = tuple(names[v] for v in link)
                model = None if fault.outage == "none" else outages.outage(fault.outage, self._seed, *ends)
                self._window(link, place, fault, "outage", model or "none", outage_document(fault.outage))

    def _window(self, link: tuple[int, int], place: int, fault: LinkDown | LinkSet | NetworkPartition, what: str,
                value: object, told: object = None) -> None:
        end = NEVER if fault.for_ns is None else fault.at_ns + fault.for_ns
        self._windows.setdefault(link, []).append(_Window(fault.at_ns, end, place, what, value, told))

    def link_changes(self) -> Iterator[tuple[int, LinkChange]]:
        """(place of the fault, change) of every link, in the order of time."""
        alike: dict[tuple[_Window, ...], list[_Change]] = {}        # a partition does the same to very many links
        for (u, v), windows in sorted(self._windows.items()):
            cut = self._cut(windows, self._ups.get((u, v), ()))
            if all(w.what == "down" for w in cut):
                changes = alike.get(cut)
                if changes is None:
                    changes = alike[cut] = list(_changes(cut, {}))
            else:
                changes = list(_changes(cut, self._own(u, v)))
            for time, place, what, told in changes:
                yield place, LinkChange(time, u, v, what, told)

    def _cut(self, windows: Sequence[_Window], ups: Sequence[tuple[int, int]]) -> tuple[_Window, ...]:
        """The windows, those of links that are down ended by what brings the link up."""
        if not ups:
            return tuple(windows)
        found = []
        for w in windows:
            ends = [time for time, place in ups if w.what == "down" and (w.begin, w.place) < (time, place)]
            end = min([w.end, *ends])
            if end > w.begin:
                found.append(replace(w, end=end))
        return tuple(found)

    def _own(self, u: int, v: int) -> dict[str, tuple[Any, Any]]:
        """The state of the link without faults: (value for `Link.change`, as the journal tells it)."""
        p = self._network.parameters(u, v)
        names = self._network.names[u], self._network.names[v]
        contacts = self._network.contacts(u, v)
        rate: Any = "infinite" if p.bandwidth_bps is None else p.bandwidth_bps
        if isinstance(rate, TraceSpec) or contacts is not None or (
                self._network.radio is not None and self._network.radio.ends(*names) is not None):
            rate = "profile"
        model = outages.outage(p.outage, self._seed, *names)
        return {"bandwidth_bps": (rate, rate),
                "latency_ns": (latency(p.latency_ns, self._seed, *names), least_ns(p.latency_ns)) if contacts is None
                else (contacts, contacts.least_ns),
                "outage": ("none" if model is None else model, outage_document(p.outage or "none"))}

    # --- mistakes -------------------------------------------------------------------------------------------------

    def _problem(self, place: str, found: str, expected: str) -> None:
        self.problems.append(Problem(place, found, expected))


# (time, place, changes as `Link.change` takes them, as the journal tells them)
_Change = tuple[int, int, dict[str, Any], dict[str, Any]]


def _changes(windows: Sequence[_Window], own: Mapping[str, tuple[object, object]]) -> Iterator[_Change]:
    """The changes of a link that `own` values belong to, in the order of time."""
    down = False
    holds: dict[str, _Window | None] = dict.fromkeys(_VALUES)
    begun: dict[int, list[tuple[int, _Window]]] = {}        # time -> number and window of those that begin then
    places: dict[int, int] = {}                 # time at which some begin or end -> the first of their places
    for number, w in enumerate(windows):
        begun.setdefault(w.begin, []).append((number, w))
        for time in (w.begin, w.end):
            if time < NEVER:
                places[time] = min(places.get(time, w.place), w.place)
    # The windows that hold, of each kind the one that counts first: of "down" the first in the file, of a value the one
    # that has begun last. Those that have ended go when they come to the top.
    active: dict[str, list[tuple[int, int, int, _Window]]] = {what: [] for what in ("down", *_VALUES)}
    for time in sorted(places):
        changes: dict[str, object] = {}
        told: dict[str, object] = {}
        for number, w in begun.get(time, ()):
            order = (w.place, 0) if w.what == "down" else (-w.begin, -w.place)
            heappush(active[w.what], (*order, number, w))
        tops = dict[str, _Window | None]()
        for what, heap in active.items():
            while heap and heap[0][3].end <= time:
                heappop(heap)
            tops[what] = heap[0][3] if heap else None
        first = tops["down"]
        if (first is not None) is not down:
            down = first is not None
            changes["down"] = told["down"] = down
            if first is not None and first.value != "drop":
                changes["inflight"] = told["inflight"] = first.value
        for what in _VALUES:
            latest = tops[what]
            if latest is not holds[what]:
                changes[what], told[what] = own[what] if latest is None else (latest.value, latest.told)
                holds[what] = latest
        if changes:
            yield time, places[time], changes, told


def _faults_of(node: int, absences: churn.Absences, kind: Kind) -> Iterator[Fault]:
    for begin, end in absences:
        yield NodeLeave(begin, node, end) if kind == "leave" else NodeCrash(begin, node, end)
