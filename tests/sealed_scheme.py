"""A scheme for tests: clients send sealed vectors, for real or as what they would weigh and cost."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.roles import Declared, Message, Node, Scheme, Vector

SEALED = 1_000                      # bytes of a sealed vector
SEAL_S, OPEN_S = 0.25, 0.5          # seconds at speed 1: of one vector


@dataclass(frozen=True)
class Model(Message):
    parameters: Vector


@dataclass(frozen=True)
class Sealed(Message):
    data: bytes


@dataclass(frozen=True)
class Stated(Message):
    """What a `Sealed` weighs: its values, and as many bytes as are missing."""

    values: Vector
    rest: Declared


@dataclass(frozen=True)
class Params:
    seal: Literal["declared", "real", "noisy"] = "declared"     # noisy: sealing leaves an error, as under CKKS
    logged: bool = True                                         # noisy: with volatile results


def repeats(p: Params) -> bool:
    return p.seal != "noisy"


def sealed(values: Vector, noisy: bool = False) -> bytes:
    error = np.frombuffer(os.urandom(4 * values.size), np.uint32).astype(np.float32) / 2**52 if noisy else 0
    return (values + np.float32(error)).tobytes().ljust(SEALED, b"\0")


def opened(messages: list[Sealed], size: int) -> list[Vector]:
    return [np.frombuffer(m.data[:4 * size], np.float32) for m in messages]


def total(values: list[Vector], size: int) -> Vector:
    return np.sum(values, axis=0, dtype=np.float32) if values else np.zeros(size, np.float32)


def mean(model: Vector) -> dict[str, float]:
    return {"mean": float(model.mean())}


async def server(node: Node, p: Params) -> None:
    model = np.zeros(8, np.float32)
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Model(model))
            got = await node.gather((Sealed, Stated), node.clients)
            kept = [m.values for m in got.values() if isinstance(m, Stated)]
            real = [m for m in got.values() if isinstance(m, Sealed)]
            kept += await node.compute("open", opened, real, model.size, cost_s=OPEN_S * len(got))
            model = total(kept, model.size)
            node.report(parameters=model, evaluate=mean, received=len(got), largest=float(model.max()))


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Model, node.server)
            values = node.rng.standard_normal(8).astype(np.float32)
            if p.seal != "declared":
                noisy = p.seal == "noisy"
                node.send(node.server, Sealed(await node.compute("seal", sealed, values, noisy, cost_s=SEAL_S,
                                                                 volatile=noisy and p.logged)))
            else:
                await node.compute("seal", len, values, cost_s=SEAL_S)
                node.send(node.server, Stated(values, Declared(SEALED - values.nbytes)))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Model, Sealed, Stated),
                deterministic=repeats)
