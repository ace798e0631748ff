"""Local SGD: peers train alone for H steps, then all take the mean of their models. Stich, ICLR 2019, Algorithm 1."""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("local_sgd", "how: tree, timeout: 10 s", topology="complete, peers: 4", links=(), partition="iid",
                  solver="lr: 0.1, steps: 5, batch: 16")

SCHEME = Variant(of="diloco", fixed={"rate": 1.0, "momentum": 0.0}, example=EXAMPLE)
