"""An audit of a run whose scheme hides its inputs: whether the sums are exact, and whether too much was given away.

It reads the arrays that the nodes kept because the scenario asks for an `audit`; `emul.protocols.audit` says which.
`wrong_sums` compares sums with inputs, element by element; `both_revealed` looks for clients of whom both secrets were
given away.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

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
