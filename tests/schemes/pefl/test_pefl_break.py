"""PEFL's known break as an attack on a run, and what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul import engine
from emul.attacks.privacy import NotKept
from emul.engine.reopening import attack
from emul.scenario import loads

SCENARIO = """
emul: 1
name: broken
seed: 7
topology: {generator: star_mesh, clients: 3, servers: 3}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: pefl, bits: 256}]
stop: {rounds: 2}
record: {payloads: [Keys, Upload, Scaled, Padded, Blinded]}
"""


@pytest.mark.parametrize("variant", ["full", "lean"])
@pytest.mark.parametrize("real_up_to", [256, 1000])
def test_the_cloud_platform_has_every_update_to_the_bit(variant: str, real_up_to: int, tmp_path: Path) -> None:
    sets = [f"schemes.pefl.variant={variant}", f"schemes.pefl.real_up_to={real_up_to}",
            *(["stop.rounds=1"] if real_up_to == 1000 else [])]
    result, = engine.run(loads(SCENARIO, "t", sets), workers=0, out=tmp_path)
    assert result.directory is not None
    rows = attack(result.directory, "pefl").rows
    assert rows["exact"].all()
    rounds = 1 if real_up_to == 1000 else 2
    assert rows["node"].tolist() == ["client1", "client2", "client3"] * rounds


def test_a_run_that_has_not_kept_keys_is_refused(tmp_path: Path) -> None:
    text = SCENARIO.replace("[Keys, Upload, Scaled, Padded, Blinded]", "[Upload]")
    result, = engine.run(loads(text, "t", ["stop.rounds=1"]), workers=0, out=tmp_path)
    assert result.directory is not None
    with pytest.raises(NotKept, match=r"record: \{payloads: \[Keys, Upload, Scaled\]\}"):
        attack(result.directory, "pefl")
