"""A Flower app, unmodified: its ServerApp at the server, its ClientApp at each client, Flower's messages between them.

The server app runs in a thread that stands still whenever it waits; clocks and `time.sleep` are those of virtual time.
A round is one of the app's, as far as its messages tell (`emul.flower.rounds`). Waits have the app's own timeouts and
no knowledge of fates: a lost message is one that does not come. Deviations from `flwr run`: node numbers are 2, 3, ...,
in the order of the clients; a client that is behind skips what belongs to rounds that are over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from emul.base.errors import EmulError, TimedOut
from emul.flower import apps, messages
from emul.flower.guest import Ended, Request
from emul.flower.hosting import Client, Host, label_of, serve
from emul.flower.messages import Answer, Call, Ping, Pong
from emul.flower.notes import constant
from emul.flower.requests import AnyReply, NextRound, Replies, Sleep, WhoIsThere
from emul.protocols.demands import demand
from emul.roles import Node, World, checks


@dataclass(frozen=True)
class Params:
    app: str | None = None              # folder with the app's pyproject.toml, or a package beside one
    server: str | None = None           # "package.module:app", in place of what the folder names
    client: str | None = None
    config: dict[str, Any] = field(default_factory=dict)    # over the app's run config
    timeout_s: float | None = None      # at most so long waits send_and_receive, whatever the app says
    connected: Literal["always", "asked"] = "always"    # nodes that the app sees: all; or those that answer then
    ask_s: float = 1.0                  # how long it waits for their answers
    evaluate: Literal["app", "task"] = "app"    # whose accuracy counts: what the app finds, or the scenario's task does
    stuck_s: float = 600.0              # real seconds that the server app may compute without a word
    log: Literal["debug", "info", "warning", "error"] = "error"     # of Flower's log, on stderr


async def server(node: Node, p: Params) -> None:
    host = Host(node, p)
    try:
        async for round_ in node.rounds():
            with round_:
                if await play(node, p, host):
                    return
    finally:
        host.close()


async def play(node: Node, p: Params, host: Host) -> bool:
    """One round of the app. True: the app has ended."""
    while True:
        request = await node.compute(host.label, host.step, node.now_ns)
        for nodes, call in host.grid.outgoing():
            node.broadcast(nodes, call)
        if isinstance(request, Ended):
            tell(node, p, await node.compute("aggregate", host.closing))
            return True
        if isinstance(request, NextRound):
            tell(node, p, request)
            return False
        host.answer = await answered(node, p, request)


async def answered(node: Node, p: Params, request: Request) -> list[Any]:
    """What the app has asked for: answers of clients, or who is there."""
    got: list[Any] = []
    if isinstance(request, WhoIsThere):
        node.broadcast(node.clients, Ping())
        return list(await node.gather(Pong, node.clients, timeout_s=p.ask_s))
    if isinstance(request, Sleep):
        await node.sleep(request.seconds)
    elif isinstance(request, Replies):
        got = await node.collect(request.nodes, timeout_s=left_s(node, request.until_ns))
    elif isinstance(request, AnyReply):
        try:
            got = [await node.recv_any(timeout_s=left_s(node, request.until_ns))]
        except TimedOut:
            got = []
    return [answer for answer in got if isinstance(answer, Answer)]


def left_s(node: Node, until_ns: int) -> float:
    """How long it is until then."""
    return max(0, until_ns - node.now_ns) / 1e9


def tell(node: Node, p: Params, closed: NextRound) -> None:
    """Report the round that ends: what the app has found of its model counts as an evaluation of it."""
    values: dict[str, Any] = {key: value for key, value in closed.metrics.items() if math.isfinite(value)}
    values |= closed.counts
    if closed.model is None or p.evaluate == "task":
        node.report(closed.model, **values)
        return
    own = {key: value for key, value in values.items() if key not in ("accuracy", "loss")}
    node.report(closed.model, evaluate=partial(constant, closed.metrics), **own)


async def client(node: Node, p: Params) -> None:
    def asked(call: Any) -> None:
        demand(isinstance(call, (Call, Ping)) and call.sender == node.server, "no call of the server")

    s = node.state(Client())
    async for round_ in node.rounds(of=node.server):
        with round_:
            while True:
                call = await node.recv_any(accept=asked)
                if isinstance(call, Ping):
                    node.send(node.server, Pong())
                    continue
                served = await node.compute(label_of(call), serve, node, p, s, call)
                if served is None:
                    continue
                if served.slept_s:
                    await node.sleep(served.slept_s)
                node.send(node.server, served.answer(call, node.now_ns))


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    if not apps.installed():
        return [apps.MISSING]
    found = checks.times(timeout=params.timeout_s, ask=params.ask_s, stuck=params.stuck_s)
    try:
        apps.find(params.app, params.server, params.client, params.config)
    except EmulError as e:
        found.append(str(e))
    return found


MESSAGES = messages.MESSAGES
ROLES = {"server": server, "client": client}

EXAMPLE = """
emul: 1
name: flower
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: flower, server: "emul.flower.example:server", client: "emul.flower.example:client", timeout: 1 s}]
stop: {rounds: 3}
"""
