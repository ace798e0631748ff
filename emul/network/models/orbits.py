"""Satellites over a turning Earth: their places, and the spans of time in which one sees a station or another one.

Satellites are on circles that drift by the Earth's flattening (J2), to first order and without periodic terms: the node
by -k cos i, the argument of latitude by k (3 - 4 sin^2 i) beyond the mean motion n = sqrt(mu / a^3), where k = 1.5 J2
(R / a)^2 n (Vallado, *Fundamentals of Astrodynamics*, 4th ed., section 9.6, with eccentricity 0). The Earth is a sphere
of its equatorial radius that turns once a sidereal day. At the time 0 the meridian of Greenwich lies in the direction
from which nodes are counted.

Lengths are in km, times in s, angles in rad. A *clearance* is a function of time that is above 0 where two ends see
each other. `spans` finds where it is, by its roots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MU = 398600.4418                # km^3/s^2, WGS 84
RADIUS_KM = 6378.137            # of the equator, WGS 84
J2 = 1.08262668e-3              # EGM 96
TURN = 7.2921151467e-5          # rad/s, of the Earth, WGS 84
LIGHT_KM_S = 299792.458
GRAZING_KM = 80.0               # no laser passes nearer to the ground (Kassing et al., Hypatia, IMC 2020, section 3.1)

_SAMPLED_S = 60.0               # between samples, at most: an orbit takes 5,000 s or more
_NEAR = 0.01                    # a peak between two samples lies higher than both by at most 0.003
_HALVINGS = 34                  # of 60 s: to 4 ns
_THIRDS = 32                    # of 120 s: to 0.3 ms, where a peak is flat to 1e-13


def reach(radius_km: FloatArray | float, elevation: float) -> FloatArray:
    """The angle at the Earth's centre between a station and a satellite that stands so high above its horizon.
    radius_km: of the satellite, from the centre."""
    return np.arccos(np.minimum(RADIUS_KM * np.cos(elevation) / radius_km, 1.0)) - elevation


def ground(latitude: FloatArray | float, longitude: FloatArray | float) -> FloatArray:
    """Unit vectors to places on the ground, (..., 3), in the frame that turns with the Earth."""
    return np.stack([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude),
                     np.broadcast_to(np.sin(latitude), np.broadcast(latitude, longitude).shape)], axis=-1)


class Motion(Protocol):
    """Satellites 0 .. count-1 that move."""

    @property
    def count(self) -> int:
        """The number of the satellites."""
        ...

    def places(self, who: IntArray, t_s: FloatArray) -> FloatArray:
        """The place of satellite who[i] at t_s[i], (n, 3) km, in the frame that turns with the Earth."""
        ...


@dataclass(frozen=True, eq=False)
class Circles:
    """Satellites on circles of one altitude and one inclination. nodes: right ascensions of the ascending nodes at time
    0; phases: arguments of latitude then; both (n,). j2: 0 leaves the flattening out."""

    altitude_km: float
    inclination: float
    nodes: FloatArray
    phases: FloatArray
    j2: float = J2

    @property
    def count(self) -> int:
        """As a `Motion` says."""
        return len(self.nodes)

    @property
    def rates(self) -> tuple[float, float]:
        """Of the node and of the argument of latitude, rad/s."""
        a = RADIUS_KM + self.altitude_km
        n = np.sqrt(MU / a ** 3)
        k = 1.5 * self.j2 * (RADIUS_KM / a) ** 2 * n
        return float(-k * np.cos(self.inclination)), float(n + k * (3 - 4 * np.sin(self.inclination) ** 2))

    def places(self, who: IntArray, t_s: FloatArray) -> FloatArray:
        """As a `Motion` says."""
        of_node, of_phase = self.rates
        node = self.nodes[who] + (of_node - TURN) * t_s
        phase = self.phases[who] + of_phase * t_s
        along, across = np.cos(phase), np.sin(phase) * np.cos(self.inclination)
        unit = np.stack([np.cos(node) * along - np.sin(node) * across, np.sin(node) * along + np.cos(node) * across,
                         np.sin(phase) * np.sin(self.inclination)], axis=-1)
        return (RADIUS_KM + self.altitude_km) * unit


def walker(altitude_km: float, inclination: float, planes: int, each: int, phasing: int) -> Circles:
    """Walker's delta pattern i: T/P/F with T = planes * each: nodes spread over the whole circle, and satellite s of
    plane p, number p * each + s, at the phase 2 pi (s / each + F p / T) (Walker, JBIS 37, 1984)."""
    p, s = np.divmod(np.arange(planes * each), each)
    return Circles(altitude_km, inclination, 2 * np.pi * p / planes,
                   2 * np.pi * (s / each + phasing * p / (planes * each)), J2)


# --- who sees whom ----------------------------------------------------------------------------------------------------

def above(points: FloatArray, station: FloatArray, elevation: float) -> FloatArray:
    """The clearance of satellites over stations: the cosine of the angle between both, less that of the reach.

    points: (..., 3) km. station: unit vectors, (..., 3).
    """
    radius = np.linalg.norm(points, axis=-1)
    return np.sum(points * station, axis=-1) / radius - np.cos(reach(radius, elevation))


def clear(points: FloatArray, others: FloatArray) -> FloatArray:
    """The clearance of satellites to each other: the cosine of the angle between both, less that at which the line
    between them touches the sphere of `GRAZING_KM` above the ground."""
    a, b = np.linalg.norm(points, axis=-1), np.linalg.norm(others, axis=-1)
    touched = RADIUS_KM + GRAZING_KM
    furthest = np.arccos(np.minimum(touched / a, 1.0)) + np.arccos(np.minimum(touched / b, 1.0))
    return np.sum(points * others, axis=-1) / (a * b) - np.cos(furthest)


# --- spans ------------------------------------------------------------------------------------------------------------

Clearance = Callable[[IntArray, FloatArray], FloatArray]        # of pair which[i] at t_s[i], (n,)


@dataclass(frozen=True, eq=False)
class Spans:
    """Spans of time, by pair and then by time: pair, begin and end of each in s, (n,) each."""

    pair: IntArray
    begin_s: FloatArray
    end_s: FloatArray


def sample_times(until_s: float) -> FloatArray:
    """The times at which `spans` wants clearances: 60 s apart or less, from one step before 0 to one behind
    `until_s`."""
    steps = max(1, int(np.ceil(until_s / _SAMPLED_S)))
    return np.arange(-1, steps + 2, dtype=np.float64) * (until_s / steps)


def spans(clearance: Clearance, sampled: Iterable[tuple[IntArray, FloatArray]], until_s: float) -> Spans:
    """The spans in [0, until_s] in which clearances are above 0, their edges by bisection.

    sampled: pairs, (p,), and their clearances at `sample_times`, (p, times), in portions. A span between two samples is
    found, too: the peaks near 0 are looked for.
    """
    times = sample_times(until_s)
    first: dict[int, bool] = {}
        # of pairs that ever see each other: do they at the first sample?
    flips: list[_Brackets] = []
    peaks: list[_Brackets] = []
    for pairs, values in sampled:
        up = values > 0
        row, at = np.nonzero(up[:, 1:] != up[:, :-1])
        flips.append(_Brackets(pairs[row], times[at], times[at + 1]))
        middle, before, behind = values[:, 1:-1], values[:, :-2], values[:, 2:]
        alike = (up[:, 1:-1] == up[:, :-2]) & (up[:, 1:-1] == up[:, 2:]) & (np.abs(middle) < _NEAR)
        turned = np.where(up[:, 1:-1], (middle < before) & (middle <= behind), (middle > before) & (middle >= behind))
        row, at = np.nonzero(alike & turned)
        peaks.append(_Brackets(pairs[row], times[at], times[at + 2]))
        first |= dict(zip(pairs.tolist(), up[:, 0].tolist(), strict=True))
    flips += _around_peaks(clearance, _joined(peaks))
    brackets = _joined(flips)
    return _paired(brackets.pair, _roots(clearance, brackets), first, until_s)


@dataclass(frozen=True, eq=False)
class _Brackets:
    pair: IntArray
    low: FloatArray
    high: FloatArray


def _joined(found: list[_Brackets]) -> _Brackets:
    none = _Brackets(np.empty(0, np.int64), np.empty(0), np.empty(0))
    return _Brackets(*(np.concatenate([getattr(one, name) for one in [none, *found]]) for name in ("pair", "low",
        "high")))


def _around_peaks(clearance: Clearance, near: _Brackets) -> list[_Brackets]:
    """The brackets on both sides of those peaks (and dips) that are beyond 0 after all."""
    if not len(near.pair):
        return []
    low, high = near.low.copy(), near.high.copy()
    towards = np.where(clearance(near.pair, low) > 0, -1.0, 1.0)       # of a dip the least value is looked for
    for _ in range(_THIRDS):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        better = towards * clearance(near.pair, left) < towards * clearance(near.pair, right)
        low, high = np.where(better, left, low), np.where(better, high, right)
    peak = (low + high) / 2
    beyond = towards * clearance(near.pair, peak) > 0
    pair, peak = near.pair[beyond], peak[beyond]
    return [_Brackets(pair, near.low[beyond], peak), _Brackets(pair, peak, near.high[beyond])]


def _roots(clearance: Clearance, brackets: _Brackets) -> FloatArray:
    low, high = brackets.low.copy(), brackets.high.copy()
    if not len(low):
        return low
    up = clearance(brackets.pair, low) > 0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        same = (clearance(brackets.pair, middle) > 0) == up
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return (low + high) / 2


def _paired(pair: IntArray, roots: FloatArray, first: dict[int, bool], until_s: float) -> Spans:
    """Roots by pair and time are ends and beginnings by turns."""
    order = np.lexsort((roots, pair))
    edges: dict[int, list[float]] = {one: [-np.inf] for one, up in first.items() if up}
    for one, root in zip(pair[order].tolist(), roots[order].tolist(), strict=True):
        edges.setdefault(one, []).append(root)
    found = [(one, max(0.0, begin), min(until_s, end)) for one, there in sorted(edges.items())
             for begin, end in zip(there[::2], [*there[1::2], np.inf], strict=False)]
    found = [(one, begin, end) for one, begin, end in found if end > begin]
    return Spans(np.array([one for one, _, _ in found], np.int64), np.array([begin for _, begin, _ in found]),
                 np.array([end for _, _, end in found]))
