"""The common parts of schemes that sum quantised updates modulo a number: cohort, coding, the rounds of both sides.

    server      Begin to the cohort U0; sum, U <- what its engine finds; w <- w + mean of the sum over U
    client      trains from w, codes its update, and leaves a round in which it is asked for what it must not tell

Bytes of the arrays in each message, without its header: Begin 4 d.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from emul.base.errors import NotDecodable, ProtocolFailure, ProtocolViolation
from emul.base.plain import PlainDict
from emul.learning import NodeTask
from emul.primitives.quantise import RING, Quantiser, QuantiserOverflow, SumOfUpdates
from emul.protocols.audit import keep_sum
from emul.protocols.demands import Refused
from emul.roles import Message, Node, Received, Vector, World, checks

Seen = dict[str, Any]               # the report of a round, as it goes: numbers, and sets, whose sizes are told
# (U0, w, what has been seen) -> (sum of x_i, (d',); of whom), and fills what has been seen
Find = Callable[[list[int], Vector, Seen], Awaitable[tuple[np.ndarray, list[int]]]]


@dataclass(frozen=True)
class Begin(Message):
    """Server to client: the round is open."""

    model: Vector                   # (d,) float32


MESSAGES = (Begin,)


# Declared once for all schemes that use the protocol, whose `Params` inherit it: seven secure sums declared the same
# parameters, and a default that changes in one of them is a bug that no test of a single scheme finds
# (`test_what_the_scenarios_that_come_along_resolve_to`).
@dataclass(frozen=True)
class QuantisedSum:
    """Parameters of such a scheme."""

    stage_deadline_s: float | None = None   # of each stage; None: until the fates are known
    bits: int = 16                          # of a quantised value
    clip: float = 1.0                       # values of an update outside [-clip, clip] are cut, and counted
    fraction: float = 1.0                   # of the clients, drawn each round
    # hold the shares or answers beyond those that are needed against the others: codes wait for all of them
    verify_spare: bool = False
    audit: bool = False                     # leave inputs, sums and what was revealed in the run directory


@dataclass(frozen=True)
class WeightedSum(QuantisedSum):
    """With weights in the mean."""

    # "samples" sends n_k x_k and n_k: it needs sum n_k (2^bits - 1) below the modulus, hence the default
    weights: Literal["samples", "uniform"] = "uniform"


def cohort_size(fraction: float, clients: int) -> int:
    """n = |U0|, as `node.sample` draws it."""
    return max(1, round(fraction * clients))


def codec(p: WeightedSum, clients: int, modulus: int = RING) -> SumOfUpdates:
    """The coding of the updates of a round as vectors of the ring or field."""
    return SumOfUpdates(Quantiser(p.clip, p.bits), cohort_size(p.fraction, clients), modulus, p.weights == "samples")


# --- rounds -----------------------------------------------------------------------------------------------------------

@dataclass
class State:
    model: Vector


async def summing_server(node: Node, find: Find, sums: SumOfUpdates, *, fraction: float, audit: bool) -> None:
    """Rounds of a server that adds the mean of what it finds to its model. A round that fails keeps the model.

    sums: how updates are coded. fraction: of the clients, drawn each round. audit: sums are kept in the run directory.
    """
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            seen: Seen = {}
            try:
                U0 = node.sample(node.clients, fraction)
                total, included = await find(U0, s.model, seen)
                if audit:
                    keep_sum(node, total, included, sums.modulus)
                s.model = await node.compute("aggregate", sums.add_mean, s.model, total, len(included),
                                             work=total.size)
            except ProtocolViolation as e:              # of what clients have revealed, which makes no sum
                node.report(parameters=s.model, **sizes(seen))
                raise NotDecodable(str(e)) from e
            except ProtocolFailure:
                node.report(parameters=s.model, **sizes(seen))
                raise
            node.report(parameters=s.model, **sizes(seen))


def sizes(seen: Mapping[str, Sequence[int] | int]) -> PlainDict:
    """The report of a round: the numbers, then of the sets their sizes."""
    numbers = {name: found for name, found in seen.items() if isinstance(found, int)}
    return numbers | {name: len(found) for name, found in seen.items() if not isinstance(found, int)}


async def refusing_client(node: Node, take_part: Callable[[], Awaitable[None]]) -> None:
    """Rounds of a client, which keeps nothing between them. It leaves one that violates the protocol: Refused."""
    async for round_ in node.rounds(of=node.server):
        with round_:
            try:
                await take_part()
            except ProtocolViolation as e:
                raise Refused(str(e)) from e


def honest_update(task: NodeTask, received: Received, j: int) -> Vector:
    """`Scheme.honest`: what the training of an honest client j gives, before it is quantised and hidden."""
    update: Vector = task.local_update(received[Begin].model)[0]
    return update


# --- parameters -------------------------------------------------------------------------------------------------------

def wrong_cohort(fraction: float, world: World) -> list[str]:
    """The mistakes in the clients of a round, if anything: then nothing else can be judged."""
    if not 0 < fraction <= 1:
        return checks.fractions(fraction=fraction)
    n = cohort_size(fraction, world.clients)
    return [f"fraction = {fraction}: draws {n} of {world.clients} clients, a sum needs at least 2"] if n < 2 else []


def wrong_coding(p: QuantisedSum, n: int, modulus: int = RING) -> list[str]:
    """Mistakes in deadline and quantiser for n clients a round."""
    errors, most = checks.times(stage_deadline=p.stage_deadline_s), (modulus - 1).bit_length()
    if not p.clip > 0:
        errors.append(f"clip = {p.clip}: expected a number above 0")
    elif not 1 <= p.bits <= most:
        errors.append(f"bits = {p.bits}: expected 1..{most}")
    else:
        try:
            Quantiser(p.clip, p.bits).check_sum(n, modulus)
        except (QuantiserOverflow, ValueError) as e:
            errors.append(f"bits = {p.bits}: {e}")
    return errors
