"""`compress` of a scheme's entry: how its updates, and its model on the way down, become fewer bytes.

    compress: {top_k: {fraction: 0.01}}                                 up, from clients to the server
    compress: {up: {qsgd: {levels: 16}}, down: {uniform: {bits: 8}}}

The codecs are those of `emul.primitives.compress`. Any scheme may be told so whose updates are sent in the clear, one
by one, through `emul.protocols.updates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from emul import attacks, schemes
from emul.primitives.compress import choose
from emul.scenario.attacks import Attack
from emul.scenario.labels import COMPRESS
from emul.scenario.source import shown
from emul.scenario.values import Finding

WAYS = {"up": "PackedUpdate", "down": "PackedModel"}         # the types of `emul.protocols.updates`, by name
_EXAMPLE = "expected a codec such as {top_k: {fraction: 0.01}}, or {up: codec, down: codec}"


def compress_value(written: Any) -> tuple[dict[str, Any], list[Finding]]:
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


def _wrong_codec(written: Any) -> str:
    try:
        choose(written)
    except ValueError as error:
        return str(error)
    return ""


def cannot_compress(name: str, module: ModuleType, entry: Mapping[str, Any], entries: Sequence[Attack],
                    plugins: Sequence[str] = ()) -> list[Finding]:
    """What a scheme's `compress` asks for that its messages do not allow."""
    listed = schemes.message_names(module)
    found: list[Finding] = []
    for way in entry.get(COMPRESS, {}):
        if WAYS[way] not in listed:
            found.append(((COMPRESS, way), name, "sends no vectors that a codec may change: what is masked, coded or "
                          "encrypted needs every coordinate of every client, as it is" if way == "up" else
                          "sends no model that a codec may change"))
    known = attacks.known("update", plugins)
    knowing = [i for i, one in enumerate(entries) if one.update is not None and one.update.name in known
               and (one.knows or attacks.needs(known[one.update.name])) != "own"]
    if knowing and "down" in entry.get(COMPRESS, {}):
        found.append(((COMPRESS, "down"), f"attacks[{knowing[0]}].knows", "what others send cannot be computed again "
                      "from a compressed model: expected knows: own, or no compress.down"))
    return found
