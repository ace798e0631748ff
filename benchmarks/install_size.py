"""The size of emul on disk, by extras, without torch and what torch alone brings: `python -m benchmarks.install_size`.

Sizes are those of the files that the installed packages list; nothing is installed for it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

_ROOT = Path(__file__).resolve().parents[1]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_SHOWN = ((), ("stats",), ("report",), ("privacy",), ("stats", "report", "privacy"))


def extras_of(*extras: str) -> list[str]:
    """The packages that emul asks for with these extras."""
    wanted = list(_PROJECT["dependencies"])
    for extra in extras:
        for text in _PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(text)
            wanted += extras_of(*sorted(requirement.extras)) if requirement.name == "emul" else [text]
    return wanted


def closure(requirements: Iterable[str], without: Iterable[str] = ()) -> list[Distribution]:
    """The installed packages that these need, and those that they need, and so on. without: names that are left out.

    Raises PackageNotFoundError for one that is not installed.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(text), "") for text in requirements]
    while left:
        requirement, extra = left.pop()
        name = requirement.name.lower().replace("_", "-")
        if name in without or (requirement.marker is not None and not requirement.marker.evaluate({"extra": extra})):
            continue
        found.setdefault(name, distribution(name))
        for asked in ("", *requirement.extras):
            if (name, asked) not in seen:
                seen.add((name, asked))
                left += [(Requirement(text), asked) for text in found[name].requires or ()]
    return [found[name] for name in sorted(found)]


def files(package: Distribution) -> list[Path]:
    """Those that it has installed, but for byte code."""
    paths = (Path(str(package.locate_file(file))) for file in package.files or () if "__pycache__" not in file.parts)
    return [path for path in paths if path.is_file()]


def places(packages: Iterable[Distribution]) -> list[Path]:
    """The files and folders of these packages in their site-packages."""
    tops = {(str(package.locate_file("")), file.parts[0]) for package in packages for file in package.files or ()
            if file.parts[0] not in ("..", "__pycache__")}
    return [Path(folder, name) for folder, name in sorted(tops)]


def megabytes(*extras: str) -> float:
    """Of an installation with these extras, without torch and what it alone brings."""
    return sum(path.stat().st_size for package in closure(extras_of(*extras), without=("torch",))
               for path in files(package)) / 1e6


def main() -> None:
    whole = megabytes(*_SHOWN[-1])
    for extras in _SHOWN:
        size, name = megabytes(*extras), f"emul[{','.join(extras)}]" if extras else "emul"
        print(f"{name:<30} {size:6.0f} MB {size / whole:5.0%}")


if __name__ == "__main__":
    main()
