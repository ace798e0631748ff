"""docs/studies/split.md: its sweeps are sound, and its numbers are computed as it says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import document, split
from emul.network import build
from emul.scenario import load

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("network", split.NETWORKS)
@pytest.mark.parametrize("kind", split.KINDS)
def test_every_sweep_is_a_sound_scenario_of_so_many_clients(network: str, kind: str) -> None:
    asked = split.KINDS[kind]
    scenario = load(ROOT / split.NETWORKS[network], asked.sets(network))
    assert len(scenario.schemes) == len(asked.schemes)
    assert scenario.stop.accuracy == split.TARGET
    assert scenario.compute.mode == "profile"
    network_of = build(scenario.topology, scenario.link_rules, 0, joined=scenario.equipment)
    assert len(network_of.roles["client"]) == asked.clients


def test_a_batch_is_what_lies_between_the_first_two_that_client1_sends() -> None:
    sent = [("client1", "server", "Turn", 0.0, 7), ("client1", "server", "Activations", 1.0, 100),
            ("client2", "server", "Activations", 1.5, 999), ("server", "client1", "Gradients", 2.0, 90),
            ("client1", "server", "Activations", 3.5, 100), ("server", "client1", "Gradients", 4.0, 90)]
    messages = pd.DataFrame([{"source_name": a, "target_name": b, "type": kind, "sent_ns": int(s * 1e9),
                              "wire_bytes": size} for a, b, kind, s, size in sent])
    assert split.batch(messages) == {"batch_s": 2.5, "batch_bytes": 190}
    assert split.batch(messages[messages["type"] == "Turn"]) == {}


def test_the_closed_form_adds_latencies_sizes_over_the_rate_and_computations() -> None:
    """By the profile 32 samples take 3.4 ms forward, 0.84 ms at the top and 6.6 ms backward."""
    assert split.closed_form("splitfed", 10.0, 50_000) == pytest.approx(0.020 + 0.020 + 0.01084)
    near, far = (split.closed_form("u_split", latency_ms, 50_000) for latency_ms in (1.0, 10.0))
    assert far - near == pytest.approx(4 * 0.009)


def rows(**of: list[float]) -> pd.DataFrame:
    """Runs over the star at 1 ms by scheme: seconds on seeds 0, 1, ...; negative: the target was not reached."""
    return pd.DataFrame([{"network": split.STAR, "latency_ms": 1.0, "scheme": scheme, "seed": seed,
                          "virtual_s": abs(value), "accuracy": 0.9 if value > 0 else 0.5}
                         for scheme, values in of.items() for seed, value in enumerate(values)])


def test_a_mean_is_of_the_seeds_that_reached_the_target_and_says_how_many_did() -> None:
    found = split.table(rows(fedavg=[1, 2, 3], u_split=[4, -9, 8], vertical=[-1, -1, -1]), "virtual_s")
    assert found.splitlines()[-1] == "| 1 ms | 2 [1, 3] | 6 [4, 8], 2 of 3 | 0 of 3 |"


def test_the_page_says_what_its_rows_say() -> None:
    page = document.read(split.PAGE)
    assert split.filled(page, pd.read_csv(split.DATA)) == page, "make it anew: python -m benchmarks.split"
