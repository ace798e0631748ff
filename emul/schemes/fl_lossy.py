"""Federated averaging over links that fail: the mean of what arrived. The baseline of arXiv 2507.07565, section IX."""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("fl_lossy", "uplink: 500 ms")

SCHEME = Variant(of="fl_private", fixed={"lambda_": 0.0, "ldp_delta": 1e-5}, example=EXAMPLE)
