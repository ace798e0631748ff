"""A scenario that runs in a fraction of a second, in a folder of its own, which is the current one."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SMALL: dict[str, Any] = {
    "emul": 1, "name": "small", "seed": 7, "topology": {"generator": "star", "clients": 3},
    "links": [{"match": "*", "latency": "20 ms", "bandwidth": "20 Mbit/s"},
              {"match": "client*->server", "outage": {"model": "bernoulli", "p": 0.3, "per": "round"}}],
    "task": {"data": {"set": "digits"}, "partition": "iid", "model": "logistic",
             "solver": {"sgd": {"lr": 0.1, "steps": 2, "batch": 16}}},
    "compute": {"mode": "zero"}, "schemes": ["fedavg", {"name": "secagg", "threshold": 2}], "stop": {"rounds": 2}}

FILE = """\
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
task:
  data: {set: digits}
  partition: iid
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}
compute: {mode: zero}
schemes: [fedavg, {name: secagg, threshold: 2}]
stop: {rounds: 2}
"""

SCHEME = '''\
"""A scheme whose server says how often it was called ANSWER."""

from dataclasses import dataclass

from emul.roles import Node


@dataclass(frozen=True)
class Params:
    fail: bool = False


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            node.report(answer=ANSWER)
            if p.fail:
                raise LookupError("a bug of this role")


async def client(node: Node, p: Params) -> None:
    pass


ROLES = {"server": server, "client": client}
'''


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "small.yaml").write_text(FILE)
    return tmp_path / "small.yaml"


@pytest.fixture
def spec() -> dict[str, Any]:
    """The same scenario as a mapping."""
    return copy.deepcopy(SMALL)


@pytest.fixture
def scheme() -> Callable[[object], str]:
    """The text of a scheme that reports an answer in every round."""
    return lambda answer: SCHEME.replace("ANSWER", str(answer))
