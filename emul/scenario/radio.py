"""`radio` and `media`: places, nodes that move and the rates that follow, and cells whose links share time; models,
the values they stand for, and back to YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field, PlainValidator

from emul.base.plain import PlainDict, PlainMapping
from emul.base.units import format_duration
from emul.network.models.media import FAIRNESS, Fairness, MediumSpec
from emul.network.models.radio import HANDOVER_GAPS, RATES, Attach, HandoverGap, LogDistance
from emul.network.models.radiofiles import MoveSpec, RadioFile, RadioSpec
from emul.network.models.walks import PauseLaw, Waypoints
from emul.scenario.sections import (
    Duration,
    Quantity,
    Section,
    Text,
    absolute,
    exactly_one,
    file_digest,
    number,
    one_of,
    without_none,
)
from emul.scenario.traffic import AnyStay, stay_document
from emul.scenario.wording import Finding

# ---- media ----

_EFFICIENCY = "expected a share of time in (0, 1], or one for numbers of stations such as {1: 0.72, 8: 0.62}"
_MOST_STATIONS = 10**6


def _efficiency(value: object) -> tuple[tuple[int, float], ...]:
    """(stations, share) ascending; one share alone holds for any number."""
    table: PlainMapping = value if isinstance(value, dict) else {"1": value}
    if not table or not all(str(n).isascii() and str(n).isdigit() and 1 <= int(n) <= _MOST_STATIONS for n in table):
        raise ValueError(_EFFICIENCY)
    for share in table.values():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not math.isfinite(share) or not (
                0 < share <= 1):
            raise ValueError(_EFFICIENCY)
    found = sorted((int(n), float(share)) for n, share in table.items())
    if len(dict(found)) < len(found):
        raise ValueError("expected each number of stations only once")
    return tuple(found)


class MediumRule(Section):
    efficiency: Annotated[tuple[tuple[int, float], ...], PlainValidator(
        _efficiency, json_schema_input_type=float | dict[str, float])]
    fair: Annotated[str, one_of(*FAIRNESS, what="fairness")] = "throughput"
    per_packet: Duration = 0


def media_values(rules: Mapping[str, MediumRule], base: Path) -> list[MediumSpec]:
    """The media in the order of the file."""
    return [MediumSpec(name, cast(Fairness, rule.fair), rule.efficiency, rule.per_packet)
            for name, rule in rules.items()]


def media_document(media: list[MediumSpec]) -> PlainDict | None:
    """As a file says them; None: there are none."""
    return {one.name: without_none(
        fair=one.fair, efficiency={str(n): share for n, share in one.efficiency},
        per_packet=format_duration(one.per_packet_ns) if one.per_packet_ns else None) for one in media} or None


# ---- radio ----

_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)", re.ASCII)
_DISTANCES = {"m": 1.0, "km": 1000.0}
_SPEEDS = {"m/s": 1.0, "km/h": 1 / 3.6}


def _unit(units: Mapping[str, float], expected: str, least: float, most: float = 1e9) -> PlainValidator:
    """A number with one of these units, in the first of them."""
    def check(value: object) -> float:
        if value == 0 and not isinstance(value, bool):
            value = f"0 {next(iter(units))}"
        match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        factor = None if match is None else units.get(match[2].replace(" ", ""))
        if match is None or factor is None:
            raise ValueError(f"expected {expected}")
        found = float(match[1]) * factor
        if not math.isfinite(found) or not least <= found <= most:
            limit = f"{least:g} or more" if found < least else f"at most {most:g}"
            raise ValueError(f"expected {expected}, {limit}")
        return found
    return PlainValidator(check, json_schema_input_type=Quantity)


Coordinate = Annotated[float, _unit(_DISTANCES, "a distance such as 20 m", -1e9)]
Distance = Annotated[float, _unit(_DISTANCES, "a distance such as 20 m", 1e-3)]
Speed = Annotated[float, _unit(_SPEEDS, "a speed such as 1.5 m/s", 1e-6)]
Loss = Annotated[float, _unit({"dB": 1.0}, "a loss such as 46.68 dB", 0, 1000)]
Power = Annotated[float, _unit({"dBm": 1.0}, "a power such as 16 dBm", -1000, 1000)]
_Pair = Annotated[list[Coordinate], Field(min_length=2, max_length=2)]


class PlacesRule(Section):
    file: Text
    sha256: Text | None = None


def _places(value: object) -> PlacesRule:
    return PlacesRule.model_validate(value if isinstance(value, dict) else {"file": value})


class WaypointRule(Section):
    area: Annotated[list[Distance], Field(min_length=2, max_length=2)]
    speed: Annotated[list[Speed], Field(min_length=2, max_length=2)]
    pause: AnyStay | None = None

    def wrong(self) -> list[Finding]:
        """A range of speeds that descends."""
        if self.speed[0] > self.speed[1]:
            return [(("speed",), "", "expected two speeds of which the first is not the larger one")]
        return []


class MoveRule(Section):
    match: Text
    waypoint: WaypointRule | None = None
    trace: Text | None = None
    at: _Pair | None = None
    assign: Annotated[str, one_of("by_name", "in_turn", what="way to assign")] | None = None
    sha256: Text | None = None

    def wrong(self) -> list[Finding]:
        """Not exactly one kind of movement, or walks that are assigned without a trace."""
        found = exactly_one(self, "waypoint", "trace", "at")
        return found or ([(("assign",), "", "is used only with a trace")] if self.assign and not self.trace else [])


class LogDistanceRule(Section):
    exponent: Annotated[float, number("a number in [1, 10]", lambda x: 1 <= x <= 10)]
    reference: Loss
    at: Distance = 1.0
    shadowing: Loss = 0.0


class LossRule(Section):
    log_distance: LogDistanceRule


class RatesRule(Section):
    table: Annotated[str, one_of(*RATES, what="table")] | None = None
    file: Text | None = None
    power: Power
    sha256: Text | None = None

    def wrong(self) -> list[Finding]:
        """Not one of a table and a file."""
        return exactly_one(self, "table", "file")


def _match(value: object) -> str:
    sides = value.split("->") if isinstance(value, str) and "<->" not in value else []
    if len(sides) != 2 or not all(side.strip() for side in sides):
        raise ValueError('expected "nodes->places", such as "client*->ap*"')
    return f"{sides[0].strip()}->{sides[1].strip()}"


class AttachRule(Section):
    match: Annotated[str, PlainValidator(_match, json_schema_input_type=str)]
    hysteresis: Annotated[float, _unit({"dB": 1.0}, "a difference such as 3 dB", 0.01, 100)]
    interruption: Duration = 0
    gap: Annotated[str, one_of(*HANDOVER_GAPS, what="gap")] = "hold"


class RadioRule(Section):
    spots: Annotated[PlacesRule, PlainValidator(_places, json_schema_input_type=PlacesRule | str),
                     Field(alias="places")]
    move: Annotated[list[MoveRule], Field(min_length=1)]
    loss: LossRule
    rates: RatesRule
    attach: AttachRule | None = None


def radio_value(rule: RadioRule | None, base: Path) -> RadioSpec | None:
    """The radio as the network takes it; its files are looked for in `base`."""
    if rule is None:
        return None

    def file(name: str, sha256: str | None) -> RadioFile:
        return RadioFile(cast(Path, absolute(name, base)), sha256)

    moves = tuple(MoveSpec(one.match, None if one.waypoint is None else Waypoints(
        (one.waypoint.area[0], one.waypoint.area[1]), (one.waypoint.speed[0], one.waypoint.speed[1]),
        cast(PauseLaw | None, one.waypoint.pause)), None if one.trace is None else file(one.trace, one.sha256),
        None if one.at is None else (one.at[0], one.at[1]), one.assign == "in_turn") for one in rule.move)
    loss, attach = rule.loss.log_distance, None
    if rule.attach is not None:
        nodes, places = rule.attach.match.split("->")
        attach = Attach(nodes, places, rule.attach.hysteresis, rule.attach.interruption,
                        cast(HandoverGap, rule.attach.gap))
    rates = rule.rates.table or file(rule.rates.file or "", rule.rates.sha256)
    return RadioSpec(file(rule.spots.file, rule.spots.sha256), moves,
                     LogDistance(loss.exponent, loss.reference, loss.at, loss.shadowing), rates, rule.rates.power,
                     attach)


# ---- back to YAML ----

def radio_document(spec: RadioSpec | None) -> PlainDict | None:
    """With the digests of its files; read again it is the same."""
    if spec is None:
        return None
    loss, rates, attach = spec.loss, spec.rates, spec.attach
    return without_none(
        places={"file": str(spec.spots.file), **_sha256(spec.spots)},
        move=[_move_document(one) for one in spec.moves],
        loss={"log_distance": without_none(exponent=loss.exponent, reference=f"{loss.reference_db!r} dB",
                                           at=f"{loss.at_m!r} m", shadowing=f"{loss.shadowing_db!r} dB")},
        rates={"table": rates, "power": f"{spec.power_dbm!r} dBm"} if isinstance(rates, str) else
        {"file": str(rates.file), **_sha256(rates), "power": f"{spec.power_dbm!r} dBm"},
        attach=None if attach is None else without_none(
            match=f"{attach.nodes}->{attach.spots}", hysteresis=f"{attach.hysteresis_db!r} dB",
            interruption=format_duration(attach.interruption_ns), gap=None if attach.gap == "hold" else attach.gap))


def _move_document(one: MoveSpec) -> PlainDict:
    walk = one.waypoint
    return without_none(
        match=one.match, assign="in_turn" if one.in_turn else None,
        at=None if one.at is None else [f"{x!r} m" for x in one.at],
        waypoint=None if walk is None else without_none(
            area=[f"{x!r} m" for x in walk.area], speed=[f"{x!r} m/s" for x in walk.speed],
            pause=None if walk.pause is None else stay_document(walk.pause)),
        **({} if one.trace is None else {"trace": str(one.trace.file), **_sha256(one.trace)}))


def _sha256(one: RadioFile) -> PlainDict:
    return without_none(sha256=file_digest(one.file))
