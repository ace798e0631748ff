"""FedAvg, said as a loop, is the scheme `fedavg`: the same times to the nanosecond, the same losses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul

ROUNDS = 5
COLUMNS = ["round", "type", "source_name", "target_name", "sent_ns", "payload_bytes", "wire_bytes", "arrived_ns",
           "fate", "lost_ns", "unread"]


def network(r: random.Random, clients: int, costs: Path) -> dict[str, Any]:
    """A random network with faults, and FedAvg on it."""
    outage = r.choice([None, {"model": "bernoulli", "p": 0.3, "per": "round"}, {"model": "bernoulli", "p": 0.2},
                       {"model": "gilbert_elliott", "p": 0.2, "r": 0.5}])
    links: list[dict[str, Any]] = [{"match": "*", "latency": f"{r.randint(1, 80)} ms",
                                    "bandwidth": f"{r.randint(1, 40)} Mbit/s"}]
    links += [{"match": f"client{k}<->server", "latency": f"{r.randint(1, 300)} ms"} for k in range(1, clients) if
              r.random() < 0.5]
    if outage is not None:
        links.append({"match": r.choice(["*", "client*->server", "server->client*"]), "outage": outage})
    faults: list[dict[str, Any]] = []
    if r.random() < 0.5:
        faults.append({"at": f"{r.randint(0, 900)} ms", "node": "client2", "crash": True,
                       **({"for": f"{r.randint(300, 1500)} ms"} if r.random() < 0.5 else {})})
    if r.random() < 0.3:
        faults.append({"at": f"{r.randint(0, 900)} ms", "node": "client3", "leave": True, "for": "900 ms"})
    if r.random() < 0.3:
        faults.append({"node": "client4", "stage": "Update", "drop": {"p": 0.4, "per": "round"}})
    deadline = r.choice(["none", f"{r.randint(100, 1200)} ms"])
    return {"emul": 1, "name": "same", "seed": r.randrange(1000), "topology": {"generator": "star", "clients": clients},
            "links": links, "faults": faults,
            "nodes": [{"match": "client1", "speed": r.choice([0.1, 0.5, 3])}],
            "task": {"data": {"set": "digits"}, "model": "logistic", "solver": {"sgd": {"lr": 0.1, "steps": 1}}},
            "training": "skip", "compute": {"mode": "profile", "file": str(costs)},
            "schemes": [{"name": "fedavg", "deadline": deadline, "fraction": r.choice([1.0, 0.6])}],
            "stop": {"rounds": ROUNDS}}


def with_more(file: dict[str, Any], number: int) -> dict[str, Any]:
    """Some of the networks with TCP, background traffic, churn, or a group and its device."""
    more: dict[int, dict[str, Any]] = {
        16: {"links": [file["links"][0] | {"transport": {"tcp": {}}, "sharing": "connections"}, *file["links"][1:]]},
        17: {"traffic": [{"link": "client1->server", "rate": "300 kbit/s"}]},
        18: {"faults": [*file["faults"], {"churn": {"match": "client*", "up": {"exponential": "2 s"},
                                                    "down": {"exponential": "300 ms"}}}]},
        19: {"groups": [{"name": "slow", "fraction": 0.5, "speed": 0.5, "link": "lte"}]}}
    return file | more.get(number, {})


def declared(total: int, header: int) -> int:
    """The bytes to declare, so that a message has so many in all. header: of one that declares 1000."""
    for nbytes in range(total - 60, total):
        number = 5 if nbytes > 65535 else 3 if nbytes > 255 else 2 if nbytes > 127 else 1   # MessagePack; 1000: 3
        if header - 3 + number + nbytes == total:
            return nbytes
    raise AssertionError(total)


@pytest.mark.parametrize("number", range(20))
def test_fedavg_by_the_clock_is_the_scheme(number: int, tmp_path: Path) -> None:
    r = random.Random(number)
    costs = tmp_path / "costs.json"
    train, aggregate = [r.uniform(0.01, 0.4), 0.0], [r.choice([0.0, r.uniform(0, 0.1)]), 0.0]
    costs.write_text(json.dumps({"emul_profile": 1, "costs": {
        f"{scheme}/{role}/{label}": cost for scheme in ("fedavg", "loop")
        for role, label, cost in (("client", "train", train), ("server", "aggregate", aggregate))}}))
    file = with_more(network(r, r.randint(4, 6), costs), number)
    run, = emul.run(file, workers=0, out=tmp_path, quiet=True)
    sent = run.messages
    headers = sizes_of_headers(file, tmp_path)
    down = declared(int(sent[sent.type == "Model"].payload_bytes.iloc[0]), headers["Model"])
    updates = sent[sent.type == "Update"]               # the number of samples is longer or shorter
    up = {c: declared(size, headers["Update"])
          for c, size in zip(updates.source_name, updates.payload_bytes.tolist(), strict=True)}
    deadline = file["schemes"][0]["deadline"]
    clock = emul.Clock(file, out=tmp_path)
    for number in range(1, ROUNDS + 1):
        cohort = sent[(sent["round"] == number) & (sent.type == "Model")].target_name
        with clock.round() as now:
            for c in sorted(cohort, key=clock.clients.index):
                with now.client(c, down=down) as at:
                    at.up(up.get(c, 0))
            now.gather(deadline=None if deadline == "none" else int(deadline.split()[0]) / 1000)
            with now.server():
                pass
    loop = clock.finish()
    columns = [name for name in COLUMNS if name in sent]
    assert rows(loop.messages, columns) == rows(sent, columns)
    for name in ("entered_ns", "left_ns"):
        assert loop.rounds[name].tolist() == run.rounds[name].tolist(), name
    assert loop.summary["messages_lost"] == run.summary["messages_lost"]


def rows(messages: Any, columns: list[str]) -> list[tuple[Any, ...]]:
    found = messages[columns].astype(object).where(messages[columns].notna(), None)
    return sorted(map(tuple, found.to_numpy().tolist()), key=str)


def sizes_of_headers(file: dict[str, Any], out: Path) -> dict[str, int]:
    """Type -> bytes of such a message beside 1000 that it declares."""
    clock = emul.Clock({**file, "faults": [], "links": []}, out=out)
    with clock.round() as now:
        with now.client("client1", down=1000) as at:
            at.up(1000)
        now.gather()
    sent = clock.finish().messages
    return {kind: size - 1000 for kind, size in zip(sent.type, sent.payload_bytes.tolist(), strict=True)}


def test_a_message_of_arrays_has_the_size_of_its_encoding(tmp_path: Path) -> None:
    clock = emul.Clock({"emul": 1, "name": "n", "seed": 1, "topology": {"generator": "star", "clients": 1}},
                       out=tmp_path)
    with clock.round() as now:
        with now.client("client1", down={"w": np.zeros((10, 25), np.float32)}) as at:
            at.up([np.zeros(500, np.int8)])
        assert now.gather() == ["client1"]
    sent = clock.finish().messages
    assert (sent.declared_bytes == 0).all()
    assert [1000 < size < 1100 for size in sent.payload_bytes[:1]] == [True]
    assert 500 < sent.payload_bytes.iloc[1] < 600
