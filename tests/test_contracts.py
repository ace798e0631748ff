"""Layers and habits hold, and what watches over them refuses what it should."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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


# --- how long things are, and what says what they mean ----------------------------------------------------------------

EXPLAINED = 0.85                        # of public classes, functions and methods: at least
USUAL, LONGEST = 15, 60                 # statements of a function: of nine in ten at most, of any
SCHEME_LINES, KERNEL_LINES = 300, 450   # of a file: at most


@dataclass(frozen=True)
class Definition:
    """A class or a function of emul. public: it and what it stands in have no underscore, and it is in no function."""

    where: str
    public: bool
    explained: bool
    statements: int | None              # in a function and in those in it, its docstring excepted; None: a class


def definitions(node: ast.AST, file: str, public: bool = True, within: str = "") -> Iterator[Definition]:
    """All that a module, a class or a function defines. The classes in a class are no public ones."""
    for child in blocks(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            is_class = isinstance(child, ast.ClassDef)
            shown = public and not child.name.startswith("_") and not (is_class and within)
            explained = ast.get_docstring(child, clean=False) is not None
            yield Definition(f"{file}:{child.lineno} {within}{child.name}", shown, explained,
                             None if is_class else statements(child) - 1 - explained)
            yield from definitions(child, file, shown and is_class, f"{within}{child.name}.")
        else:
            yield from definitions(child, file, public, within)


def blocks(node: ast.AST) -> list[ast.AST]:
    """What stands right below a node in its blocks: statements, and the parts of `try` and `match` that hold some."""
    return [child for name in ("body", "orelse", "handlers", "finalbody", "cases")
            for child in (getattr(node, name, None) or ()) if isinstance(child, ast.AST)]


def statements(node: ast.AST) -> int:
    return isinstance(node, ast.stmt) + sum(map(statements, blocks(node)))


@pytest.fixture(scope="module")
def defined() -> list[Definition]:
    return [found for path in sorted((ROOT / "emul").rglob("*.py"))
            for found in definitions(ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT)))]


def test_what_is_counted_is_what_is_meant() -> None:
    source = """
class Public:
    def method(self):
        'Explained.'
        if self:
            return 1
        def inner():
            pass
    def _own(self): ...
    class Within:
        def method(self): ...
class _Private:
    def method(self): ...
if True:
    async def late():
        try:
            return 1
        except OSError:
            match 1:
                case 1:
                    pass
"""
    found = definitions(ast.parse(source), "f")
    assert {d.where.partition(" ")[2]: (d.public, d.explained, d.statements) for d in found} == {
        "Public": (True, False, None), "Public.method": (True, True, 4), "Public.method.inner": (False, False, 1),
        "Public._own": (False, False, 1), "Public.Within": (False, False, None),
        "Public.Within.method": (False, False, 1), "_Private": (False, False, None),
        "_Private.method": (False, False, 1), "late": (True, False, 4)}


def test_what_is_public_is_explained(defined: list[Definition]) -> None:
    public = [d for d in defined if d.public]
    bare = [d.where for d in public if not d.explained]
    share = 1 - len(bare) / len(public)
    assert share >= EXPLAINED, f"{share:.1%} of {len(public)} have a docstring. Those without:\n" + "\n".join(bare)


def test_functions_are_short(defined: list[Definition]) -> None:
    lengths = sorted((d.statements, d.where) for d in defined if d.statements is not None)
    assert lengths[int(0.9 * len(lengths))][0] <= USUAL, "one function in ten is longer"
    too_long = [f"{where}: {length}" for length, where in lengths if length > LONGEST]
    assert not too_long, "\n".join(too_long)


@pytest.mark.parametrize(("folder", "most"), [("schemes", SCHEME_LINES), ("kernel", KERNEL_LINES)])
def test_files_are_short(folder: str, most: int) -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines())
               for path in (ROOT / "emul" / folder).glob("*.py")}
    assert len(lengths) > 5
    assert not {name: lines for name, lines in lengths.items() if lines > most}, f"above {most} lines"
