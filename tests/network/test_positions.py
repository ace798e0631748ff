"""Positions over time: of satellites against their formulas, of nodes that walk at the turns of their walks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emul.engine import wire
from emul.network.positions import on_globe, positions
from emul.scenario import load

MOVING = Path(__file__).parents[2] / "scenarios/moving"
S = 10**9


def network_of(file: str, *sets: str):
    scenario = load(MOVING / file, sets)
    name, params = scenario.schemes[0]
    return wire(scenario, name, params, 1).network


def of(network, vertex: str, until_ns: int) -> np.ndarray:
    return np.array([row[:1] + row[2:] for row in positions(network, until_ns) if row[1] == vertex])


def test_a_satellite_moves_as_its_orbit_says() -> None:
    """The highest latitude is the inclination; a revolution takes 95.65 minutes at 550 km."""
    network = network_of("walker66.yaml")
    spec = network.planned.constellation
    assert on_globe(network)
    found = of(network, "sat1-1", 6000 * S)
    assert (np.diff(found[:, 0]) > 0).all()
    assert found[-1, 0] == 6000
    assert found[:, 1].max() == pytest.approx(spec.inclination if spec.inclination <= 90 else 180 - spec.inclination,
                                              abs=0.5)
    rows = list(positions(network, S))
    assert len([row for row in rows if row[1] in ("Weilheim", "sat1-1", "sat1-2")]) == 1 + 2 + 2
    clients = [row for row in rows if row[1].startswith("client")]
    assert {row[2:] for row in clients} <= {row[2:] for row in rows if row[1].startswith("sat")}
    assert len({row[1] for row in clients}) == 60


def test_a_station_that_sees_one_satellite_alone_is_where_it_is_itself() -> None:
    sky = "topology.constellation"
    network = network_of("walker66.yaml", "topology.roles={server: [Weilheim], client: {rule: attribute, "
                         "attribute: kind, value: satellite, access: {latency: 1 ms}}}", f"{sky}.gateways=null",
                         f"{sky}.isl=none", f"{sky}.planes=1", f"{sky}.each=1", f"{sky}.phasing=0",
                         f"{sky}.stations=stations1.csv", "schemes=[fedavg]")
    rows = list(positions(network, S))
    assert [row for row in rows if row[1] == "Weilheim"] == [(0.0, "Weilheim", 47.88, 11.08)]
    assert len([row for row in rows if row[1].startswith("client")]) == 2


def test_a_node_walks_from_turn_to_turn() -> None:
    network = network_of("office.yaml")
    assert not on_globe(network)
    name = next(name for name in network.names if network.radio.walk(name) is not None)
    found = of(network, name, 600 * S)
    assert (np.diff(found[:, 0]) > 0).all()
    assert found[-1, 0] == 600
    walk = network.radio.walk(name)
    for t in np.linspace(0, 599, 50):
        between = [np.interp(t, found[:, 0], found[:, i]) for i in (1, 2)]
        assert between == pytest.approx(walk.position(round(t * S)), abs=1e-6)


def test_a_network_that_stands_still_has_none() -> None:
    assert list(positions(network_of("passes.yaml"), S)) == []
