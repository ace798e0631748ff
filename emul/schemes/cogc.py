"""CoGC: Fair-SecCoGC without keys. Weng et al., arXiv 2404.00780 and 2507.05230.

Relays and server see the updates themselves; rounds fail exactly as with keys.

Protects: nothing: the server and relays see updates and sums of them.
"""

from emul.roles import Variant

EXAMPLE = """
emul: 1
name: cogc
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: cogc, s: 2, share: 200 ms, uplink: 500 ms}]
stop: {rounds: 3}
"""

SCHEME = Variant(
    of="fair_seccogc",
    fixed={"lambda_": 0.0, "keys": "pairwise", "construction": "fair_cyclic", "gamma": None, "setup_s": None,
        "training": "own", "zeta": None, "ldp_delta": 1e-5},
    example=EXAMPLE)
