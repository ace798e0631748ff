"""`emul.roles.example`: the base of every scheme's example, and what a scheme states otherwise."""

import yaml

from emul.registry import schemes
from emul.roles.example import example, lossy


def test_what_is_given_stands_in_the_place_of_the_bases_and_nothing_else_changes() -> None:
    base, other = (yaml.safe_load(text) for text in (example("fedavg", "deadline: 1 s"), example(
        "ifca", topology="star_mesh, clients: 3", bandwidth="1 Mbit/s",
        links=(lossy("*->server2", p=0.5, per="message"),),
        task=("clusters: {rotate: [0, 90]}",), model="digits_classic", solver="lr: 1, epochs: 2", rounds=9,
        sections="faults:\n  - {node: client2, at: 1 s, crash: true}\n")))
    assert other == base | {
        "name": "ifca", "schemes": ["ifca"], "stop": {"rounds": 9},
        "topology": {"generator": "star_mesh", "clients": 3},
        "links": [{"match": "*", "latency": "20 ms", "bandwidth": "1 Mbit/s"},
                  {"match": "*->server2", "outage": {"model": "bernoulli", "p": 0.5, "per": "message"}}],
        "task": base["task"] | {"clusters": {"rotate": [0, 90]}, "model": "digits_classic",
                                "solver": {"sgd": {"lr": 1, "epochs": 2}}},
        "faults": [{"node": "client2", "at": "1 s", "crash": True}]}


def test_no_line_of_a_schemes_example_is_too_long_to_print() -> None:
    texts = {name: schemes.find(name).example for name in schemes.known()}
    assert {name for name, text in texts.items() if max(map(len, text.splitlines()), default=0) > 120} == set()
