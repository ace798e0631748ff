"""What a run of MP-DP has really spent: each round by who took part in it, and all of them together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from emul.primitives.dp import theta
from emul.primitives.dp.graph import Edges
from emul.primitives.privacy import ldp
from emul.protocols.mp_dp.settings import Settings
from emul.roles import Analysis, Realised


def mu_of_round(s: Settings, edges: Edges, survivors: list[int], sigma_eta: float, sigma_delta: float) -> float | None:
    """sqrt(theta) of those that were heard; None without noise."""
    found = math.sqrt(theta(edges, survivors, sigma_eta, sigma_delta, s.sensitivity))
    return found if math.isfinite(found) else None


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


def late_ones(s: Settings, run: Realised, kind: str, clients: int) -> dict[tuple[int, str], float]:
    """{(round, client): mu} of messages that came although their sender was said to have dropped out, and the server
    was told the noise of its pairs, or of some of them: of survivors it then asks for shares or seeds."""
    mu = s.mu_late(s.cohort(clients))
    if s.repair == "off" or not mu:
        return {}
    asked = {"shamir": "Unmask", "seeds": "Dropped"}[s.repair]
    heard = {(round_, target) for round_, _, target in run.sent(asked)}
    rounds = {round_ for round_, _ in heard}
    came = {(round_, source) for round_, source, _ in run.arrived(kind) | run.late(kind) if round_ in rounds}
    return dict.fromkeys(came - heard, mu)


def account(s: Settings, run: Realised, rounds: int, clients: int) -> Analysis:
    """Preset, guarantee, and (what was planned, what it came to) per round and in total. Where nothing is guaranteed
    the numbers are called nominal: what they would be if the noise were Gaussian and all blocks had it."""
    found: Analysis = {"preset": s.preset, "guarantee": s.guarantee, "delta": s.delta}
    if s.mu is None:
        return found
    kind = "Masked" if s.repair == "shamir" else "Blocks"
    return found | spendings(s, s.mu, run, ((round_, source) for round_, source, _ in run.sent(kind)), rounds,
                             nominal=bool(s.flaws()), late=late_ones(s, run, kind, clients))


def spendings(s: Settings, mu: float, run: Realised, sent: Iterable[tuple[int, str]], rounds: int,
              nominal: bool, late: Mapping[tuple[int, str], float] | None = None) -> Analysis:
    """Epsilon of the costliest round, and of the client that has spent most. mu: planned of a round; what came of it
    the server has reported. sent: (round, client) where something of a client was seen; late: of `late_ones`."""
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
