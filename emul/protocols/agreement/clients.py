"""The clients' side of an agreement: a signed input to every server, and what f + 1 servers say that came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emul.primitives.bft.pbft import body_digest, pack, upload_statement
from emul.protocols.agreement.keys import signed, verify
from emul.roles import Message, Node


@dataclass(frozen=True)
class Upload(Message):
    """Client to every server."""

    body: bytes                         # its input, canonical
    signature: bytes                    # of `upload_statement`: round, client, SHA-256 of the body


@dataclass(frozen=True)
class Result(Message):
    """Server to every client."""

    body: bytes                         # the agreed value, canonical
    signature: bytes


@dataclass(frozen=True)
class Undecided(Message):
    """Server to every client: this round has no result from here."""


MESSAGES = (Upload, Result, Undecided)


async def upload(node: Node, round_: int, body: bytes, servers: Iterable[int]) -> None:
    """Sign an input and send it to `servers`."""
    told = upload_statement(int(round_), node.id, body_digest(body))
    node.broadcast(servers, Upload(body, await signed(node, told)))


async def agreed(node: Node, round_: int, faults: int, timeout_s: float | None) -> bytes | None:
    """The result on which `faults` + 1 servers agree; None: not so many say the same within `timeout_s`.

    timeout_s: None: until the fates are known.
    """
    said: dict[bytes, int] = {}
    left = list(node.servers)
    end = None if timeout_s is None else node.now_ns + round(timeout_s * 1e9)
    while left and max(said.values(), default=0) + len(left) > faults:
        rest = None if end is None else max(0, end - node.now_ns) / 1e9
        got = await node.gather((Result, Undecided), left, timeout_s=rest, need=1)
        if not got:
            return None
        for server, m in got.items():
            left.remove(server)
            if isinstance(m, Result):
                claim = (node.world.names[server], pack("Result", int(round_), m.body), m.signature)
                sound, = await node.compute("verify", verify, node.seed, [claim], work=1)
                said[m.body] = said.get(m.body, 0) + sound
                if said[m.body] > faults:
                    return m.body
    return None
