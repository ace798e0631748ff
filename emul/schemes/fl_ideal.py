"""Federated averaging without outages: what the other schemes are measured against.

The outages of the scenario are taken out of the network for this scheme; latencies and bandwidths stay.
"""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: fl_ideal
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fl_ideal, uplink: 500 ms}]
stop: {rounds: 3}
"""

SCHEME = Variant(
    of="fl_private", fixed={"lambda_": 0.0, "ldp_delta": 1e-5}, ideal_links=True, example=EXAMPLE)
