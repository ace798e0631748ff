"""A scenario that runs in a fraction of a second, and studies of it in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emul.study.engines import here
from emul.study.runs import Where

SMALL = """\
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

PICKY = '''\
"""A scheme that fails on odd seeds."""

from dataclasses import dataclass

from emul.roles import Node


@dataclass(frozen=True)
class Params:
    pass


async def server(node: Node, p: Params) -> None:
    if node.seed % 2:
        raise LookupError("no odd seeds")


async def client(node: Node, p: Params) -> None:
    pass


ROLES = {"server": server, "client": client}
'''


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`small.yaml` in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def picky(small: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a plug-in that fails on odd seeds."""
    monkeypatch.delitem(sys.modules, "picky", raising=False)        # an earlier test's
    (small.parent / "picky.py").write_text(PICKY)
    return "picky"


@pytest.fixture
def inside() -> Callable[..., Where]:
    """Everything within this process, with these plug-ins."""
    return lambda *plugins: Where(here, 0, plugins)
