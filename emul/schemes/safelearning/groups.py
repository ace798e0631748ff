"""Groups that nobody chooses: drawn once from a seed to which server and clients have all contributed.

    commitment = H(seed_S);   seed = H(seed_S, nonces in the order of the clients);   order of the clients: H(seed, i)

The server commits before it sees a nonce, so it cannot pick a seed for the groups that it wants; but it can leave out
clients whose nonces it has seen, and so try a few draws. H: SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def joined(seed: bytes, groups: Sequence[Sequence[int]], partners: int, placed: str = "random") -> Closed:
    """A_i: the group of i, and partners anywhere: each client draws so many, and is one of those that drew it.

    placed: random over all clients; ring: at fixed offsets in the order of the groups, which falls apart when groups
    are left out.
    """
    order = [i for group in groups for i in group]
    near: dict[int, set[int]] = {i: set(group) for group in groups for i in group}
    rng = np.random.Generator(np.random.Philox(key=int.from_bytes(seed[:16], "little")))
    size, n = len(groups[0]) if groups else 0, len(order)
    for place, i in enumerate(order):
        if placed == "ring":
            chosen = [order[(place + size * step) % n] for step in range(1, partners + 1)]
        else:
            others = [j for j in order if j not in near[i]]
            count = min(partners, len(others))
            chosen = [others[int(at)] for at in rng.choice(len(others), count, replace=False)] if count else []
        for j in chosen:
            near[i].add(j)
            near[j].add(i)
    return {i: frozenset(members) for i, members in near.items()}
