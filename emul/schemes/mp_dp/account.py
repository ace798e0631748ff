"""The privacy that a run has really spent: in each round by the clients that took part, and in all together."""

from __future__ import annotations

import math

from emul.primitives.dp import theta
from emul.primitives.dp.graph import Edges
from emul.protocols.mp_dp.account import spendings
from emul.protocols.mp_dp.settings import Settings
from emul.roles import Analysis, Realised


def mu_of_round(s: Settings, edges: Edges, survivors: list[int], sigma_eta: float, sigma_delta: float) -> float | None:
    """sqrt(theta) of those that were heard; None without noise."""
    found = math.sqrt(theta(edges, survivors, sigma_eta, sigma_delta, s.sensitivity))
    return found if math.isfinite(found) else None


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
