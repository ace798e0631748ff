"""SecCoGC: as Fair-SecCoGC, with keys of Construction III.1. Weng et al., arXiv 2507.07565, 2025.

The keys add to zero, but the last client's has about K - 1 times the power of the others': the scheme is not fair.
They are no keys of pairs, so a dealer makes them: the second server, or a node of the role `dealer`.
"""

VARIANT_OF = "fair_seccogc"
FIXED = {"construction": "random", "gamma": None, "training": "own"}
DEFAULTS = {"keys": "dealer"}
