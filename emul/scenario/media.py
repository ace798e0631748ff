"""`media`: radio cells whose links share time; the model of one, the value it stands for, and back to YAML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, cast

from pydantic import PlainValidator

from emul.base.plain import PlainDict, PlainMapping
from emul.base.units import format_duration
from emul.network.models.media import FAIRNESS, Fairness, MediumSpec
from emul.scenario.sections import Section, without_none
from emul.scenario.values import Duration, one_of

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
