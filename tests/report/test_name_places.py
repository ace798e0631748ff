"""Names beside points: none lies on another one or on a point, in figures of all sizes, by rectangles in pixels."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.report.labels import RANGES, MovingBox, NamedPoint, NamePlace, PlotSizes, placed

Rectangle = tuple[float, float, float, float]
shares = st.floats(0.04, 0.96)
points = st.builds(NamedPoint, st.tuples(shares, shares), st.sampled_from([6.7, 10.5, 14.6]),
                   st.text("abcdefgh_", min_size=0, max_size=30), st.booleans(), st.booleans())
figures = st.sampled_from(RANGES).flatmap(lambda sizes: st.tuples(
    st.just(sizes), st.lists(st.tuples(st.floats(*sizes.widths), st.floats(*sizes.heights)), min_size=1, max_size=5)))


def pixels(box: MovingBox, size: tuple[float, float]) -> Rectangle:
    x, y = (share * length for share, length in zip(box.at, size, strict=True))
    return x + box.low[0], y + box.low[1], x + box.high[0], y + box.high[1]


def common(a: Rectangle, b: Rectangle) -> float:
    """The area that both have, in square pixels."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, width) * max(0.0, height)


@settings(max_examples=60, deadline=None)
@given(st.lists(points, min_size=1, max_size=14), figures)
def test_no_name_lies_on_another_one_or_on_a_point_and_none_leaves_the_figure(
        found: list[NamedPoint], drawn: tuple[PlotSizes, list[tuple[float, float]]]) -> None:
    places = placed(found, drawn[0])
    assert all(place is None for point, place in zip(found, places, strict=True) if not point.name)
    named = [(point, place) for point, place in zip(found, places, strict=True) if place is not None]
    for size in drawn[1]:
        names = [pixels(place.box(point), size) for point, place in named]
        dots = [pixels(point.box(), size) for point in found]
        assert all(common(a, b) < 1e-6 for a, b in combinations(names, 2))
        assert all(common(name, dot) < 1e-6 for name in names for dot in dots)
        assert all(left >= -1e-9 and top >= -1e-9 and right <= size[0] + 1e-9 and bottom <= size[1] + 1e-9
                   for left, top, right, bottom in names)


@settings(max_examples=60, deadline=None)
@given(st.lists(points, min_size=2, max_size=10), figures)
def test_a_line_to_a_name_crosses_no_other_name(found: list[NamedPoint],
                                                drawn: tuple[PlotSizes, list[tuple[float, float]]]) -> None:
    size = drawn[1][0]
    named = [(point, place) for point, place in zip(found, placed(found, drawn[0]), strict=True) if place is not None]
    for i, (point, place) in enumerate(named):
        for j, (other, its) in enumerate(named):
            if i != j:
                assert all(common(pixels(piece, size), pixels(its.box(other), size)) < 1e-6
                           for piece in place.line(point))


boxes = st.builds(MovingBox, st.tuples(shares, shares), st.tuples(st.floats(-90, -1), st.floats(-90, -1)),
                  st.tuples(st.floats(1, 90), st.floats(1, 90)))


@given(boxes, boxes, figures)
def test_what_meets_in_one_figure_is_said_to_meet(a: MovingBox, b: MovingBox,
                                                  drawn: tuple[PlotSizes, list[tuple[float, float]]]) -> None:
    sizes, found = drawn
    if any(common(pixels(a, size), pixels(b, size)) > 1e-6 for size in found):
        assert a.meets(b, sizes)
        assert b.meets(a, sizes)


def test_boxes_that_meet_in_no_figure_are_told_apart_and_those_that_meet_in_narrow_ones_are_not() -> None:
    sizes = PlotSizes((250, 1080), (200, 300))
    left, right = MovingBox((0.2, 0.5), (-5, -5), (60, 5)), MovingBox((0.5, 0.5), (-5, -5), (5, 5))
    assert not left.meets(right, sizes)                                 # 75 px apart in a figure of 250 px
    assert MovingBox((0.2, 0.5), (-5, -5), (80, 5)).meets(right, sizes)     # it covers the point in the least
    assert not MovingBox((0.2, 0.5), (-5, -5), (80, 5)).meets(right, PlotSizes((300, 1080), (200, 300)))
    assert not MovingBox((0.2, 0.1), (-5, -5), (80, 5)).meets(right, sizes)


def test_a_name_stands_where_it_is_wanted_or_else_near_and_points_in_a_row_get_lines() -> None:
    for sizes in RANGES:
        place, = placed([NamedPoint((0.5, 0.5), 6.7, "fedavg", right=True, below=False)], sizes)
        assert place is not None
        assert (place.right, place.dy < 0, place.led) == (True, True, False)
        corner, = placed([NamedPoint((0.99, 0.99), 6.7, "fedavg")], sizes)
        assert corner is not None
        assert (corner.right, corner.dy < 0, corner.led) == (False, True, False)
        row = placed([NamedPoint((0.3 + k / 90, 0.2 + k / 90), 6.7, f"scheme{k}") for k in range(7)], sizes)
        assert row.count(None) <= 1
        assert [place.led for place in row if place is not None].count(True) >= 3


@pytest.mark.slow
def test_a_name_without_room_has_no_place() -> None:
    full = placed([NamedPoint((x / 20, y / 12), 14.6, "a name that is long") for x in range(21) for y in range(13)],
                  RANGES[0])
    assert full == [None] * len(full)
    assert placed([NamedPoint((0.5, 0.5), 6.7, "")], RANGES[0]) == [None]


def test_the_line_of_a_name_leads_from_its_point_to_it() -> None:
    point, place = NamedPoint((0.5, 0.5), 6.7, "fedavg"), NamePlace(40, 30, True, True)
    line = place.line(point)
    assert [line[0].low[0] < 6, line[-1].high[0] > 36] == [True, True]
    assert NamePlace(40, 30, True, False).line(point) == []
