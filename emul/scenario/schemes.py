"""`schemes` and `training`: an entry's label, its codecs, and what `training: skip` asks of it.

Two entries of one scheme have a label each, by which everything names them. `compress` says how updates, and the model
on the way down, become fewer bytes; any scheme may be told so whose updates are sent in the clear, one by one
(`Scheme.compress`):

    compress: {top_k: {fraction: 0.01}}                                 up, from clients to the server
    compress: {up: {qsgd: {levels: 16}}, down: {uniform: {bits: 8}}}

With `training: skip` every message is encoded and carried, only the arithmetic of training and evaluation is left out.
Such a run is the run with it, message by message and to the nanosecond, unless something in it is decided by what was
learned. A scenario with such a part is refused, with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from emul.base.errors import Problem, ScenarioError
from emul.base.plain import PlainDict, PlainMapping
from emul.primitives.compress import choose
from emul.registry import attacks
from emul.roles.places import wrong_place
from emul.roles.scheme import AnyScheme, Way
from emul.scenario.attacks import AttackSpec
from emul.scenario.sections import SoundParts, findings
from emul.scenario.wording import MISSING, Finding, shown

LABEL, PLACES, COMPRESS = "label", "places", "compress"
OF_ENTRY = (LABEL, PLACES, COMPRESS)                # keys of an entry that are no parameters of its scheme
MOST_CHARACTERS = 100
_SOUND = re.compile(r"[^\s,/\\][^,/\\]*(?<!\s)")

Entry = tuple[str, PlainDict]       # name of the scheme, and what else its entry says


# ---- an entry ----

def entry_value(value: Any) -> dict[str, object]:
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        raise ValueError("expected the name of a scheme or a mapping such as {name: fedavg}")
    name = value.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", name):
        written = MISSING if name is None else shown(name)
        raise findings([(("name",), written, "expected the name of a scheme")])
    ways, wrong = compress_value(value.get(COMPRESS))
    wrong = _places(value.get("places", {})) + [((COMPRESS, *below), was, expected) for below, was, expected in wrong]
    if wrong:
        raise findings(wrong)
    return {key: item for key, item in value.items() if key != COMPRESS} | ({COMPRESS: ways} if ways else {})


def _places(value: object) -> list[Finding]:
    """The mistakes in the places of a scheme's roles, but for those that only the topology shows."""
    if not isinstance(value, dict):
        return [(("places",), shown(value), "expected a mapping such as {server: server2}")]
    return [(("places", role), shown(where), wrong) for role, where in value.items()
            for one in (where if isinstance(where, list) and where else [where]) if (wrong := wrong_place(one))]


def entry_values(entries: list[PlainDict], base: Path) -> list[Entry]:
    """(name of the scheme, what else its entry says), in the order of the file."""
    return [(str(entry["name"]), {key: below for key, below in entry.items() if key != "name"}) for entry in entries]


def entry_document(entry: Entry) -> PlainDict:
    name, said = entry
    return {"name": name, **said}


# ---- labels ----

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
    return [{**entry, LABEL: label} if label != entry["name"] else
            {key: value for key, value in entry.items() if key != LABEL}
            for entry, label in zip(entries, labels, strict=True)]


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
            differing = [f"{key}={_in_short(value)}" for key, value in entry.items() if key != "name"
                         and any(key not in other or other[key] != value for other in same)]
            labels.append(" ".join([name, *differing])[:MOST_CHARACTERS])
    return labels


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


# ---- compress ----

WAYS: tuple[Way, ...] = get_args(Way)
_EXAMPLE = "expected a codec such as {top_k: {fraction: 0.01}}, or {up: codec, down: codec}"


def compress_value(written: object) -> tuple[dict[str, object], list[Finding]]:
    """({way: codec as written}, what is wrong: (path below `compress`, found, expected))."""
    if written in (None, "none", False):
        return {}, []
    if not isinstance(written, (str, Mapping)) or not written:
        return {}, [((), shown(written), _EXAMPLE)]
    if isinstance(written, str) or not set(written) & set(WAYS):
        return {"up": written}, [((), shown(written), wrong)] if (wrong := _wrong_codec(written)) else []
    ways = {way: codec for way, codec in written.items() if codec not in (None, "none", False)}
    found: list[Finding] = [((way,), shown(codec), wrong) for way, codec in ways.items()
                            if (wrong := _wrong_codec(codec) if way in WAYS else _EXAMPLE)]
    return ways, found


def _wrong_codec(written: str | PlainMapping) -> str:
    try:
        choose(written)
    except ValueError as error:
        return str(error)
    return ""


def cannot_compress(scheme: AnyScheme, entry: PlainMapping, entries: Sequence[AttackSpec],
                    plugins: Sequence[str] = ()) -> list[Finding]:
    """The mistakes of a scheme's `compress` that asks for something its messages do not allow."""
    found: list[Finding] = []
    for way in entry.get(COMPRESS, {}):
        if way not in scheme.compress:
            found.append(((COMPRESS, way), scheme.name,
                          "sends no vectors that a codec may change: what is masked, coded or "
                          "encrypted needs every coordinate of every client, as it is" if way == "up" else
                          "sends no model that a codec may change"))
    knowing = who_know_others(entries, plugins)
    if knowing and "down" in entry.get(COMPRESS, {}):
        found.append(((COMPRESS, "down"), f"attacks[{knowing[0]}].knows", "what others send cannot be computed again "
                      "from a compressed model: expected knows: own, or no compress.down"))
    return found


def who_know_others(entries: Sequence[AttackSpec], plugins: Sequence[str] = ()) -> list[int]:
    """The places of the attacks that compute again the updates of others."""
    known = attacks.known("update", plugins)
    return [i for i, one in enumerate(entries) if one.update is not None and one.update.name in known
            and (one.knows or attacks.needs(known[one.update.name])) != "own"]


def growing(entries: Sequence[tuple[str, PlainMapping]], dimension: Callable[[], int | None]) -> list[str]:
    """Warnings of codes that leave out more than they are given, where that is added to what is coded next: with
    `feedback`, and always on the way down. dimension: how many numbers the model has, None: not known; not asked
    without need."""
    found = []
    for name, entry in entries:
        for way, written in entry.get(COMPRESS, {}).items():
            codec = choose(written)
            if not (codec.keeps_errors or way == "down") or codec.grows(_MANY_NUMBERS) is None:
                continue
            d = dimension()
            why = None if d is None else codec.grows(d)
            if why is not None:
                kept = "what a code leaves out is in the next one" if way == "down" else "feedback: true"
                instead = "" if way == "down" else ", or feedback: false"
                found.append(f"{label_of(name, entry)}: compress.{way}: {written}: {kept}, and grows from round to "
                             f"round, since {why}{instead}")
    return found


_MANY_NUMBERS = 1 << 40                         # numbers of a vector: more than any code of few levels can take


# ---- training: skip ----

SKIP = "skip"


def cannot_skip(parts: SoundParts) -> Iterator[Finding]:
    """The parts of the scenario, besides its schemes, that need training."""
    compute, stop = parts.get("compute"), parts.get("stop")
    if compute is not None and compute.mode == "measured":
        yield ("compute", "mode"), "measured", "nothing to measure: expected profile, recorded, zero or a trace"
    for key in ("accuracy", "loss") if stop is not None else ():
        if (target := getattr(stop, key)) is not None:
            yield ("stop", key), str(target), "nothing is evaluated: expected rounds or virtual_time alone"
    if parts.get("attacks"):
        yield ("attacks",), "", "change what is learned, and nothing is: expected none"


def needs_training(scheme: AnyScheme, params: object, entry: PlainMapping) -> Iterator[Finding]:
    """The parts of a scheme's sound entry that decide by what was learned."""
    said = scheme.oblivious(params) if callable(scheme.oblivious) else []
    if not scheme.oblivious:
        yield (("name",), scheme.name,
               "decides by updates, losses or gradients (or does not say that it does not: oblivious)")
    for text in said:
        head, _, reason = text.partition(": ")
        key, _, value = head.partition(" = ")
        yield (key,), value, reason
    for way, codec in entry.get(COMPRESS, {}).items():
        if choose(codec).nbytes(_SOME_NUMBERS) is None:
            name = codec if isinstance(codec, str) else str(next(iter(codec)))
            yield (COMPRESS, way), name, "makes codes whose length depends on the values"


_SOME_NUMBERS = 1000        # coordinates: whether a code's length is known does not depend on how many
