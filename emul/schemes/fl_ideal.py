"""Federated averaging without outages: what the other schemes are measured against.

The outages of the scenario are taken out of the network for this scheme; latencies and bandwidths stay.
"""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("fl_ideal", "uplink: 500 ms")

SCHEME = Variant(
    of="fl_private", fixed={"lambda_": 0.0, "ldp_delta": 1e-5}, ideal_links=True, example=EXAMPLE)
