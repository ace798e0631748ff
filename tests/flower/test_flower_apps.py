"""Flower apps from end to end: the same for any number of workers, under loss, on replay, beside emul's schemes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from flower_apps import APPS, accuracies, app, play

from emul.workers.pool import Workers

LINKS = "links=[{match: '*', latency: 10 ms, bandwidth: 10 Mbit/s}]"
LOSSES = "links=[{match: '*', latency: 10 ms, bandwidth: 10 Mbit/s, outage: {model: bernoulli, p: 0.1}}]"
ROUNDS = {"num-server-rounds": 2}
PRIVACY = "server=variants.privacy:server client=variants.privacy:client"
LEGACY = "server=variants.legacy:server client=variants.legacy:client"
ROOT = Path(__file__).resolve().parents[2]
SCHEMES = {
    "sampled": app("quickstart_numpy", **ROUNDS, **{"fraction-train": 0.5}),
    "noise of the server": app("quickstart_numpy", PRIVACY, **ROUNDS),
    "noise of the clients": app("quickstart_numpy", "client=variants.privacy:local_client", **ROUNDS),
    "polling": app("quickstart_numpy", "server=variants.polling:server", **ROUNDS),
    "legacy": app("quickstart_numpy", LEGACY, **ROUNDS),
    "secaggplus": app("secaggplus", **ROUNDS, **{"local-epochs": 1, "timeout": 2.0}),
}


def with_timeout(scheme: str) -> str:
    """The scheme, whose waits have an end even where the app's have none."""
    return scheme.replace('"config"', '"timeout": "2 s", "config"', 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_digests_are_those_of_any_number_of_workers_under_loss(name: str, pools: list[Workers]) -> None:
    """Acceptance 1 of the seam. Ciphertexts of SecAgg+ differ from run to run, lengths, fates and sums do not."""
    ran = [play(with_timeout(SCHEMES[name]), LOSSES, pool=pool) for pool in (None, pools[1])]
    assert len({one.digest for one in ran}) == 1
    assert not ran[0].invariants.violations


def test_clients_draw_different_noise() -> None:
    """From the global generator of NumPy, which is each node's own."""
    ran = play(SCHEMES["noise of the clients"])
    again = play(SCHEMES["noise of the clients"], "seed=8")
    assert accuracies(ran) != accuracies(again)


@pytest.mark.slow
def test_the_older_api_takes_the_time_of_the_newer_one() -> None:
    """Acceptance 4 of the seam: all instructions of a round leave at once; their bytes differ by a few percent."""
    old, new = (play(scheme, LINKS).summary["virtual_seconds"]
                for scheme in (SCHEMES["legacy"], app("quickstart_numpy", **ROUNDS)))
    assert old == pytest.approx(new, rel=0.03)


def test_updates_in_half_precision_are_half_as_long() -> None:
    whole, half = (play(app("quickstart_numpy", client, **{"num-server-rounds": 1})).payloads["TrainReply"]
                   for client in ("", "client=variants.half:client"))
    parameters = 64 * 10 + 10
    assert sum(whole) - sum(half) == pytest.approx(10 * 2 * parameters, rel=0.01)


def test_who_sleeps_and_pulls_does_so_in_virtual_time() -> None:
    """The server looks at its inbox every quarter of a second, and half of the replies are enough for it."""
    ran = play(SCHEMES["polling"], LINKS)
    assert ran.summary["virtual_seconds"] == pytest.approx(0.5)
    assert all(row["received"] >= 5 for row in ran.rounds)


def test_a_lost_reply_without_a_timeout_is_an_error_that_says_what_to_do() -> None:
    legacy = SCHEMES["legacy"]
    with pytest.raises(Exception, match="timeout") as raised:
        play(legacy, "links=[{match: 'client3->*', outage: {model: bernoulli, p: 1}}]")
    assert "client3" in str(raised.value)


def test_a_transport_that_repeats_loses_nothing() -> None:
    reliable = LOSSES.replace("p: 0.1", "p: 0.2, per: message").replace("}]", ", transport: reliable}]")
    ran = play(SCHEMES["legacy"], reliable)
    assert [row["received"] for row in ran.rounds] == [20, 20]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """An app beside FedAvg on one network, each replayed, a report, and an app in the place of the schemes."""
    page = (ROOT / "docs" / "flower.md").read_text(encoding="utf-8")
    scenario, = re.findall(r"^```yaml\n(emul: 1\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "lossy.yaml").write_text(scenario, encoding="utf-8")
    shutil.copytree(APPS / "quickstart_pytorch", tmp_path / "quickstart-pytorch")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    said = {}
    for command in re.findall(r"^emul (.*?)(?: +# .*)?$", page, re.MULTILINE):
        if "mine." not in command:          # a name that stands for the reader's
            done = subprocess.run([sys.executable, "-m", "emul", *shlex.split(command)], cwd=tmp_path, check=False,
                                  capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": path})
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            said[command] = done.stdout
    assert "identical" in said["replay runs/lossy-torch-1"]
    assert {command.split()[0] for command in said} == {"check", "run", "replay", "report"}
    assert {path.name for path in (tmp_path / "runs").iterdir()} >= {"lossy-torch-1", "lossy-fedavg-1", "lossy-torch-2"}
