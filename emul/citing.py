"""BibTeX of emul, and of the papers that schemes, rules, attacks, data and traces come from.

Every paper stands once, in `references.bib`. The keywords of an entry say what of a scenario it belongs to, as the
scenario writes it: "schemes krum" and "aggregate krum". A scheme of a user has such a file beside its module.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from emul.base.files import read_text, shipped
from emul.record.rundir import SCENARIO
from emul.registry import schemes
from emul.scenario import load

REFERENCES = "references.bib"
PAPERS = Path(__file__).with_name(REFERENCES)
Use = tuple[str, str]                       # a key of a scenario, and its value or a key below it

_ENTRY = re.compile(r"^@\w+\{.*?^\}$", re.MULTILINE | re.DOTALL)
_KEYWORDS = re.compile(r"^ *keywords *= *\{(.*?)\},?\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Reference:
    """A paper."""

    bibtex: str                             # without its keywords
    uses: frozenset[Use]


def references(file: Path = PAPERS) -> list[Reference]:
    """The entries of a BibTeX file, in its order. Raises OSError."""
    found = []
    for entry in _ENTRY.findall(read_text(file)):
        uses = [use.split() for use in ",".join(_KEYWORDS.findall(entry)).split(",")]
        found.append(Reference(_KEYWORDS.sub("", entry), frozenset((key, word) for key, word in uses)))
    return found


def software() -> str:
    """The entry of emul itself, made of CITATION.cff."""
    from ruamel.yaml import YAML

    about = YAML(typ="safe", pure=True).load(read_text(shipped("CITATION.cff")))
    fields = {"author": " and ".join("{" + one["name"] + "}" for one in about["authors"]), "title": about["title"],
              "version": about["version"], "year": str(about["date-released"])[:4], "url": about.get("repository-code")}
    return "\n".join(["@software{emul,", *(f"  {key} = {{{text}}}," for key, text in fields.items() if text), "}"])


def bibliography(what: Sequence[str], plugins: Sequence[str] = ()) -> str:
    """BibTeX of emul and of what is named: scenario files, run directories or folders of them, schemes.

    Raises ScenarioError, UnknownScheme, OSError.
    """
    used = {use for one in what for use in _used(one, plugins)}
    files = [PAPERS, *_of_users({word for key, word in used if key == "schemes"}, plugins)]
    found = [one.bibtex for file in files for one in references(file) if one.uses & used]
    return "\n\n".join([software(), *found])


def _used(what: str, plugins: Sequence[str]) -> Iterator[Use]:
    path = Path(what)
    if not path.exists() and path.suffix not in (".yaml", ".yml"):
        yield "schemes", schemes.find(what, plugins).name
        return
    for file in sorted(path.rglob(SCENARIO)) if path.is_dir() else [path]:
        yield from uses(load(file, check=False).document())


def uses(value: object, key: str = "") -> Iterator[Use]:
    """The pairs of a scenario's document that may have a paper.

    >>> list(uses({"task": {"data": {"set": "digits"}}}, ""))
    [('', 'task'), ('task', 'data'), ('data', 'set'), ('set', 'digits')]
    """
    if isinstance(value, Mapping):
        for below, one in value.items():
            yield key, below
            if below == "name" and isinstance(one, str):
                yield key, one
            yield from uses(one, re.sub(r".*\.|\[\d+\]", "", below))       # a grid has paths as keys
    elif isinstance(value, list | tuple):
        for one in value:
            yield from uses(one, key)
    elif isinstance(value, str):
        yield key, PurePath(value).name


def _of_users(names: set[str], plugins: Sequence[str]) -> list[Path]:
    """The files beside the modules of those schemes that do not come along."""
    known = schemes.known(plugins)
    found = []
    for module in sorted({known[name] for name in names & known.keys()}):
        if not module.startswith(schemes.PACKAGE) and (spec := importlib.util.find_spec(module)) and spec.origin:
            found.append(Path(spec.origin).with_name(REFERENCES))
    return [file for file in dict.fromkeys(found) if file.exists()]
