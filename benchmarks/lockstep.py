"""Timers alone: every node sleeps for the same period, again and again, so all wake at the same instants."""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import Node, Scheme


@dataclass(frozen=True)
class Params:
    period_s: float = 0.01


async def peer(node: Node, p: Params) -> None:
    while True:
        await node.sleep(p.period_s)


SCHEME = Scheme(params=Params, roles={"peer": peer})
