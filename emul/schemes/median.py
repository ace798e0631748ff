"""The coordinate-wise median of the updates. Yin, Chen, Kannan, Bartlett, ICML 2018, Algorithm 1, option I.

The mean of the two middle values where their number is even.

Protects: the model from malicious updates of fewer than half of the clients. Not: updates from the server.
"""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: median
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: median, deadline: 1 s}]
stop: {rounds: 3}
"""

SCHEME = Variant(of="fedavg", fixed={"aggregate": "median", "weights": "uniform"}, example=EXAMPLE)
