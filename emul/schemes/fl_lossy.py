"""Federated averaging over links that fail: the mean of what arrived. The baseline of arXiv 2507.07565, section IX."""

VARIANT_OF = "fl_private"
FIXED = {"lambda_": 0.0, "ldp_delta": 1e-5}
