"""The coordinate-wise median of the updates. Yin, Chen, Kannan, Bartlett, ICML 2018, Algorithm 1, option I.

The mean of the two middle values where their number is even.

Protects: the model from malicious updates of fewer than half of the clients. Not: updates from the server.
"""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("median", "deadline: 1 s")

SCHEME = Variant(of="fedavg", fixed={"aggregate": "median", "weights": "uniform"}, example=EXAMPLE)
