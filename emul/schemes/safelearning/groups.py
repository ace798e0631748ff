"""Groups that nobody chooses: drawn once from a seed to which server and clients have all contributed.

    commitment = H(seed_S);   seed = H(seed_S, nonces in the order of the clients);   order of the clients: H(seed, i)

The server commits before it sees a nonce, so it cannot pick a seed for the groups that it wants; but it can leave out
clients whose nonces it has seen, and so try a few draws. H: SHA-256.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

import numpy as np

from emul.primitives.crypto.graphs import Closed

NONCE_BYTES = 16


def commitment(secret: bytes) -> bytes:
    """H(seed_S), 32 bytes."""
    return sha256(b"emul groups commit" + secret).digest()


def group_seed(secret: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """The seed of a draw, 32 bytes. nonces: {client: 16 bytes}."""
    return sha256(b"emul groups seed" + secret + b"".join(
        i.to_bytes(4, "little") + nonces[i] for i in sorted(nonces))).digest()


def draw_groups(seed: bytes, clients: Sequence[int], size: int) -> list[list[int]]:
    """Groups of `size` or more, as equal as can be, each ascending. All in one if there are fewer than 2 `size`."""
    order = sorted(clients, key=lambda i: sha256(seed + i.to_bytes(4, "little")).digest())
    parts = np.array_split(np.array(order, np.int64), max(1, len(order) // size))
    return [sorted(part.tolist()) for part in parts]


def joined(seed: bytes, groups: Sequence[Sequence[int]], partners: int) -> Closed:
    """A_i: the group of i, and partners anywhere: each client draws so many, and is one of those that drew it."""
    # Drawn, and not at fixed offsets in the order of the groups: such a graph falls apart in more than half of the
    # rounds in which 4 groups of 10 are left out, and a part without the others gives its sum away
    # (`test_A18_the_low_parts_hold_together_without_the_groups_that_are_left_out`).
    order = [i for group in groups for i in group]
    near: dict[int, set[int]] = {i: set(group) for group in groups for i in group}
    rng = np.random.Generator(np.random.Philox(key=int.from_bytes(seed[:16], "little")))
    for i in order:
        others = [j for j in order if j not in near[i]]
        count = min(partners, len(others))
        chosen = [others[int(at)] for at in rng.choice(len(others), count, replace=False)] if count else []
        for j in chosen:
            near[i].add(j)
            near[j].add(i)
    return {i: frozenset(members) for i, members in near.items()}


# --- rules that find suspicious groups of clients by the means of their updates alone -------------------------------
# (G, d) -> (G,) bool.
#
# A group with one attacker is wholly suspicious: with many attackers few groups are clean. These rules take the median
# group as the measure, so they need more clean groups than others; with 20 attackers among 100 clients in groups of 10,
# one group in ten is clean, and no such rule finds it.

Detector = Callable[[np.ndarray, float], np.ndarray]

_LEAST_SPREAD = 1e-12               # of groups that are all alike, none is an outlier


def no_group(means: np.ndarray, limit: float) -> np.ndarray:
    """No group."""
    return np.zeros(len(means), bool)


def distance(means: np.ndarray, limit: float) -> np.ndarray:
    """Those farther from the coordinate-wise median of the groups than the median distance and `limit` MADs."""
    return _beyond(np.linalg.norm(means - np.median(means, axis=0), axis=1), limit)


def norm(means: np.ndarray, limit: float) -> np.ndarray:
    """Those whose mean is longer than the median length and `limit` MADs."""
    return _beyond(np.linalg.norm(means, axis=1), limit)


def cosine(means: np.ndarray, limit: float) -> np.ndarray:
    """Those whose angle to the coordinate-wise median, as 1 - cosine, is larger than the median's and `limit` MADs."""
    centre = np.median(means, axis=0)
    lengths = np.linalg.norm(means, axis=1) * max(float(np.linalg.norm(centre)), _LEAST_SPREAD)
    return _beyond(1 - means @ centre / np.maximum(lengths, _LEAST_SPREAD), limit)


def _beyond(scores: np.ndarray, limit: float) -> np.ndarray:
    """Scores above the median by more than `limit` times the median absolute deviation."""
    centre = np.median(scores)
    spread = max(float(np.median(np.abs(scores - centre))), _LEAST_SPREAD)
    return np.asarray(scores - centre > limit * spread)


DETECTORS: dict[str, Detector] = {"none": no_group, "distance": distance, "norm": norm, "cosine": cosine}
