"""The house in numbers: `python -m benchmarks.house [--against REVISION]`; `.ci/run` prints it last.

Files and functions are counted from the source, `__init__.py` left out. A *file with one importer* is one that a single
other file of `emul` imports. A *private function with one caller* begins with `_` and is named once outside itself, in
its own file. A *circle* is a set of files that import each other, whatever only types need included.

A *walk* visits the first call of every function, in the order in which a small run makes them. It leaves out the
calls of modules that are being imported, and of running those that loading has made. A *stay* begins each time that the
walk comes to another file than the one before. A *climb* is a call from a file to one of a higher floor: a
file stands a floor above all that it imports (files of a circle on the same one).
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import networkx as nx

from benchmarks.against import trees

ROOT = Path(__file__).resolve().parents[1]

# small enough that a walk meets each step once; keys that old revisions read, too
SCENARIO = """
emul: 1
name: small
seed: 1
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s, outage: {model: bernoulli, p: 0.1, per: round}}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}]
stop: {rounds: 2}
"""

Module = tuple[Path, ast.Module]


def modules(emul: Path) -> dict[str, Module]:
    return {".".join(path.relative_to(emul.parent).with_suffix("").parts): (path, ast.parse(path.read_text("utf-8")))
            for path in sorted(emul.rglob("*.py"))}


def imports(found: dict[str, Module]) -> nx.DiGraph:
    """Importers and what they import. A name of a package counts for its file of that name, else for its `__init__`."""
    graph = nx.DiGraph()
    files = {name.removesuffix(".__init__") for name in found}
    for name, (_, tree) in found.items():
        own = name.removesuffix(".__init__")
        graph.add_node(own)
        for node in ast.walk(tree):
            wanted: list[str] = []
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                wanted = [f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in files else node.module
                          for alias in node.names]
            graph.add_edges_from((own, target) for target in wanted if target in files and target != own)
    return graph


def floors(graph: nx.DiGraph) -> dict[str, int]:
    whole = nx.condensation(graph)
    height: dict[int, int] = {}
    for group in reversed(list(nx.topological_sort(whole))):
        height[group] = max((height[below] + 1 for below in whole.successors(group)), default=1)
    return {name: height[group] for name, group in whole.graph["mapping"].items()}


def called_once(tree: ast.Module) -> Iterator[str]:
    """The private functions and methods of a file that one place of it names."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                 and node.name.startswith("_") and not node.name.endswith("__")]
    uses = Counter(node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(tree)
                   if isinstance(node, ast.Name | ast.Attribute))
    for function in functions:
        own = sum(function.name in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in ast.walk(function))
        if uses[function.name] - own == 1:
            yield function.name


def lines(found: dict[str, Module]) -> Counter[str]:
    """Lines by kind: docstrings, imports, comments of their own, blank ones, and code."""
    kinds: Counter[str] = Counter()
    for path, tree in found.values():
        text = path.read_text("utf-8").splitlines()
        kind = {i: "blank" if not line.strip() else "comments" if line.lstrip().startswith("#") else "code"
                for i, line in enumerate(text, 1)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                kind.update(dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "imports"))
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and \
                    ast.get_docstring(node) is not None:
                said = node.body[0]
                kind.update(dict.fromkeys(range(said.lineno, (said.end_lineno or 0) + 1), "docstrings"))
        kinds.update(kind.values())
    return kinds


def traced(scenario: str, what: str) -> list[tuple[str, str, str]]:
    """(file of the caller, file, function) of the first calls of the functions of `emul`, in order."""
    import emul
    root, seen, found = str(Path(emul.__file__).parent), set[tuple[str, str]](), list[tuple[str, str, str]]()

    def call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(root) or code.co_name.startswith("<") \
                or not code.co_flags & inspect.CO_OPTIMIZED:            # a lambda; a class or a module being made
            return
        if code.co_qualname == "Node.send" and what == "message":       # a message is followed anew, from the last sent
            seen.clear()
            found.clear()
        if (key := (code.co_filename, code.co_qualname)) in seen:
            return
        callers, above = list[str](), frame.f_back
        while above is not None:
            if above.f_code.co_filename.startswith(root):
                if above.f_code.co_name == "<module>":
                    return
                callers.append(os.path.relpath(above.f_code.co_filename, root))
            above = above.f_back
        seen.add(key)
        found.append((callers[0] if callers else "", os.path.relpath(code.co_filename, root), code.co_qualname))

    sys.setprofile(call)
    plan = emul.load_scenario(scenario)
    if what != "loading":
        found.clear()
        emul.run(plan, workers=0, quiet=True)
    sys.setprofile(None)
    return found


def walk(tree: Path, what: str) -> list[tuple[str, str, str]]:
    """The calls of one walk, in a process of its own that takes `emul` from this tree."""
    code = f"import json; from benchmarks.house import traced; print(json.dumps(traced('small.yaml', {what!r})))"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "small.yaml").write_text(SCENARIO)
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(ROOT)])})
    found = [(caller, file, function) for caller, file, function in json.loads(done.stdout.splitlines()[-1])]
    if what == "message":                           # until a worker takes it up
        end = next((i for i, (_, _, function) in enumerate(found) if function == "Core.work"), len(found))
        found = found[:end + 1]
    return found


def stays(calls: Sequence[tuple[str, str, str]], floor: dict[str, int]) -> tuple[int, int]:
    """The stays and the climbs of a walk."""
    def name(file: str) -> str:
        return ".".join(Path("emul", file).with_suffix("").parts).removesuffix(".__init__")

    files = [file for _, file, _ in calls]
    return (sum(a != b for a, b in zip(["", *files], files, strict=False)),
            sum(floor.get(name(caller), 0) < floor.get(name(file), 0) for caller, file, _ in calls if caller))


def house(tree: Path) -> dict[str, int]:
    found = modules(tree / "emul")
    own = {name: module for name, module in found.items() if not name.endswith("__init__")}
    graph = imports(found)
    floor = floors(graph)
    length = {name: len(path.read_text("utf-8").splitlines()) for name, (path, _) in own.items()}
    kinds = lines(found)
    docs = [path.read_text("utf-8") for path in (tree / "docs").rglob("*.md") if "made" not in path.parts
            and "_build" not in path.parts]
    counted = {
        "files": len(own), "files under 60 lines": sum(n < 60 for n in length.values()),
        "files with one importer": sum(graph.in_degree(name) == 1 for name in own),
        "private functions with one caller": sum(1 for _, module in own.values() for _ in called_once(module)),
        "circles": sum(len(group) > 1 for group in nx.strongly_connected_components(graph)),
        "lines": sum(kinds.values()), **{f"lines: {kind}": kinds[kind] for kind in sorted(kinds)},
        "words of docs": sum(len(text.split()) for text in docs)}
    for what, name in (("loading", "a scenario through loading"), ("running", "a scenario through running"),
                       ("message", "a message")):
        counted[f"{name}: stays"], counted[f"{name}: climbs"] = stays(walk(tree, what), floor)
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", metavar="REVISION", help="count this revision, too")
    arguments = parser.parse_args()
    now = house(ROOT)
    before: dict[str, int] = {}
    if arguments.against:
        with trees(arguments.against, docs=True) as (tree, _):
            before = house(tree)
    for name, count in now.items():
        print(f"{name:36} {before.get(name, ''):>8} {count:8}" if before else f"{name:36} {count:8}")


if __name__ == "__main__":
    main()
