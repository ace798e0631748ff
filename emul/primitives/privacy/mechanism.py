"""The Gaussian mechanism: an update of bounded norm, and noise. Dwork and Roth 2014, appendix A."""

from __future__ import annotations

import numpy as np

from emul.primitives.means import clipped
from emul.primitives.privacy import ldp, lmip


def noisy(update: np.ndarray, clip: float | None, lambda_: float, rng: np.random.Generator) -> np.ndarray:
    """Y = Delta + n, n i.i.d. N(0, lambda^2 I): (d,) float32. Delta is clipped to the norm `clip` first; None: it is
    not. lambda = 0 draws nothing."""
    kept = clipped(update, clip)
    if not lambda_:
        return kept
    return kept + np.float32(lambda_) * rng.standard_normal(update.size, dtype=np.float32)


def leakage_of_update(lambda_: float, clip: float | None, delta: float, rounds: int, sent: int) -> dict[str, object]:
    """The information that noisy updates give to whoever hears them, for an `analysis`: bits per coordinate of an
    update that spreads as its noise does, and epsilon at `delta`, "unbounded" for updates that are not clipped. lambda_
    is above 0.

    Epsilon of one update, and of a client's updates together: in all `rounds`, and in as many as the client `sent` one
    in that took part most often. Each has fresh noise, so their mu add in squares; what is lost on a link counts, since
    it was on the air.
    """
    bits = {"lmip_update_bits": lmip.message(lambda_, lambda_)}
    if clip is None:
        return bits | dict.fromkeys(("ldp_update_epsilon", "ldp_update_run_epsilon"), "unbounded")
    mu = ldp.peer_mu(clip, lambda_)
    most, realised = (ldp.epsilon(delta, ldp.composed([mu] * n)) for n in (rounds, sent))
    return bits | {"ldp_update_epsilon": ldp.epsilon(delta, mu), "ldp_update_run_epsilon": (most, realised)}
