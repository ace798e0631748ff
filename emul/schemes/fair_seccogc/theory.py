"""The theory of Fair-SecCoGC, beside the values that a run has measured. Weng et al., arXiv 2507.07565, corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from emul.primitives.privacy import ldp, lmip
from emul.roles import Analysis, Realised, Setting
from emul.schemes.fair_seccogc import outage, secure_keys
from emul.schemes.fair_seccogc.group import Design, gradient_code, key_generator

OBSERVERS = ("outsider", "peer", "partial_sum", "server", "outsider_run", "peer_run", "partial_sum_run")
ANALYSED_CLIENTS = 100              # beyond, the analysis leaves out what grows with their square and more


def reliability(design: Design, setting: Setting, *, replicated: bool, send_incomplete: bool, rowspace: bool,
                ) -> Analysis:
    """Outages of rounds, transmissions in updates of d elements, convergence.

    Exact for links that fail independently of each other and without deadlines; downlinks are taken as reliable.
    replicated: clients share nothing, for they hold each other's data. rowspace: the decoder uses incomplete sums.
    """
    names, hub = setting.roles["client"], setting.roles["server"][0]
    K, G = len(names), gradient_code(design, len(names), setting.seed)
    connected = np.ones((K, K)) if replicated else hearing(G, setting)
    uplinks = [1 - setting.outage(name, hub) for name in names]
    pi = outage.complete(G, connected).tolist()
    P_O = outage.outage_probability(pi, uplinks, design.s)
    events = outage.failure_events(pi, uplinks, design.s)
    cost = outage.cost(np.eye(K) if replicated else G, pi, P_O, send_incomplete)
    gap, gap2 = outage.gaps(P_O)
    found: Analysis = {
        "outage_probability": P_O if rowspace else (P_O, "failed"),             # rowspace: an upper bound
        "outage_by_sharing": events.sharing, "outage_by_uplinks": events.uplinks, "outage_by_both": events.both,
        "successes": (setting.rounds * (1 - P_O), "rounds"),
        "rounds_per_success": gap, "rounds_per_success_squared": gap2,
        "complete_arrived_per_round": (sum(c * q for c, q in zip(uplinks, pi, strict=True)), "complete"),
        "shared_per_round": (cost.sharing, "messages.Masked"),
        "uplinks_per_round": (cost.uplink, "messages.PartialSum"),
        "downlinks_per_round": (cost.downlink, "messages.Model"),
        "transmissions_per_success": cost.per_success(P_O) + K,
        "transmissions_per_success_broadcast": (cost.broadcast + cost.uplink) / max(1 - P_O, 1e-300) + K,
    }
    if not replicated and design.code != "fractional" and K <= ANALYSED_CLIENTS:
        found["transmissions_per_success_by_s"] = by_s(connected_everywhere(setting, names), uplinks)
    if setting.steps:
        a, b = outage.convergence(K, setting.rounds, setting.steps, P_O)
        found |= {"convergence_initial_gap_factor": a, "convergence_variance_factor": b}
    return found


def hearing(G: np.ndarray, setting: Setting) -> np.ndarray:
    """(K, K) probability that relay k hears client m where it needs it, else 1."""
    names, found = setting.roles["client"], np.ones(G.shape)
    for k, m in zip(*np.nonzero(G), strict=True):
        if k != m:
            found[k, m] = 1 - setting.outage(names[m], names[k])
    return found


def connected_everywhere(setting: Setting, names: Sequence[str]) -> np.ndarray:
    """(K, K) probability that client k hears client m, 1 on the diagonal."""
    return np.array([[1.0 if k == m else 1 - setting.outage(m, k) for m in names] for k in names])


def by_s(connected: np.ndarray, uplinks: Sequence[float]) -> dict[str, float]:
    """Sharing and uplinks per recovered update for each s of a cyclic code, in updates of d elements."""
    K, found = len(connected), {}
    for s in range(1, K):
        G = np.array([[float((m - k) % K <= s) for m in range(K)] for k in range(K)])
        pi = outage.complete(G, connected).tolist()
        P_O = outage.outage_probability(pi, uplinks, s)
        found[str(s)] = outage.cost(G, pi, P_O, False).per_success(P_O)
    return found


def privacy(design: Design, setting: Setting, run: Realised | None, *, zeta: float | None, clip: float | None,
            delta: float) -> Analysis:
    """Bits per coordinate and round (LMIP), and epsilon at `delta` if updates are clipped, else "unbounded".

    zeta: standard deviation of an update per coordinate; None: that of a key. The peer is client 0, which hears its
    right neighbour or everybody; the relay is client 0, and what is asked about there is the client with its largest
    coefficient. The server sees all sums of a success. `_run`: an observer of all rounds, each with fresh keys: who
    hears that client in every round, and, by `run`, in those in which its message came to client 0; None: that is not
    known. Above ANALYSED_CLIENTS: nothing.
    """
    names = setting.roles["client"]
    K = len(names)
    if not design.lambda_ or K > ANALYSED_CLIENTS:
        return {}
    G, A = gradient_code(design, K, setting.seed), key_generator(design, K, setting.seed)
    hears, Sigma = hearing(G, setting)[0].tolist(), secure_keys.covariance(A)
    zeta = design.lambda_ if zeta is None else zeta
    knows: lmip.Knowledge = ("everything" if design.keys == "common_seed" else
                             "key" if design.keys == "dealer" else "components")
    j = int(np.argmax(np.abs(np.where(np.arange(K) == 0, 0.0, G[0])))) or 1
    found: Analysis = {
        "lmip_outsider_bits": hears[j] * lmip.message(zeta, math.sqrt(Sigma[j, j])),
        "lmip_peer_bits": lmip.peer_leak(A, 0, [1], 1, zeta, knows),
        "lmip_peer_hearing_all_bits": lmip.peer_leak(A, 0, range(1, K), 1, zeta, knows),
        "lmip_partial_sum_bits": lmip.mean_partial_sum(G[0], Sigma, zeta, j, hears),
        "lmip_server_bits": lmip.leak(G, Sigma, zeta, j),
        "lmip_mean_bits": lmip.exact_mean(K),
    }
    if clip is None:
        return found | dict.fromkeys((f"ldp_{who}_epsilon" for who in OBSERVERS), "unbounded")
    peer = math.sqrt(max(0.0, float(lmip.peer_view(A, 0, knows)[1, 1])))
    mu = {"outsider": ldp.peer_mu(clip, math.sqrt(Sigma[j, j])), "peer": ldp.peer_mu(clip, peer)}
    found |= {f"ldp_{who}_epsilon": ldp.epsilon(delta, value) for who, value in mu.items()}
    found |= {"ldp_partial_sum_epsilon": ldp.mixture_epsilon(delta, ldp.relay_mixture(G[0], Sigma, hears, j, clip)),
              "ldp_server_epsilon": ldp.epsilon(delta, ldp.joint_mu(G, Sigma, j, clip))}
    every = {who: [value] * max(1, setting.rounds) for who, value in mu.items()}
    happened = {} if run is None else {
        "outsider": [mu["outsider"]] * heard(run, names[j], names[0]),
        "peer": [mu["peer"]] * heard(run, names[1], names[0]),
        "partial_sum": [ldp.sum_mu(row, Sigma, j, clip) for row in sums(run, G[0], setting)]}
    return found | over_the_run(every, happened, delta)


def over_the_run(every: Mapping[str, Sequence[float]], happened: Mapping[str, Sequence[float]], delta: float,
                 ) -> Analysis:
    """Epsilon of an observer of all rounds together: as if it had heard in every one, and by what happened."""
    foretold, came = ({who: ldp.epsilon(delta, ldp.composed(mus)) for who, mus in of.items()}
                      for of in (every, happened))
    return {f"ldp_{who}_run_epsilon": (foretold.get(who), came[who]) if who in came else foretold[who]
            for who in {**foretold, **came}}


def heard(run: Realised, source: str, relay: str) -> int:
    """Rounds in which the masked update of `source` came to `relay` in time."""
    return sum(source in sources for sources in run.heard("Masked", relay).values())


def sums(run: Realised, row: np.ndarray, setting: Setting) -> list[np.ndarray]:
    """(K,) coefficients of each partial sum of client 0 that came to the server: of whom it had heard, and its own."""
    names, hub = setting.roles["client"], setting.roles["server"][0]
    came, relayed = run.heard("Masked", names[0]), run.heard("PartialSum", hub)
    return [row * np.array([k == 0 or name in came.get(round_, ()) for k, name in enumerate(names)])
            for round_, relays in relayed.items() if names[0] in relays]
