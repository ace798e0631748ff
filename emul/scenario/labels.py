"""The labels of the entries of `schemes`: two of one scheme have a label each, by which everything names them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from emul.base.errors import Problem, ScenarioError
from emul.base.plain import PlainDict, PlainMapping
from emul.scenario.values import findings
from emul.scenario.wording import Finding, shown

LABEL, PLACES, COMPRESS = "label", "places", "compress"
OF_ENTRY = (LABEL, PLACES, COMPRESS)                # keys of an entry that are no parameters of its scheme
MOST_CHARACTERS = 100
_SOUND = re.compile(r"[^\s,/\\][^,/\\]*(?<!\s)")

Entry = tuple[str, PlainDict]       # name of the scheme, and what else its entry says


def parameters(entry: PlainMapping) -> PlainDict:
    """The parameters that an entry gives to its scheme."""
    return {key: value for key, value in entry.items() if key not in OF_ENTRY}


def label_of(name: str, entry: PlainMapping) -> str:
    """The label of an entry of the scheme `name`."""
    return str(entry.get(LABEL, name))


def chosen(entries: Sequence[Entry], wanted: str | None, file: str, option: str = "--scheme") -> list[Entry]:
    """The entry with the label `wanted`, else those of the scheme of that name; None: all. Raises ScenarioError."""
    if wanted is None:
        return list(entries)
    found = [e for e in entries if label_of(*e) == wanted] or [e for e in entries if e[0] == wanted]
    if not found:
        names = ", ".join(label_of(*e) for e in entries)
        raise ScenarioError(file, [Problem(option, shown(wanted), f"expected one of its schemes: {names}")])
    return found


def with_labels(entries: list[dict[str, object]]) -> list[dict[str, object]]:
    """Entries as validated; of several of one scheme each gets a label: its own, or the name and what differs.

    Raises findings for labels that are not sound or not distinct.
    """
    expected = f"expected text of at most {MOST_CHARACTERS} characters without , / \\"
    found: list[Finding] = [((i, LABEL), shown(entry[LABEL]), expected)
                            for i, entry in enumerate(entries) if LABEL in entry and not _sound(entry[LABEL])]
    if found:
        raise findings(found)
    labels = _default_labels(entries)
    wrong = list(_not_distinct(entries, labels))
    if wrong:
        raise findings(wrong)
    return [{**entry, LABEL: label} if label != entry["name"] else _without_label(entry)
            for entry, label in zip(entries, labels, strict=True)]


def _without_label(entry: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in entry.items() if key != LABEL}


def _sound(label: object) -> bool:
    return (isinstance(label, str) and len(label) <= MOST_CHARACTERS and label.isprintable()
            and _SOUND.fullmatch(label) is not None)


def _default_labels(entries: Sequence[PlainMapping]) -> list[str]:
    """Each entry's own label; the name, with the parameters in which it differs from others of that name."""
    count = Counter(entry["name"] for entry in entries if LABEL not in entry)
    labels = []
    for entry in entries:
        name = entry["name"]
        same = [e for e in entries if e["name"] == name and LABEL not in e]
        if LABEL in entry:
            labels.append(entry[LABEL])
        elif count[name] == 1:
            labels.append(name)
        else:
            labels.append(" ".join([name, *_differing(entry, same)])[:MOST_CHARACTERS])
    return labels


def _differing(entry: Mapping[str, object], same: Sequence[Mapping[str, object]]) -> Iterable[str]:
    for key, value in entry.items():
        if key != "name" and any(key not in other or other[key] != value for other in same):
            yield f"{key}={_in_short(value)}"


def _in_short(value: object) -> str:
    """
    >>> _in_short("2 s"), _in_short([1, 2]), _in_short(None)
    ('2s', '[1;2]', 'none')
    """
    text = "none" if value is None else value if isinstance(value, str) else shown(value)
    return re.sub(r"[\s\"]+", "", text).replace(",", ";").replace("/", ":").replace("\\", ":")


def _not_distinct(entries: Sequence[Mapping[str, object]], labels: Sequence[str]) -> Iterable[Finding]:
    first: dict[str, int] = {}
    for i, label in enumerate(labels):
        before = first.setdefault(label, i)
        if before == i:
            continue
        if LABEL in entries[i]:
            yield (i, LABEL), shown(label), f"schemes[{before}] is called so already"
        else:
            yield (i,), shown(label), f"says the same as schemes[{before}]: give one of them a label"
