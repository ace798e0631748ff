"""The data of the suite's tasks: python -m benchmarks.suite_tasks

Writes scenarios/suite/tasks/characters.npz from the docstrings of networkx, and tabular.csv from the table of breast
cancers of scikit-learn. Another version of networkx has other texts, so the files are kept, and no run makes them anew.
"""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import numpy as np

from benchmarks.common import ROOT

TASKS = ROOT / "scenarios" / "suite" / "tasks"
ALPHABET = " abcdefghijklmnopqrstuvwxyz.,"       # all other characters count as a blank
BEFORE = 8                          # characters that a model sees
MODULES, TRAIN, TEST = 120, 100, 25            # modules with the longest texts, and windows of each


def characters(folder: Path) -> dict[str, np.ndarray]:
    """Windows of 8 characters and the one after each, from the docstrings of a package, (n, 8) and (n,).

    folder: of the package's sources. Returns the arrays of the data set `arrays`, as int16, with the column `module`.
    Test windows are the last of each module.
    """
    texts = {file.relative_to(folder).with_suffix("").as_posix(): _docstrings(file)
             for file in sorted(folder.rglob("*.py")) if "tests" not in file.parts}
    longest = sorted(texts, key=lambda name: (-len(texts[name]), name))[:MODULES]
    parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for name in sorted(longest):
        tokens = np.array([ALPHABET.find(letter) for letter in texts[name]], np.int16)
        windows = np.lib.stride_tricks.sliding_window_view(tokens, BEFORE + 1)
        places = np.linspace(0, len(windows) - 1, TRAIN + TEST).astype(int)
        parts["train"].append(windows[places[:TRAIN]])
        parts["test"].append(windows[places[TRAIN:]])
    names = np.array(sorted(longest))
    found: dict[str, np.ndarray] = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        windows = np.concatenate(parts[part])
        found |= {f"{part}_x": windows[:, :-1], f"{part}_y": windows[:, -1], f"{part}_module": np.repeat(names, count)}
    return found


def _docstrings(file: Path) -> str:
    """All docstrings of a file in small letters of the alphabet, one blank between words."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = " ".join(ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented))
    return " ".join("".join(letter if letter in ALPHABET else " " for letter in said.lower()).split())


def main() -> None:
    """Write both files."""
    import networkx
    from sklearn.datasets import load_breast_cancer

    arrays = characters(Path(networkx.__file__).parent)
    np.savez_compressed(TASKS / "characters.npz", allow_pickle=False, **arrays)
    found = load_breast_cancer()
    with (TASKS / "tabular.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*(name.replace(" ", "_") for name in found.feature_names), "diagnosis"])
        lines.writerows([*(f"{value:g}" for value in row), found.target_names[kind]]
                        for row, kind in zip(found.data, found.target, strict=True))


if __name__ == "__main__":
    main()
