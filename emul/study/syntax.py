"""A hash of the code that decides what a cell computes: syntax trees of its scheme and of all that it is built from.

Comments, docstrings and the form of a line change nothing. Taken are the files of the scheme (and of the scheme that
it is a variant of), all of `emul/learning`, what a scenario chooses by its name (attacks, codecs, rules of selection),
files of plug-ins, and what these import of the packages in `PACKAGES`, directly or not. The kernel, the network and
the engine are left out, because nearly every commit changes them. So an equal hash proves nothing: it says which rows
to doubt first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

PACKAGES = ("schemes", "protocols", "primitives", "learning", "attacks")
# which no scheme imports; `attacks/privacy` is left out, since it looks at runs that have ended
BY_NAME = ("learning", "attacks", "primitives/compress", "primitives/selection")
ROOT = Path(__file__).resolve().parents[1]          # the package emul
BYTES = 8


def code_of(files: Iterable[Path], root: Path | None = None) -> str:
    """The hash for these files, of a scheme and of plug-ins; of a package all files. root: of the package emul."""
    own = [each for file in files for each in ([file] if file.name != "__init__.py" else file.parent.rglob("*.py"))]
    shapes = sorted(_source(file).shape for file in _reached(root or ROOT, own))    # wherever plug-ins lie
    return blake2b("\n".join(shapes).encode(), digest_size=BYTES).hexdigest()


@dataclass(frozen=True)
class _Source:
    """The parts that are taken of one file."""

    shape: str                          # its syntax tree without docstrings
    imports: frozenset[str]             # modules, and names that may be modules, wherever in it


def _source(file: Path) -> _Source:
    found = file.stat()
    return _parsed(file, found.st_mtime_ns, found.st_size)


@cache
def _parsed(file: Path, changed_ns: int, size: int) -> _Source:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return _Source(_shape(tree), frozenset(names))


def _shape(node: object) -> str:
    """A syntax tree without docstrings, as text that is the same for all versions of Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_shape, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: getattr(node, name, None) for name in node._fields}
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        fields["body"] = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    said = (f"{name}={_shape(value)}" for name, value in fields.items()     # newer Pythons have more, empty ones
            if value is not None and value != [] and name not in ("kind", "type_comment", "ctx"))
    return f"{type(node).__name__}({','.join(said)})"


# --- which files ------------------------------------------------------------------------------------------------------

def _reached(root: Path, files: Iterable[Path]) -> Iterable[Path]:
    """These files, those of `BY_NAME`, and what they import of `PACKAGES`."""
    begin = [*files, *(file for folder in BY_NAME for file in (root / folder).glob("*.py"))]
    found = dict.fromkeys(begin)
    todo = list(found)
    while todo:
        for module in _source(todo.pop()).imports:
            for file in _files(root, module):
                if file not in found:
                    found[file] = None
                    todo.append(file)
    return found


def _files(root: Path, module: str) -> Iterator[Path]:
    first, *rest = module.split(".")
    if first != "emul" or not rest or rest[0] not in PACKAGES or rest[:2] == ["attacks", "privacy"]:
        return
    place = root.joinpath(*rest)
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file() and file != root / "schemes" / "__init__.py":
            yield file

