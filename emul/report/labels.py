"""Places for names beside points, such that no name lies on a point or on another name, however large the figure is.

A point stands at a share of the width and of the height, a name at so many px from its point. In a larger figure points
move apart and names keep their distance, so two rectangles are compared for a whole range of sizes at once, and names
are placed for each of a few ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

LIMIT = 160             # px, the width of a name at most: the rest of it is cut
_LETTER = 7.0           # px, the width of a letter of 11 px: more than most have
_HIGH = 14.0            # px, the height of a line
_STEPS = 12             # places farther and farther away that are tried
_STEP = 15.0            # px between them
_LINE = 2.0             # px, half of the width that is kept free for a line to a name


@dataclass(frozen=True)
class PlotSizes:
    """A range of sizes of the plot in a figure, from the least to the largest, in px."""

    widths: tuple[float, float]
    heights: tuple[float, float]


HEIGHT = 300            # px, of a plot but in a column of a paper
RANGES = (PlotSizes((250, 400), (205, HEIGHT)), PlotSizes((400, 700), (HEIGHT, HEIGHT)),
          PlotSizes((700, 1080), (HEIGHT, HEIGHT)))


@dataclass(frozen=True)
class MovingBox:
    """A rectangle whose place depends on the size of a figure: from `at`, shares of its width and height, so many px to
    the left, right, top and bottom, of which the first and the third are negative left of and above it."""

    at: tuple[float, float]
    low: tuple[float, float]        # (left, top)
    high: tuple[float, float]       # (right, bottom)

    def meets(self, other: MovingBox, sizes: PlotSizes) -> bool:
        """True if both share a place in a figure of some size."""
        for k, (least, most) in enumerate((sizes.widths, sizes.heights)):
            apart = self.at[k] - other.at[k]
            near, far = (least * apart, most * apart) if apart >= 0 else (most * apart, least * apart)
            if near >= other.high[k] - self.low[k] or far <= other.low[k] - self.high[k]:
                return False
        return True

    def inside(self, sizes: PlotSizes) -> bool:
        """True if figures of all sizes hold it."""
        return all(length * self.at[k] + self.low[k] >= 0 and length * self.at[k] + self.high[k] <= length
                   for k, lengths in enumerate((sizes.widths, sizes.heights)) for length in lengths)


@dataclass(frozen=True)
class NamedPoint:
    """A point at shares of width and height, from the left and the top, that reaches `half` px to each side. name: to
    be placed, "" for none. right, below: the side of it where the name is to be, if it can."""

    at: tuple[float, float]
    half: float
    name: str = ""
    right: bool = True
    below: bool = True

    def box(self) -> MovingBox:
        return MovingBox(self.at, (-self.half, -self.half), (self.half, self.half))


@dataclass(frozen=True)
class NamePlace:
    """The place of a name: px from its point to its near end and its middle. right: it begins there, else it ends
    there. led: it is so far away that a line leads to it."""

    dx: float
    dy: float
    right: bool
    led: bool

    def box(self, point: NamedPoint) -> MovingBox:
        """The rectangle of the name."""
        width = min(LIMIT, _LETTER * len(point.name))
        left, right = (self.dx, self.dx + width) if self.right else (self.dx - width, self.dx)
        return MovingBox(point.at, (left, self.dy - _HIGH / 2), (right, self.dy + _HIGH / 2))

    def line(self, point: NamedPoint) -> list[MovingBox]:
        """Small rectangles along the line from the point to its name."""
        if not self.led:
            return []
        n = math.ceil(math.hypot(self.dx, self.dy) / (2 * _LINE))
        middles = [(self.dx * k / n, self.dy * k / n) for k in range(1, n)]
        return [MovingBox(point.at, (x - _LINE, y - _LINE), (x + _LINE, y + _LINE)) for x, y in middles]


def placed(points: Sequence[NamedPoint], sizes: PlotSizes) -> list[NamePlace | None]:
    """A place for the name of each point, the first that is free; None: it has no name, or there is no room.

    Names are placed one after the other, from the left or from the right, near their points or all on one side of
    them: whichever leaves fewer without a place, then fewer far from their points.
    """
    dots = [point.box() for point in points]
    order = sorted(range(len(points)), key=lambda i: points[i].at)
    tried = [_in_order(points, dots, sizes, one, how) for one in (order, order[::-1]) for how in (_near, _aside)]
    return min(tried, key=lambda found: (found.count(None), sum(place.led for place in found if place)))


def _in_order(points: Sequence[NamedPoint], dots: Sequence[MovingBox], sizes: PlotSizes, order: Sequence[int],
              candidates: Callable[[NamedPoint], Iterator[NamePlace]]) -> list[NamePlace | None]:
    taken: list[MovingBox] = []     # names, and the lines to them
    found: list[NamePlace | None] = [None] * len(points)
    for i in order:
        point = points[i]
        if not point.name:
            continue
        others = [dot for dot in dots if not dot.meets(dots[i], sizes)]         # a line may cross those on its own
        place = next((one for one in candidates(point) if _free(one, point, sizes, dots, others, taken)), None)
        if place is not None:
            found[i] = place
            taken += [place.box(point), *place.line(point)]
    return found


def _free(place: NamePlace, point: NamedPoint, sizes: PlotSizes, dots: Sequence[MovingBox], others: Sequence[MovingBox],
          taken: Sequence[MovingBox]) -> bool:
    name, line = place.box(point), place.line(point)
    return (name.inside(sizes) and not any(name.meets(box, sizes) for box in (*dots, *taken))
            and not any(piece.meets(box, sizes) for piece in line for box in (*others, *taken)))


def _near(point: NamedPoint) -> Iterator[NamePlace]:
    """Places by their distance, at each on the side where the name is to be first."""
    for step in range(_STEPS):
        for aside in (0.5, 0.0, 1.5) if step else (0.0,):
            for right, below in _sides(point):
                yield _place(point, step, aside, right, below)


def _aside(point: NamedPoint) -> Iterator[NamePlace]:
    """All places on the side where the name is to be, with steep lines, then those on others."""
    for right, below in _sides(point):
        for step in range(_STEPS):
            yield _place(point, step, 0.0, right, below)


def _sides(point: NamedPoint) -> list[tuple[bool, bool]]:
    return list(product((point.right, not point.right), (point.below, not point.below)))


def _place(point: NamedPoint, step: int, aside: float, right: bool, below: bool) -> NamePlace:
    return NamePlace((1 if right else -1) * (point.half + 2 + aside * step * _STEP),
                     (1 if below else -1) * (point.half / 2 + 6 + step * _STEP), right, step > 0)
