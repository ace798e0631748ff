"""The outer step of replicas that train alone for a while: Nesterov's momentum along the mean of their differences.

    Delta = (1/n) sum_m Delta_m;  b <- mu b + Delta;  theta <- theta - eta (Delta + mu b)

as torch's SGD(nesterov=True) has it. Douillard et al., arXiv 2311.08105, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from emul.roles import Vector


def nesterov(model: Vector, momentum: Vector, updates: Vector, n: int, rate: float, mu: float,
             ) -> tuple[Vector, Vector]:
    """(theta, b) after the step, (d,) float32 each. updates: the sum of -Delta_m over n peers. rate: eta."""
    delta = updates / np.float32(-n)
    momentum = np.float32(mu) * momentum + delta
    return model - np.float32(rate) * (delta + np.float32(mu) * momentum), momentum
