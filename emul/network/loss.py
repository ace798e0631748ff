"""Outage models: which messages a link loses, as pure functions of names and indices.

A fate is drawn from a stream keyed by (seed, unit, name of the source, name of the destination) at an index that
says what is lost: (round, k) for the k-th message offered in a round, the round, or the slot of virtual time. No
fate depends on other traffic, so schemes on one seed meet the same links (common random numbers). The three units
have streams of their own: knowing the fates per round says nothing about the fates per message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from emul.base.streams import key64, uniform_at

OutageUnit = Literal["message", "round", "slot"]
UNITS: tuple[str, ...] = get_args(OutageUnit)


@dataclass(frozen=True, slots=True)
class OutageSpec:
    """Bernoulli outage: each `per` is lost with probability `p`; `slot_ns` is the slot's length, for `per="slot"`."""

    p: float
    per: OutageUnit = "message"
    slot_ns: int | None = None
    model: Literal["bernoulli"] = "bernoulli"


class Outage(Protocol):
    """What a link asks when a transmission starts."""

    def lost(self, start_ns: int, round: int, k: int) -> bool:
        """Fate of the k-th message (from 0) offered in `round`, whose transmission starts at `start_ns`. Pure."""
        ...


class PerMessage:
    """Each message has a fate of its own, index (round, k)."""

    __slots__ = ("_key", "_p")

    def __init__(self, spec: OutageSpec, seed: int, src: str, dst: str):
        self._p = spec.p
        self._key = key64(seed, "outage/message", src, dst)

    def lost(self, start_ns: int, round: int, k: int) -> bool:
        return uniform_at(self._key, (round << 32) | k) < self._p


class PerRound:
    """All messages of a round share one fate; those of round 0 (outside rounds, unscoped) have one each."""

    __slots__ = ("_fate", "_key", "_p", "_per_message", "_round")

    def __init__(self, spec: OutageSpec, seed: int, src: str, dst: str):
        self._p = spec.p
        self._key = key64(seed, "outage/round", src, dst)
        self._per_message = PerMessage(spec, seed, src, dst)
        self._round = 0                 # the last round asked for, and its fate: most messages ask for the same
        self._fate = False

    def lost(self, start_ns: int, round: int, k: int) -> bool:
        if round == 0:
            return self._per_message.lost(start_ns, round, k)
        if round != self._round:
            self._round = round
            self._fate = uniform_at(self._key, round) < self._p
        return self._fate


class PerSlot:
    """All transmissions that start in one slot of virtual time share one fate (block fading)."""

    __slots__ = ("_fate", "_key", "_p", "_slot", "_slot_ns")

    def __init__(self, spec: OutageSpec, seed: int, src: str, dst: str):
        assert spec.slot_ns is not None
        self._p = spec.p
        self._key = key64(seed, "outage/slot", src, dst)
        self._slot_ns = spec.slot_ns
        self._slot = -1
        self._fate = False

    def lost(self, start_ns: int, round: int, k: int) -> bool:
        slot = start_ns // self._slot_ns
        if slot != self._slot:
            self._slot = slot
            self._fate = uniform_at(self._key, slot) < self._p
        return self._fate


_MODELS: dict[str, type[PerMessage] | type[PerRound] | type[PerSlot]] = {
    "message": PerMessage, "round": PerRound, "slot": PerSlot}


def outage(spec: OutageSpec | None, seed: int, src: str, dst: str) -> Outage | None:
    """The model of one direction of a link, None where nothing is ever lost. `spec` is one that `problem` passes."""
    if spec is None or spec.p == 0:
        return None
    return _MODELS[spec.per](spec, seed, src, dst)


def lost_at(spec: OutageSpec | None, seed: int, src: str, dst: str, *,
            start_ns: int = 0, round: int = 0, k: int = 0) -> bool:
    """Fate of one (link, index) without a link: what `Link.offer` draws, for tests and for analysis."""
    model = outage(spec, seed, src, dst)
    return model is not None and model.lost(start_ns, round, k)


def problem(spec: OutageSpec) -> tuple[str, str, str] | None:
    """(field, found, expected) of the first thing wrong with a spec, None where it is sound."""
    if spec.model != "bernoulli":
        return "model", repr(spec.model), 'expected "bernoulli"'
    if isinstance(spec.p, bool) or not isinstance(spec.p, (int, float)) or not 0 <= spec.p <= 1:   # refuses NaN too
        return "p", repr(spec.p), "expected a probability in [0, 1]"
    if spec.per not in UNITS:
        return "per", repr(spec.per), f"expected one of {', '.join(UNITS)}"
    if spec.per == "slot" and (not isinstance(spec.slot_ns, int) or spec.slot_ns <= 0):
        return "slot", repr(spec.slot_ns), "expected the length of a slot, a positive duration"
    if spec.per != "slot" and spec.slot_ns is not None:
        return "slot", repr(spec.slot_ns), 'is used only with per "slot"'
    return None
