"""Outages as a scenario writes them: values without any state, and what is wrong with them.

`emul.network.models.loss` makes a model of one for a direction of a link.

A message lasts: what a state that changes with time does to it says `span`. at_start: lost if the link is bad when
the transmission starts; any_slot: if it is bad at any time of it; pause: never, the link transmits only while good.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import expm1, isfinite
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from emul.base import tables
from emul.base.errors import ScenarioError
from emul.base.plain import is_count, is_number
from emul.base.units import format_duration
from emul.network.models.pieces import Pieces, too_short

OutageUnit = Literal["message", "packet", "round", "slot"]
Span = Literal["at_start", "any_slot", "pause"]
UNITS: tuple[str, ...] = get_args(OutageUnit)
SPANS: tuple[str, ...] = get_args(Span)


@dataclass(frozen=True, slots=True)
class OutageSpec:
    """Bernoulli outage: each `per` is lost with probability `p`; `slot_ns` is the slot's length, for `per="slot"`."""

    p: float
    per: OutageUnit = "message"
    slot_ns: int | None = None
    model: Literal["bernoulli"] = "bernoulli"
    span: Span = "at_start"


@dataclass(frozen=True, slots=True)
class GilbertSpec:
    """Gilbert-Elliott, as netem's `gemodel p r 1-h 1-k`: a chain over messages, packets, rounds or slots.

    p: from good to bad, r: from bad to good, at each step; loss_bad = 1-h, loss_good = 1-k: lost in that state. start
    "good", as netem, or "stationary".
    """

    p: float
    r: float
    loss_bad: float = 1.0
    loss_good: float = 0.0
    per: OutageUnit = "message"
    slot_ns: int | None = None
    start: Literal["good", "stationary"] = "good"
    span: Span = "at_start"


@dataclass(frozen=True, slots=True)
class OnOffSpec:
    """Up and down in turn, for exponential times of virtual time with these means."""

    up_ns: int
    down_ns: int
    start: Literal["stationary", "up"] = "stationary"
    span: Span = "at_start"


@dataclass(frozen=True, slots=True)
class FadingSpec:
    """Rayleigh block fading: the channel is drawn anew every `coherence_ns`, the mean of its `snr` (a ratio) is given.

    A block is in outage if the channel cannot carry `efficiency` bit/s/Hz: log2(1 + SNR) < efficiency, with
    probability 1 - exp(-(2^efficiency - 1) / snr).
    """

    coherence_ns: int
    snr: float
    efficiency: float
    span: Span = "at_start"

    @property
    def p(self) -> float:
        """The probability of outage of a block."""
        return -expm1(-(2**self.efficiency - 1) / self.snr)


@dataclass(frozen=True, slots=True)
class LossTraceSpec:
    """A state over time from a CSV file, `t,up` or `t,loss`; with `loop` its last row only says when it begins anew."""

    file: Path
    loop: bool = False
    span: Span = "at_start"


AnyOutage: TypeAlias = OutageSpec | GilbertSpec | OnOffSpec | FadingSpec | LossTraceSpec


# --- what a specification may hold ----------------------------------------------------------------------------------

SPECS = (OutageSpec, GilbertSpec, OnOffSpec, FadingSpec, LossTraceSpec)


def problem(spec: AnyOutage) -> tuple[str, str, str] | None:
    """(field, found, expected) of the first thing wrong with a spec, None where it is sound. Reads a trace's file."""
    found = _values(spec)
    if found is None and spec.span not in SPANS:
        found = "span", repr(spec.span), f"expected one of {', '.join(SPANS)}"
    if found is None and isinstance(spec, (OutageSpec, GilbertSpec)):
        found = _unit(spec)
    if found is None and isinstance(spec, LossTraceSpec):
        found = _trace(spec)
    return found


def _values(spec: AnyOutage) -> tuple[str, str, str] | None:
    """The mistakes in the numbers alone."""
    if isinstance(spec, OutageSpec):
        if spec.model != "bernoulli":
            return "model", repr(spec.model), 'expected "bernoulli"'
        return _probabilities(p=spec.p)
    if isinstance(spec, GilbertSpec):
        if spec.start not in ("good", "stationary"):
            return "start", repr(spec.start), "expected good or stationary"
        return _probabilities(**{"p": spec.p, "r": spec.r, "1-h": spec.loss_bad, "1-k": spec.loss_good})
    if isinstance(spec, OnOffSpec):
        if spec.start not in ("stationary", "up"):
            return "start", repr(spec.start), "expected stationary or up"
        return _durations(up=spec.up_ns, down=spec.down_ns)
    if isinstance(spec, FadingSpec):
        for name, value in (("snr", spec.snr), ("spectral_efficiency", spec.efficiency)):
            if not is_number(value) or not isfinite(value) or value <= 0:
                return name, repr(value), "expected a positive number"
        if spec.efficiency > 1000:
            return "spectral_efficiency", repr(spec.efficiency), "expected bit/s/Hz, at most 1000"
        return _durations(coherence=spec.coherence_ns)
    return None


def _unit(spec: OutageSpec | GilbertSpec) -> tuple[str, str, str] | None:
    if spec.per not in UNITS:
        return "per", repr(spec.per), f"expected one of {', '.join(UNITS)}"
    if spec.per == "slot" and (not isinstance(spec.slot_ns, int) or spec.slot_ns <= 0):
        return "slot", repr(spec.slot_ns), "expected the length of a slot, a positive duration"
    if spec.per != "slot" and spec.slot_ns is not None:
        return "slot", repr(spec.slot_ns), 'is used only with per "slot"'
    if spec.per != "slot" and spec.span != "at_start":
        return "span", repr(spec.span), f'per "{spec.per}" knows no time: is used only with per "slot"'
    return None


def _trace(spec: LossTraceSpec) -> tuple[str, str, str] | None:
    try:
        steps = read_trace(spec.file, spec.loop)
    except ScenarioError as error:
        return ("file", *tables.in_short(error))
    if spec.span == "pause" and not set(steps.values) <= {0, 1}:
        return "span", repr(spec.span), "needs a trace of 0 and 1: with a probability in between nothing can wait"
    return None


def _probabilities(**values: object) -> tuple[str, str, str] | None:
    for name, value in values.items():
        if not is_number(value) or not 0 <= value <= 1:        # refuses NaN, too
            return name, repr(value), "expected a probability in [0, 1]"
    return None


def _durations(**values: object) -> tuple[str, str, str] | None:
    for name, value in values.items():
        if not is_count(value):
            return name, repr(value), "expected a positive duration"
    return None


def read_trace(file: Path, loop: bool) -> Pieces[float]:
    """The probability of loss over time in a CSV file with the columns t and up (0 or 1), or t and loss.

    Raises ScenarioError: no such file, a value that is none, times that do not ascend from 0, with line and column.
    """
    return _read_trace(file, loop, tables.stamp(file))


@lru_cache(maxsize=256)
def _read_trace(file: Path, loop: bool, stamp: tuple[int, int] | None) -> Pieces[float]:
    # once for all the links that a rule matches; a file that has changed is read again
    found = tables.read(file, ("t=s", "up"), ("t=s", "loss"))
    times = found.durations("t")
    values = found.column("up", _up) if found.find("up") else found.shares("loss")
    tables.ascending(found, "t", times)
    if loop and len(times) < 2:
        found.problem(found.rows[0][0], "", "1 row", "expected two or more: with loop the last row says where it ends")
    found.check()
    known, levels = [n for n in times if n is not None], [v for v in values if v is not None]
    if loop and (expected := too_short(known[-1], len(known) - 1)):
        found.problem(found.rows[-1][0], "t", format_duration(known[-1]), f"{expected}: with loop it ends there")
        found.check()
    return Pieces(known[:-1], levels[:-1], known[-1]) if loop else Pieces(known, levels)


def _up(text: str) -> float:
    if text not in ("0", "1"):
        raise ValueError("expected 1 (up) or 0 (down)")
    return float(text == "0")
