"""SecCoGC: as Fair-SecCoGC, with keys of Construction III.1. Weng et al., arXiv 2507.07565, 2025.

The keys add to zero, but the last client's has about K - 1 times the power of the others': the scheme is not fair.
They are no keys of pairs, so a dealer makes them: a node of the kind `dealer`, or the second server.
"""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("seccogc", "s: 2, share: 200 ms, uplink: 500 ms, setup: 1 s",
                  topology="star_mesh, clients: 5, servers: 2")

SCHEME = Variant(
    of="fair_seccogc", fixed={"construction": "random", "gamma": None, "training": "own"},
    defaults={"keys": "dealer"}, example=EXAMPLE)
