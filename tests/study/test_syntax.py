"""Which code a row is of: syntax trees of what its scheme is built from."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul.study import cells as cells_module
from emul.study.cells import cells
from emul.study.syntax import ROOT, code_of

FILES = {
    "schemes/one.py": 'from emul.protocols.sums import add\nfrom emul.primitives import plain\n',
    "schemes/folder/__init__.py": "X = 1\n",
    "schemes/folder/server.py": "Y = 1\n",
    "protocols/__init__.py": "", "primitives/__init__.py": "",
    "protocols/sums.py": 'def add(a, b):\n    """The sum."""\n'
                         '    from emul.primitives.field import p\n    return (a + b) % p\n',
    "protocols/other.py": "Z = 1\n",
    "primitives/plain.py": "", "primitives/field.py": "p = 7\n",
    "learning/training.py": "STEPS = 5\n",
    "kernel/loop.py": "A = 1\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "emul" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "emul"


def changes(root: Path, file: str, before: str, after: str, scheme: str = "one.py") -> bool:
    """Whether the code of a scheme is another one with `after` in place of `before`, or at the end."""
    own = [root / "schemes" / scheme]
    was = code_of(own, root)
    text = (root / file).read_text()
    (root / file).write_text(text.replace(before, after) if before else text + after)
    return code_of(own, root) != was


@pytest.mark.parametrize("file", ["schemes/one.py", "protocols/sums.py", "primitives/field.py", "learning/training.py",
                                  "primitives/plain.py"])
def test_what_a_scheme_is_built_from_counts_also_indirectly(root: Path, file: str) -> None:
    assert changes(root, file, "", "NEW = 1\n")


@pytest.mark.parametrize("file", ["protocols/other.py", "kernel/loop.py", "schemes/folder/server.py"])
def test_what_it_does_not_use_does_not_count(root: Path, file: str) -> None:
    assert not changes(root, file, "", "NEW = 1\n")


def test_comments_docstrings_and_lines_do_not_count(root: Path) -> None:
    assert not changes(root, "protocols/sums.py", '"""The sum."""', '"""The sum of both."""  # see below')
    assert not changes(root, "protocols/sums.py", "(a + b) % p", "(a +\n            b) % p")
    assert not changes(root, "learning/training.py", "STEPS", '"""Training."""\n\nSTEPS')
    assert changes(root, "protocols/sums.py", "a +\n            b", "a - b")


def test_every_file_of_a_scheme_that_is_a_folder_counts(root: Path) -> None:
    assert changes(root, "schemes/folder/server.py", "Y = 1", "Y = 2", "folder/__init__.py")


def test_a_variant_is_of_the_code_of_its_scheme_too(small: Path) -> None:
    def code(name: str) -> str:
        return cells_module.code_of(cells(small, {}, [0], [name])[0].scenario)

    small.write_text(small.read_text().replace("[fedavg,", "[foolsgold, fedavg,"))
    files = [ROOT / "schemes" / f"{name}.py" for name in ("fedavg", "foolsgold")]
    assert code("fedavg") == code_of(files[:1])
    assert code("foolsgold") == code_of(files) != code("fedavg")
