"""The privacy that a run has really spent, from the report of each round and the clients that were seen in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from emul.primitives.privacy import ldp
from emul.protocols.mp_dp.settings import Settings
from emul.roles import Analysis, Realised


def spent(mus: Mapping[int, float], sent: Iterable[tuple[int, str]],
          late: Mapping[tuple[int, str], float] | None = None) -> dict[str, float]:
    """{client: mu of all rounds in which it sent a message}. mus: round -> mu, of rounds of which something was
    seen; sent: (round, client); late: mu of those messages of which more was seen than of the round's others."""
    own: dict[str, list[float]] = {}
    for place in sorted(set(sent) | set(late or ())):
        seen = [mus[place[0]]] if place[0] in mus else []
        seen += [late[place]] if late and place in late else []
        if seen:
            own.setdefault(place[1], []).append(max(seen))
    return {client: ldp.composed(values) for client, values in own.items()}


def spendings(s: Settings, mu: float, run: Realised, sent: Iterable[tuple[int, str]], rounds: int,
              nominal: bool, late: Mapping[tuple[int, str], float] | None = None) -> Analysis:
    """Epsilon of the costliest round, and of the client that has spent most. mu: planned of a round; what came of it
    the server has reported. sent: (round, client) where something of a client was seen; late: as of `spent`."""
    found, name = Analysis(), "nominal_epsilon" if nominal else "epsilon"
    mus = {round_: float(one) for (round_, _), one in run.reported("mu").items() if one is not None}
    each, worst = spent(mus, sent, late), max([*mus.values(), *(late or {}).values()], default=None)
    entries: dict[str, tuple[float, Any]] = {
        f"{name}_of_a_round": (mu, worst),
        f"{name}_in_total": (ldp.composed([mu] * rounds), max(each.values(), default=None))}
    for key, (planned, came) in entries.items():
        value = ldp.epsilon(s.delta, planned)
        found[key] = value if came is None else (value, ldp.epsilon(s.delta, came))
    return found
