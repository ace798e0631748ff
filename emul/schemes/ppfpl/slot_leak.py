"""Does what a server decrypts say more than the sums that it is entitled to? A look at every slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.roles.evidence import Evidence, Needs, Rows
from emul.schemes.ppfpl.verifier_view import PAYLOADS, seen_by_verifier

BELOW = 0.08                            # of a rank correlation over 4,096 slots: five standard deviations of none


@dataclass(frozen=True)
class SlotLeak:
    """Every slot of every ciphertext that PPFPL's verifier gets, against the prototypes that it hides. A mask as long
    as a vector, and not as its ciphertext, leaves copies of it bare. Against a naive use of TenSEAL 0.3.18, which
    repeats short vectors; Zhang et al., arXiv 2504.03173, 2025, do not mention it.

    The attacker holds what the verifier has: its key (of a run with `he: ckks` keep `Keys`, too) and what it got. With
    `layout: per_class` it gets sums as one number in all slots, so only what carries prototypes is looked at.
    """

    NEEDS: ClassVar[Needs] = Needs(payloads=PAYLOADS, schemes=("ppfpl",))

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: message, client, row; correlation, distinct (share of slots), leaks."""
        packed, verifier = evidence.params.layout == "packed", evidence.names[evidence.roles["verifier"][0]]
        return [{"node": verifier, "round": one.round, "message": one.message, "client": one.client, "row": one.row,
                 **leakage(one.slots, one.secret)}
                for one in seen_by_verifier(evidence) if packed or one.message == "prototypes"]


def leakage(slots: np.ndarray, secret: np.ndarray) -> dict[str, float | bool]:
    """Measures of the information in decrypted slots (n,) about the secret behind them: the largest rank correlation
    with the secret (n,) or its square, by its size; the share of slots that differ from all others; whether either says
    that something leaks.

    >>> mask = np.random.default_rng(0).uniform(-2**20, 2**20, 4096)
    >>> secret = np.random.default_rng(1).standard_normal(4096)
    >>> leakage(secret + mask, secret)["leaks"]
    False
    >>> leakage(secret + np.where(np.arange(4096) < 64, mask, 0), secret)["leaks"]
    True
    """
    ranks = np.argsort(np.argsort(slots)).astype(np.float64)
    correlation = max(abs(_correlation(ranks, secret)), abs(_correlation(ranks, secret**2)))
    distinct = len(np.unique(np.round(slots, 6))) / len(slots)
    return {"correlation": correlation, "distinct": distinct, "leaks": bool(correlation > BELOW or distinct < 1)}


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if not (a.std() and b.std()):
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
