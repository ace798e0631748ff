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
from emul.network.models.background import StayLaw
from emul.network.models.media import FAIRNESS, Fairness, MediumSpec
from emul.network.models.radio import HANDOVER_GAPS, RATES, Attach, HandoverGap, LogDistance
from emul.network.models.radiofiles import MoveSpec, RadioFile, RadioSpec
from emul.network.models.walks import Waypoints
from emul.scenario.churn import law_document
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
from emul.scenario.traffic import AnyStay
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
    # The share of time in which bits are sent: one number in (0, 1], or one for numbers of stations that have
    # something to send; linear between them, constant beyond them. The rest goes into contention, headers and
    # acknowledgements.
    efficiency: Annotated[tuple[tuple[int, float], ...], PlainValidator(
        _efficiency, json_schema_input_type=float | dict[str, float])]
    # `throughput`: all flows get the same rate, so that one slow station makes all slow (Wi-Fi as of 802.11; Heusse
    # et al. 2003). `airtime`: all stations get the same time (Linux' Wi-Fi since Høiland-Jørgensen et al. 2017;
    # cellular networks with a proportional fair scheduler, Li et al. 2008).
    fair: Annotated[str, one_of(*FAIRNESS, what="fairness")] = "throughput"
    # The time that each packet costs beside its bits, in packets of the `mtu` of the link's `overhead`, 1,500 B
    # without one.
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
    # The CSV file, in a mapping in place of its name alone.
    file: Text
    # The digest of the file, which a resolved scenario has.
    sha256: Text | None = None


def _places(value: object) -> PlacesRule:
    return PlacesRule.model_validate(value if isinstance(value, dict) else {"file": value})


class WaypointRule(Section):
    # Of `waypoint`: width and height of the rectangle in which the points are; its corner is at (0, 0).
    area: Annotated[list[Distance], Field(min_length=2, max_length=2)]
    # Of `waypoint`: the least and the largest speed, uniform between them, for each leg.
    speed: Annotated[list[Speed], Field(min_length=2, max_length=2)]
    # [none] Of `waypoint`: the time at each point, a duration or a law.
    pause: AnyStay | None = None

    def wrong(self) -> list[Finding]:
        """A range of speeds that descends."""
        if self.speed[0] > self.speed[1]:
            return [(("speed",), "", "expected two speeds of which the first is not the larger one")]
        return []


class MoveRule(Section):
    # A name or a pattern, or `@slow`, the members of a group.
    match: Text
    # Random waypoints: straight to a point of the area, a pause, and on.
    waypoint: WaypointRule | None = None
    # A CSV file: `t_s` (or `t_ms`, ...), `name`, `x_m`, `y_m`; straight between its rows, at rest before and behind
    # them. Without the column `name` all that match go together. Or the table that SUMO's `xml2csv` makes of floating
    # car data, or a scenario of ns-2 (`setdest`).
    trace: Text | None = None
    # A point, such as `[10 m, 20 m]`, at which the node stays.
    at: _Pair | None = None
    # [by_name] Of a `trace`. `by_name`: a walk is of the node of its name. `in_turn`: the first node that matches
    # takes the first walk, and so on, from the beginning again where they do not suffice.
    assign: Annotated[str, one_of("by_name", "in_turn", what="way to assign")] | None = None
    # The digest of the trace, which a resolved scenario has.
    sha256: Text | None = None

    def wrong(self) -> list[Finding]:
        """Not exactly one kind of movement, or walks that are assigned without a trace."""
        found = exactly_one(self, "waypoint", "trace", "at")
        return found or ([(("assign",), "", "is used only with a trace")] if self.assign and not self.trace else [])


class LogDistanceRule(Section):
    # 2 in free space, 3 as ns-3 has it by default, more behind walls.
    exponent: Annotated[float, number("a number in [1, 10]", lambda x: 1 <= x <= 10)]
    # The loss at the distance `at` and nearer: 46.68 dB at 1 m for 5.15 GHz (ns-3). A handover compares distances,
    # below `at`, too.
    reference: Loss
    # [1 m] The distance of the reference.
    at: Distance = 1.0
    # [0 dB] The standard deviation of a loss that each node has with each place for the whole run.
    shadowing: Loss = 0.0


class LossRule(Section):
    # The keys of this law.
    log_distance: LogDistanceRule


class RatesRule(Section):
    # `wifi_ax_20`: 802.11ax, 20 MHz, one stream, guard interval 0.8 us: 8.6 Mbit/s from -82 dBm to 143.4 Mbit/s from
    # -52 dBm. `lte_10`: 10 MHz, the efficiencies of the 15 CQIs (3GPP TS 36.213, table 7.2.3-1) on 9 MHz, from the
    # power at which Shannon's rate with the gap of a bit error rate of 5e-5 reaches them, over thermal noise and a
    # noise figure of 9 dB: 1.37 to 49.99 Mbit/s.
    table: Annotated[str, one_of(*RATES, what="table")] | None = None
    # In place of a table, a CSV file with the columns `least_dbm` and `rate_mbps`, both ascending.
    file: Text | None = None
    # The power that is sent, with the gains of antennas, of both ends.
    power: Power
    # The digest of the file, which a resolved scenario has.
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
    # `"nodes->places"`, each a name or a pattern.
    match: Annotated[str, PlainValidator(_match, json_schema_input_type=str)]
    # A node changes to a place that it receives by so much more strongly than its own, 0.01 dB at the least. At 0 s
    # it takes the strongest.
    hysteresis: Annotated[float, _unit({"dB": 1.0}, "a difference such as 3 dB", 0.01, 100)]
    # The time after a change in which the node has no link.
    interruption: Duration = 0
    # The fate of a message that a change meets, with places that are no vertices: with `hold` it goes on over the
    # next place, from where it was; with `again` the rest of it begins anew at its source, over the next place, and
    # pays its latencies again.
    gap: Annotated[str, one_of(*HANDOVER_GAPS, what="gap")] = "hold"


class RadioRule(Section):
    # The points that nodes send to: a CSV file with the columns `name`, `x_m`, `y_m`.
    spots: Annotated[PlacesRule, PlainValidator(_places, json_schema_input_type=PlacesRule | str),
                     Field(alias="places")]
    # The movement of nodes, a list. Of entries that match a node the last one holds.
    move: Annotated[list[MoveRule], Field(min_length=1)]
    # The loss by distance.
    loss: LossRule
    # The rate of a link by the power that is received.
    rates: RatesRule
    # [none] The choice of one place for each node; without it a node sends to all places.
    attach: AttachRule | None = None


def radio_value(rule: RadioRule | None, base: Path) -> RadioSpec | None:
    """The radio as the network takes it; its files are looked for in `base`."""
    if rule is None:
        return None

    def file(name: str, sha256: str | None) -> RadioFile:
        return RadioFile(cast(Path, absolute(name, base)), sha256)

    moves = tuple(MoveSpec(one.match, None if one.waypoint is None else Waypoints(
        (one.waypoint.area[0], one.waypoint.area[1]), (one.waypoint.speed[0], one.waypoint.speed[1]),
        cast(StayLaw | None, one.waypoint.pause)), None if one.trace is None else file(one.trace, one.sha256),
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
            pause=None if walk.pause is None else law_document(walk.pause)),
        **({} if one.trace is None else {"trace": str(one.trace.file), **_sha256(one.trace)}))


def _sha256(one: RadioFile) -> PlainDict:
    return without_none(sha256=file_digest(one.file))
