"""Gradient coding: client k holds the data of all of U_k and trains s + 1 models. Tandon et al., ICML 2017.

Nothing goes from client to client, so a round fails only if more than s uplinks do; the price is s + 1 times the
computation and that clients hold each other's data. All holders of a share of the data train the same model of it.

Protects: nothing: the server and relays see updates and sums of them.
"""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("gc", "s: 2, uplink: 500 ms", topology="star_mesh, clients: 5")

SCHEME = Variant(
    of="fair_seccogc",
    fixed={"training": "replicated", "lambda_": 0.0, "keys": "pairwise", "construction": "fair_cyclic", "gamma": None,
        "send_incomplete": False, "decoder": "complete", "share_s": None, "setup_s": None, "zeta": None,
        "ldp_delta": 1e-5, "rekey_after": None, "rekey_at": ()},
    example=EXAMPLE)
