"""FedAsync and FedBuff, said as loops, hear the clients in the order in which the schemes do."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from test_loop_as_fedavg import declared, sizes_of_headers

import emul
from emul.loop.scheme import Through, unscoped
from emul.roles import Node

VERSIONS = 12


def scenario(r: random.Random, scheme: dict[str, Any], costs: Path) -> dict[str, Any]:
    """A network of unequal clients that loses a message now and then."""
    links: list[dict[str, Any]] = [{"match": "*", "latency": f"{r.randint(1, 50)} ms", "bandwidth": "5 Mbit/s"}]
    links += [{"match": f"client{k}<->server", "latency": f"{r.randint(5, 300)} ms"} for k in range(1, 6)]
    links.append({"match": "client*->server", "outage": {"model": "bernoulli", "p": 0.04}})
    return {"emul": 1, "name": "same", "seed": r.randrange(1000), "topology": {"generator": "star", "clients": 6},
            "links": links, "nodes": [{"match": "client2", "speed": 0.3}],
            "task": {"data": {"set": "digits"}, "model": "logistic", "solver": {"sgd": {"lr": 0.1, "steps": 1}}},
            "training": "skip", "compute": {"mode": "profile", "file": str(costs)}, "schemes": [scheme],
            "stop": {"rounds": VERSIONS}}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("scheme", [{"name": "fedasync", "rho": 0.0}, {"name": "fedbuff", "buffer": 3}])
def test_updates_come_in_the_order_of_the_scheme(scheme: dict[str, Any], number: int, tmp_path: Path) -> None:
    r = random.Random(number)
    costs = tmp_path / "costs.json"
    prices = {"client/train": [r.uniform(0.05, 0.2), 0], "server/aggregate": [0.003, 0]}
    costs.write_text(json.dumps({"emul_profile": 1, "costs": {
        f"{name}/{key}": price for name in (scheme["name"], "loop") for key, price in prices.items()}}))
    file = scenario(r, scheme, costs)
    run, = emul.run(file, workers=0, out=tmp_path, quiet=True)
    sent, headers = run.messages, sizes_of_headers(file, tmp_path)
    down = declared(int(sent[sent.type == "Model"].payload_bytes.iloc[0]), headers["Model"])
    updates = sent[sent.type == "Update"]
    up = {c: declared(size, headers["Update"])
          for c, size in zip(updates.source_name, updates.payload_bytes.tolist(), strict=True)}

    clock = emul.Clock(file, mode="asynchronous", out=tmp_path)
    idle, came = clock.clients, list[tuple[str, int]]()
    for _ in range(VERSIONS):
        with clock.round() as now:
            for c in idle:
                with now.client(c, down=down) as at:
                    at.up(up.get(c, 0))
            idle = []
            while len(idle) < scheme.get("buffer", 1):
                one = clock.next()
                assert one is not None
                idle.append(one.client)
                came.append((one.client, round(one.time_s * 1e9)))
            idle.sort(key=clock.clients.index)
            with now.server():
                pass
    loop = clock.finish()
    there = updates[updates.fate == "delivered"].sort_values(["arrived_ns", "source"])
    order = list(zip(there.source_name, there.arrived_ns.tolist(), strict=True))
    assert [client for client, _ in came] == [client for client, _ in order][:len(came)]
    assert loop.rounds.left_ns.tolist() == run.rounds.left_ns.tolist()
    assert loop.summary["messages_lost"] == run.summary["messages_lost"]


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("forged", ["another batch", "twice", "another type"])
def test_messages_that_the_loop_has_not_asked_for_are_counted_and_end_nothing(
        forged: str, mode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(message: Any) -> list[Any]:
        if forged == "another batch":
            other = dataclasses.replace(message, batch=message.batch + 7)
            return [unscoped(other) if message.unscoped else other]
        return [message, message] if forged == "twice" else [unscoped(Through()), message]
    broadcast, send = Node.broadcast, Node.send
    monkeypatch.setattr(Node, "broadcast", lambda node, to, message: [broadcast(node, to, m) for m in spoiled(message)])
    monkeypatch.setattr(Node, "send", lambda node, to, message: [send(node, to, m) for m in spoiled(message)])
    clock = emul.Clock({"emul": 1, "name": "forged", "topology": {"generator": "star", "clients": 2},
                        "links": [{"match": "*", "latency": "5 ms", "bandwidth": "5 Mbit/s"}],
                        "compute": {"mode": "zero"}}, mode=mode, seed=1, out=tmp_path)
    for _ in range(2):
        with clock.round() as now:
            for c in clock.clients:
                now.send(c, 1000, up=500)
            heard = now.gather(deadline=2.0)
        assert heard == ([] if forged == "another batch" else clock.clients)
    if mode == "asynchronous":
        assert clock.late() == []
    run = clock.finish()
    reasons = {one["reason"] for one in run.summary["violations"]}
    assert reasons == ({"batch: nothing that the loop has asked for"} if forged == "another batch" or (
        forged, mode) == ("twice", "asynchronous") else set())
