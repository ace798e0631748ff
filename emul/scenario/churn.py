"""Faults that come by themselves: `churn`, `availability` and `group` of a fault; their models, the plain values they
stand for, and back to YAML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field, PlainValidator

from emul.base.plain import PlainDict
from emul.base.units import format_duration
from emul.network.models.churn import Diurnal, Law, Shocks
from emul.network.models.laws import Exponential, Fixed, LogNormal, Normal, Pareto, Poisson, UniformLaw, Weibull
from emul.scenario.sections import (
    Count,
    PositiveDuration,
    RoundsList,
    Section,
    Stay,
    Text,
    Written,
    absolute,
    duration_text,
    exactly_one,
    file_digest,
    given,
    number,
    one_of,
    rounds_text,
    stay_ns,
    without_none,
)
from emul.scenario.wording import MISSING, Finding

Kind = Literal["leave", "crash"]


@dataclass(frozen=True)
class Churn:
    """Every node that matches is up and down in turn; `stationary`: it has been since long before the run."""

    match: str
    up: Law
    down: Law
    kind: Kind = "leave"
    stationary: bool = True


@dataclass(frozen=True)
class Availability:
    """Nodes are there when a file says so: each the node of its own name, or in turn, as often as it takes."""

    file: Path
    match: str = "*"
    period_ns: int | None = None
    in_turn: bool = False
    kind: Kind = "leave"
    sha256: str | None = field(default=None, compare=False)     # of the file as it was, checked where it is given
    offset_ns: int = 0              # the time of the file at which the run begins


@dataclass(frozen=True)
class Days:
    """Every node that matches is there at some times of its day."""

    match: str
    diurnal: Diurnal
    kind: Kind = "leave"


@dataclass(frozen=True)
class InRounds:
    """Every node that matches takes part in these `rounds` alone, (first, last), ascending; last None: to the end."""

    match: str
    rounds: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class ShockGroup:
    """The `nodes`, or those that match, fail together at shocks. `name`: of the stream of its draws."""

    shocks: Shocks
    match: str | None = None
    nodes: tuple[str, ...] = ()
    name: str | None = None
    kind: Kind = "crash"

    @property
    def label(self) -> str:
        """The name that keys the group's stream."""
        return self.name or self.match or ",".join(self.nodes)


Absence = Churn | Availability | Days | InRounds | ShockGroup


# --- models ---------------------------------------------------------------------------------------------------------

class WeibullLaw(Section):
    # In [0.05, 100]; below 1 most times are short and some very long.
    shape: Annotated[float, number("a number in [0.05, 100]", lambda x: 0.05 <= x <= 100)]
    # A duration; the mean is scale * Gamma(1 + 1 / shape).
    scale: Stay


class LogNormalLaw(Section):
    # A duration; the mean is median * exp(sigma^2 / 2).
    median: Stay
    # Standard deviation of the logarithm, above 0.
    sigma: Annotated[float, number("a number above 0, at most 10", lambda x: 0 < x <= 10)]


class LawRule(Section):
    # Its mean: `{exponential: 2 min}`.
    exponential: Stay | None = None
    # `{weibull: {shape: 0.5, scale: 10 min}}`: P(longer than x) = exp(-(x / scale)^shape). Sessions in real
    # peer-to-peer networks have shapes of 0.34 to 0.59.
    weibull: WeibullLaw | None = None
    # `{lognormal: {median: 5 min, sigma: 1}}`.
    lognormal: LogNormalLaw | None = None

    def wrong(self) -> list[Finding]:
        """Not exactly one law."""
        return exactly_one(self, "exponential", "weibull", "lognormal")


def law_value(value: object) -> Law:
    """A duration, always the same, or a law."""
    if not isinstance(value, dict):
        return Fixed(stay_ns(value))
    return cast(Law, law_of(LawRule.model_validate(value)))


_LAWS = {"exponential": Exponential, "weibull": Weibull, "lognormal": LogNormal, "pareto": Pareto,
         "uniform": UniformLaw, "normal": Normal, "poisson": Poisson}


def law_of(rule: Section) -> object:
    """The law that one key of a section says: by a number, by a list, or by a section with the law's own names."""
    name, said = next((name, said) for name in _LAWS if (said := getattr(rule, name, None)) is not None)
    if isinstance(said, Section):
        return _LAWS[name](**dict(said))
    return _LAWS[name](*(said if isinstance(said, list) else [said]))


# the validator returns a Law
AnyLaw = Annotated[LawRule, PlainValidator(law_value, json_schema_input_type=LawRule | Written)]
_Kind = Annotated[str, one_of("leave", "crash", what="kind")]


class OwnChurn(Section):
    """Of the members of a group."""

    # The law of the times that it is there.
    up: AnyLaw
    # The law of its absences.
    down: AnyLaw
    # The kind of an absence: `leave` or `crash`.
    kind: _Kind = "leave"
    # `stationary`: as after a long time; a share of mean up / (mean up + mean down) is there at 0. `up`: all are, at
    # the beginning of a whole time up.
    start: Annotated[str, one_of("stationary", "up", what="start")] = "stationary"


class ChurnRule(OwnChurn):
    # A name or a pattern. A node that several entries of `churn` and `availability` match follows the last.
    match: Text


class DiurnalRule(Section):
    # A share.
    mean: Annotated[float, number("a share in [0.001, 1]", lambda x: 0.001 <= x <= 1)]
    # [0] Small enough that the share stays within 0 and 1.
    amplitude: Annotated[float, number("a share in [0, 0.5]", lambda x: 0 <= x <= 0.5)] = 0.0
    # [24 h] The length of a day.
    period: Annotated[PositiveDuration | None, Field()] = None
    # [0] Nodes live in different time zones: their days begin within this part of a period. The amplitude is then
    # smaller, by sin(pi spread) / (pi spread).
    spread: Annotated[float, number("a part of the period in [0, 1]", lambda x: 0 <= x <= 1)] = 0.0

    def wrong(self) -> list[Finding]:
        """A share that leaves [0, 1], or comes so near to 1 all day that absences are too rare to be drawn."""
        least, most = self.mean - self.amplitude, self.mean + self.amplitude
        if least < -1e-12 or most > 1 + 1e-12 or 0.999 < least < 1:
            return [(("amplitude",), "", "expected a share that stays in [0, 1] (below 0.999 at its least, unless it "
                                         f"is 1), not {least:g}..{most:g}")]
        return []


_WHEN = ("file", "diurnal", "rounds", "from_round")        # one of them says when a node is there


class OwnAvailability(Section):
    """Of the members of a group."""

    # CSV with the columns `node`, `t_on`, `t_off` (also `client`, `start`, `end`) and perhaps `period`: when a node is
    # there. Units stand in the header (`t_on_s`) or in the values. Dates, and seconds since 1970, count from the first.
    # An end that is empty or `inf` is none. A node whose only row ends as it begins is never there. Or a file of
    # FedScale or of states and seconds.
    file: Text | None = None
    # In place of a file: the time of day.
    diurnal: DiurnalRule | None = None
    # In place of a file: the rounds in which the nodes take part.
    rounds: RoundsList | None = None
    # The same as `rounds: 10..`, written `from_round: 10`.
    from_round: Count | None = None
    # [none] After it all comes again; for nodes for which the file has none. Without a period a node is gone for good
    # after its last row.
    period: PositiveDuration | None = None
    # [0] The time of the file at which the run begins. With a period the laps go on from there.
    offset: PositiveDuration | None = None
    # [by_name] `by_name`: each row is of the node with that name; a node that has none is always there. `in_turn`:
    # the first node that matches takes the first node of the file, and so on, from the beginning again where they do
    # not suffice.
    assign: Annotated[str, one_of("by_name", "in_turn", what="way to assign")] | None = None
    # `leave` or `crash`.
    kind: _Kind = "leave"
    # Of the file. A resolved scenario has it; if it is given, the file must be that one.
    sha256: Text | None = None

    def wrong(self) -> list[Finding]:
        """Not one of file, diurnal, rounds and from_round, or keys that only a file uses."""
        found = exactly_one(self, *_WHEN)
        if not found and self.file is None:
            of_files = given(self, "period", "offset", "assign", "sha256")
            found = [((name,), "", "is used only with a file") for name in of_files]
            if self.diurnal is None and self.kind != "leave":
                found.append((("kind",), self.kind, "is not used with rounds: the node takes no part in the others"))
        return found


class AvailabilityRule(OwnAvailability):
    # ["*"] The nodes; only `file` does without it.
    match: Text | None = None

    def wrong(self) -> list[Finding]:
        """As that of a group, or without the nodes that it is about, which only a file names."""
        found = super().wrong()
        when = given(self, *_WHEN)
        if len(when) == 1 and when != ["file"] and self.match is None:
            found.append((("match",), MISSING, f"is needed by {when[0]}: the nodes it is about"))
        return found


class GroupRule(Section):
    # The members: a name or a pattern.
    match: Text | None = None
    # In place of `match`: a list of names or patterns.
    nodes: Annotated[list[Text], Field(min_length=1)] | None = None
    # [its `match`, or `nodes`] Of the stream of its draws.
    name: Text | None = None
    # The law of the times between shocks.
    every: AnyLaw
    # The law of how long a member fails, drawn for each.
    down: AnyLaw
    # [1] The probability that a member fails at a shock, at least 0.001.
    p: Annotated[float, number("a probability in [0.001, 1]", lambda x: 0.001 <= x <= 1)] = 1.0
    # [0] Between any two members at a shock. The number that fails has the variance n p (1 - p) [1 + (n - 1)
    # correlation].
    correlation: Annotated[float, number("a correlation in [0, 1]", lambda x: 0 <= x <= 1)] = 0.0
    # `crash` or `leave`.
    kind: _Kind = "crash"

    def wrong(self) -> list[Finding]:
        """Not one of match and nodes."""
        return exactly_one(self, "match", "nodes")


# --- conversion -----------------------------------------------------------------------------------------------------

DAY_NS = 86_400 * 10**9


def churn_value(rule: OwnChurn, match: str) -> Churn:
    return Churn(match, cast(Law, rule.up), cast(Law, rule.down), cast(Kind, rule.kind), rule.start != "up")


def availability_value(rule: OwnAvailability, match: str, base: Path) -> Availability | Days | InRounds:
    kind = cast(Kind, rule.kind)
    if rule.from_round is not None or rule.rounds is not None:
        return InRounds(match, rule.rounds or ((cast(int, rule.from_round), None),))
    if rule.diurnal is not None:
        d = rule.diurnal
        return Days(match, Diurnal(d.mean, d.amplitude, d.period or DAY_NS, d.spread), kind)
    return Availability(cast(Path, absolute(rule.file, base)), match, rule.period, rule.assign == "in_turn",
                        kind, rule.sha256, rule.offset or 0)


def group_value(rule: GroupRule) -> ShockGroup:
    shocks = Shocks(cast(Law, rule.every), cast(Law, rule.down), rule.p, rule.correlation)
    return ShockGroup(shocks, rule.match, tuple(rule.nodes or ()), rule.name, cast(Kind, rule.kind))


def law_document(law: object, written: Callable[[int], str] = format_duration) -> object:
    """As a file says it, what it is of as `written` says that: a duration, a size or a rate."""
    match law:
        case Fixed(value):
            return written(value)
        case Exponential(mean):
            return {"exponential": written(mean)}
        case Weibull(shape, scale):
            return {"weibull": {"shape": shape, "scale": written(scale)}}
        case LogNormal(median, sigma):
            return {"lognormal": {"median": written(median), "sigma": sigma}}
        case Pareto(shape, mean):
            return {"pareto": {"shape": shape, "mean": written(mean)}}
        case UniformLaw(least, most):
            return {"uniform": [written(least), written(most)]}
        case Normal(mean, sigma):
            return {"normal": {"mean": written(mean), "sigma": written(sigma)}}
        case Poisson(mean, unit):
            return {"poisson": {"mean": written(mean), "unit": written(unit)}}
    raise TypeError(f"no law: {law!r}")


def absence_document(fault: Absence) -> PlainDict:
    """As a file says it, its defaults written out."""
    if isinstance(fault, Churn):
        return {"churn": {"match": fault.match, "up": law_document(fault.up), "down": law_document(fault.down),
                          "kind": fault.kind, "start": "stationary" if fault.stationary else "up"}}
    if isinstance(fault, Days):
        d = fault.diurnal
        return {"availability": {"match": fault.match, "kind": fault.kind, "diurnal": {
            "mean": d.mean, "amplitude": d.amplitude, "period": format_duration(d.period_ns), "spread": d.spread}}}
    if isinstance(fault, InRounds):
        return {"availability": {"match": fault.match, "rounds": [rounds_text(*span) for span in fault.rounds]}}
    if isinstance(fault, Availability):
        return {"availability": without_none(
            file=str(fault.file), match=fault.match, period=duration_text(fault.period_ns),
            offset=duration_text(fault.offset_ns or None),
            assign="in_turn" if fault.in_turn else "by_name", kind=fault.kind, sha256=file_digest(fault.file))}
    shocks = fault.shocks
    return {"group": without_none(
        match=fault.match, nodes=list(fault.nodes) or None, name=fault.name, every=law_document(shocks.every),
        down=law_document(shocks.down), p=shocks.p, correlation=shocks.correlation, kind=fault.kind)}
