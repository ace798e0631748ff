"""Counts of the clients' values, summed behind pairwise masks: federated analytics, without a model.

    client k    x_k = counts of its values (+ noise)                in Z_2^32, behind masks (`emul.protocols.pairwise`)
    server      sum over U3 of x_k, as signed numbers

With `epsilon` each client adds to each count the difference of two Polya variables, NB(1 / t, 1 - alpha) with alpha =
exp(-epsilon), t the threshold of the sum. Those of t clients add up to a two-sided geometric variable, P(z) ~
alpha^|z|. One sample changes one count by 1, so that this is epsilon-private (Ghosh et al., STOC 2009; Goryczka and
Xiong, TDSC 2017). Nobody but the clients draws noise, and no sum of fewer than t is seen. More than t survivors add
more noise than is needed; clients that tell the server their own noise take their share of it away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emul.base.errors import NotDecodable, ProtocolViolation
from emul.learning import NodeTask
from emul.learning.data import BUILT_IN
from emul.primitives.crypto.graphs import complete
from emul.protocols.pairwise.client import contribute
from emul.protocols.pairwise.messages import (
    AdvertiseKeys,
    KeyRing,
    Masked,
    Reveal,
    Shared,
    Sharers,
    Shares,
    Unmask,
)
from emul.protocols.pairwise.rules import PairwiseRules
from emul.protocols.pairwise.server import secure_sum
from emul.protocols.sums import cohort_size, refusing_client, wrong_cohort
from emul.roles import Message, Node, World, checks

MESSAGES = (AdvertiseKeys, KeyRing, Shares, Shared, Sharers, Masked, Unmask, Reveal)    # and what opens a round
MOST_BINS = 1 << 20

LABELS = "labels"


@dataclass(frozen=True)
class Counting:
    """Parameters of a scheme that counts."""

    of: str = LABELS                        # the counted values: the labels, or a column of whole numbers of the data
    epsilon: float | None = None            # of one sample that is there or not, in one round; None: no noise
    threshold: int | None = None            # t, clients that a sum needs; None: floor(2n/3) + 1
    stage_deadline_s: float | None = None   # of each stage; None: until the fates are known
    verify_spare: bool = False              # shares beyond t are held against the others
    fraction: float = 1.0                   # of the clients, drawn each round


def rules_of(p: Counting, clients: int) -> PairwiseRules:
    """The rules that server and clients have agreed on."""
    t = p.threshold if p.threshold is not None else 2 * cohort_size(p.fraction, clients) // 3 + 1
    return PairwiseRules(t, p.stage_deadline_s, verify_spare=p.verify_spare)


# (a node's values, what the server asked) -> counts (bins,) int64
Count = Callable[[np.ndarray, Any], np.ndarray]


async def counting_client(node: Node, p: Counting, ask: type[Message], accept: Callable[[Any], None], count: Count,
                          ) -> None:
    """Rounds of a client that is asked by an `ask`."""
    rules = rules_of(p, len(node.clients))

    async def take_part() -> None:
        asked = await node.recv(ask, node.server, timeout_s=rules.patience_s, accept=accept)

        async def counted() -> tuple[np.ndarray, int]:
            found: tuple[np.ndarray, int] = await node.compute("count", own_counts, node.task, p, rules.t, count, asked,
                                                               node.stream("noise"))
            return found

        await contribute(node, rules, counted, in_ring)

    await refusing_client(node, take_part)


def own_counts(task: NodeTask, p: Counting, t: int, count: Count, asked: Any, rng: np.random.Generator,
               ) -> tuple[np.ndarray, int]:
    """(x_k (bins,) int64, number of samples)."""
    values = task.values(p.of)
    counts = count(values, asked)
    return (counts if p.epsilon is None else counts + polya(p.epsilon, t, counts.shape, rng)), len(values)


def polya(epsilon: float, t: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """A client's share of the noise, int64: t of these add up to a two-sided geometric variable."""
    stays = -math.expm1(-epsilon)                       # 1 - alpha
    return rng.negative_binomial(1 / t, stays, shape) - rng.negative_binomial(1 / t, stays, shape)


def in_ring(counts: np.ndarray, samples: int) -> tuple[np.ndarray, float]:
    """As the masks want it: modulo 2^32; nothing is clipped."""
    return (counts % (1 << 32)).astype(np.uint32), 0.0


async def summed_counts(node: Node, p: Counting, ask: Message, bins: int) -> tuple[np.ndarray, list[int]]:
    """At the server: (sum of x_k (bins,) int64, of whom). Raises TooFewClients below the threshold, and NotDecodable,
    `inconsistent_sets`, for shares that make no secret."""
    cohort, sets = node.sample(node.clients, p.fraction), dict[str, list[int]]()
    try:
        total, _ = await secure_sum(node, cohort, complete, rules_of(p, len(node.clients)), ask, bins, sets)
    except ProtocolViolation as e:
        raise NotDecodable(str(e)) from e
    return total.view(np.int32).astype(np.int64), sets["U3"]


def values_of(node: Node, p: Counting, clients: list[int]) -> Callable[[], np.ndarray]:
    """For the observer: the values that these clients hold together."""
    numbers = [node.clients.index(k) for k in clients]
    return partial(_values, node.task, p.of, numbers)


def _values(task: NodeTask, of: str, numbers: list[int]) -> np.ndarray:
    return np.concatenate([task.values(of, number) for number in numbers])


def wrong_counting(p: Counting, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = wrong_cohort(p.fraction, world) + checks.epsilons(epsilon=p.epsilon)
    errors += checks.times(stage_deadline=p.stage_deadline_s)
    if p.of != LABELS and (world.task.get("data") or {}).get("set") in BUILT_IN:
        errors.append(f'of = "{p.of}": expected {LABELS}: the built-in data sets have no columns')
    if errors:
        return errors
    n = cohort_size(p.fraction, world.clients)
    t = rules_of(p, world.clients).t
    return [] if 2 <= t <= n else [f"threshold = {t}: expected 2..{n}, the clients of a round"]
