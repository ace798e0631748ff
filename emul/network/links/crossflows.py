"""Elastic background traffic on links that share their bandwidth: each message is a flow, and so is each greedy one.

When a flow begins is known beforehand: when its message comes, and the latencies of its links after that. It begins as
soon as the flows of the network are brought to that time. While no message of the scheme is a flow, nobody asks for
that, so that background flows keep no run alive. They are brought to its time when the next message comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Literal, Protocol, TypeAlias

from emul.network.links.crossqueues import CrossFlow, Order
from emul.network.links.fluid import Fluid
from emul.network.models.elastic import Arrival

# A flow without an end has so many bytes: at 100 Gbit/s they last for eight days, at 1 Gbit/s for two years. With more
# of them floats could not tell the bytes that are left from those that were left before.
ENDLESS_BYTES = 2**53
_What: TypeAlias = Literal["message", "begin", "end"]


class CourseLink(Protocol):
    """The part of `emul.network.links.flows.FlowLink` that background flows ask for."""

    src: int
    dst: int
    number: int
    typical_ns: int
    down: bool

    def wire_bytes(self, size_bytes: int) -> int:
        """As of a link."""
        ...


class CrossItem:
    """One background flow in the `Fluid`."""

    __slots__ = ("course", "size")

    def __init__(self, course: Course, size: int):
        self.course = course
        self.size = size                # wire bytes


class Course:
    """The background traffic of one entry between two vertices, and the links that its flows take."""

    def __init__(self, flow: CrossFlow, links: Sequence[CourseLink]):
        self.flow = flow
        self.links = links
        self.numbers = [link.number for link in links]
        self.latency_ns = sum(link.typical_ns for link in links)
        self.arrivals = None if flow.arrivals is None else flow.arrivals()
        self.greedy: list[CrossItem] = []           # that run, or are to run again when all links are up
        self.begun = 0                              # wire bytes of all flows that have begun,
        self.dropped = 0                            # of those that were dropped, as far as they had not crossed
        self.unbegun = 0                            # and of those that could not begin


class CrossFlows:
    """All background flows of a network whose links share. They begin, and stop on links that are down."""

    def __init__(self, fluid: Fluid, courses: Iterable[Course]):
        self._fluid = fluid
        self._courses = list(courses)
        self._starts: list[tuple[int, Order, int, _What, int, Course]] = []
        self._serial = 0
        for course in self._courses:
            if course.arrivals is not None:
                self._draw(course, course.arrivals)
            else:
                self._plan(course.flow.at_ns + course.latency_ns, "begin", 0, course)

    def _plan(self, at: int, what: _What, size: int, course: Course) -> None:
        self._serial += 1
        heappush(self._starts, (at, course.flow.order, self._serial, what, size, course))

    def _draw(self, course: Course, arrivals: Iterator[Arrival]) -> None:
        for at, size in arrivals:                   # the next one, if there is one
            wire = size
            for link in course.links:
                wire = max(wire, link.wire_bytes(size))
            self._plan(at + course.latency_ns, "message", wire, course)
            return

    def next_start(self) -> int | None:
        """The time at which the next background flow begins, or greedy ones end; None: never."""
        return self._starts[0][0] if self._starts else None

    def run(self, now: int) -> None:
        """Begin all background flows that begin by `now`."""
        starts = self._starts
        while starts and starts[0][0] <= now:
            at, _, _, what, size, course = heappop(starts)
            if what == "message":
                assert course.arrivals is not None
                self._draw(course, course.arrivals)
                if _stopped(course):
                    course.unbegun += size
                else:
                    self._begin(at, CrossItem(course, size))
            elif what == "begin":
                course.greedy = [CrossItem(course, ENDLESS_BYTES) for _ in range(course.flow.greedy)]
                if course.flow.end_ns is not None:
                    self._plan(course.flow.end_ns + course.latency_ns, "end", 0, course)
                if not _stopped(course):
                    for item in course.greedy:
                        self._begin(at, item)
            else:
                if not _stopped(course):
                    self._end(at, course.greedy)
                course.greedy = []

    def _begin(self, at: int, item: CrossItem) -> None:
        course = item.course
        course.begun += item.size
        self._fluid.start(at, item, item.size, course.numbers, background=True)

    def _end(self, at: int, items: Iterable[CrossItem]) -> None:
        """Take these off their links; what is left of a message is dropped, of a greedy flow it never was."""
        for item in items:
            left = min(item.size, round(self._fluid.remaining_bytes(at, item)))
            self._fluid.remove(at, [item])
            if item.course.arrivals is None:
                item.course.begun -= left
            else:
                item.course.dropped += left

    def stop(self, now: int, link: CourseLink, drops: bool) -> None:
        """A link has gone down: nothing begins on it, greedy flows stop, and with `drops` messages under way are lost.
        """
        self._end(now, [item for item in self._fluid.flows_on(link.number) if isinstance(item, CrossItem)
                        and link in item.course.links and (drops or item.course.arrivals is None)])

    def go_on(self, now: int, link: CourseLink) -> None:
        """A link is up again."""
        for course in self._courses:
            if course.greedy and link in course.links and not _stopped(course):
                course.greedy = [CrossItem(course, ENDLESS_BYTES) for _ in course.greedy]
                for item in course.greedy:
                    self._begin(now, item)

    def totals(self, end_ns: int) -> Iterator[tuple[CourseLink, str, int, int]]:
        """(link, entry, carried bytes, dropped bytes) by `end_ns`. Of a flow under way the part counts that is
        through."""
        self.run(end_ns)
        self._fluid.settle(end_ns)          # else the first item asked for takes those off that have ended by then
        left: Counter[Course] = Counter()
        for item in self._fluid.in_flight():
            if isinstance(item, CrossItem):
                left[item.course] += min(item.size, round(self._fluid.remaining_bytes(end_ns, item)))
        for course in self._courses:
            for link in course.links:
                yield (link, course.flow.entry, course.begun - course.dropped - left[course],
                       course.dropped + course.unbegun)


def _stopped(course: Course) -> bool:
    return any(link.down for link in course.links)
