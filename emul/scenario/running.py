"""The sections on a run: `compute`, `fuse`, `stop`, `evaluation`, `workers`, `network`, `limits`, `record`, `sweep`.

Each with its model, the plain value that it stands for, and the way back to YAML.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from emul.base.names import is_pattern, matches
from emul.base.plain import PlainDict
from emul.base.tables import amount, read
from emul.base.units import duration_ns, format_duration, format_size
from emul.kernel.parts import MAX_MESSAGE, MAX_UNREAD
from emul.network.linkrecord import BEYOND
from emul.scenario.devices import DeviceClass
from emul.scenario.sections import (
    Count,
    Flag,
    Fraction,
    Positive,
    PositiveDuration,
    PositiveSize,
    Quantity,
    Rounds,
    Section,
    Text,
    Written,
    absolute,
    duration_text,
    given,
    one_of,
    rounds_text,
    whole,
    without_none,
)
from emul.scenario.wording import MISSING, Finding, nearest

# ---- compute ----

@dataclass(frozen=True)
class ComputeTime:
    """The source of virtual compute time: measured, profile, model, recorded or zero; `file` for profile and recorded.

    trace: a file of what computations took on real devices, which goes before the mode; take: "drawn" by the seed, or
    "in order". device: where models are trained and evaluated, "cpu" or "cuda": the worker's number modulo the GPUs
    that there are.
    """

    mode: str
    file: Path | None = None
    device: str = "cpu"
    trace: Path | None = None
    take: str = "drawn"
    default_ns: int | None = None       # of what neither trace nor profile prices; None: that is an error
    memory: int | None = None           # bytes that a worker on a CPU may hold; None: no limit
    line: int | None = field(default=None, compare=False)       # of `file`, in the scenario's file


def _default_price(value: object) -> int:
    return 0 if value == "zero" else duration_ns(value)


Price = Annotated[int, PlainValidator(_default_price, json_schema_input_type=Quantity | Literal["zero"])]


class ComputeSection(Section):
    # The source of virtual compute time: `measured`, `profile`, `model`, `recorded` or `zero`. `model`: trainings take
    # what the task's module asks of the device that a node has (`devices`).
    mode: Annotated[str, one_of("measured", "profile", "model", "recorded", "zero", what="mode")] | None = None
    # The profile, or the run; for `profile` and `recorded` only.
    file: Text | None = None
    # A CSV file of the times that computations took on real devices: `label`, `seconds`, and `node` or `device`. It
    # goes before the mode, which may then be left out.
    trace: Text | None = None
    # With `trace`: `drawn` (default) by the seed, or `in order`, beginning anew after the last.
    take: Annotated[str, one_of("drawn", "in order", what="way")] | None = None
    # The price of a computation that neither the trace nor the profile nor the model prices: `zero`, or seconds at
    # speed 1, such as `5 ms`. Without it, such a computation is an error of `emul check`, which names scheme, role and
    # label.
    default: Price | None = None
    # `cpu` (default) or `cuda`: where models are trained and evaluated. Workers share the GPUs, each with a context
    # of its own; `emul check --device cuda` tries one out. Results equal those of a CPU within rounding, except for a
    # model with torch's own dropout (`nn.Dropout`) that cannot be trained with others as one (`fuse`): a GPU draws
    # other masks for it. `measured` charges the larger of CPU and GPU time.
    device: Annotated[str, one_of("cpu", "cuda", what="device")] = "cpu"
    # With `device: cpu`: the most that each worker may hold, such as `4 GiB`. Before the run a step of one client and
    # one of two are measured. The groups of `fuse` are halved until they fit, which changes models by rounding only;
    # a model of which one client does not fit is an error. A GPU needs no such key, because its free memory is known.
    memory: PositiveSize | None = None

    def wrong(self) -> list[Finding]:
        """Keys that its mode does not use or lacks."""
        if self.trace is None and self.take is not None:
            return [(("take",), self.take, "is used with trace alone")]
        if self.default is not None and self.mode not in ("profile", "model") and (
                self.trace is None or self.mode == "measured"):
            return [(("default",), "", "is the price of what a trace or a profile lacks: it is used with mode: "
                     "profile, or with trace and no other mode")]
        if self.memory is not None and self.device != "cpu":
            return [(("memory",), format_size(self.memory), "is of a CPU: what a GPU has free is found out")]
        if self.mode is None and self.trace is None:
            return [(("mode",), MISSING, "is required, or trace, a file of what computations took")]
        if self.mode == "recorded" and self.trace is not None:
            return [(("trace",), f'"{self.trace}"', "is not used by mode: recorded, which has every cost")]
        if self.mode in ("profile", "recorded") and self.file is None:
            return [(("file",), MISSING, f"is needed by mode: {self.mode}, the name of a file")]
        if self.mode in (None, "measured", "model", "zero") and self.file is not None:
            return [(("file",), f'"{self.file}"', f"is not used by mode: {self.mode or 'zero'}")]
        return []


def compute_value(c: ComputeSection, base: Path) -> ComputeTime:
    """The source of virtual compute time; its files are looked for in `base`."""
    return ComputeTime(c.mode or "zero", absolute(c.file, base), c.device, absolute(c.trace, base), c.take or "drawn",
                       c.default, c.memory)


def compute_document(c: ComputeTime) -> PlainDict:
    """As a file says it."""
    return without_none(mode=c.mode, file=None if c.file is None else str(c.file),
                        device=None if c.device == "cpu" else c.device, trace=None if c.trace is None else str(c.trace),
                        take=None if c.trace is None else c.take, default=duration_text(c.default_ns),
                        memory=None if c.memory is None else format_size(c.memory))


# ---- compute: trace ----

Costs = dict[str, list[int]]            # label -> ns, in the order of the file


@dataclass(frozen=True)
class CostTrace:
    """A file's costs by node, name or pattern, or by device."""

    by_node: dict[str, Costs] = field(default_factory=dict)
    by_device: dict[str, Costs] = field(default_factory=dict)

    def of(self, names: Sequence[str], devices: Sequence[DeviceClass | None]) -> tuple[list[Costs], list[int]]:
        """(different costs, node -> which of them; -1: none)."""
        used: list[Costs] = []
        place: dict[int, int] = {}
        found = []
        known = set(names)
        for name, device in zip(names, devices, strict=True):
            costs = self._costs(name, device, known)
            if costs is None:
                found.append(-1)
                continue
            if id(costs) not in place:
                place[id(costs)] = len(used)
                used.append(costs)
            found.append(place[id(costs)])
        return used, found

    def unknown(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """(name or pattern of the file that no node of these names has, what is wrong), in the order of the file."""
        known = set(names)
        return [(one, "a pattern that matches no node" if is_pattern(one) else "unknown node" + nearest(one, names))
                for one in self.by_node
                if one not in known and not (is_pattern(one) and any(matches(name, one, known) for name in names))]

    def _costs(self, name: str, device: DeviceClass | None, known: Container[str]) -> Costs | None:
        if name in self.by_node:
            return self.by_node[name]
        for pattern, costs in self.by_node.items():
            if is_pattern(pattern) and matches(name, pattern, known):
                return costs
        return None if device is None else self.by_device.get(device.name)


def read_trace(path: Path) -> CostTrace:
    """The costs of a file. Raises ScenarioError with everything that is wrong with it."""
    table = read(path, ("node", "label", "seconds"), ("device", "label", "seconds"))
    key = "node" if "node" in table.header else "device"
    whose, labels, costs = table.column(key, _text), table.column("label", _text), table.column("seconds", _ns)
    table.check()
    found: dict[str, Costs] = {}
    for one, label, cost in zip(whose, labels, costs, strict=True):
        assert one is not None and label is not None and cost is not None       # noqa: PT018, for the type checker
        found.setdefault(one, {}).setdefault(label, []).append(cost)
    return CostTrace(by_node=found) if key == "node" else CostTrace(by_device=found)


def _text(text: str) -> str:
    if not text:
        raise ValueError("expected a name")
    return text


def _ns(text: str) -> int:
    return round(amount(text, unit="seconds", below=1e9) * 1e9)


# ---- fuse ----

@dataclass(frozen=True)
class FusedTraining:
    """At most `clients` of one of `lanes` are trained as one; a node's lane is its number modulo `lanes`."""

    clients: int
    lanes: int = 4


class FuseSection(Section):
    # At most so many are trained as one, 2 or more. A number alone means this.
    clients: Annotated[int, whole(2, 10_000)]
    # Nodes whose numbers are equal modulo `lanes` may be trained together; a lane is whole in one worker, so more
    # workers than lanes train nothing. Results depend on it, and not on the workers.
    lanes: Annotated[int, whole(1, 1000)] = 4


def _fuse(value: object) -> FuseSection | None:
    if value is None or value is False or value in ("off", "none"):       # YAML 1.1 reads a bare `off` as false
        return None
    if isinstance(value, dict):
        return FuseSection.model_validate(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 2:
        raise ValueError("expected off, a number of clients of 2 or more, or {clients: 32, lanes: 4}")
    return FuseSection.model_validate({"clients": value})


AnyFuse = Annotated[Any, PlainValidator(_fuse, json_schema_input_type=FuseSection | int | str | bool)]


def fuse_value(f: FuseSection | None, base: Path) -> FusedTraining | None:
    return None if f is None else FusedTraining(f.clients, f.lanes)


def fuse_document(fuse: FusedTraining | None) -> PlainDict | None:
    return None if fuse is None else {"clients": fuse.clients, "lanes": fuse.lanes}


# ---- stop ----

@dataclass(frozen=True)
class Stop:
    """The run ends when the first of these is reached; None: no limit of that kind."""

    rounds: int | None = None
    accuracy: float | None = None
    virtual_time_ns: int | None = None
    loss: float | None = None


MOST_ROUNDS = 10**9


class StopSection(Section):
    # The deciding nodes enter no round above this.
    rounds: Annotated[int, whole(1, MOST_ROUNDS)] | None = None
    # Above 0, at most 1; of the kind that the scheme reports (accuracy_of) at deciding nodes. Looked at before a
    # deciding node enters its next round; the newest round entered then is the last. Needs `rounds` or
    # `virtual_time`, too.
    accuracy: Fraction | None = None
    # Above 0: the loss of the test samples, or less; of `text` in nats a byte. As `accuracy`; with both the one
    # reached first ends the run.
    loss: Positive | None = None
    # The round that runs then is the last one, so a run ends somewhat later. A round that does not end is cut off at
    # twice this time. If no round has begun, the run ends at once.
    virtual_time: PositiveDuration | None = None

    def wrong(self) -> list[Finding]:
        """No limit, or only one that may never be reached."""
        found = given(self, "rounds", "accuracy", "loss", "virtual_time")
        if not found:
            return [((), MISSING, "expected at least one of rounds, accuracy, loss, virtual_time")]
        if set(found) <= {"accuracy", "loss"}:
            return [((key,), str(getattr(self, key)), "may never be reached: give rounds or virtual_time, too")
                    for key in found]
        return []


def stop_value(s: StopSection, base: Path) -> Stop:
    return Stop(s.rounds, s.accuracy, s.virtual_time, s.loss)


def stop_document(s: Stop) -> PlainDict:
    return without_none(rounds=s.rounds, accuracy=s.accuracy, loss=s.loss,
                        virtual_time=duration_text(s.virtual_time_ns))


# ---- evaluation ----

NO_EVALUATION = 10**9               # rounds between two evaluations, of a run that has none


@dataclass(frozen=True)
class Evaluation:
    """Evaluate every `every` rounds: the "global" model, or it "per_client"."""

    every: int = 1
    scope: str = "global"


class EvaluationSection(Section):
    # Rounds between two evaluations.
    every: Count = 1
    # `global`: the whole test set. `per_client`: the model as each client would see it, weighted by the client's own
    # labels; mean, `_std`, `_min` and `_max` over the clients.
    scope: Annotated[str, one_of("global", "per_client", what="scope")] = "global"


def evaluation_value(e: EvaluationSection, base: Path) -> Evaluation:
    return Evaluation(e.every, e.scope)


def evaluation_document(e: Evaluation) -> PlainDict:
    return {"every": e.every, "scope": e.scope}


# ---- workers ----

@dataclass(frozen=True)
class WorkerTimeout:
    """A worker without heartbeat for `timeout_s` of real time counts as dead, and one in which a step or computation of
    a role takes longer than `patience_s`; None: it may take any time."""

    timeout_s: float = 30.0
    patience_s: float | None = None


class WorkersSection(Section):
    # [30 s] Real time without a heartbeat after which a worker process counts as hanging, and the run fails.
    timeout: PositiveDuration = 30 * 10**9
    # [no limit] The most real time that one computation of a role, or its code between two waits, may take. Then the
    # run fails with `RoleHangs`, which names the node, its role, the round and the line.
    patience: PositiveDuration | None = None


def workers_value(w: WorkersSection, base: Path) -> WorkerTimeout:
    return WorkerTimeout(w.timeout / 1e9, None if w.patience is None else w.patience / 1e9)


def workers_document(w: WorkerTimeout) -> PlainDict:
    return without_none(timeout=format_duration(round(w.timeout_s * 1e9)),
                        patience=None if w.patience_s is None else format_duration(round(w.patience_s * 1e9)))


# ---- network ----

@dataclass(frozen=True)
class NetworkUse:
    """replay: a run directory or a table whose draws links take; `beyond`: what they do where it has none.

    record: whether the run's own draws are written into its directory.
    """

    replay: Path | None = None
    beyond: str = "stream"
    record: bool = True


class NetworkRule(Section):
    # [none] A run directory, its `network.parquet`, or a CSV file of the same form.
    replay: Text | None = None
    # [stream] For draws that the record does not hold. `stream`: the link's own model draws. `repeat`: the record
    # begins anew. `error`: the run ends.
    beyond: Annotated[str, one_of(*BEYOND, what="mode")] | None = None
    # `true`: the run writes its draws into its directory. `false` saves the time and the space.
    record: Flag = True

    def wrong(self) -> list[Finding]:
        """`beyond` without a record to replay."""
        if self.beyond is not None and self.replay is None:
            return [(("beyond",), "", "is used only with replay")]
        return []


def network_value(rule: NetworkRule, base: Path) -> NetworkUse:
    """The rule as the network takes it; a run directory is looked for in `base`, and `beyond` is "stream" by
    default."""
    return NetworkUse(absolute(rule.replay, base), rule.beyond or "stream", rule.record)


def network_document(use: NetworkUse) -> dict[str, object] | None:
    """None where it says nothing that is not the default."""
    if use == NetworkUse():
        return None
    replay = None if use.replay is None else str(use.replay)
    return without_none(replay=replay, beyond=use.beyond if replay else None, record=None if use.record else False)


# ---- limits ----

@dataclass(frozen=True)
class Limits:
    """max_message: bytes of a message with its envelope. max_unread: messages of one sender in one node's inbox.

    A message beyond a limit is rejected on arrival, as any message that does not fit its type.
    """

    max_message: int = MAX_MESSAGE
    max_unread: int = MAX_UNREAD


class LimitsRule(Section):
    # [1 GiB] The largest message, with its envelope.
    max_message: PositiveSize = Limits.max_message
    # The most messages of one sender that may lie unread in the inbox of one node.
    max_unread: Annotated[int, whole(1, 10**9)] = Limits.max_unread


def limits_value(rule: LimitsRule, base: Path) -> Limits:
    return Limits(rule.max_message, rule.max_unread)


def limits_document(limits: Limits) -> dict[str, object] | None:
    """None where it says nothing that is not the default."""
    if limits == Limits():
        return None
    return {"max_message": format_size(limits.max_message), "max_unread": limits.max_unread}


# ---- record ----

LIMIT_BYTES = 10**9                 # of payloads of one run


@dataclass(frozen=True)
class Recorded:
    """models: the parameters that nodes report, every so many rounds; None: the last ones alone.

    payloads: types of messages that are kept as they were sent, in rounds first .. last (None: to the end), at most
    `limit_bytes` of them, of which every node has an equal share.
    """

    models: int | None = None
    payloads: tuple[str, ...] = ()
    first: int = 1
    last: int | None = None
    limit_bytes: int = LIMIT_BYTES


def _types(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError("expected a list of types of messages such as [Model, Update]")
    return list(dict.fromkeys(value))


class RecordRule(Section):
    # [the last alone] `10`: every tenth round the parameters that each node reports are kept, in `models/round-<n>/`.
    models: Count | None = None
    # [none] Types of messages that are kept as they were sent, e.g. `[Model, Update]`, in `payloads/`.
    payloads: Annotated[list[str], PlainValidator(_types, json_schema_input_type=list[str] | str)] | None = None
    # [all] Of `payloads`: `3..9` or `10..`. Messages outside rounds are always kept.
    rounds: Rounds | None = None
    # [1 GB] Of `payloads`: the most bytes that the run may leave. Every node has an equal share of them, so any
    # number of workers keeps the same. Beyond its share only the head of a message is kept.
    limit: PositiveSize | None = None

    def wrong(self) -> list[Finding]:
        """The mistakes in keys on payloads where none are kept."""
        if self.payloads is not None:
            return []
        return [((key,), "", "is used only with payloads") for key in given(self, "rounds", "limit")]


def record_value(rule: RecordRule, base: Path) -> Recorded:
    first, last = rule.rounds or (1, None)
    return Recorded(rule.models, tuple(rule.payloads or ()), first, last, rule.limit or LIMIT_BYTES)


def record_document(recorded: Recorded) -> dict[str, object] | None:
    """None where it says nothing that is not the default."""
    if recorded == Recorded():
        return None
    always = recorded.first == 1 and recorded.last is None
    return without_none(
        models=recorded.models, payloads=list(recorded.payloads) or None,
        rounds=None if always else rounds_text(recorded.first, recorded.last),
        limit=None if recorded.limit_bytes == LIMIT_BYTES else format_size(recorded.limit_bytes))


# ---- sweep ----

MOST_SEEDS = 1_000_000
_RANGE = re.compile(r"(\d{1,18})(?::(\d{1,18}))?", re.ASCII)
_SEEDS = "expected seeds such as 0:5, which are 0..4, or 1,2,7"


@dataclass(frozen=True)
class Sweep:
    """Values by path, as `--set` writes it; seeds (None: the scenario's) and schemes (empty: all)."""

    grid: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    schemes: tuple[str, ...] = ()


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds in the order written, each once. Raises ValueError.

    >>> parse_seeds("0:3,7")
    (0, 1, 2, 7)
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(_SEEDS)
        first = int(match[1])
        end = first + 1 if match[2] is None else int(match[2])
        if end <= first:
            raise ValueError(f"{_SEEDS}: {part.strip()} holds none")
        if end - first > MOST_SEEDS:
            raise ValueError(f"expected at most {MOST_SEEDS} seeds")
        found |= dict.fromkeys(range(first, end))
    return tuple(found)


def seeds_of(value: object) -> tuple[int, ...]:
    """Seeds as a scenario says them, text, a number or a list, each once. Raises ValueError.

    >>> seeds_of([3, 1, 3])
    (3, 1)
    """
    if isinstance(value, str):
        return parse_seeds(value)
    entries = value if isinstance(value, list) and value else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63 for v in entries):
        raise ValueError(_SEEDS)
    return tuple(dict.fromkeys(entries))


def _values(value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of values")
    return value


class SweepRule(Section):
    # [nothing] Values by path, e.g. `{"links[1].outage.p": [0.1, 0.3], schemes.secagg.threshold: [4, 6]}`: every
    # combination is run. Paths are those of `--set`.
    grid: dict[str, Annotated[list[Any], PlainValidator(_values, json_schema_input_type=list[Any])]] = Field(default={})
    # [the scenario's `seed`] `0:5` is 0..4; or a list such as `[1, 2, 7]`.
    seeds: Annotated[tuple[int, ...], PlainValidator(
        seeds_of, json_schema_input_type=list[int] | Written)] | None = None
    # [all] A list of names.
    schemes: Annotated[list[Text], Field(min_length=1)] | None = None


def sweep_values(rule: SweepRule | None, base: Path) -> Sweep | None:
    return None if rule is None else Sweep(dict(rule.grid), rule.seeds, tuple(rule.schemes or ()))
