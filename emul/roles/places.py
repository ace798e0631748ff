"""The place of a role, as text: a place of `PLACES`, or of `places` in a scenario.

    server                  every node of the kind server that the topology has
    server[1]               the second of them, in the order of the topology
    dealer | server[1]      the first of these that the topology has
    server2                 in a scenario: the node of this name
"""

from __future__ import annotations

import re

_TERM = re.compile(r"\s*([^\[\]|\s](?:[^\[\]|]*[^\[\]|\s])?)(?:\[(\d{1,9})\])?\s*")


def terms(place: str) -> list[tuple[str, int | None]]:
    """(name, number) of what a place names, the first choice first. Raises ValueError where it is none.

    >>> terms("dealer | server[1]")
    [('dealer', None), ('server', 1)]
    """
    found = []
    for term in place.split("|"):
        match = _TERM.fullmatch(term)
        if match is None:
            raise ValueError('expected a place such as "server", "server[0]" or "dealer | server[1]"')
        found.append((match[1], None if match[2] is None else int(match[2])))
    return found


def default_place(role: str) -> str:
    """The place of a role if its scheme does not say: the first server, or every node of the role's own name."""
    return "server[0]" if role == "server" else role


def wrong_place(place: object) -> str:
    """The mistake in a place, as it was written; "" if nothing is."""
    try:
        terms(place if isinstance(place, str) else "")
    except ValueError as error:
        return str(error)
    return ""
