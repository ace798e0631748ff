"""`traffic`: background traffic on links and along routes; its models, the values they stand for, and back to YAML."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field, PlainValidator

from emul.base import units
from emul.base.plain import PlainDict
from emul.base.units import format_bandwidth, format_duration, format_size
from emul.network import parse_match
from emul.network.models.background import (
    MOST_STEPS,
    OnOffRate,
    RampRate,
    RateLaw,
    RateSpec,
    SineRate,
    StayLaw,
    Traffic,
    WalkRate,
)
from emul.network.models.elastic import MessageLaws, SizeLaw
from emul.network.models.laws import Fixed
from emul.network.models.traces import TraceSpec
from emul.scenario.churn import LawRule, law_document, law_of, law_value
from emul.scenario.links import BandwidthTrace, bandwidth_document, bandwidth_spec
from emul.scenario.sections import (
    Duration,
    PositiveDuration,
    PositiveSize,
    Quantity,
    Section,
    Stay,
    Text,
    Written,
    duration_text,
    exactly_one,
    findings,
    number,
    one_of,
    unit,
    whole,
    without_none,
)
from emul.scenario.wording import Finding

_MATCH = 'expected text such as "client*->server"'
Rate = Annotated[int, unit(units.bandwidth_bps)]                    # 0 is a rate here
PositiveRate = Annotated[int, unit(units.bandwidth_bps, least=1)]


def _match(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(_MATCH)
    parse_match(value)
    return value


_Match = Annotated[str, PlainValidator(_match, json_schema_input_type=str)]


# ---- laws ----

class ParetoLaw(Section):
    # `pareto`: above 1, since below there is no mean.
    shape: Annotated[float, number("a number in [1.01, 100]", lambda x: 1.01 <= x <= 100)]
    # `pareto`: the mean; the least duration is mean * (shape - 1) / shape.
    mean: Stay


class StayRule(LawRule):
    # P(longer than x) = (least / x)^shape.
    pareto: ParetoLaw | None = None

    def wrong(self) -> list[Finding]:
        """Not exactly one law."""
        return exactly_one(self, "exponential", "weibull", "lognormal", "pareto")


def _stay(value: object) -> StayLaw:
    """A duration, always the same, or a law."""
    if isinstance(value, dict):
        return cast(StayLaw, law_of(StayRule.model_validate(value)))
    return law_value(value)


# the validator returns a StayLaw
AnyStay = Annotated[StayRule, PlainValidator(_stay, json_schema_input_type=StayRule | Written)]


class NormalRule(Section):
    # `normal`, `poisson`: the mean.
    mean: Rate
    # `normal`: the standard deviation.
    sigma: Rate


class PoissonRule(Section):
    # `normal`, `poisson`: the mean.
    mean: PositiveRate
    # `poisson`: 1 Mbit/s by default, at least a 500th of the mean.
    unit: PositiveRate = 10**6

    def wrong(self) -> list[Finding]:
        """So many units that floats cannot tell them apart."""
        if self.mean > 500 * self.unit:
            return [(("unit",), format_bandwidth(self.unit), "expected at least a 500th of the mean")]
        return []


class RateLawRule(Section):
    # `[least, most]`.
    uniform: Annotated[list[Rate], Field(min_length=2, max_length=2)] | None = None
    # `{mean: 20 Mbit/s, sigma: 4 Mbit/s}`.
    normal: NormalRule | None = None
    # Its mean.
    exponential: Rate | None = None
    # `{mean: 20 Mbit/s, unit: 1 Mbit/s}`: a Poisson number of units.
    poisson: PoissonRule | None = None

    def wrong(self) -> list[Finding]:
        """Not exactly one law, or a range that descends."""
        found = exactly_one(self, "uniform", "normal", "exponential", "poisson")
        if not found and self.uniform is not None and self.uniform[0] > self.uniform[1]:
            return [(("uniform",), "", "expected two rates of which the first is not the larger one")]
        return found


# ---- rates ----

class SineRule(Section):
    # `sine`: the mean.
    mean: Rate
    # `sine`: at most the mean.
    amplitude: Rate
    # `sine`: the duration of a period.
    period: Stay
    # [a 144th of the period, a 100th of the ramp] The rate stays for such a step, at the mean of the curve in it.
    step: Stay | None = None

    def wrong(self) -> list[Finding]:
        """A rate below 0, or steps that are too long or too many."""
        found: list[Finding] = []
        if self.amplitude > self.mean:
            found.append((("amplitude",), format_bandwidth(self.amplitude),
                          f"expected at most the mean, {format_bandwidth(self.mean)}: no rate is below 0"))
        return found + _steps(self.step, self.period, "period")


class RampRule(Section):
    # `ramp`: the first rate, which may be 0.
    from_: Annotated[Rate, Field(alias="from")]
    # `ramp`: the last rate.
    to: Rate
    # `ramp`: the duration from the one to the other.
    over: Stay
    # [a 144th of the period, a 100th of the ramp] The rate stays for such a step, at the mean of the curve in it.
    step: Stay | None = None

    def wrong(self) -> list[Finding]:
        """Steps that are too long or too many."""
        return _steps(self.step, self.over, "over")


class OnOffRule(Section):
    # `on_off`: the rate while it is on.
    rate: Rate
    # `on_off`: a duration or a law of times.
    on: AnyStay
    # `on_off`: the same of the times without traffic.
    off: AnyStay
    # `on_off`: `on`, or `stationary`, as if it had gone on for ever before.
    start: Annotated[str, one_of("on", "stationary", what="start")] = "on"


class WalkRule(Section):
    # `walk`: a duration or a law of times: how long a drawn rate stays.
    every: AnyStay
    # `walk`: the law of the rates.
    law: RateLawRule
    # [no limit] `walk`: larger draws are cut to this rate; those below 0 are cut to 0.
    most: PositiveRate | None = None


class RateRule(Section):
    # mean + amplitude * sin(2 pi t / period).
    sine: SineRule | None = None
    # From one rate to another, where it stays.
    ramp: RampRule | None = None
    # A rate and nothing in turn.
    on_off: OnOffRule | None = None
    # A rate that is drawn anew from time to time.
    walk: WalkRule | None = None

    def wrong(self) -> list[Finding]:
        """Not exactly one."""
        return exactly_one(self, "sine", "ramp", "on_off", "walk")


def _steps(step: int | None, whole: int, name: str) -> list[Finding]:
    if step is None or whole / MOST_STEPS <= step <= whole:
        return []
    return [(("step",), format_duration(step), f"expected at most {name}, {format_duration(whole)}, and at least a "
             f"{MOST_STEPS}th of it")]


def _rate(value: object) -> int | BandwidthTrace | RateRule:
    if not isinstance(value, dict):
        try:
            return units.bandwidth_bps(value)
        except ValueError as error:
            raise ValueError(f"{error}, or one of trace, sine, ramp, on_off, walk") from None
    return BandwidthTrace.model_validate(value) if "trace" in value else RateRule.model_validate(value)


AnyRate = Annotated[BandwidthTrace | RateRule | int, PlainValidator(
    _rate, json_schema_input_type=BandwidthTrace | RateRule | Quantity)]


# ---- messages ----

class ParetoSizeRule(Section):
    # `pareto`: above 1.
    shape: Annotated[float, number("a number in [1.01, 100]", lambda x: 1.01 <= x <= 100)]
    # `pareto`: the mean.
    mean: PositiveSize


class LogNormalSizeRule(Section):
    # `lognormal`: the median.
    median: PositiveSize
    # `lognormal`: the standard deviation of the logarithm.
    sigma: Annotated[float, number("a number above 0, at most 10", lambda x: 0 < x <= 10)]


class SizeRule(Section):
    # Its mean.
    exponential: PositiveSize | None = None
    # P(larger than x) = (least / x)^shape.
    pareto: ParetoSizeRule | None = None
    # The logarithm of a size is normal.
    lognormal: LogNormalSizeRule | None = None
    # `[least, most]`.
    uniform: Annotated[list[PositiveSize], Field(min_length=2, max_length=2)] | None = None

    def wrong(self) -> list[Finding]:
        """Not exactly one law, or a range that descends."""
        found = exactly_one(self, "exponential", "pareto", "lognormal", "uniform")
        if not found and self.uniform is not None and self.uniform[0] > self.uniform[1]:
            return [(("uniform",), "", "expected two sizes of which the first is not the larger one")]
        return found


def _size(value: object) -> SizeLaw:
    """A size, always the same, or a law."""
    if not isinstance(value, dict):
        size = units.size_bytes(value)
        if size == 0:
            raise ValueError("expected more than 0")
        return Fixed(size)
    return cast(SizeLaw, law_of(SizeRule.model_validate(value)))


# the validator returns a SizeLaw
AnySize = Annotated[SizeRule, PlainValidator(_size, json_schema_input_type=SizeRule | Written)]


class MessagesRule(Section):
    # A duration or a law of times: from one message to the next. The first comes after such a time.
    every: AnyStay
    # A size, or a law of sizes.
    size: AnySize


class TrafficRule(Section):
    # Each link that matches carries this traffic, as in `match` of a link. Either this or `flow`.
    link: _Match | None = None
    # Traffic between each two vertices that match, over all links of the route that a message would take.
    flow: _Match | None = None
    # [its text] The name of the entry in tables, by which its draws are keyed.
    name: Text | None = None
    # A bandwidth that stays, a trace, or a rate of one of four forms. This, `messages` or `greedy` is needed.
    rate: AnyRate | None = None
    # In place of a rate: messages that come by a law.
    messages: MessagesRule | None = None
    # In place of a rate: the number of flows that never end.
    greedy: Annotated[int, whole(1, 10_000)] | None = None
    # The time at which the traffic begins. The time of a trace or of a form begins there, too.
    at: Duration = 0
    # [for good] The duration of the traffic.
    for_: Annotated[PositiveDuration | None, Field(alias="for")] = None

    def wrong(self) -> list[Finding]:
        """Not one of link and flow, or not one of the kinds of traffic."""
        return exactly_one(self, "link", "flow") + exactly_one(self, "rate", "messages", "greedy")


def distinct_names(rules: list[TrafficRule]) -> list[TrafficRule]:
    """The rules. Raises where two have one name, which names their draws."""
    count = Counter(rule.name for rule in rules if rule.name is not None)
    wrong: list[Finding] = [((i, "name"), f'"{rule.name}"', "is the name of another entry, too")
                            for i, rule in enumerate(rules) if rule.name is not None and count[rule.name] > 1]
    if wrong:
        raise findings(wrong)
    return rules


# ---- to values ----

def traffic_values(rules: list[TrafficRule], base: Path) -> list[Traffic]:
    """The entries in the order of the file; traces are looked for in `base`."""
    entries = [Traffic("", 0 if rule.rate is None else _spec(rule.rate, base), rule.link, rule.flow, rule.name, rule.at,
                       rule.for_, None if rule.messages is None else
                       MessageLaws(cast(StayLaw, rule.messages.every), cast(SizeLaw, rule.messages.size)), rule.greedy)
               for rule in rules]
    found, seen = [], Counter[str]()
    for entry in entries:
        key = entry.name or _text(entry)
        seen[key] += 1
        found.append(replace(entry, key=key if seen[key] == 1 else f"{key} #{seen[key]}"))
    return found


def _text(entry: Traffic) -> str:
    """The entry in canonical text, which names its draws. A trace by the name of its file, wherever that lies."""
    said = traffic_document(entry)
    if isinstance(entry.rate, TraceSpec):
        rate = {key: value for key, value in said["rate"].items() if key != "sha256"}
        said |= {"rate": rate | {"trace": entry.rate.file.name}}
    return json.dumps(said, sort_keys=True, ensure_ascii=False).replace('"', "")


def _spec(rate: int | BandwidthTrace | RateRule, base: Path) -> RateSpec:
    if isinstance(rate, BandwidthTrace):
        return cast(TraceSpec, bandwidth_spec(rate, base))
    if isinstance(rate, int):
        return rate
    if rate.sine is not None:
        return SineRate(rate.sine.mean, rate.sine.amplitude, rate.sine.period, rate.sine.step)
    if rate.ramp is not None:
        return RampRate(rate.ramp.from_, rate.ramp.to, rate.ramp.over, rate.ramp.step)
    if rate.on_off is not None:
        one = rate.on_off
        return OnOffRate(one.rate, cast(StayLaw, one.on), cast(StayLaw, one.off), one.start == "stationary")
    assert rate.walk is not None
    return WalkRate(cast(StayLaw, rate.walk.every), cast(RateLaw, law_of(rate.walk.law)), rate.walk.most)


# ---- back to YAML ----

def traffic_document(entry: Traffic) -> PlainDict:
    """As a file says it; read again it is the same."""
    messages = entry.messages
    return without_none(link=entry.link, flow=entry.flow, name=entry.name,
                        rate=None if entry.elastic else _rate_document(entry.rate), greedy=entry.greedy,
                        messages=None if messages is None else {"every": law_document(messages.every),
                                                                "size": law_document(messages.size, format_size)},
                        at=duration_text(entry.at_ns or None), **{"for": duration_text(entry.for_ns)})


def _rate_document(rate: RateSpec) -> object:
    if isinstance(rate, (int, TraceSpec)):
        return bandwidth_document(rate)
    if isinstance(rate, SineRate):
        return {"sine": without_none(mean=format_bandwidth(rate.mean_bps),
                                     amplitude=format_bandwidth(rate.amplitude_bps),
                                     period=format_duration(rate.period_ns), step=duration_text(rate.step_ns))}
    if isinstance(rate, RampRate):
        return {"ramp": without_none(**{"from": format_bandwidth(rate.from_bps)}, to=format_bandwidth(rate.to_bps),
                                     over=format_duration(rate.over_ns), step=duration_text(rate.step_ns))}
    if isinstance(rate, OnOffRate):
        return {"on_off": without_none(rate=format_bandwidth(rate.rate_bps), on=law_document(rate.on),
                                       off=law_document(rate.off),
                                       start="stationary" if rate.stationary else None)}
    return {"walk": without_none(every=law_document(rate.every), law=law_document(rate.law, format_bandwidth),
                                 most=None if rate.most_bps is None else format_bandwidth(rate.most_bps))}
