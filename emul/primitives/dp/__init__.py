"""Differential privacy of a sum whose noise many draw together: laws of noise, and the exact guarantee of a round."""

from emul.primitives.dp.accounting import largest_mu, sampled_epsilon, sigma_over_sensitivity
from emul.primitives.dp.graph import complete, components, laplacian, n_out, sigma_pairwise, theta

__all__ = ["complete", "components", "laplacian", "largest_mu", "n_out", "sampled_epsilon", "sigma_over_sensitivity",
           "sigma_pairwise", "theta"]
