"""Whatever a scenario says in any of its sections: what `check` accepts, a run of one round without training accepts.

Scenarios are drawn from a seed: sound sections, now and then with a value that may be wrong in its place. Neither the
check nor the run ends with anything but an error of emul's own. `EMUL_FUZZ_SECONDS=300` gives the long search its time,
`EMUL_FUZZ_SEED=1000000` another first seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from torch import set_grad_enabled

import emul
from emul import engine
from emul.base.errors import RunError, ScenarioError
from emul.record.journal import MemoryJournal
from emul.registry import schemes
from emul.scenario import load
from emul.scenario.params import scenario_keys
from emul.workers.twin import Twin

ODD = [None, True, False, 0, 1, 2, 3, -1, 7, 10**9, 10**30, 0.5, 1.0, -0.5, 1e-300, 1e300, float("nan"), "", "x",
       "none", "0", "1 s", "1 ns", "20 ms", "-1 s", "1 MB", "20 Mbit/s", "client1", "client*", "@g", "server", [], [1],
       ["x"], [[1]], {}, {"x": 1}, {"uniform": {}}, {"top_k": {"fraction": 0.1}}, "qsgd", "median", {"krum": {"f": 1}},
       "infinite", "*", "a->b", "1..2"]


MOVING = Path(__file__).resolve().parents[1] / "scenarios" / "moving"


def one(*choices: Any) -> Callable[[random.Random], Any]:
    return lambda r: r.choice(choices)


TOPOLOGIES = one({"generator": "star", "clients": 4}, {"generator": "star_mesh", "clients": 4, "servers": 3},
                 {"generator": "star_mesh", "clients": 3}, {"generator": "complete", "peers": 4},
                 {"generator": "grid", "rows": 2, "columns": 3, "roles": {"server": ["n1"], "client": {"rule": "all"}}},
                 {"generator": "star", "clients": 1}, {"generator": "complete", "peers": 1})
OUTAGES = one("none", {"model": "bernoulli", "p": 0.2, "per": "round"}, {"model": "gilbert", "p": 0.1, "r": 0.5},
              {"model": "on_off", "up": "1 s", "down": "100 ms"}, {"model": "bernoulli", "p": 1},
              {"model": "fading", "coherence": "10 ms", "snr": "10 dB", "spectral_efficiency": 2})
LINK = {
    "latency": one("20 ms", 0, {"mean": "20 ms", "jitter": "5 ms"}, "1 h"),
    "bandwidth": one("20 Mbit/s", "infinite", "1 bit/s"),
    "outage": OUTAGES, "overhead": one({"preset": "ipv4_tcp"}, {"bytes": 28, "mtu": "1472 B"}),
    "transport": one("datagram", "reliable", {"tcp": {}}),
    "sharing": one("fifo", "maxmin", "connections", "tcp_fifo"), "queue": one("unlimited", {"packets": 10}),
    "switching": one("store_and_forward", "cut_through", {"packetized": "1 kB"}), "medium": one("cell")}
SECTIONS: dict[str, Callable[[random.Random], Any]] = {
    "traffic": one([{"link": "client1->server", "rate": "1 Mbit/s"}], [{"flow": "client1->server", "greedy": 2}],
                   [{"link": "*", "messages": {"every": {"exponential": "50 ms"}, "size": "10 kB"}}]),
    "media": one({"cell": {"efficiency": 0.7}}),
    "groups": one([{"name": "g", "fraction": 0.5, "speed": 2}],
                  [{"name": "g", "match": "client1", "device": "laptop"}]),
    "nodes": one([{"match": "client*", "speed": 0.5}], [{"match": "client1", "speed": {"lognormal": 0.5}}]),
    "devices": one({"nodes": [{"match": "*", "device": "laptop", "battery": 100}]},
                   {"nodes": [{"match": "client*", "link": "lte"}]}),
    "faults": one([{"at": "50 ms", "node": "client1", "crash": True}],
                  [{"at": 0, "node": "client1", "leave": True, "for": "1 s"}],
                  [{"at": "10 ms", "link": "client1->server", "down": True, "for": "50 ms"}],
                  [{"churn": {"match": "client*", "up": "1 s", "down": "200 ms"}}],
                  [{"node": "client1", "stage": "Update"}],
                  [{"at": 0, "node": "server", "crash": True}], [{"at": 0, "node": "client1", "slow": 3}]),
    "attacks": one([{"nodes": {"fraction": 0.3}, "update": "sign_flip"}],
                   [{"nodes": ["client1"], "update": {"name": "gaussian"}}]),
    "fuse": one(2, {"clients": 2, "lanes": 1}), "evaluation": one({"every": 2}, {"scope": "per_client"}),
    "record": one({"models": 1}, {"payloads": ["Update"]}),
    "limits": one({"max_message": "1 kB", "max_unread": 1}, {"max_unread": 3}),
    "network": one({"record": False}), "workers": one({"timeout": "5 s"}, {"patience": "1 min"}),
    "compute": one({"mode": "zero", "memory": "1 GiB"}, {"mode": "measured"}, {"mode": "profile", "default": "1 ms"}),
    "sweep": one({"grid": {"links[0].latency": ["1 ms", "2 ms"]}, "seeds": "0:2"}, {"schemes": ["fedavg"]}),
    "contacts": one({"file": str(MOVING / "passes.csv")}, {"step": "10 s"}),
    "radio": one({"places": str(MOVING / "office_places.csv"), "rates": {"table": "lte_10", "power": "16 dBm"}})}
TASK = {
    "partition": one("iid", {"dirichlet": 0.5}, {"classes": 2}, {"shards": 2}, {"bootstrap": 20}, {"sizes": "linear"}),
    "model": one("logistic", "digits_mlp", "digits_classic"),
    "solver": one({"sgd": {"lr": 0.1, "steps": 1, "batch": 8}}, {"adam": {"lr": 0.01, "epochs": 1, "batch": 8}},
                  {"sgd": {"lr": 0.1, "steps": 2, "batch": 8, "momentum": 0.9}}),
    "root": one({"samples": 20}), "clusters": one({"rotate": [0, 90]}), "objective": one("cross_entropy")}


def entry(r: random.Random, name: str) -> dict[str, Any]:
    """A scheme with the parameters of its example, some of them others."""
    example = load(emul_example(name), check=False).schemes[0][1]
    params = schemes.find(name).params
    found = {"name": name, **example}
    keys = scenario_keys(params)
    if keys and r.random() < 0.25:
        found[r.choice(list(keys))] = r.choice(ODD)
    for key, field in keys.items():
        if key == "real_up_to":             # a wish for minutes of real encryption is no fault
            continue
        if isinstance(field.default, int | float) and not isinstance(field.default, bool) and r.random() < 0.1:
            value = found.get(key, field.default)
            if isinstance(value, int | float):
                found[key] = r.choice([value + 1, value * 2, value // 2, 1, 10**6, -value])
    return found


def located(tree: Any) -> Any:
    """The same with the names of the files of `MOVING` as they are found from anywhere."""
    if isinstance(tree, dict):
        return {key: located(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [located(value) for value in tree]
    return str(MOVING / tree) if isinstance(tree, str) and (MOVING / tree).is_file() else tree


def emul_example(name: str) -> dict[str, Any]:
    return YAML(typ="safe").load(schemes.find(name).example)


def drawn(r: random.Random) -> dict[str, Any]:
    """A scenario: an example of a scheme or one of other sections, and at times a value that may be wrong."""
    name = r.choice(sorted(schemes.known()))
    tree = emul_example(name)
    if r.random() < 0.1:                # contacts, radio and places need files that belong together
        whole = located(YAML(typ="safe").load(MOVING / r.choice(["office.yaml", "passes.yaml", "bus.yaml"])))
        tree = {**whole, "schemes": [entry(r, name)]}
        for _ in range(r.choice([0, 1, 1, 3])):
            spoil(r, tree)
        return {**tree, "stop": {"rounds": 1, "virtual_time": "100 s"}}
    tree["schemes"] = [entry(r, name)]
    if r.random() < 0.4:
        tree["topology"] = TOPOLOGIES(r)
    if r.random() < 0.6:
        tree["links"] = [{"match": "*", "latency": "20 ms", "bandwidth": "20 Mbit/s"}]
        tree["links"].append({"match": r.choice(["*", "client*->*", "client1<->server"]),
                              **{key: make(r) for key, make in LINK.items() if r.random() < 0.12}})
    for key, make in SECTIONS.items():
        if r.random() < 0.1:
            tree[key] = make(r)
    for key, make in TASK.items():
        if r.random() < 0.1:
            tree["task"][key] = make(r)
    if r.random() < 0.3:
        spoil(r, tree)
    tree["stop"] = {"rounds": 1, "virtual_time": "100 s"}
    return tree


def spoil(r: random.Random, tree: Any) -> None:
    """Another value, or none, somewhere below."""
    while True:
        places = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not places:
            return
        key = r.choice(places)
        if isinstance(tree[key], dict | list) and tree[key] and r.random() < 0.8:
            tree = tree[key]
            continue
        if r.random() < 0.2:
            del tree[key]
        else:
            tree[key] = r.choice(ODD)
        return


class TooSlowError(Exception):
    """The check or the run took more CPU time than any of these should."""


@pytest.fixture(autouse=True)
def torch() -> None:
    """Loaded before the clock of a scenario runs: an import that is cut off cannot be begun again."""
    import torch._dynamo
    import torch.func  # noqa: F401


def tried(seed: int, seconds: int = 30) -> str:
    """The fate of a seed's scenario: "refused", "failed" or "ran". Whatever else comes out is a fault of emul's."""
    tree = drawn(random.Random(seed))

    def late(*_: object) -> None:
        raise TooSlowError(json.dumps(tree, default=str))
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)       # CPU time: whatever else the machine does
    try:
        try:
            scenario = emul.check(tree, set={"training": "skip"}).scenario
        except ScenarioError:
            try:
                scenario = emul.check(tree).scenario            # with training, where the scheme needs it
            except ScenarioError:
                return "refused"
        name, raw = scenario.schemes[0]
        if name == "flower":                    # its apps are guests with threads of their own
            return "refused"
        wiring = engine.wire(scenario, name, raw)
        try:
            engine.execute(wiring, Twin(), MemoryJournal(engine.header(wiring)))
        except RunError as error:
            if "Traceback" in str(error):       # of a role: the check should have seen what it cannot bear
                raise
            return "failed"
        return "ran"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        set_grad_enabled(True)              # the signal may have come as a block without gradients was left


@pytest.mark.parametrize("seed", range(3))
def test_what_check_accepts_runs(seed: int) -> None:
    tried(seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_check_accepts_runs_over_all_sections() -> None:
    """As many scenarios as fit into the time, each of its own seed: a fault names it."""
    end = time.monotonic() + float(os.environ.get("EMUL_FUZZ_SECONDS", "20"))
    came: dict[str, int] = {"refused": 0, "failed": 0, "ran": 0}
    first = int(os.environ.get("EMUL_FUZZ_SEED", "0"))
    for seed in range(first, first + 10**6):
        if time.monotonic() > end:
            break
        try:
            came[tried(seed)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    assert came["refused"], (seed, came)
    assert came["ran"], (seed, came)
