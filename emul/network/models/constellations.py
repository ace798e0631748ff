"""A constellation as a scenario says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

Isl = Literal["grid", "ring", "none"]
Ground = Literal["mesh", "none"]
ISLS: tuple[str, ...] = get_args(Isl)
GROUNDS: tuple[str, ...] = get_args(Ground)
DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class ConstellationSpec:
    """Satellites and stations. Either `tle`, or Walker's pattern: altitude, inclination, planes, each and phasing.

    stations: a CSV file with the columns name, latitude, longitude (degrees). elevation: at which a station sees a
    satellite, degrees. isl: "ring" joins the neighbours in a plane; "grid" those, and each satellite with its like in
    the next plane. gateways: the names, or patterns of names, of the satellites that have links to stations; empty:
    all. span_ns: contacts are looked for so long. sha256: of the files as they were, checked where it is given.
    """

    stations: Path
    elevation: float
    altitude_km: float | None = None
    inclination: float | None = None
    planes: int = 1
    each: int = 1
    phasing: int = 0
    isl: Isl = "none"
    ground: Ground = "none"
    gateways: tuple[str, ...] = ()
    tle: Path | None = None
    span_ns: int = DAY_NS
    sha256: str | None = field(default=None, compare=False)

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that it reads."""
        return (self.stations,) if self.tle is None else (self.stations, self.tle)
