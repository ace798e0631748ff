"""Local SGD: peers train alone for H steps, then all take the mean of their models. Stich, ICLR 2019, Algorithm 1."""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: local_sgd
seed: 7
topology: {generator: complete, peers: 4}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 5, batch: 16}}}
compute: {mode: zero}
schemes: [{name: local_sgd, how: tree, timeout: 10 s}]
stop: {rounds: 3}
"""

SCHEME = Variant(of="diloco", fixed={"rate": 1.0, "momentum": 0.0}, example=EXAMPLE)
