"""FoolsGold: clients whose histories are too much alike count as one attacker. Fung, Yoon, Beschastnikh, RAID 2020.

FedAvg with `aggregate: foolsgold`; the rule, and where it differs from the authors' code, stand in
`emul.primitives.robust.foolsgold`. The server keeps a sum of updates for every client: it knows who sends what.

Protects: the model from clients that send much alike (sybils). Not: updates from the server.
"""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: foolsgold
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: foolsgold, deadline: 1 s}]
stop: {rounds: 3}
"""

SCHEME = Variant(of="fedavg", fixed={"aggregate": "foolsgold", "weights": "uniform"}, example=EXAMPLE)
