"""The format of scenario files, version 1: one pydantic model per mapping.

Variants ("none" or a model, a generator or a file) are one model each with a check of the whole, not unions: pydantic
reports every branch of a union that failed, and nobody can tell from that what was meant.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from emul.base.units import size_bytes
from emul.network import GENERATORS, parse_match
from emul.scenario.source import shown
from emul.scenario.values import (
    Bandwidth,
    Count,
    Duration,
    Finding,
    Fraction,
    Positive,
    PositiveDuration,
    PositiveSize,
    Probability,
    Seed,
    Text,
    findings,
    nearest,
    one_of,
    whole,
)

VERSION = 1
BANDWIDTH_NAMES = ("bandwidth", "capacity", "bw", "datarate", "rate")
ROLE_RULES = ("nodes", "attribute", "highest_betweenness", "leaves", "all", "random")
MISSING = "missing"


class Section(BaseModel):
    """Base: unknown keys are refused, nothing changes after the check."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def wrong(self) -> list[Finding]:
        """What no field can see alone; called once the fields are sound."""
        return []

    @model_validator(mode="after")
    def _whole(self) -> Section:
        found = self.wrong()
        if found:
            raise findings(found)
        return self


def _given(model: Section, *names: str) -> list[str]:
    return [name for name in names if getattr(model, name) is not None]


def _one(model: Section, *names: str) -> list[Finding]:
    """Exactly one of `names` is to be given."""
    given = _given(model, *names)
    return [] if len(given) == 1 else [((), ", ".join(given) or MISSING, f"expected one of {', '.join(names)}")]


# ---- network ----

class Role(Section):
    rule: Annotated[str, one_of(*ROLE_RULES, what="rule")]
    nodes: Annotated[list[Text], Field(min_length=1)] | None = None
    count: Count | None = None
    attribute: Text | None = None
    value: Text | None = None

    def wrong(self) -> list[Finding]:
        uses = {"nodes": ("nodes",), "attribute": ("attribute", "value"), "leaves": ("count",), "random": ("count",),
                "highest_betweenness": ("count",), "all": ()}[self.rule]
        needs = {"nodes": "nodes", "attribute": "attribute", "random": "count"}.get(self.rule)
        found: list[Finding] = [((name,), "", f'is not used by the rule "{self.rule}"')
                                for name in _given(self, "nodes", "count", "attribute", "value") if name not in uses]
        if needs and getattr(self, needs) is None:
            found.append(((needs,), MISSING, f'is needed by the rule "{self.rule}"'))
        return found


def _names_as_rule(value: Any) -> Any:
    return {"rule": "nodes", "nodes": value} if isinstance(value, list) else value


class Topology(Section):
    generator: Annotated[str, one_of(*GENERATORS, what="generator")] | None = None
    clients: Annotated[int, whole(1, 10**6)] | None = None
    servers: Annotated[int, whole(1, 10**4)] | None = None
    peers: Annotated[int, whole(1, 10**6)] | None = None
    file: Text | None = None
    roles: dict[str, Annotated[Role, BeforeValidator(_names_as_rule)]] | None = None

    def wrong(self) -> list[Finding]:
        found = _one(self, "generator", "file")
        if found:
            return found
        kind = f'the generator "{self.generator}"' if self.generator else "a topology from a file"
        needs, uses = (("peers", ("peers",)) if self.generator == "complete" else
                       ("clients", ("clients", "servers")) if self.generator else (None, ("roles",)))
        if needs and getattr(self, needs) is None:
            found.append(((needs,), MISSING, f"is needed by {kind}: a whole number, 1 or more"))
        found += [((name,), "", f"is not used by {kind}")
                  for name in _given(self, "clients", "servers", "peers", "roles") if name not in uses]
        return found


class Outage(Section):
    model: Annotated[str, one_of("bernoulli", what="model")]
    p: Probability
    per: Annotated[str, one_of("message", "round", "slot", what="unit of outage")] = "message"
    slot: PositiveDuration | None = None

    def wrong(self) -> list[Finding]:
        if self.per == "slot" and self.slot is None:
            return [(("slot",), MISSING, "is needed by per: slot, a duration such as 100 ms")]
        if self.per != "slot" and self.slot is not None:
            return [(("slot",), "", "is used only with per: slot")]
        return []


def _packet_bytes(value: Any) -> int:
    # the key is the unit, so a plain number says all
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else size_bytes(value)


class Overhead(Section):
    bytes: Annotated[int, PlainValidator(_packet_bytes)]
    mtu: PositiveSize | None = None


def _match(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('expected text such as "client*->server"')
    parse_match(value)
    return value


def _outage(value: Any) -> Any:
    if not isinstance(value, dict) and value != "none":
        raise ValueError("expected none or a model such as {model: bernoulli, p: 0.1, per: round}")
    # p = 0 is what "none" means; `load` gives the rule its word back
    return {"model": "bernoulli", "p": 0} if value == "none" else value


class Link(Section):
    match: Annotated[str, PlainValidator(_match)]
    latency: Duration | None = None
    bandwidth: Bandwidth | None = None
    outage: Annotated[Outage, BeforeValidator(_outage)] | None = None
    transport: Annotated[str, one_of("datagram", what="transport")] | None = None
    overhead: Overhead | None = None


class NodeRule(Section):
    match: Text
    speed: Positive


_ENDS = 'expected "a->b" or "a<->b" with the names of two nodes'


def _fault_link(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(_ENDS)
    try:
        pairs = parse_match(value)
    except ValueError:
        raise ValueError(_ENDS) from None
    if any(c in name for pair in pairs for name in pair for c in "*?["):
        raise ValueError(f"{_ENDS}, without wildcards")
    return value


def _true(value: Any) -> bool:
    if value is not True:
        raise ValueError('expected true (a fault ends after its "for")')
    return True


def _rounds(value: Any) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", str(value), re.ASCII) if not isinstance(value, bool) else None
    if match is None or not 1 <= int(match[1]) <= int(match[2] or match[1]):
        raise ValueError("expected rounds such as 3..9")
    return int(match[1]), int(match[2] or match[1])


class Fault(Section):
    at: Duration | None = None
    link: Annotated[str, PlainValidator(_fault_link)] | None = None
    down: Annotated[bool, PlainValidator(_true)] | None = None
    node: Text | None = None
    crash: Annotated[bool, PlainValidator(_true)] | None = None
    for_: Annotated[PositiveDuration | None, Field(alias="for")] = None
    behave: Text | None = None
    rounds: Annotated[tuple[int, int], PlainValidator(_rounds)] | None = None

    def wrong(self) -> list[Finding]:
        found = _one(self, "link", "node")
        if found:
            return found
        needs: tuple[str, ...]
        uses: tuple[str, ...]
        if self.link is not None:
            needs, uses = ("at", "down"), ("at", "down", "for_")
        elif self.behave is not None:
            needs, uses = (), ("behave", "rounds")
        else:
            needs, uses = ("at", "crash"), ("at", "crash", "for_")
        kind = "a fault of a link" if self.link else "a faulty behaviour" if self.behave else "a fault of a node"
        found = [((name,), MISSING, f"is needed by {kind}") for name in needs if getattr(self, name) is None]
        others = _given(self, "at", "down", "crash", "for_", "behave", "rounds")
        return found + [((name.rstrip("_"),), "", f"is not used by {kind}") for name in others if name not in uses]


# ---- task ----

TASK_KEYS = ("data", "partition", "model", "solver")


def _task(value: Any) -> dict[str, Any]:
    """Only the keys: what may stand below them, `emul.learning` and its plug-ins know (see `checks`)."""
    if not isinstance(value, dict):
        raise ValueError("expected a mapping")
    found: list[Finding] = [((key,), shown(below), "unknown key" + nearest(key, TASK_KEYS))
                            for key, below in value.items() if key not in TASK_KEYS]
    found += [((key,), MISSING, "is required") for key in ("data", "model", "solver") if value.get(key) is None]
    if found:
        raise findings(found)
    return {"data": value["data"], "partition": value.get("partition", "iid"), "model": value["model"],
            "solver": value["solver"]}


# ---- what is done with it ----

class AttackedShare(Section):
    fraction: Fraction


def _attacked(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return value
    if not isinstance(value, dict):
        raise ValueError("expected {fraction: 0.2} or a list of names")
    return AttackedShare.model_validate(value)


class Attack(Section):
    nodes: Annotated[Any, PlainValidator(_attacked)]
    data: Annotated[str, one_of("label_flip", what="attack on data")]


class Compute(Section):
    mode: Annotated[str, one_of("measured", "profile", "recorded", "zero", what="mode")]
    file: Text | None = None

    def wrong(self) -> list[Finding]:
        if self.mode in ("profile", "recorded") and self.file is None:
            return [(("file",), MISSING, f"is needed by mode: {self.mode}, the name of a file")]
        if self.mode in ("measured", "zero") and self.file is not None:
            return [(("file",), f'"{self.file}"', f"is not used by mode: {self.mode}")]
        return []


def _scheme(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        raise ValueError("expected the name of a scheme or a mapping such as {name: fedavg}")
    name = value.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", name):
        written = MISSING if name is None else shown(name)
        raise findings([(("name",), written, "expected the name of a scheme")])
    return value


class Stop(Section):
    rounds: Annotated[int, whole(1, 10**9)] | None = None
    accuracy: Fraction | None = None
    virtual_time: PositiveDuration | None = None

    def wrong(self) -> list[Finding]:
        given = _given(self, "rounds", "accuracy", "virtual_time")
        if not given:
            return [((), MISSING, "expected at least one of rounds, accuracy, virtual_time")]
        if given == ["accuracy"]:
            return [(("accuracy",), str(self.accuracy), "may never be reached: give rounds or virtual_time, too")]
        return []


class Evaluation(Section):
    every: Count = 1
    scope: Annotated[str, one_of("global", "per_client", what="scope")] = "global"


class Workers(Section):
    timeout: PositiveDuration = 30 * 10**9


def _version(value: Any) -> int:
    if value != VERSION or isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected {VERSION}, the version of the format that this emul reads")
    return VERSION


def _name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", value):
        raise ValueError("expected a name of letters, digits and _ . -")
    return value


class Document(Section):
    """A whole scenario file."""

    emul: Annotated[int, PlainValidator(_version)]
    name: Annotated[str, PlainValidator(_name)]
    seed: Seed
    topology: Topology
    links: list[Link] = []
    nodes: list[NodeRule] = []
    faults: list[Fault] = []
    task: Annotated[dict[str, Any], PlainValidator(_task)]
    attacks: list[Attack] = []
    compute: Compute
    schemes: Annotated[list[Annotated[dict[str, Any], PlainValidator(_scheme)]], Field(min_length=1)]
    stop: Stop
    evaluation: Evaluation = Evaluation()
    workers: Workers = Workers()
