"""Federated averaging without outages: what the other schemes are measured against.

The outages of the scenario are taken out of the network for this scheme; latencies and bandwidths stay.
"""

VARIANT_OF = "fl_private"
FIXED = {"lambda_": 0.0, "ldp_delta": 1e-5}
LINKS = "ideal"
