"""`nodes` and `faults`: their models, the plain values they stand for, and back to YAML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, PlainValidator

from emul.base.units import format_bandwidth
from emul.network import parse_match
from emul.network.models.outages import AnyOutage
from emul.scenario.churn import (
    Absence,
    AvailabilityRule,
    ChurnRule,
    GroupRule,
    absence_document,
    availability_value,
    churn_value,
    group_value,
)
from emul.scenario.outages import WrittenOutage, outage_document, outage_spec
from emul.scenario.sections import (
    Bandwidth,
    Count,
    Duration,
    Fraction,
    Positive,
    PositiveDuration,
    Rounds,
    Section,
    Text,
    duration_text,
    exactly_one,
    given,
    number,
    one_of,
    rounds_text,
    without_none,
)
from emul.scenario.wording import MISSING, Finding

InFlight = Literal["drop", "pause", "deliver"]


@dataclass(frozen=True)
class Island:
    """The GPUs of a node, which train a declared model. jitter: sigma of the lognormal law, of mean 1, of each step."""

    flops: float                        # of one GPU, at its best, a second
    gpus: int = 1
    mfu: float = 1.0                    # the share of `flops` that a training uses
    jitter: float = 0.0

    @property
    def rate(self) -> float:
        """Floating-point operations a second."""
        return self.flops * self.gpus * self.mfu


@dataclass(frozen=True)
class NodeSpeed:
    """Nodes compute `speed` times as fast as the profile's machine; later rules win.

    Those whose name matches; or, drawn by the seed, a `fraction`: of those that match, or of all that hold data.
    """

    match: str | None
    speed: float | None                 # None: the rule is about their GPUs alone
    fraction: float | None = None
    island: Island | None = None


@dataclass(frozen=True)
class LinkDown:
    """The links source -> destination, names or patterns, are down from `at_ns` on, for `for_ns` (None: for good)."""

    at_ns: int
    source: str
    destination: str
    for_ns: int | None = None
    inflight: InFlight = "drop"


@dataclass(frozen=True)
class LinkUp:
    """The links source -> destination are up at `at_ns`, whatever took them down before."""

    at_ns: int
    source: str
    destination: str


@dataclass(frozen=True)
class LinkSet:
    """Links have another latency, bandwidth or outage from `at_ns` on, for `for_ns` (None: for good)."""

    at_ns: int
    source: str
    destination: str
    latency_ns: int | None = None
    bandwidth_bps: int | Literal["infinite"] | None = None
    outage: AnyOutage | Literal["none"] | None = None
    for_ns: int | None = None


@dataclass(frozen=True)
class NetworkPartition:
    """Every link between two of the `groups` of names or patterns is down; a vertex is of the first that it matches."""

    at_ns: int
    groups: tuple[tuple[str, ...], ...]
    for_ns: int | None = None
    inflight: InFlight = "drop"


@dataclass(frozen=True)
class Crash:
    """The node (a name or a pattern) ends at `at_ns` and starts anew after `for_ns` (None: never); `wipe`: without its
    state."""

    at_ns: int
    node: str
    for_ns: int | None = None
    wipe: bool = False


@dataclass(frozen=True)
class Leave:
    """The node cannot be reached from `at_ns` on, for `for_ns`; its role goes on."""

    at_ns: int
    node: str
    for_ns: int | None = None


@dataclass(frozen=True)
class Slow:
    """The node computes `factor` times slower from `at_ns` on, for `for_ns`."""

    at_ns: int
    node: str
    factor: float
    for_ns: int | None = None


@dataclass(frozen=True)
class Behaviour:
    """The node runs the scheme's faulty role `behave` in rounds `first` .. `last`, both included; first None: in
    all; last None: for good."""

    node: str
    behave: str
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class DropOut:
    """The node (a name or a pattern) drops out of each of the rounds `first` .. `last`, just before it would send its
    first message of type `stage` in it; first None: of all rounds; last None: for good. p: the probability with which
    it does, drawn for each node and round; None: it always does."""

    node: str
    stage: str
    first: int | None = None
    last: int | None = None
    p: float | None = None


Fault = LinkDown | LinkUp | LinkSet | NetworkPartition | Crash | Leave | Slow | Behaviour | DropOut | Absence


# --- models ---------------------------------------------------------------------------------------------------------

Jitter = Annotated[float, number("a sigma in [0, 3]", lambda x: 0 <= x <= 3)]


class NodeRule(Section):
    # A name or a pattern, or `@slow`, the members of a group.
    match: Text | None = None
    # In place of `match`: this share of the nodes that hold data, drawn by the seed. With `match`: this share of
    # those that match.
    fraction: Fraction | None = None
    # Costs of computations are divided by it: 0.25 is four times slower. With `recorded` and `zero` it has no effect,
    # which is a warning, except on trainings of a declared model.
    speed: Positive | None = None
    # Floating-point operations a second of one GPU, at its best, such as 989e12. Every node that trains a declared
    # model needs it; it is used with such a model alone.
    flops: Positive | None = None
    # The number of GPUs of the node, 1 by default.
    gpus: Count | None = None
    # The share of `flops` that a training uses, in (0, 1], 1 by default.
    mfu: Fraction | None = None
    # Sigma of a lognormal law of mean 1, of which each step of a training has a draw, in [0, 3]; 0 by default.
    jitter: Jitter | None = None

    def wrong(self) -> list[Finding]:
        """About no node, nothing said of it, or GPUs without their rate."""
        found: list[Finding] = []
        if not given(self, "match", "fraction"):
            found.append(((), MISSING, "expected match, fraction or both"))
        if not given(self, "speed", "flops"):
            found.append(((), MISSING, "expected speed, flops or both"))
        return found + [((key,), str(getattr(self, key)), "is used only with flops")
                        for key in given(self, "gpus", "mfu", "jitter") if self.flops is None]


_ENDS = 'expected "a->b" or "a<->b", each side a name or a pattern such as "client*"'


def _fault_link(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(_ENDS)
    try:
        parse_match(value)
    except ValueError:
        raise ValueError(_ENDS) from None
    return value


def _true(value: object) -> bool:
    if value is not True:
        raise ValueError('expected true (a fault ends after its "for")')
    return True


def _groups(value: Any) -> tuple[tuple[str, ...], ...]:
    sound = isinstance(value, list) and len(value) >= 2 and all(
        isinstance(group, list) and group and all(isinstance(n, str) and n.strip() and n.isprintable() for n in group)
        for group in value)
    if not sound:
        raise ValueError("expected two lists of names or more, such as [[server, client1], [client2]]")
    return tuple(tuple(group) for group in value)


class LinkValues(Section):
    # A duration, of messages that have not been transmitted yet; nothing overtakes.
    latency: Duration | None = None
    # A bandwidth or `infinite`. The rest of what is being sent goes on at this rate. It takes the place of a trace.
    bandwidth: Bandwidth | None = None
    # `none` or a model, without `span: pause`, of messages whose transmission begins from then on. Schemes whose
    # links are ideal ignore it.
    outage: WrittenOutage | None = None

    def wrong(self) -> list[Finding]:
        """Nothing to set, or an outage with span pause, which only a link's rule can have."""
        if not given(self, "latency", "bandwidth", "outage"):
            return [((), MISSING, "expected at least one of latency, bandwidth, outage")]
        if self.outage is not None and self.outage.span == "pause":
            return [(("outage", "span"), "", "is not used by a fault: a link has the pauses that its rule says")]
        return []


class DropRule(Section):
    # The probability, in (0, 1].
    p: Fraction
    # The unit of a draw; there is no other.
    per: Annotated[str, one_of("round", what="unit of a draw")] = "round"


def _drop(value: object) -> DropRule | Literal[True]:
    if value is True:
        return True
    if not isinstance(value, dict):
        raise ValueError("expected true, or the probability in a round, such as {p: 0.2, per: round}")
    return DropRule.model_validate(value)


_TrueFlag = Annotated[bool, PlainValidator(_true, json_schema_input_type=Literal[True])]

# the key that tells a fault -> (its name, its other keys that are needed, that are used)
_KINDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "down": ("a link that goes down", ("at",), ("for_", "inflight")),
    "up": ("a link that comes up", ("at",), ()),
    "set": ("a link that changes", ("at",), ("for_",)),
    "crash": ("a crash", ("at",), ("for_", "wipe")),
    "leave": ("a node that leaves", ("at",), ("for_",)),
    "slow": ("a node that slows down", ("at",), ("for_",)),
    "behave": ("a faulty behaviour", (), ("rounds",)),
    "drop": ("a node that drops out", ("stage",), ("rounds",)),
    "partition": ("a partition", ("at",), ("for_", "inflight")),
    "churn": ("churn", (), ()),
    "availability": ("availability", (), ()),
    "group": ("a group", (), ()),
}
_EXAMPLES = {"stage": ": the first message that it does not send, such as Update; `emul schemes NAME` lists them"}
_OF_LINKS, _OF_NODES = ("down", "up", "set"), ("crash", "leave", "slow", "behave", "drop")
_ALONE = ("partition", "churn", "availability", "group")


class FaultRule(Section):
    # The time of the failure.
    at: Duration | None = None
    # The links: `"a->b"` or `"a<->b"`, each side a name or a pattern. One of `down`, `up` and `set` goes with it.
    link: Annotated[str, PlainValidator(_fault_link, json_schema_input_type=str)] | None = None
    # `true`: the links transmit nothing; `inflight` says what happens to messages.
    down: _TrueFlag | None = None
    # `true`: the links are up, whatever took them down before.
    up: _TrueFlag | None = None
    # Other values of the links: latency, bandwidth, outage.
    set: LinkValues | None = None
    # With `down` and `partition`. `drop` (default): messages on the link or in its queue are lost, and so are those
    # that are sent over it until it is up. `deliver`: messages that were sent before arrive. `pause`: nothing is
    # lost; the rate is 0, and messages go on when the link is up again.
    inflight: Annotated[str, one_of("drop", "pause", "deliver", what="word for what is in flight")] | None = None
    # Lists of names or patterns: every link between two of the groups is down. A vertex is of the first group that it
    # matches, so `["*"]` at the end is the rest. One that is in no group keeps its links: in a network with routers,
    # list them too.
    partition: Annotated[tuple[tuple[str, ...], ...], PlainValidator(
        _groups, json_schema_input_type=list[list[str]])] | None = None
    # The nodes, a name or a pattern. One of `crash`, `leave`, `slow`, `behave` and `drop` goes with it.
    node: Text | None = None
    # `true`: the role ends and its inbox is lost; messages that it has sent travel on. A node that returns starts its
    # role anew, with its `state`. Its vertex goes on forwarding the messages of others.
    crash: _TrueFlag | None = None
    # `true`, with `crash`: `node.state` is lost, too.
    wipe: _TrueFlag | None = None
    # `true`: the node cannot be reached. Its role goes on and remembers all; messages from it and to it are lost.
    leave: _TrueFlag | None = None
    # It computes so many times slower (0.5: twice as fast). Factors that overlap multiply. A computation under way is
    # charged exactly, part by part. No effect with `compute: zero` and `recorded`.
    slow: Annotated[float, number("how many times slower, a number in [0.001, 1000000]",
                                  lambda x: 1e-3 <= x <= 1e6)] | None = None
    # The name of a faulty variant of the node's role, one of the scheme's `behaviours`; here `node` is a name. In a
    # scheme of the scenario that has no such variant of its role the node follows the protocol, with a warning.
    behave: Text | None = None
    # `true`, with `stage`: the node drops out of the round. Or with a probability in each round: `{p: 0.2, per:
    # round}`.
    drop: Annotated[DropRule | Literal[True], PlainValidator(
        _drop, json_schema_input_type=DropRule | Literal[True])] | None = None
    # With `drop`: the name of one of the scheme's messages.
    stage: Text | None = None
    # `3..9`, `3..`, `..9` or `3`, with `behave` and `drop`: in these rounds alone; without it, in all. A node may
    # behave differently at different times; of two behaviours for one round the first holds. The run never waits for
    # a node that is faulty at any time, unless all nodes whose rounds it counts are: then it counts theirs.
    rounds: Rounds | None = None
    # Its length; without it, for good.
    for_: Annotated[PositiveDuration | None, Field(alias="for")] = None
    # Nodes come and go.
    churn: ChurnRule | None = None
    # Nodes are there by a file, by the time of day, or in some rounds.
    availability: AvailabilityRule | None = None
    # Nodes fail together.
    group: GroupRule | None = None

    def wrong(self) -> list[Finding]:
        """Not one subject, or keys that its kind of fault needs and has not, or has and does not use."""
        found = exactly_one(self, "link", "node", *_ALONE)
        if found:
            return found
        subject, = given(self, "link", "node", *_ALONE)
        kind = subject
        if subject in ("link", "node"):
            words = _OF_LINKS if subject == "link" else _OF_NODES
            found = exactly_one(self, *words)
            if found:
                return found
            kind, = given(self, *words)
        name, needs, uses = _KINDS[kind]
        found = [((key,), MISSING, f"is needed by {name}{_EXAMPLES.get(key, '')}")
                 for key in needs if getattr(self, key) is None]
        others = given(self, *(key for key in type(self).model_fields if key not in (subject, kind)))
        return found + [((key.rstrip("_"),), "", f"is not used by {name}") for key in others if key not in needs + uses]


# --- conversion -----------------------------------------------------------------------------------------------------

def node_values(rules: list[NodeRule], base: Path) -> list[NodeSpeed]:
    """In the order of the file."""
    return [NodeSpeed(rule.match, rule.speed, rule.fraction, None if rule.flops is None else
                      Island(rule.flops, rule.gpus or 1, rule.mfu or 1.0, rule.jitter or 0.0)) for rule in rules]


def node_document(rule: NodeSpeed) -> dict[str, object]:
    """As a file says it."""
    own = rule.island
    said = without_none(match=rule.match, fraction=rule.fraction, speed=rule.speed)
    return said | ({} if own is None else without_none(
        flops=own.flops, gpus=own.gpus, mfu=own.mfu, jitter=own.jitter or None))


def fault_values(faults: list[FaultRule], base: Path) -> list[Fault]:
    """In the order of the file; one rule may stand for several."""
    return [value for fault in faults for value in _values(fault, base)]


def _values(f: FaultRule, base: Path) -> list[Fault]:
    """`FaultRule.wrong` has seen to it that each kind has what it needs."""
    if f.churn is not None:
        return [churn_value(f.churn, f.churn.match)]
    if f.availability is not None:
        return [availability_value(f.availability, f.availability.match or "*", base)]
    if f.group is not None:
        return [group_value(f.group)]
    if f.behave is not None and f.node is not None:
        return [Behaviour(f.node, f.behave, *(f.rounds or (None, None)))]
    if f.drop and f.node is not None and f.stage is not None:
        first, last = f.rounds or (None, None)
        return [DropOut(f.node, f.stage, first, last, None if f.drop is True else f.drop.p)]
    assert f.at is not None
    inflight = cast(InFlight, f.inflight or "drop")
    if f.partition is not None:
        return [NetworkPartition(f.at, f.partition, f.for_, inflight)]
    if f.node is not None:
        if f.slow is not None:
            return [Slow(f.at, f.node, f.slow, f.for_)]
        return [Leave(f.at, f.node, f.for_) if f.leave else Crash(f.at, f.node, f.for_, bool(f.wipe))]
    assert f.link is not None
    ends = parse_match(f.link)
    if f.set is not None:
        outage = outage_spec(f.set.outage, base)
        return [LinkSet(f.at, *pair, f.set.latency, cast(Any, f.set.bandwidth), outage, f.for_) for pair in ends]
    return [LinkUp(f.at, *pair) if f.up else LinkDown(f.at, *pair, f.for_, inflight) for pair in ends]


def fault_document(fault: Fault) -> dict[str, object]:
    """As a file says it."""
    if isinstance(fault, Behaviour | DropOut):
        rounds = None if fault.first is None else rounds_text(fault.first, fault.last)
        what: dict[str, object] = ({"behave": fault.behave} if isinstance(fault, Behaviour) else
                                   {"stage": fault.stage, "drop": True if fault.p is None else
                                    {"p": fault.p, "per": "round"}})
        return {"node": fault.node} | what | without_none(rounds=rounds)
    if isinstance(fault, Absence):
        return absence_document(fault)
    how = {"at": duration_text(fault.at_ns)}
    end = {} if isinstance(fault, LinkUp) else without_none(**{"for": duration_text(fault.for_ns)})
    if isinstance(fault, NetworkPartition):
        return how | {"partition": [list(group) for group in fault.groups]} | end | _inflight(fault)
    if isinstance(fault, Crash):
        return how | {"node": fault.node, "crash": True} | ({"wipe": True} if fault.wipe else {}) | end
    if isinstance(fault, Leave):
        return how | {"node": fault.node, "leave": True} | end
    if isinstance(fault, Slow):
        return how | {"node": fault.node, "slow": fault.factor} | end
    how |= {"link": f"{fault.source}->{fault.destination}"}
    if isinstance(fault, LinkUp):
        return how | {"up": True}
    if isinstance(fault, LinkSet):
        bandwidth = fault.bandwidth_bps
        return how | {"set": without_none(
            latency=duration_text(fault.latency_ns), outage=outage_document(fault.outage),
            bandwidth=format_bandwidth(bandwidth) if isinstance(bandwidth, int) else bandwidth)} | end
    return how | {"down": True} | end | _inflight(fault)


def _inflight(fault: LinkDown | NetworkPartition) -> dict[str, object]:
    return {} if fault.inflight == "drop" else {"inflight": fault.inflight}
