"""FedYogi: FedAdam whose second moment moves by squares alone. Reddi et al., ICLR 2021, Algorithm 2."""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: fedyogi
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedyogi, deadline: 1 s}]
stop: {rounds: 3}
"""

SCHEME = Variant(of="fedadam", fixed={"second": "yogi"}, example=EXAMPLE)
