"""What a scheme that hides its inputs leaves for an auditor: off the clock, in the run directory, if `audit` is asked.

    input-R             x_i of round R, at each client: what it has put into the sum, as it was before it was hidden
    sum-R, included-R   at the server: the sum that it found, and of which clients
    modulus-R           at the server: of the ring or field
    weights-R           at the server, if the sum is weighted: the whole factor of each of `included`
    pad-R               at the server, if another node opens the sum for it, and keeps `sum-R`: what hides it there
    revealed-R          at each client: (owner, kind) of the shares that it gave away, (m, 2); see `Revealed`

`wrong_sums` compares sums with inputs, element by element; `both_revealed` looks for clients of whom both secrets were
given away. Any scheme may leave these, whatever its protocol is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from emul.base.errors import EmulError
from emul.roles import Node

Arrays = Mapping[tuple[str, str], np.ndarray]      # (node, name of the array) -> array


# words that say why a round was given up; what a scheme says in other words is found by `_SAID`
REASONS = ("too_few_clients", "too_few_neighbours", "too_few_shares", "too_few_sequences", "undecodable", "empty_group",
           "all_rejected", "inconsistent_sets", "bad_ciphertext", "quantiser_overflow", "bad_parameters")
_SAID = ((r"shares of the|too few shares", "too_few_shares"), (r"clients answered, \d+ of them around",
         "too_few_neighbours"), (r"clients answered|NothingToReceive|TimedOut", "too_few_clients"))


def reason(why: str) -> str:
    """One of REASONS, from why a round was left; "" if it was not given up; "other" for what nobody knows.

    >>> reason("TooFewClients: unmask: 7 shares of the self mask of client1, threshold t = 8")
    'too_few_shares'
    """
    if not why:
        return ""
    for word in REASONS:
        if word in why:
            return word
    return next((word for pattern, word in _SAID if re.search(pattern, why)), "other")


class AuditFailed(EmulError):
    """Both secrets of one client were revealed: its input is no secret any more. Ends the run."""


def keep_input(node: Node, x: np.ndarray) -> None:
    """A client leaves what it has put into this round's sum: (d',) whole numbers."""
    node.keep(f"input-{node.round}", x)


def keep_sum(node: Node, total: np.ndarray, included: Sequence[int], modulus: int) -> None:
    """The server leaves the sum of this round, (d',) whole numbers below `modulus`, and whose inputs are in it."""
    node.keep(f"sum-{node.round}", total)
    node.keep(f"included-{node.round}", np.array(included, np.int64))
    node.keep(f"modulus-{node.round}", np.array([modulus], np.int64))


def keep_weighted(node: Node, weights: Mapping[int, int], asked: bool) -> None:
    """The server leaves whose inputs are in a sum that another node opens, and how many times: {client: factor}.

    Of signed integers, all of them below 2^61. asked: whether an audit was, here and below.
    """
    if asked:
        node.keep(f"included-{node.round}", np.array(list(weights), np.int64))
        node.keep(f"weights-{node.round}", np.array(list(weights.values()), np.int64))
        node.keep(f"modulus-{node.round}", np.array([1 << 62], np.int64))


def keep_pad(node: Node, pad: np.ndarray, asked: bool) -> None:
    """The server leaves what it has added to the sum, (d',), before another node opens it."""
    if asked:
        node.keep(f"pad-{node.round}", pad)


def keep_opened(node: Node, total: np.ndarray, asked: bool) -> None:
    """Who opens a sum for the server leaves it as it is there, behind the pad: (d',)."""
    if asked:
        node.keep(f"sum-{node.round}", total)


def keep_revealed(node: Node, revealed: Iterable[tuple[int, int]]) -> None:
    """A client leaves whose shares it has given away in this round: (owner, kind of secret)."""
    node.keep(f"revealed-{node.round}", np.array(sorted(revealed), np.int64).reshape(-1, 2))


def wrong_sums(arrays: Arrays, names: Sequence[str], server: str = "server") -> dict[int, int]:
    """{round: elements of the sum that are not the sum of the inputs of `included`}, of all rounds with a sum.

    names: of the nodes by number. 0 everywhere: each sum is exact in all elements.
    """
    found = {}
    for where, name in arrays:
        what, _, round_ = name.partition("-")
        if what == "sum":
            modulus = int(arrays[server, f"modulus-{round_}"][0])
            pad = arrays.get((server, f"pad-{round_}"), np.zeros(1, np.int64)).astype(object)
            total = (arrays[where, name].astype(object) - pad) % modulus
            members = arrays[server, f"included-{round_}"]
            weights = arrays.get((server, f"weights-{round_}"), np.ones(len(members), np.int64))
            inputs = [arrays[names[i], f"input-{round_}"].astype(object) * weight
                      for i, weight in zip(members.tolist(), weights.tolist(), strict=True)]
            right = sum(inputs, np.zeros(len(total), object)) % modulus
            found[int(round_)] = int((total != right).sum()) if len(right) == len(total) else len(total)
    return dict(sorted(found.items()))


def both_revealed(arrays: Arrays, t: int) -> list[tuple[int, int, int]]:
    """[(round, owner, vector)] of clients of whom t shares or more of both secrets of one vector were given away.

    Kinds are numbered 2 v for the mask key and 2 v + 1 for the self mask of vector v.
    """
    counts: Counter[tuple[int, int, int]] = Counter()
    for (_, name), rows in arrays.items():
        what, _, round_ = name.partition("-")
        if what == "revealed":
            counts.update((int(round_), owner, kind) for owner, kind in rows.tolist())
    known = {key for key, count in counts.items() if count >= t}
    return sorted({(round_, owner, kind // 2) for round_, owner, kind in known if (round_, owner, kind ^ 1) in known})


class Revealed:
    """What a server has been given in one round: of nobody may both secrets of a vector be there."""

    def __init__(self, t: int, names: Sequence[str]):
        self._t, self._names = t, names
        self._holders: dict[tuple[int, int], set[int]] = {}

    def note(self, holder: int, owner: int, kind: int) -> None:
        """A share came. kind: as for `both_revealed`. Raises AuditFailed."""
        self._holders.setdefault((owner, kind), set()).add(holder)
        if min(len(self._holders.get((owner, k), ())) for k in (kind, kind ^ 1)) >= self._t:
            raise AuditFailed(f"audit: {self._t} shares of both secrets of {self._names[owner]} were revealed")
