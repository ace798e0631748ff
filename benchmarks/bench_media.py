"""Media: microseconds an event of a cell as a hub and as a mesh, a change of rate, and the rounds of the solver.

CPU seconds. An event is an arrival or an end, of flows that come and go while so many are there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from statistics import median

from benchmarks.common import Figure, Options, main
from emul.network.links import levels
from emul.network.links.fluid import Fluid
from emul.network.models.media import Fairness, MediumSpec

_MBIT, _FLOWS = 10**6, 100


def cell(fair: Fairness, wire: bool, flows: int, draw: random.Random) -> tuple[Fluid, list[list[int]]]:
    """A cell of stations, each with the way of its flow: over its link, and over a common wire with `wire`."""
    fluid = Fluid()
    medium = fluid.add_medium(MediumSpec("cell", fair, ((1, 0.8), (flows, 0.6))))
    behind = [fluid.add_link(20 * _MBIT)] if wire else []
    return fluid, [[fluid.add_member(medium, i, draw.choice([6, 12, 24, 54]) * _MBIT), *behind] for i in range(flows)]


def _each_event_us(fluid: Fluid, ways: list[list[int]], draw: random.Random, events: int) -> float:
    """A flow over each of the ways; each end is followed by a new flow over the same one."""
    for i, way in enumerate(ways):
        fluid.start(0, i, draw.randrange(1, 10**6), way)
    done, begin = 0, time.process_time()
    while done < events:
        due = fluid.next_change()
        assert due is not None
        for item in fluid.advance(due):
            assert isinstance(item, int)
            done += 2
            fluid.start(due, item, draw.randrange(1, 10**6), ways[item])
    return (time.process_time() - begin) / done * 1e6


def event_us(fair: Fairness, wire: bool, flows: int, events: int) -> float:
    """Flows of the stations of a cell."""
    draw = random.Random(1)
    fluid, ways = cell(fair, wire, flows, draw)
    return _each_event_us(fluid, ways, draw, events)


def change_us(fair: Fairness, flows: int, changes: int) -> float:
    """A change of the rate of one station, with all of them sending."""
    draw = random.Random(2)
    fluid, ways = cell(fair, False, flows, draw)
    for i, way in enumerate(ways):
        fluid.start(0, i, 10**12, way)
    begin = time.process_time()
    for k in range(changes):
        fluid.change(1000 * k, ways[k % flows][0], draw.choice([6, 12, 24, 54]) * _MBIT)
        fluid.next_change()
    return (time.process_time() - begin) / changes * 1e6


def peers_us(flows: int, events: int) -> float:
    """An event of flows from one of 24 phones to another, over the cells of both, of three."""
    draw = random.Random(4)
    fluid = Fluid()
    media = [fluid.add_medium(MediumSpec(f"cell{i}", "airtime", ((1, 0.7),))) for i in range(3)]
    phones = [fluid.add_member(media[i % 3], i, draw.choice([6, 12, 24, 54]) * _MBIT) for i in range(24)]
    ways = [draw.sample(phones, 2) for _ in range(flows)]
    return _each_event_us(fluid, ways, draw, events)


def wires_us(flows: int, events: int) -> float:
    """An event of flows over two of ten plain wires, filled as ever: what a mesh of a cell is compared with."""
    draw = random.Random(3)
    fluid = Fluid()
    links = [fluid.add_link(draw.randrange(5, 50) * _MBIT) for _ in range(10)]
    ways = [draw.sample(links, 2) for _ in range(flows)]
    return _each_event_us(fluid, ways, draw, events)


def media(options: Options) -> Iterable[Figure]:
    def middle(ask: object, *args: object) -> float:
        assert callable(ask)
        return median(ask(*args) for _ in range(options.repeats))

    for flows in (_FLOWS, 10_000):
        for fair in ("throughput", "airtime"):
            yield Figure(f"event in a cell of {flows:,} flows, {fair}", middle(event_us, fair, False, flows, 20_000),
                         "us", at_most=20.0, minor=flows != _FLOWS, note="CPU; a hub")
    for fair in ("throughput", "airtime"):
        yield Figure(f"event of {_FLOWS} flows in a cell with a wire behind it, {fair}",
                     middle(event_us, fair, True, _FLOWS, 1_000), "us", at_most=1000.0, note="CPU; a mesh")
        yield Figure(f"change of a rate in a cell of {_FLOWS} flows, {fair}", middle(change_us, fair, _FLOWS, 5_000),
                     "us", at_most=50.0, note="CPU")
    for flows in (25, 400):
        yield Figure(f"event of {flows} flows between phones of three cells", middle(peers_us, flows, 400), "us",
                     minor=True, note="CPU; a mesh, as of a scheme of peers")
    yield Figure(f"event of {_FLOWS} flows over two of ten wires", middle(wires_us, _FLOWS, 1_000), "us", minor=True,
                 note=f"CPU; a mesh without media; the solver of media gives up after {levels.MOST_ROUNDS} rounds")


if __name__ == "__main__":
    main(media, text=__doc__)
