"""`constellation` of a topology: its model, the specification it stands for, and back to YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, cast

from pydantic import BeforeValidator, Field, PlainValidator

from emul.base.plain import PlainDict
from emul.network.graph.constellation import digest
from emul.network.graph.geo import format_length, length_km
from emul.network.models.constellations import DAY_NS, GROUNDS, ISLS, ConstellationSpec, Ground, Isl
from emul.scenario.sections import Section, absolute, duration_text, given, without_none
from emul.scenario.values import PositiveDuration, Text, one_of, whole
from emul.scenario.wording import MISSING, Finding

WALKER = ("altitude", "inclination", "planes", "each")      # needed without `tle`
MOST = 20_000                                               # satellites
_ANGLE = re.compile(r"([+-]?\d{1,3}(?:\.\d{1,9})?) ?deg", re.ASCII)
_LOW_KM, _HIGH_KM = 100, 50_000


def _degrees(most: float, whole_range: str) -> PlainValidator:
    """Degrees in 0 .. most."""
    def check(value: object) -> float:
        match = _ANGLE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or not 0 <= float(match[1]) <= most:
            unit = ": the unit is missing" if isinstance(value, int | float) and not isinstance(value, bool) else ""
            raise ValueError(f"expected an angle {whole_range}, such as 25 deg{unit}")
        return float(match[1])
    return PlainValidator(check, json_schema_input_type=Annotated[str, Field(pattern=r"^\s*[+-]?\d+(\.\d+)? ?deg\s*$")])


def _altitude(value: object) -> float:
    km = length_km(value)
    if not _LOW_KM <= km <= _HIGH_KM:
        raise ValueError(f"expected {_LOW_KM} km to {_HIGH_KM} km")
    return km


def _alone(value: object) -> object:
    return [value] if isinstance(value, str) else value


class ConstellationSection(Section):
    altitude: Annotated[float, PlainValidator(_altitude, json_schema_input_type=str)] | None = None
    inclination: Annotated[float, _degrees(180, "from 0 deg to 180 deg")] | None = None
    planes: Annotated[int, whole(1, MOST)] | None = None
    each: Annotated[int, whole(1, MOST)] | None = None
    phasing: Annotated[int, whole(0, MOST)] | None = None
    tle: Text | None = None
    stations: Text
    elevation: Annotated[float, _degrees(89, "from 0 deg to 89 deg")]
    isl: Annotated[str, one_of(*ISLS, what="way to join satellites")] = "none"
    ground: Annotated[str, one_of(*GROUNDS, what="way to join stations")] = "none"
    gateways: Annotated[list[Text], Field(min_length=1), BeforeValidator(
        _alone, json_schema_input_type=list[str] | str)] | None = None
    for_: Annotated[PositiveDuration, Field(alias="for")] = DAY_NS
    sha256: Text | None = None

    def wrong(self) -> list[Finding]:
        """Keys that its kind needs and has not, or has and does not use; more satellites or phases than there can
        be."""
        if self.tle is not None:
            found: list[Finding] = [((name,), "", "is not used with tle, which has the orbits")
                                    for name in given(self, *WALKER, "phasing")]
            if self.isl != "none":
                found.append((("isl",), self.isl, "expected none with tle, which says nothing of planes"))
            return found
        found = [((name,), MISSING, "is needed, or tle, a file of two-line elements")
                 for name in WALKER if getattr(self, name) is None]
        planes, each, phasing = self.planes or 1, self.each or 1, self.phasing or 0
        if planes * each > MOST:
            found.append((("each",), str(each), f"expected at most {MOST} satellites, not {planes * each}"))
        if self.planes is not None and phasing >= planes:
            found.append((("phasing",), str(phasing), f"expected less than the {planes} planes"))
        return found


def constellation_spec(c: ConstellationSection | None, base: Path) -> ConstellationSpec | None:
    """The constellation as the network takes it; its files are looked for in `base`."""
    if c is None:
        return None
    return ConstellationSpec(
        cast(Path, absolute(c.stations, base)), c.elevation, c.altitude, c.inclination, c.planes or 1, c.each or 1,
        c.phasing or 0, cast(Isl, c.isl), cast(Ground, c.ground), tuple(c.gateways or ()), absolute(c.tle, base),
            c.for_,
        c.sha256)


def constellation_document(spec: ConstellationSpec | None) -> PlainDict | None:
    """As a file says it, with the digest of its files; read again it is the same."""
    if spec is None:
        return None
    circles: PlainDict = {}
    if spec.altitude_km is not None and spec.inclination is not None:
        circles = {"altitude": format_length(spec.altitude_km), "inclination": f"{spec.inclination:.9g} deg",
                   "planes": spec.planes, "each": spec.each, "phasing": spec.phasing}
    try:
        sha256: str | None = digest(spec)
    except OSError:                     # that is told where the files are used
        sha256 = None
    return without_none(
        **circles, tle=None if spec.tle is None else str(spec.tle), stations=str(spec.stations),
        elevation=f"{spec.elevation:.9g} deg", isl=spec.isl, ground=spec.ground, gateways=list(spec.gateways) or None,
        **{"for": duration_text(spec.span_ns)}, sha256=sha256)
