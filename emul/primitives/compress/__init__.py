"""Vectors as fewer bytes, and back: what `compress:` of a scheme's entry names.

`codec`     what a codec is, and the reader of its bytes
`planes`    numbers as planes of bits: of fixed width, and Elias' gamma code
`sparse`    top-k and random-k                      `levels`   uniform quantisation, QSGD, FedPAQ's quantiser
`lowbit`    bfloat16, 8 bits by bins, E3M0; sign, one bit a coordinate
`lowrank`   PowerSGD
`CODECS`    all of them by name, as a scenario writes them: `top_k: {fraction: 0.01}`, `sign`
"""

import types
from collections.abc import Mapping

from emul.base.plain import PlainMapping
from emul.primitives import written as written_choice
from emul.primitives.compress.codec import Codec, Octets, Undecodable
from emul.primitives.compress.levels import QSGD, FedPAQ, Uniform
from emul.primitives.compress.lowbit import BF16, E3M0, Int8, Sign
from emul.primitives.compress.lowrank import PowerSGD
from emul.primitives.compress.sparse import RandomK, TopK

__all__ = ["BF16", "CODECS", "E3M0", "QSGD", "Codec", "FedPAQ", "Int8", "Octets", "PowerSGD", "RandomK", "Sign", "TopK",
           "Undecodable", "Uniform", "choose"]

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
