"""A Flower app, unmodified: its ServerApp at the server, its ClientApp at each client, Flower's messages between them.

The server app runs in a thread that stands still whenever it waits; clocks and `time.sleep` are those of virtual time.
A round is one of the app's, as far as its messages tell (`RoundNumbers`). Waits have the app's own timeouts and no
knowledge of fates: a lost message is one that does not come. Deviations from `flwr run`: node numbers are 2, 3, ..., in
the order of the clients; a client that is behind skips what belongs to rounds that are over.

Nothing of Flower is imported before an app runs. `task_of(context)`, for apps that want the scenario's data and model,
gives an app the learning task of the node that it runs on; `report(accuracy=...)` tells what a server app has found.
Beside this file lie the Grid (`grid`, `messages`), the thread of the server app and what it asks for (`guest`), what
runs client apps (`hosting`), the clocks and generators that apps get (`clock`, `randomness`), and for `runtime:
superlink` the programs of a deployment (`superlink`), for `runtime: simulation` the engine of Flower's simulation
(`simulation`), both with their Grid (`polling`) and the waits of the installed flwr (`installed`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from emul.base.errors import EmulError, TimedOut, TooFewClients
from emul.base.plain import PlainDict
from emul.protocols.demands import demand
from emul.roles import Message, Node, Scheme, World, checks
from emul.roles.evaluation import constant
from emul.roles.example import example
from emul.schemes.flower import apps, installed, messages
from emul.schemes.flower.current import report, task_of
from emul.schemes.flower.guest import AnyReply, BeginRound, Ended, Replies, Request, Sleep, WhoIsThere
from emul.schemes.flower.hosting import AppHost, Client, Owed, StartedBefore, label_of, lanes, serve
from emul.schemes.flower.messages import Answer, Call, Ping, Pong

__all__ = ["EXAMPLE", "SCHEME", "Params", "check", "client", "report", "server", "task_of"]


@dataclass(frozen=True)
class Params:
    app: str | None = None              # folder with the app's pyproject.toml, or a package beside one
    server: str | None = None           # "package.module:app", in place of what the folder names
    client: str | None = None
    config: PlainDict = field(default_factory=dict)         # over the app's run config
    timeout_s: float | None = None      # at most so long waits send_and_receive, whatever the app says
    connected: Literal["always", "asked"] = "always"    # nodes that the app sees: all; or those that answer then
    ask_s: float = 1.0                  # the time that it waits for their answers
    evaluate: Literal["app", "task"] = "app"    # the accuracy that counts: the app's, or that of the scenario's task
    stuck_s: float = 600.0              # real seconds that the server app may compute without a word
    log: Literal["debug", "info", "warning", "error"] = "error"     # of Flower's log, on stderr
    # messages on links alone; as a SuperLink and SuperNodes hand them on; or as Flower's local simulation does
    runtime: Literal["links", "superlink", "simulation"] = "links"
    num_actors: int = 8                 # simulation: messages that clients work on at once, as many as the engine has
    start_s: float = 1.2                # superlink: a ClientApp's process starts, at speed 1
    request_s: float = 0.015            # superlink: what the programs take for a request, beside the network
    node_poll_s: float | None = None    # superlink: between two looks of a SuperNode for a message; flwr's
    reply_poll_s: float | None = None   # superlink: between two looks of a SuperNode for its ClientApp's reply; flwr's
    task_poll_s: float | None = None    # superlink: between two looks of SuperExec for a task; flwr's
    server_poll_s: float | None = None  # between two looks of send_and_receive for replies; flwr's
    heartbeat_s: float | None = None    # superlink: the interval that a SuperNode tells the SuperLink; flwr's


async def server(node: Node, p: Params) -> None:
    host = AppHost(node, p)
    if p.runtime == "simulation":
        from emul.schemes.flower import simulation

        host.grid_of = simulation.begin(node, p)
    elif p.runtime == "superlink":
        from emul.schemes.flower import superlink

        state = node.state(StartedBefore())
        link = superlink.linked(node, p, again=state.once)
        host.grid_of = superlink.grid_of(node, p, link)
        node.start(superlink.serve(node, link))
        if state.once:
            return await forgotten(node)
        state.once = True
    try:
        async for round_ in node.rounds():
            with round_:
                closed = await play(node, p, host)
                tell(node, p, closed)
            if host.ended:
                return
    finally:
        host.close()


async def forgotten(node: Node) -> None:
    """A SuperLink that has started again: runs, nodes and messages were in its memory, and no program asks for rounds.
    """
    async for round_ in node.rounds():
        with round_:
            raise TooFewClients("the SuperLink has started again: the run was in its memory, and its nodes are unknown")


async def play(node: Node, p: Params, host: AppHost) -> BeginRound:
    """One round of the app, until it begins the next one or ends."""
    while True:
        request = await node.compute(host.label, host.step, node.now_ns)
        for nodes, call in host.grid.outgoing():
            node.broadcast(node.joined(nodes), call)
        if isinstance(request, Ended):
            closed: BeginRound = await node.compute("aggregate", host.closing)
            return closed
        if isinstance(request, BeginRound):
            return request
        host.answer = await answered(node, p, host, request)


async def answered(node: Node, p: Params, host: AppHost, request: Request) -> list[Any]:
    """The answer to the app's request: answers of clients, or the nodes that are there."""
    got: list[Any] = []
    if isinstance(request, WhoIsThere):
        node.broadcast(node.clients, Ping())
        return list(await node.gather(Pong, node.clients, timeout_s=p.ask_s))
    if isinstance(request, Sleep):
        await node.sleep(request.seconds)
    elif isinstance(request, Replies):
        got = await replies(node, host, request)
    elif isinstance(request, AnyReply):
        try:
            got = [await node.recv_any(timeout_s=left_s(node, request.until_ns))]
        except TimedOut:
            got = []
    return [answer for answer in got if isinstance(answer, Answer)]


async def replies(node: Node, host: AppHost, request: Replies) -> list[Message]:
    """The messages that come until all requested ones are there, or their time is over, in the order of arrival.
    Answers that nobody waits for any more come, too: they take the place of none.
    """
    asked, got = dict(request.asked), list[Message]()
    while asked:
        count = len(asked)
        came = await node.collect(count, timeout_s=left_s(node, request.until_ns))
        got += came
        for answer in came:
            name = host.grid.name_of(answer)
            if asked.get(name) == answer.sender:
                del asked[name]
        if len(came) < count:
            break
    return got


def left_s(node: Node, until_ns: int) -> float:
    """The time left until then."""
    return max(0, until_ns - node.now_ns) / 1e9


def tell(node: Node, p: Params, closed: BeginRound) -> None:
    """Report the round that ends: what the app has found of its model counts as an evaluation of it.

    Raises TooFewClients for one in which every training has failed.
    """
    values: PlainDict = {key: value for key, value in closed.metrics.items() if math.isfinite(value)}
    values |= closed.counts
    if closed.model is not None and not np.isfinite(closed.model).all():
        values["diverged"] = "the model of the app: not finite"
    if closed.model is None or p.evaluate == "task":
        node.report(closed.model, **values)
    else:
        own = {key: value for key, value in values.items() if key not in ("accuracy", "loss")}
        node.report(closed.model, evaluate=partial(constant, closed.metrics), **own)
    if closed.failure:
        raise TooFewClients(closed.failure)


async def client(node: Node, p: Params) -> None:
    if p.runtime == "superlink":
        from emul.schemes.flower import superlink

        return await superlink.supernode(node, p)
    if p.runtime == "simulation":
        from emul.schemes.flower import simulation

        return await simulation.simulated(node, p)
    await linked(node, p)


async def linked(node: Node, p: Params) -> None:
    """A client on links alone."""
    def asked(call: Any) -> None:
        demand(isinstance(call, (Call, Ping)) and call.sender == node.server, "no call of the server")
        demand(isinstance(call, Ping) or call.metadata not in served, "a call that this client has answered")

    served = set[bytes]()           # in this round: the metadata hold the number of the call
    s = node.state(Client())
    s.owed = None                   # after a crash: what its app was about to send went with it
    async for round_ in node.rounds(of=node.server):
        with round_:
            served.clear()
            while True:
                await reply(node, s)
                call = await node.recv_any(accept=asked)
                if isinstance(call, Ping):
                    node.send(node.server, Pong())
                    continue
                served.add(call.metadata)
                found = await node.compute(label_of(call), serve, node, p, s, call)
                if found is not None and found.diverged:
                    node.report(diverged=found.diverged)        # it is sent all the same, as Flower does
                if found is not None:
                    s.owed = Owed(call, found, node.now_ns + round(found.slept_s * 1e9))


async def reply(node: Node, s: Client) -> None:
    """Send the reply that the client owes. Its app may sleep before, to the end, even if the round is over by then."""
    if s.owed is None:
        return
    if node.now_ns < s.owed.due_ns:
        await node.sleep((s.owed.due_ns - node.now_ns) / 1e9)
    answer, s.owed = s.owed.served.answer(s.owed.call, node.now_ns), None
    node.send(node.server, answer)


_WAITS = ("node_poll", "reply_poll", "task_poll", "server_poll", "heartbeat")


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    lacking = apps.lacking() if apps.installed() else apps.MISSING
    if lacking:
        return [lacking]
    found = checks.times(timeout=params.timeout_s, ask=params.ask_s, stuck=params.stuck_s,
                         **{name: getattr(params, f"{name}_s") for name in _WAITS})
    found += checks.not_negative(start=params.start_s, request=params.request_s)
    if params.num_actors < 1:
        found.append(f"num_actors = {params.num_actors}: expected 1 actor or more")
    if params.runtime != "links":
        if params.connected == "asked":
            found.append(f"connected = asked: runtime: {params.runtime} knows who is there by itself")
        try:
            installed.waits(params) if params.runtime == "superlink" else installed.simulation(params)
        except installed.UnknownFlower as e:
            found.append(str(e))
    try:
        apps.find(params.app, params.server, params.client, params.config)
    except EmulError as e:
        found.append(str(e))
    return found


def warn(params: Params, world: World) -> list[str]:
    """Packages that the app asks for and that are not there: it may do without one that it imports now and then."""
    try:
        missing = apps.not_installed(params.app)
    except EmulError:
        return []                       # `check` says so
    return [f"the app {params.app} asks for {', '.join(missing)}, not installed: pip install {' '.join(missing)}"
            ] if missing else []


EXAMPLE = example("flower", 'timeout: 1 s, server: "emul.schemes.flower.example:server",\n'
                            '           client: "emul.schemes.flower.example:client"')

def unsent(p: Params) -> list[str]:
    """The messages of the other runtimes."""
    http = {kind.__name__ for kind in [*messages.REQUESTS, *messages.REQUESTS.values()]}
    return [kind.__name__ for kind in messages.MESSAGES if (kind.__name__ in http) != (p.runtime == "superlink")]


SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=messages.MESSAGES, unsent=unsent,
    timeouts=("timeout_s",), one_machine=lambda p: p.runtime == "simulation", lanes=lanes,
    check=check, warn=warn, names_code=True,
    accuracy=lambda p: "app" if p.evaluate == "app" else "global", example=EXAMPLE)
