"""One noun, one meaning: no two classes share a name, and the glossary says where each noun is declared."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"

# Each scheme has its own: the name says the place in a scheme, and the module says which scheme.
OF_EVERY_SCHEME = {"Params", "State", "ServerState", "ClientState", "DealerState"}

# Names that two classes share for a reason.
ALLOWED = {
    "Refused": "the row of a failed round has the name of its exception, so both names are data",
}


@dataclass(frozen=True)
class Class:
    """A class as it is written. bases: their last names."""

    file: str
    name: str
    bases: tuple[str, ...]


def classes_of(file: str, text: str) -> Iterator[Class]:
    for one in ast.walk(ast.parse(text)):
        if isinstance(one, ast.ClassDef):
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in one.bases]
            yield Class(file, one.name, tuple(ast.unparse(base).rpartition(".")[2] for base in bases))


@cache
def ours() -> list[Class]:
    return [one for path in sorted((ROOT / "emul").rglob("*.py"))
            for one in classes_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))]


def messages(classes: Iterable[Class]) -> set[Class]:
    """Those that derive from `Message`, or from a class of a single meaning that does."""
    by_name, found = defaultdict(list), set[Class]()
    for one in classes:
        by_name[one.name].append(one)
    sure = {"Message"}
    while new := {one for one in classes if one not in found and sure & set(one.bases)}:
        found |= new
        sure |= {one.name for one in new if len(by_name[one.name]) == 1}
    return found


def shared(classes: list[Class]) -> dict[str, list[str]]:
    """Name -> files, of the names that two classes have which are no messages."""
    exempt, files = messages(classes), defaultdict(list)
    for one in classes:
        if one not in exempt and one.name not in OF_EVERY_SCHEME:
            files[one.name].append(one.file)
    return {name: where for name, where in files.items() if len(where) > 1}


def test_no_two_classes_share_a_name() -> None:
    assert {name: where for name, where in shared(ours()).items() if name not in ALLOWED} == {}


def test_every_reason_is_still_needed() -> None:
    assert set(ALLOWED) <= set(shared(ours()))
    counts = defaultdict(int)
    for one in ours():
        counts[one.name] += 1
    assert [name for name in OF_EVERY_SCHEME if counts[name] < 2] == []


@pytest.mark.parametrize(("texts", "found"), [
    (["class Crash: pass", "class Crash: pass"], {"Crash"}),
    (["class Crash: pass", "def f():\n    class Crash: pass"], {"Crash"}),
    (["class Model(Message): pass", "class Model(wire.Message): pass"], set()),
    (["class Bare(Message): pass\nclass Model(Bare): pass", "class Model(Message): pass"], set()),
    (["class Model(Message): pass", "class Model: pass", "class Model: pass"], {"Model"}),
    (["class Rule(Generic[T]): pass", "class Rule: pass"], {"Rule"}),
    (["class Params: pass", "class Params: pass"], set())])
def test_a_name_that_two_classes_share_is_found(texts: list[str], found: set[str]) -> None:
    assert set(shared([one for number, text in enumerate(texts) for one in classes_of(f"{number}.py", text)])) == found


# --- words that stand for one thing each ------------------------------------------------------------------------------

# Word -> annotations of the parameters and fields that are called so. A new one is either another meaning of the word,
# which needs a word of its own, or belongs here.
MEANINGS = {
    "record": r"Record|LinkRecord|ArrayRecord|Recorded|RecordRule|bool|Flag|Annotated\[bool, .*",
    "places": r"Mapping\[str, str\]|np\.ndarray",        # ... and where a `Piece` of a model lies, as authors know it
    "workers": r"int( \| Cluster \| Workers \| Twin)?|int \| None|WorkerCount|WorkersEach|AnyPool|WorkersSection|"
               r"WorkerTimeout|Sequence\[(int|Remote)\]|Annotated\[(int|str \| None), .*",
}


def annotated(text: str) -> Iterator[tuple[str, str]]:
    """(name, annotation) of parameters of functions and fields of classes, of the names that have a meaning."""
    for one in ast.walk(ast.parse(text)):
        if isinstance(one, ast.arg) and one.annotation is not None and one.arg in MEANINGS:
            yield one.arg, ast.unparse(one.annotation)
        elif isinstance(one, ast.ClassDef):
            yield from ((field.target.id, ast.unparse(field.annotation)) for field in one.body
                        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                        and field.target.id in MEANINGS)


def other_meanings(text: str) -> list[str]:
    return [f"{name}: {kind}" for name, kind in annotated(text) if not re.fullmatch(MEANINGS[name], kind, re.DOTALL)]


def test_a_word_stands_for_one_thing() -> None:
    found = {path.relative_to(ROOT).as_posix(): wrong for path in sorted((ROOT / "emul").rglob("*.py"))
             if (wrong := other_meanings(path.read_text(encoding="utf-8")))}
    assert found == {}


@pytest.mark.parametrize(("text", "found"), [
    ("def f(workers: int, record: Record) -> None: pass", []),
    ("class Plan:\n    workers: Mapping[int, int]", ["workers: Mapping[int, int]"]),
    ("def f(*, places: list[slice]) -> None: pass", ["places: list[slice]"])])
def test_another_meaning_of_a_word_is_found(text: str, found: list[str]) -> None:
    assert other_meanings(text) == found


# --- the glossary -----------------------------------------------------------------------------------------------------

ROW = re.compile(r"^\| (?P<noun>[^|]+) \| (?P<meaning>[^|]+) \| (?P<places>[^|]+) \|$", re.MULTILINE)
PLACE = re.compile(r"`(emul/[\w/]+\.py): ([\w.]+)`")


def nouns(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """(noun, [(file, name)]) of each row, without heads of tables."""
    return [(row["noun"], PLACE.findall(row["places"])) for row in ROW.finditer(text)
            if row["noun"] not in ("noun", "word") and not set(row["noun"]) <= {"-"}]


def declared(body: list[ast.stmt], name: str) -> bool:
    """Whether a class, a function or a value of this name, dots for parts of a class, is declared in a body."""
    first, _, rest = name.partition(".")
    for one in body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and one.name == first:
            return declared(one.body, rest) if rest else True
        if not rest and any(isinstance(target, ast.Name) and target.id == first for target in targets):
            return True
    return False


def wrong(text: str) -> list[str]:
    """What a glossary says that is not so."""
    said = nouns(text)
    names = [noun for noun, _ in said]
    return [f"{noun}: twice" for noun in sorted({noun for noun in names if names.count(noun) > 1})] + [
        f"{noun}: no place" for noun, places in said if not places] + [
        f"{noun}: {file}: {name}" for noun, places in said for file, name in places
        if not (ROOT / file).is_file() or not declared(ast.parse((ROOT / file).read_text(encoding="utf-8")).body, name)]


def test_the_glossary_names_the_place_of_each_noun() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    assert wrong(text) == []
    assert {"record", "held", "found", "places", "workers", "round"} <= {noun for noun, _ in nouns(text)}


def test_a_noun_that_names_a_class_is_declared_there() -> None:
    """`round` is `Round` and nothing else: a row whose noun is the name of a class leads to that class."""
    exempt = messages(ours())
    classes: Mapping[str, str] = {one.name.lower(): one.file for one in ours() if one not in exempt}
    elsewhere = [noun for noun, places in nouns(GLOSSARY.read_text(encoding="utf-8"))
                 if noun in classes and classes[noun] not in {file for file, _ in places}]
    assert elsewhere == []


@pytest.mark.parametrize(("row", "found"), [
    ("| node | A participant. | `emul/roles/node.py: Node` |", []),
    ("| node | A participant. | `emul/roles/node.py: Node.send` |", []),
    ("| node | A participant. | `emul/roles/node.py: Nobody` |", ["node: emul/roles/node.py: Nobody"]),
    ("| node | A participant. | `emul/roles/nowhere.py: Node` |", ["node: emul/roles/nowhere.py: Node"]),
    ("| node | A participant. | somewhere |", ["node: no place"]),
    ("| node | One. | `emul/roles/node.py: Node` |\n| node | Another. | `emul/roles/node.py: Node` |",
     ["node: twice"])])
def test_a_glossary_that_is_wrong_is_found(row: str, found: list[str]) -> None:
    assert wrong(f"| noun | meaning | declared in |\n|---|---|---|\n{row}\n") == found
