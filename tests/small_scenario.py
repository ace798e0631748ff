"""The scenario of tests that only need one: two schemes, three clients, lossy links, a fraction of a second."""

SMALL = """\
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
task:
  data: {set: digits}
  partition: iid
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}
compute: {mode: zero}
schemes: [fedavg, {name: secagg, threshold: 2}]
stop: {rounds: 2}
"""
