"""`drive`, `run_world` and `check_scheme` for roles that are no clients and no servers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from emul.base import rows as R
from emul.roles import Message, Node, Scheme
from emul.scenario import Stop
from emul.testing import NoParams, check_scheme, drive, run_world


@dataclass(frozen=True)
class Order(Message):
    amount: int


@dataclass(frozen=True)
class Delivery(Message):
    amount: int


MESSAGES = (Order, Delivery)


async def shop(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.nodes("farm"), Order(int(round_)))
            got = await node.gather(Delivery, node.nodes("farm"), timeout_s=1.0)
            node.report(sum=sum(m.amount for m in got.values()))


async def farm(node: Node, p: Any) -> None:
    shop_, = node.nodes("shop")
    async for round_ in node.rounds(of=shop_):
        with round_:
            order = await node.recv(Order, shop_)
            node.send(shop_, Delivery(10 * order.amount + node.index))


async def peer(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.peers, Order(int(round_)))
            got = await node.gather(Order, node.peers, timeout_s=0.5)
            node.report(heard=len(got))


SCHEME = Scheme(params=NoParams, roles={"shop": shop, "farm": farm}, places={"shop": "shop", "farm": "farm"},
                messages=MESSAGES)
DECIDES = "shop"

FARMS = """
emul: 1
name: farms
seed: 1
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1}}}
compute: {mode: zero}
schemes: [{name: test_any_roles, places: {shop: "server[0]", farm: client}}]
stop: {rounds: 2}
"""


def test_a_role_of_any_name_is_driven_alone_among_nodes_of_any_roles() -> None:
    role = drive(shop, roles={"shop": [4], "farm": [1, 2]})
    assert (role.node.name, role.node.id) == ("shop", 4)
    assert {to: m.amount for to, m in role.sent(Order).items()} == {1: 1, 2: 1}
    role.deliver({1: Delivery(10), 2: Delivery(11)})
    assert role.reports == [{"sum": 21}]
    second = drive(farm, roles={"shop": [0], "farm": [1, 2]}, id=2)
    assert (second.node.name, second.node.index) == ("farm2", 1)
    second.deliver({0: Order(3)})
    assert second.sent(Delivery) == {0: Delivery(31)}


def test_driving_a_role_that_nobody_has_says_who_there_is() -> None:
    with pytest.raises(ValueError, match=r'^role "shop": expected one of server, client; say which with role=, or who '
                                         r"has it with roles=$"):
        drive(shop)
    with pytest.raises(ValueError, match=r"^roles = {'shop': \[0\], 'farm': \[0, 1\]}: expected one role for every"):
        drive(shop, roles={"shop": [0], "farm": [0, 1]})


def test_roles_of_any_names_run_over_a_network_of_as_many_nodes_as_are_asked_for() -> None:
    world = run_world({"shop": shop, "farm": farm}, nodes={"shop": 1, "farm": 3}, decides="shop", stop=Stop(rounds=2))
    assert list(world.header["names"]) == ["shop", "farm1", "farm2", "farm3"]
    assert [row[4]["sum"] for row in world.of("shop", R.REPORT)] == [33, 63]
    assert world.invariants.violations == []


@pytest.fixture
def gossip() -> Iterator[str]:
    """A scheme of peers that can be imported."""
    made = ModuleType("gossiped")
    vars(made).update(SCHEME=Scheme(params=NoParams, roles={"peer": peer}, messages=MESSAGES))
    sys.modules["gossiped"] = made
    yield "gossiped"
    del sys.modules["gossiped"]


def test_a_scheme_of_peers_is_checked_without_a_scenario(gossip: str) -> None:
    worlds = check_scheme(gossip, plugins=[gossip], pools=[], quick=True)
    assert len(worlds["as it is"].header["names"]) == 5
    assert worlds["a client crashes"].of("peer2", R.CRASH)


def test_a_scheme_of_other_roles_wants_a_scenario_and_takes_a_file_by_its_name_as_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'^scheme "test_any_roles" has the roles farm, shop, for which there is no '
                                         r"small scenario: give it an example, or pass check_scheme a scenario$"):
        check_scheme("test_any_roles", plugins=[__name__], pools=[])
    (tmp_path / "farms.yaml").write_text(FARMS)
    worlds = check_scheme("test_any_roles", str(tmp_path / "farms.yaml"), plugins=[__name__], pools=[], quick=True)
    assert worlds["as it is"].summary["rounds"] == 2
