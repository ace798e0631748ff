"""Nodes that move: straight stretches at constant speed, as pure functions of (seed, name) and an index.

`Waypoints` is the random waypoint model in a rectangle with a stationary start: the state at 0 is drawn from the
distribution that the model has in the long run (Le Boudec and Vojnovic 2005, "Perfect simulation and stationarity of a
class of mobility models"). Otherwise nodes would be far too fast and too far from the centre at the beginning.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emul.base.streams import generator, key64, uniform_at
from emul.network.models.background import StayLaw
from emul.network.models.profiles import NEVER

_DRAWS = 8              # of a leg, its indices in a stream
_MOST_TRIES = 10_000    # of a rejection that accepts half of its draws


@dataclass(frozen=True, slots=True)
class Stretch:
    """From `begin_ns` to `end_ns` (NEVER: for good) at (x + vx s, y + vy s), s being the seconds since `begin_ns`; in
    m, m/s."""

    begin_ns: int
    end_ns: int
    x: float
    y: float
    vx: float = 0.0
    vy: float = 0.0

    def at(self, t_ns: int) -> tuple[float, float]:
        """The position at a time."""
        s = (t_ns - self.begin_ns) / 1e9
        return self.x + self.vx * s, self.y + self.vy * s


class Walk:
    """Stretches that follow each other from 0 on, made as far as they are asked for, and kept."""

    def __init__(self, stretches: Iterator[Stretch]):
        self._more = stretches
        self._made: list[Stretch] = [next(stretches)]

    def stretch(self, number: int) -> Stretch | None:
        """Stretch number 0, 1, ...; None behind the last one."""
        while number >= len(self._made):
            following = next(self._more, None) if self._made[-1].end_ns < NEVER else None
            if following is None:
                return None
            self._made.append(following)
        return self._made[number]

    def position(self, t_ns: int) -> tuple[float, float]:
        """(x, y) in m at a time."""
        while self._made[-1].end_ns <= t_ns and self.stretch(len(self._made)) is not None:
            pass
        return self._made[bisect_right(self._made, t_ns, key=lambda one: one.begin_ns) - 1].at(t_ns)


def standing(x: float, y: float) -> Iterator[Stretch]:
    """Always at one place."""
    yield Stretch(0, NEVER, x, y)


def along(points: Sequence[tuple[int, float, float]]) -> Iterator[Stretch]:
    """Straight from point to point, each (time in ns, x, y), times ascending; before and behind them it stands."""
    first, last = points[0], points[-1]
    if first[0] > 0:
        yield Stretch(0, first[0], *first[1:])
    for a, b in pairwise(points):
        yield _straight(a[0], b[0], a[1:], b[1:])
    yield Stretch(last[0], NEVER, *last[1:])


def _straight(begin: int, end: int, here: tuple[float, float], there: tuple[float, float]) -> Stretch:
    s = (end - begin) / 1e9
    return Stretch(begin, end, *here, (there[0] - here[0]) / s, (there[1] - here[1]) / s)


@dataclass(frozen=True, slots=True)
class Waypoints:
    """A random waypoint walk in a rectangle of (width, height) m: on to a point that is uniform in it, at a speed that
    is uniform in (least, most) m/s, least above 0; then a pause.
    """

    area: tuple[float, float]
    speed: tuple[float, float]
    pause: StayLaw | None = None

    @property
    def mean_speed_time(self) -> float:
        """The mean of 1 / speed, in s/m."""
        least, most = self.speed
        return 1 / least if most == least else math.log(most / least) / (most - least)

    @property
    def moving(self) -> float:
        """The share of time in which it moves, in the long run."""
        moves = mean_distance(*self.area) * self.mean_speed_time
        return moves / (moves + (0.0 if self.pause is None else self.pause.mean / 1e9))


def mean_distance(a: float, b: float) -> float:
    """The mean distance between two points that are uniform in a rectangle of sides a and b (Santalo 1976).

    >>> round(mean_distance(1, 1), 6)
    0.521405
    """
    d = math.hypot(a, b)
    return (a**3 / b**2 + b**3 / a**2 + d * (3 - a**2 / b**2 - b**2 / a**2)
            + 2.5 * (b**2 / a * math.log((a + d) / b) + a**2 / b * math.log((b + d) / a))) / 15


def waypoints(spec: Waypoints, seed: int, name: str) -> Iterator[Stretch]:
    """The walk of a node, without an end. Leg k, 1 the first whole one, is drawn from (seed, name, k); the state at 0
    from a stream of its own."""
    key = key64(seed, "waypoint", name)
    here, now = (0.0, 0.0), 0
    for stretch in _started(spec, seed, name, key):
        yield stretch
        here, now = stretch.at(stretch.end_ns), stretch.end_ns
    (width, height), (least, most) = spec.area, spec.speed
    k = 0
    while now < NEVER // 2:
        k += 1
        there = uniform_at(key, _DRAWS * k) * width, uniform_at(key, _DRAWS * k + 1) * height
        leg = _leg(now, here, there, least + (most - least) * uniform_at(key, _DRAWS * k + 2))
        yield leg
        here, now = there, leg.end_ns
        for pause in _paused(now, here, _pause_ns(spec, key, k)):
            yield pause
            now = pause.end_ns
    yield Stretch(now, NEVER, *here)


def _started(spec: Waypoints, seed: int, name: str, key: int) -> list[Stretch]:
    """The rest of what the node is at when time begins: of a pause, or of a leg and the pause behind it."""
    start = key64(seed, "waypoint start", name)
    (width, height), (least, most) = spec.area, spec.speed
    if uniform_at(start, 0) >= spec.moving:
        assert spec.pause is not None
        met = spec.pause.biased(uniform_at(start, 1), generator(seed, "waypoint pause met", name))
        here = uniform_at(start, 2) * width, uniform_at(start, 3) * height
        return _paused(0, here, max(1.0, met * (1 - uniform_at(start, 4))))
    begin, there = _met_leg(start, width, height)
    done = uniform_at(start, 4)
    here = begin[0] + done * (there[0] - begin[0]), begin[1] + done * (there[1] - begin[1])
    leg = _leg(0, here, there, least * (most / least) ** uniform_at(start, 1))      # the density is as 1 / speed
    return [leg, *_paused(leg.end_ns, there, _pause_ns(spec, key, 0))]


def _met_leg(start: int, width: float, height: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of a leg that a node is on at a time of one's choice: in proportion to its length, by rejection."""
    most = math.hypot(width, height)
    for number in range(1, _MOST_TRIES):
        x0, y0, x1, y1, u = (uniform_at(start, _DRAWS * number + i) for i in range(5))
        begin, there = (x0 * width, y0 * height), (x1 * width, y1 * height)
        if u * most < math.dist(begin, there):
            break
    return begin, there


def _leg(begin_ns: int, here: tuple[float, float], there: tuple[float, float], speed: float) -> Stretch:
    length_ns = min(math.dist(here, there) / speed * 1e9, float(NEVER // 4))
    return _straight(begin_ns, begin_ns + max(1, round(length_ns)), here, there)


def _pause_ns(spec: Waypoints, key: int, k: int) -> float:
    return 0.0 if spec.pause is None else spec.pause.quantile(uniform_at(key, _DRAWS * k + 3))


def _paused(begin_ns: int, at: tuple[float, float], length_ns: float) -> list[Stretch]:
    length = round(min(length_ns, float(NEVER // 4)))
    return [Stretch(begin_ns, begin_ns + length, *at)] if length else []
