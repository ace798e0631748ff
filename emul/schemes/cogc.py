"""CoGC: Fair-SecCoGC without keys. Weng et al., arXiv 2404.00780 and 2507.05230.

Relays and server see the updates themselves; rounds fail exactly as with keys.
"""

VARIANT_OF = "fair_seccogc"
FIXED = {"lambda_": 0.0, "keys": "pairwise", "construction": "fair_cyclic", "gamma": None, "setup_s": None,
         "training": "own", "zeta": None, "ldp_delta": 1e-5}
