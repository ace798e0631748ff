"""Studies of the small scenario in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emul.study.engines import in_turn
from emul.study.runs import Where

PICKY = '''\
"""A scheme that fails on odd seeds."""

from dataclasses import dataclass

from emul.roles import Node, Scheme


@dataclass(frozen=True)
class Params:
    pass


async def server(node: Node, p: Params) -> None:
    if node.seed % 2:
        raise LookupError("no odd seeds")


async def client(node: Node, p: Params) -> None:
    pass


SCHEME = Scheme(params=Params, roles={"server": server, "client": client})
'''


@pytest.fixture
def picky(small: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a plug-in that fails on odd seeds."""
    monkeypatch.delitem(sys.modules, "picky", raising=False)        # an earlier test's
    (small.parent / "picky.py").write_text(PICKY)
    return "picky"


@pytest.fixture
def inside() -> Callable[..., Where]:
    """Everything within this process, with these plug-ins."""
    return lambda *plugins: Where(in_turn, 0, plugins)
