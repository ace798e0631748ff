"""`nodes` and `faults`: their models, the plain values they stand for, and back to YAML."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from emul.network import parse_match
from emul.scenario.sections import MISSING, Section, duration_text, exactly_one, given, without_none
from emul.scenario.values import Duration, Finding, Positive, PositiveDuration, Text


@dataclass(frozen=True)
class NodeSpeed:
    """Nodes whose name matches compute `speed` times as fast as the profile's machine; later rules win."""

    match: str
    speed: float


@dataclass(frozen=True)
class LinkDown:
    """The link source -> destination is down from `at_ns` on, for `for_ns` (None: for good)."""

    at_ns: int
    source: str
    destination: str
    for_ns: int | None = None


@dataclass(frozen=True)
class Crash:
    """The node ends at `at_ns` and starts anew after `for_ns` (None: never)."""

    at_ns: int
    node: str
    for_ns: int | None = None


@dataclass(frozen=True)
class Behaviour:
    """The node runs the scheme's faulty role `behave` in rounds `first` .. `last`, both included; None: in all."""

    node: str
    behave: str
    first: int | None = None
    last: int | None = None


Fault = LinkDown | Crash | Behaviour


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


class FaultRule(Section):
    at: Duration | None = None
    link: Annotated[str, PlainValidator(_fault_link)] | None = None
    down: Annotated[bool, PlainValidator(_true)] | None = None
    node: Text | None = None
    crash: Annotated[bool, PlainValidator(_true)] | None = None
    for_: Annotated[PositiveDuration | None, Field(alias="for")] = None
    behave: Text | None = None
    rounds: Annotated[tuple[int, int], PlainValidator(_rounds)] | None = None

    def wrong(self) -> list[Finding]:
        found = exactly_one(self, "link", "node")
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
        others = given(self, "at", "down", "crash", "for_", "behave", "rounds")
        return found + [((name.rstrip("_"),), "", f"is not used by {kind}") for name in others if name not in uses]


def fault_values(faults: list[FaultRule], base: Path) -> list[Fault]:
    result: list[Fault] = []
    for f in faults:    # `FaultRule.wrong` has seen to it that each kind has what it needs
        if f.behave is not None and f.node is not None:
            result.append(Behaviour(f.node, f.behave, *(f.rounds or (None, None))))
        elif f.node is not None and f.at is not None:
            result.append(Crash(f.at, f.node, f.for_))
        elif f.link is not None and f.at is not None:
            result += [LinkDown(f.at, source, destination, f.for_) for source, destination in parse_match(f.link)]
    return result


def fault_document(fault: Fault) -> dict[str, Any]:
    if isinstance(fault, Behaviour):
        rounds = None if fault.first is None else f"{fault.first}..{fault.last}"
        return without_none(node=fault.node, behave=fault.behave, rounds=rounds)
    if isinstance(fault, Crash):
        return without_none(at=duration_text(fault.at_ns), node=fault.node, crash=True,
                                  **{"for": duration_text(fault.for_ns)})
    return without_none(at=duration_text(fault.at_ns), link=f"{fault.source}->{fault.destination}", down=True,
                  **{"for": duration_text(fault.for_ns)})
