"""FedAdagrad: the server's steps shrink by all that a coordinate has moved. Reddi et al., ICLR 2021, Algorithm 2."""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: fedadagrad
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedadagrad, deadline: 1 s}]
stop: {rounds: 3}
"""

SCHEME = Variant(
    of="fedadam", fixed={"second": "adagrad"}, defaults={"rate": 0.1, "beta1": 0.0}, example=EXAMPLE)
