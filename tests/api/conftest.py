"""The small scenario as a mapping, and a scheme of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ruamel.yaml import YAML
from small_scenario import SMALL

SCHEME = '''\
"""A scheme whose server says how often it was called ANSWER."""

from dataclasses import dataclass

from emul.roles import Node, Scheme


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


SCHEME = Scheme(params=Params, roles={"server": server, "client": client})
'''


@pytest.fixture
def spec() -> dict[str, Any]:
    """The small scenario as a mapping."""
    found: dict[str, Any] = YAML(typ="safe").load(SMALL)
    return found


@pytest.fixture
def scheme() -> Callable[[object], str]:
    """The text of a scheme that reports an answer in every round."""
    return lambda answer: SCHEME.replace("ANSWER", str(answer))
