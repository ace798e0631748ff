"""CoGC: Fair-SecCoGC without keys. Weng et al., arXiv 2404.00780 and 2507.05230.

Relays and server see the updates themselves; rounds fail exactly as with keys.

Protects: nothing: the server and relays see updates and sums of them.
"""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("cogc", "s: 2, share: 200 ms, uplink: 500 ms", topology="star_mesh, clients: 5")

SCHEME = Variant(
    of="fair_seccogc",
    fixed={"lambda_": 0.0, "keys": "pairwise", "construction": "fair_cyclic", "gamma": None, "setup_s": None,
        "training": "own", "zeta": None, "ldp_delta": 1e-5},
    example=EXAMPLE)
