"""Layers and habits hold, and what watches over them refuses what it should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def tool(name: str, *args: str, cwd: Path = ROOT) -> tuple[int, str]:
    """(exit code, all output) of a tool of the environment that the tests run in."""
    if not (BIN / name).exists():
        pytest.skip(f"{name} is not installed beside {sys.executable}: install emul[test]")
    done = subprocess.run([str(BIN / name), *args], cwd=cwd, capture_output=True, text=True, check=False, timeout=240,
                          env={**os.environ, "PYTHONPATH": str(cwd), "COLUMNS": "200", "NO_COLOR": "1"})
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", [["lint-imports"], ["ruff", "check", "."], ["mypy", "emul"]],
                         ids=["layers", "ruff", "mypy"])
def test_the_code_passes(command: list[str]) -> None:
    code, output = tool(*command)
    assert code == 0, f"{' '.join(command)} refuses:\n{output}"


# --- what must be refused ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the package alone, to be spoilt."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "emul", root / "emul", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


IMPORTS = {                             # file -> its import, and the chain that the linter must name
    "schemes/uses_simpy.py": ("import simpy", "emul.schemes.uses_simpy -> simpy"),
    "schemes/uses_zmq.py": ("def f():\n    import zmq", "emul.schemes.uses_zmq -> zmq"),
    "schemes/uses_network.py": ("from emul.network import build", "emul.schemes.uses_network -> emul.network"),
    "schemes/uses_scheme.py": ("from emul.schemes import fedavg", "emul.schemes.uses_scheme -> emul.schemes.fedavg"),
    "schemes/uses_kernel.py": ("from emul.kernel import Kernel", "emul.schemes.uses_kernel -> emul.kernel"),
    "schemes/uses_workers.py": ("import emul.workers.pool", "emul.schemes.uses_workers -> emul.workers.pool"),
    "protocols/uses_scheme.py": ("from emul.schemes import fedavg",
                                 "emul.protocols.uses_scheme -> emul.schemes.fedavg"),
    "protocols/uses_attacks.py": ("import emul.attacks", "emul.protocols.uses_attacks -> emul.attacks"),
    "roles/uses_protocols.py": ("import emul.protocols.personal",
                                "emul.roles.uses_protocols -> emul.protocols.personal"),
    "roles/uses_network.py": ("import emul.network.links.link", "emul.roles.uses_network -> emul.network.links.link"),
    "network/uses_wire.py": ("from emul import wire", "emul.network.uses_wire -> emul.wire"),
    "primitives/uses_learning.py": ("import emul.learning", "emul.primitives.uses_learning -> emul.learning"),
    "kernel/uses_workers.py": ("import emul.workers.core", "emul.kernel.uses_workers -> emul.workers.core"),
    "record/uses_kernel.py": ("import emul.kernel.loop", "emul.record.uses_kernel -> emul.kernel.loop"),
    "base/uses_roles.py": ("import emul.roles.node", "emul.base.uses_roles -> emul.roles.node"),
    "workers/uses_engine.py": ("import emul.engine", "emul.workers.uses_engine -> emul.engine"),
}


def test_the_linter_names_every_import_that_breaks_a_layer(copy: Path) -> None:
    try:
        for file, (line, _) in IMPORTS.items():
            (copy / "emul" / file).write_text(line + "\n")
        code, output = tool("lint-imports", cwd=copy)
    finally:
        for file in IMPORTS:
            (copy / "emul" / file).unlink()
    assert code == 1, output
    text = " ".join(output.split())
    missed = [chain for _, chain in IMPORTS.values() if chain not in text]
    assert not missed, f"not refused: {missed}\n{output}"
    assert "Contracts: 1 kept, 3 broken." in output


def test_the_linter_refuses_a_folder_that_no_layer_names(copy: Path) -> None:
    folder = copy / "emul" / "extra"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    try:
        code, output = tool("lint-imports", cwd=copy)
    finally:
        shutil.rmtree(folder)
    assert code == 1
    assert "emul.extra" in output
    code, output = tool("lint-imports", cwd=copy)       # the copy itself is sound: so it was that folder
    assert code == 0, output


HABITS = {                              # code in a scheme -> the rule that refuses it
    "import random\nx = random.random()": "TID251",
    "from random import choice\nx = choice": "TID251",
    "import pickle\nx = pickle.dumps": "TID251",
    "import time\nx = time.time()": "TID251",
    "from time import time\nx = time()": "TID251",
    "import torch\n\ntorch.manual_seed(1)": "TID251",
    "import numpy as np\n\nnp.random.seed(1)": "NPY002",
    'print("hello")': "T201",
}


def test_ruff_refuses_what_a_scheme_must_not_do(copy: Path) -> None:
    files = {copy / "emul" / "schemes" / f"habit{i}.py": (code, rule) for i, (code, rule) in enumerate(HABITS.items())}
    try:
        for file, (code, _) in files.items():
            file.write_text(code + "\n")
        status, output = tool("ruff", "check", "--no-cache", "--output-format=concise", "emul/schemes", cwd=copy)
    finally:
        for file in files:
            file.unlink()
    assert status == 1, output
    for file, (code, rule) in files.items():
        found = [line for line in output.splitlines() if file.name in line and f" {rule} " in line]
        assert found, f"not refused by {rule}:\n{code}\n{output}"


def test_the_coordinator_starts_without_torch_and_scikit_learn() -> None:
    code = ("import sys, emul.cli, emul.engine, emul.scenario, emul.workers.pool, emul.schemes.fedavg\n"
            "sys.exit(' '.join(m for m in ('torch', 'sklearn', 'pandas') if m in sys.modules) or 0)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"imported: {done.stderr}"
