"""Files on their way to another machine and back: packed as bytes by their names, unpacked under a key."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

Files = dict[str, bytes]            # path below the folder, with "/" -> content


def sizes(path: str | Path) -> list[tuple[str, int]] | None:
    """(name, bytes) of every file below, or of the one file; None: there is nothing."""
    root = Path(path)
    if root.is_file():
        return [("", root.stat().st_size)]
    return [(one.relative_to(root).as_posix(), one.stat().st_size) for one in _below(root)] if root.is_dir() else None


def packed(path: str | Path, patterns: Iterable[str] = ("**/*",)) -> Files:
    """The files below a folder that any of the patterns meets."""
    root = Path(path)
    found = {one for pattern in patterns for one in root.glob(pattern) if one.is_file()}
    return {one.relative_to(root).as_posix(): one.read_bytes() for one in sorted(found)}


def unpacked(files: Files, folder: Path) -> None:
    """Write what was packed below `folder`, in place of files of the same names. Raises ValueError for a name that
    leads out of it."""
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name}: expected a path below the folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)


def key_of(files: Files) -> str:
    """The same for the same files, wherever they lie."""
    found = hashlib.blake2b(digest_size=16)
    for name, content in sorted(files.items()):
        found.update(f"{len(name)} {len(content)} {name}".encode() + content)
    return found.hexdigest()


def plugin_files(modules: Iterable[str]) -> Files:
    """The sources of plug-ins, as they are to lie in a folder that modules are found in: of each the whole package that
    it is in, or its file, and of a module that is not in a package what lies beside it. Installed ones are left out:
    they are to be installed everywhere."""
    files: Files = {}
    for module in modules:
        spec = importlib.util.find_spec(module.partition(".")[0])
        if spec is None or "site-packages" in (spec.origin or ""):
            continue
        if spec.submodule_search_locations:
            for folder in map(Path, spec.submodule_search_locations):
                if "site-packages" not in folder.parts:
                    files |= {f"{folder.name}/{name}": content
                              for name, content in packed(folder, ["**/*"]).items() if "__pycache__" not in name}
        elif spec.origin is not None:
            files |= packed(Path(spec.origin).parent, ["*.py"])
    return files


def _below(root: Path) -> list[Path]:
    return sorted(one for one in root.rglob("*") if one.is_file())
