"""`compress` of a scheme's entry: how its updates, and its model on the way down, become fewer bytes.

    compress: {top_k: {fraction: 0.01}}                                 up, from clients to the server
    compress: {up: {qsgd: {levels: 16}}, down: {uniform: {bits: 8}}}

The codecs are those of `emul.primitives.compress`. Any scheme may be told so whose updates are sent in the clear, one
by one (`Scheme.compress`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from emul.base.plain import PlainMapping
from emul.primitives.compress import choose
from emul.registry import attacks
from emul.roles.scheme import AnyScheme, Way
from emul.scenario.attacks import AttackSpec
from emul.scenario.labels import COMPRESS, label_of
from emul.scenario.wording import Finding, shown

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
            if not (codec.keeps_errors or way == "down") or codec.grows(_MANY) is None:
                continue
            d = dimension()
            why = None if d is None else codec.grows(d)
            if why is not None:
                kept = "what a code leaves out is in the next one" if way == "down" else "feedback: true"
                instead = "" if way == "down" else ", or feedback: false"
                found.append(f"{label_of(name, entry)}: compress.{way}: {written}: {kept}, and grows from round to "
                             f"round, since {why}{instead}")
    return found


_MANY = 1 << 40                         # numbers of a vector: more than any code of few levels can take
