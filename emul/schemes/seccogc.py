"""SecCoGC: as Fair-SecCoGC, with keys of Construction III.1. Weng et al., arXiv 2507.07565, 2025.

The keys add to zero, but the last client's has about K - 1 times the power of the others': the scheme is not fair.
They are no keys of pairs, so a dealer makes them: a node of the kind `dealer`, or the second server.
"""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: seccogc
seed: 7
topology: {generator: star_mesh, clients: 5, servers: 2}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: seccogc, s: 2, share: 200 ms, uplink: 500 ms, setup: 1 s}]
stop: {rounds: 3}
"""

SCHEME = Variant(
    of="fair_seccogc", fixed={"construction": "random", "gamma": None, "training": "own"},
    defaults={"keys": "dealer"}, example=EXAMPLE)
