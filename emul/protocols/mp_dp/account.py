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
    found = math.sqrt(theta(edges, survivors, sigma_eta, sigma_delta, s.bound))
    return found if math.isfinite(found) else None


def spent(mus: Mapping[int, float], sent: Iterable[tuple[int, str]]) -> dict[str, float]:
    """{client: mu of all rounds in which it sent a message}. mus: round -> mu, of rounds of which something was
    seen; sent: (round, client)."""
    own: dict[str, list[float]] = {}
    for round_, client in sorted(set(sent)):
        if round_ in mus:
            own.setdefault(client, []).append(mus[round_])
    return {client: ldp.composed(values) for client, values in own.items()}


def account(s: Settings, run: Realised, rounds: int) -> Analysis:
    """Preset, guarantee, and (what was planned, what it came to) per round and in total. Where nothing is guaranteed
    the numbers are called nominal: what they would be if the noise were Gaussian and all blocks had it."""
    found: Analysis = {"preset": s.preset, "guarantee": s.guarantee, "delta": s.delta}
    if s.mu is None:
        return found
    kind = "Masked" if s.masks == "ring" else "Blocks"
    return found | spendings(s, s.mu, run, ((round_, source) for round_, source, _ in run.sent(kind)), rounds,
                             nominal=bool(s.flaws()))


def spendings(s: Settings, mu: float, run: Realised, sent: Iterable[tuple[int, str]], rounds: int,
              nominal: bool) -> Analysis:
    """Epsilon of the costliest round, and of the client that has spent most. mu: planned of a round; what came of it
    the server has reported. sent: (round, client) where something of a client was seen."""
    found, name = Analysis(), "nominal_epsilon" if nominal else "epsilon"
    mus = {round_: float(one) for (round_, _), one in run.reported("mu").items() if one is not None}
    each = spent(mus, sent)
    entries: dict[str, tuple[float, Any]] = {
        f"{name}_of_a_round": (mu, max(mus.values(), default=None)),
        f"{name}_in_total": (ldp.composed([mu] * rounds), max(each.values(), default=None))}
    for key, (planned, came) in entries.items():
        value = ldp.epsilon(s.delta, planned)
        found[key] = value if came is None else (value, ldp.epsilon(s.delta, came))
    return found
