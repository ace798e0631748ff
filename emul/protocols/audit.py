"""The arrays that a scheme that hides its inputs leaves for an auditor: off the clock, in the run directory, if `audit`
is asked.

    input-R             x_i of round R, at each client: what it has put into the sum, as it was before it was hidden
    sum-R, included-R   at the server: the sum that it found, and of which clients
    modulus-R           at the server: of the ring or field
    weights-R           at the server, if the sum is weighted: the whole factor of each of `included`
    pad-R               at the server, if another node opens the sum for it, and keeps `sum-R`: what hides it there
    revealed-R          at each client: (owner, kind) of the shares that it gave away, (m, 2); see `Revealed`

`emul.record.audit` reads them after the run. Any scheme may leave these, whatever its protocol is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from emul.base.errors import EmulError
from emul.roles import Node


class AuditFailed(EmulError):
    """Both secrets of one client were revealed: its input is no secret any more. Ends the run."""


def keep_input(node: Node, x: np.ndarray) -> None:
    """A client leaves what it has put into this round's sum: (d',) whole numbers."""
    node.keep(f"input-{node.round}", x)


def keep_sum(node: Node, total: np.ndarray, included: Sequence[int], modulus: int) -> None:
    """The server leaves the sum of this round, (d',) whole numbers below `modulus`, and whose inputs are in it."""
    # All schemes that hide their inputs leave this one form, so one matrix (`emul.study.recovery`) judges them all and
    # knows none. To compare models would not do: means are rounded, and a wrong sum may round to the right one
    # (`test_every_scheme_that_keeps_an_audit_is_never_wrong`).
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
    """A node that opens a sum for the server leaves it as it is there, behind the pad: (d',)."""
    if asked:
        node.keep(f"sum-{node.round}", total)


def keep_revealed(node: Node, revealed: Iterable[tuple[int, int]]) -> None:
    """A client leaves whose shares it has given away in this round: (owner, kind of secret)."""
    node.keep(f"revealed-{node.round}", np.array(sorted(revealed), np.int64).reshape(-1, 2))


class Revealed:
    """The secrets that a server has been given in one round: of nobody may both secrets of a vector be there."""

    def __init__(self, t: int, names: Sequence[str]):
        self._t, self._names = t, names
        self._holders: dict[tuple[int, int], set[int]] = {}

    def note(self, holder: int, owner: int, kind: int) -> None:
        """A share came. kind: as for `both_revealed`. Raises AuditFailed."""
        self._holders.setdefault((owner, kind), set()).add(holder)
        if min(len(self._holders.get((owner, k), ())) for k in (kind, kind ^ 1)) >= self._t:
            raise AuditFailed(f"audit: {self._t} shares of both secrets of {self._names[owner]} were revealed")
