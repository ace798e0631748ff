"""The cost of a computation in virtual time: measured, from a profile, of a model, recorded, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Literal

from emul.base.errors import EmulError
from emul.base.streams import uniform_at
from emul.base.units import LARGEST

Mode = Literal["measured", "profile", "model", "recorded", "zero"]
Slowdown = Sequence[int]        # (from ns on, numerator, denominator) of the factor by which a node is slower


TRAINING = "train"                      # the label of a local update, or of as many steps as a scheme says
HOW_TO_PRICE = {
    "model": "trainings have one; give compute.default, such as zero, for all others",
    "profile": "make one with `emul profile SCENARIO -o FILE`, or give compute.default, such as zero",
    "zero": "give the trace rows with this label (or *), or compute.default, such as zero"}


class MissingCost(EmulError):
    """The profile or the record has no entry for a computation; the text names the command that makes one."""


@dataclass
class Costs:
    """Virtual cost of `compute` in nanoseconds.

    profile: {"scheme/role/label": (a, b)}, seconds at speed 1 = a + b * work.
    recorded: {node: costs in the order of that node's computations}, from the run that is replayed, or, with mode
    "measured", from the part of a run that is gone on with; after the last of them is measured again.
    slowdowns: {node: how slow it is from when on}, ascending; before the first it has its own speed.
    network_costs: {node: {label: costs in their order}}, of a realisation of the network; they go before the mode, but
    for "recorded". beyond: after the last of them the mode decides ("stream"), they begin anew ("repeat"), or "error".
    traces: {label: what it cost on real devices}, "*" for any label; trace_of: node -> which of them, -1: none. They go
    before the mode, but for "recorded" and what a node has in a record. keys: (node, label) -> the stream that draws
    from them; None: they are taken in their order, again and again.
    updates: node -> seconds of a local update, of mode "model", 0.0: it holds no data; it prices computations that are
    labelled TRAINING.
    default_ns: at speed 1, of what none of these prices. None: that is an error, since a computation that costs nothing
    makes its scheme look fast.
    """

    mode: Mode
    scheme: str
    profile: Mapping[str, Sequence[float]] = field(default_factory=dict)
    recorded: Mapping[int, Sequence[int]] = field(default_factory=dict)
    slowdowns: Mapping[int, Sequence[Slowdown]] = field(default_factory=dict)
    network_costs: Mapping[int, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    beyond: str = "stream"
    traces: Sequence[Mapping[str, Sequence[int]]] = ()
    trace_of: Sequence[int] = ()
    keys: Callable[[int, str], int] | None = None
    default_ns: int | None = None
    updates: Sequence[float] = ()
    _asked: Counter[tuple[int, str]] = field(default_factory=Counter)
    _traced: Counter[tuple[int, str]] = field(default_factory=Counter)
    _whole: set[int] = field(default_factory=set)       # nodes whose newest cost is one of these

    def cost_ns(self, node: int, role: str, label: str, work: float, count: int, speed: float) -> int | None:
        """Cost of this node's computation number `count` (from 0), or None: measure it. Raises MissingCost."""
        if self.network_costs and self.mode != "recorded":
            cost = self._network_cost(node, label)
            if cost is not None:
                return cost
        if self.traces and self.mode != "recorded":
            cost = self._traced_cost(node, label)
            if cost is not None:
                return cost
        if self.mode == "zero" and not self.traces:
            return 0
        if self.mode == "measured":
            return self._measured_before(node, count)
        if self.mode == "recorded":
            costs = self.recorded.get(node, ())
            if count >= len(costs):
                raise MissingCost(f"the record holds {len(costs)} computations of node {node}, "
                                  f"number {count + 1} ({label}) was asked for")
            return int(costs[count])
        if self._modelled(node, label):
            return round(self.updates[node] * 1e9 / speed)
        key = f"{self.scheme}/{role}/{label}"
        entry = self.profile.get(key)
        if entry is not None:
            a, b = entry
            return max(0, round((a + b * work) * 1e9 / speed))
        if self.default_ns is not None:
            return round(self.default_ns / speed)
        source = self.mode if self.mode in ("profile", "model") else "trace"
        raise MissingCost(f"the {source} has no price of {key!r}: "
                          f"{HOW_TO_PRICE[self.mode]}")

    def priced_by(self, node: int, role: str, label: str) -> str:
        """The source of the cost of a node's computations with this label; "": there is none."""
        if self.mode != "recorded":
            if self.network_costs.get(node, {}).get(label):
                return "record"
            if self.traces and self._trace(node, label):
                return "trace"
        if self.mode == "profile" and f"{self.scheme}/{role}/{label}" in self.profile:
            return "profile"
        if self._modelled(node, label):
            return "model"
        if self.mode in ("profile", "model") or (self.mode == "zero" and self.traces):
            return "" if self.default_ns is None else "default"
        return self.mode

    def states(self, label: str) -> bool:
        """True if seconds that a scheme gives for such a computation are its own, and not those of the node's device,
        which it has asked for (`Node.training_s`)."""
        return self.mode != "model" or label != TRAINING

    def _modelled(self, node: int, label: str) -> bool:
        return self.mode == "model" and label == TRAINING and bool(self.updates) and self.updates[node] > 0

    def stated_ns(self, node: int, label: str, cost_s: float, speed: float) -> int:
        """Cost of a computation for which the scheme itself states `cost_s` seconds at speed 1: in every mode, and
        before any record. It takes its place in the records all the same."""
        if self.network_costs:
            self._asked[node, label] += 1
        return round(cost_s * 1e9 / speed)

    def _measured_before(self, node: int, count: int) -> int | None:
        """The cost that a run that is gone on with had measured; None: it had not got there."""
        costs = self.recorded.get(node, ())
        self._whole.discard(node)
        if count >= len(costs):
            return None
        self._whole.add(node)
        return int(costs[count])

    def _network_cost(self, node: int, label: str) -> int | None:
        """The next cost of this label at this node in the record; None: it has none."""
        self._whole.discard(node)
        costs = self.network_costs.get(node, {}).get(label)
        if not costs:
            return None
        number = self._asked[node, label]
        self._asked[node, label] += 1
        if number >= len(costs):
            if self.beyond == "error":
                raise MissingCost(f"the record holds {len(costs)} computations {label!r} of node {node}, number "
                                  f"{number + 1} was asked for (beyond: error)")
            if self.beyond == "stream":
                return None
        self._whole.add(node)
        return int(costs[number % len(costs)])

    def _traced_cost(self, node: int, label: str) -> int | None:
        """The time that a real device took; the node's speed does not count. None: there is no such label."""
        costs = self._trace(node, label)
        if not costs:
            return None
        number = self._traced[node, label]
        self._traced[node, label] += 1
        if self.keys is None:
            return costs[number % len(costs)]
        return costs[int(uniform_at(self.keys(node, label), number) * len(costs))]

    def _trace(self, node: int, label: str) -> Sequence[int]:
        """The times in the trace for this label at this node; none: it has none."""
        if self.trace_of[node] < 0:
            return ()
        trace = self.traces[self.trace_of[node]]
        return trace.get(label) or trace.get("*") or ()

    def stretched(self, node: int, start_ns: int, cost_ns: int, stated: bool = False) -> int:
        """The time of a computation of `cost_ns` that begins at `start_ns`, while the node's speed changes: the
        integral of the speed is the cost, rounded up to ns. Recorded costs hold all that already; stated ones never
        do. It is at most what fits a column of the journal, which is after the end of virtual time."""
        # The speed is known before the run, so the cost is known before the work is done, and the lookahead of the
        # kernel rests on that. An event that stretches a running computation would take back a cost that the kernel was
        # told (`test_the_integral_of_the_speed_over_the_time_is_the_cost`).
        pieces = self.slowdowns.get(node)
        if not pieces or (not stated and (self.mode == "recorded" or (self.mode == "zero" and not self.traces)
                                          or node in self._whole)):
            return min(cost_ns, LARGEST)
        left, at = Fraction(cost_ns), start_ns
        factor = Fraction(1)
        for begin, numerator, denominator in pieces:
            if begin > at:
                done = (begin - at) / factor
                if done >= left:
                    break
                left -= done
                at = begin
            factor = Fraction(numerator, denominator)
        return min(at - start_ns + ceil(left * factor), LARGEST)
