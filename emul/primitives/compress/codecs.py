"""The codecs by the names that a scenario uses: `top_k: {fraction: 0.01}`, `sign`."""

from __future__ import annotations

import types
from collections.abc import Mapping

from emul.base.plain import PlainMapping
from emul.primitives import written as written_choice
from emul.primitives.compress.codec import Codec
from emul.primitives.compress.levels import QSGD, FedPAQ, Uniform
from emul.primitives.compress.lowbit import BF16, E3M0, Int8, Sign
from emul.primitives.compress.lowrank import PowerSGD
from emul.primitives.compress.sparse import RandomK, TopK

CODECS: Mapping[str, type[Codec]] = types.MappingProxyType({
    "top_k": TopK, "random_k": RandomK, "uniform": Uniform, "qsgd": QSGD, "fedpaq": FedPAQ, "sign": Sign,
    "powersgd": PowerSGD, "bf16": BF16, "int8": Int8, "e3m0": E3M0,
})


def choose(written: str | PlainMapping) -> Codec:
    """The codec that a scenario writes: its name, or {name: {parameter: value}}.

    Raises ValueError with everything that is wrong with it.

    >>> choose({"top_k": {"k": 10}})
    TopK(k=10, fraction=None, feedback=True, chunk=None, bits=32)
    """
    codec: Codec = written_choice.choose(written, CODECS, "codec")[1]
    return codec
