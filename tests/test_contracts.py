"""Layers and habits hold, and what watches over them refuses what it should."""

from __future__ import annotations

import ast
import os
import re
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


# mypy reads torch's types, too: most of a minute in a fresh clone; `make lint` runs it as well
@pytest.mark.parametrize("command", [
    pytest.param(["lint-imports"], id="layers"), pytest.param(["ruff", "check", "."], id="ruff"),
    pytest.param(["mypy", "emul", "benchmarks"], id="mypy", marks=pytest.mark.slow)])
def test_the_code_passes(command: list[str]) -> None:
    code, output = tool(*command)
    assert code == 0, f"{' '.join(command)} refuses:\n{output}"


def test_only_tests_that_meet_the_machine_are_run_again(request: pytest.FixtureRequest) -> None:
    """`flaky` is what pytest-rerunfailures goes by; the hook in tests/conftest.py gives it."""
    again = {item.nodeid for item in request.session.items if item.get_closest_marker("flaky")}
    assert again == {item.nodeid for item in request.session.items if item.get_closest_marker("machine")}
    sent = {path.name for path in (ROOT / "tests").rglob("test_*.py")
            if re.search(r"os\.kill\(|send_signal\(|own_ray\(\)|webdriver\.|\"netns\"", path.read_text())}
    marked = {path.name for path in (ROOT / "tests").rglob("test_*.py") if "mark.machine" in path.read_text()}
    assert sent <= marked, "these send signals, start Ray or a browser, and lack the marker `machine`"


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
    "network/uses_wire.py": ("from emul.message import wire", "emul.network.uses_wire -> emul.message.wire"),
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
    assert "Contracts: 2 kept, 4 broken." in output


def test_the_linter_refuses_a_step_back_on_the_way_of_a_scenario(copy: Path) -> None:
    file = copy / "emul" / "scenario" / "sections.py"
    text = file.read_text(encoding="utf-8")
    try:
        file.write_text(text + "\nimport emul.scenario.network_checks\n", encoding="utf-8")
        code, output = tool("lint-imports", cwd=copy)
    finally:
        file.write_text(text, encoding="utf-8")
    assert code == 1, output
    assert "emul.scenario.sections -> emul.scenario.network_checks" in " ".join(output.split())


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


# --- types and circles ------------------------------------------------------------------------------------------------

ANY = 580                               # names `Any` in the code of emul, at most: lower it with each that goes


def test_any_becomes_rarer() -> None:
    """Each name `Any` in code counts, in annotations and elsewhere; imports, comments and docstrings do not."""
    found = [node for path in (ROOT / "emul").rglob("*.py")
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.Name) and node.id == "Any"]
    assert len(found) <= ANY, f"{len(found)} times Any: say what the value is, or `object` where it is only handed on"


CIRCLES: set[tuple[str, ...]] = set()   # modules that import each other, also late or for types alone


def modules() -> dict[str, Path]:
    """Name -> file of all modules of emul."""
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
            for path in (ROOT / "emul").rglob("*.py")}


def imported(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of emul that a module imports anywhere: at its top, for types, in functions."""
    found: set[str] = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[:len(package.split(".")) - node.level + 1] if node.level else []
            of = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{of}.{alias.name}" if f"{of}.{alias.name}" in known else of for alias in node.names}
    return {one for one in found if one in known and one != name}


def circles(graph: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """The sets of nodes each of which leads to all others of the set, by what each can reach."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        todo = list(graph[start])
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += graph[one]
        reach[start] = seen
    found = {tuple(sorted(other for other in reach[one] if one in reach[other])) for one in graph if one in reach[one]}
    return {circle for circle in found if len(circle) > 1}


def test_a_circle_is_found_and_a_chain_is_none() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(graph) == {("b", "c")}


def test_the_circles_between_modules_are_those_that_a_comment_defends() -> None:
    known = modules()
    assert circles({name: imported(name, path, known) for name, path in known.items()}) == CIRCLES
    silent = [circle for circle in CIRCLES
              if not any("# a circle: " in known[name].read_text(encoding="utf-8") for name in circle)]
    assert silent == []


# --- how long things are, and what says what they mean ----------------------------------------------------------------

EXPLAINED = 0.85                        # of public classes, functions and methods: at least


@dataclass(frozen=True)
class Definition:
    """A class or a function of emul. public: it and what it stands in have no underscore, and it is in no function."""

    where: str
    public: bool
    explained: bool


def definitions(node: ast.AST, file: str, public: bool = True, within: str = "") -> Iterator[Definition]:
    """All that a module, a class or a function defines. The classes in a class are no public ones."""
    for child in blocks(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            is_class = isinstance(child, ast.ClassDef)
            shown = public and not child.name.startswith("_") and not (is_class and within)
            explained = ast.get_docstring(child, clean=False) is not None
            yield Definition(f"{file}:{child.lineno} {within}{child.name}", shown, explained)
            yield from definitions(child, file, shown and is_class, f"{within}{child.name}.")
        else:
            yield from definitions(child, file, public, within)


def blocks(node: ast.AST) -> list[ast.AST]:
    """What stands right below a node in its blocks: statements, and the parts of `try` and `match` that hold some."""
    return [child for name in ("body", "orelse", "handlers", "finalbody", "cases")
            for child in (getattr(node, name, None) or ()) if isinstance(child, ast.AST)]


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
    assert {d.where.partition(" ")[2]: (d.public, d.explained) for d in found} == {
        "Public": (True, False), "Public.method": (True, True), "Public.method.inner": (False, False),
        "Public._own": (False, False), "Public.Within": (False, False),
        "Public.Within.method": (False, False), "_Private": (False, False),
        "_Private.method": (False, False), "late": (True, False)}


def test_what_is_public_is_explained(defined: list[Definition]) -> None:
    public = [d for d in defined if d.public]
    bare = [d.where for d in public if not d.explained]
    share = 1 - len(bare) / len(public)
    assert share >= EXPLAINED, f"{share:.1%} of {len(public)} have a docstring. Those without:\n" + "\n".join(bare)
