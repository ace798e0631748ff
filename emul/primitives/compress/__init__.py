"""Vectors as fewer bytes, and back: what `compress:` of a scheme's entry names.

`codec`     what a codec is, and the reader of its bytes
`planes`    numbers as planes of bits: of fixed width, and Elias' gamma code
`sparse`    top-k and random-k                      `levels`   uniform quantisation, QSGD, FedPAQ's quantiser
`lowbit`    bfloat16, 8 bits by bins, E3M0; sign, one bit a coordinate
`lowrank`   PowerSGD
`codecs`    all of them by name, as a scenario writes them
"""

from emul.primitives.compress.codec import Codec, Octets, Undecodable
from emul.primitives.compress.codecs import CODECS, choose
from emul.primitives.compress.levels import QSGD, FedPAQ, Uniform
from emul.primitives.compress.lowbit import BF16, E3M0, Int8, Sign
from emul.primitives.compress.lowrank import PowerSGD
from emul.primitives.compress.sparse import RandomK, TopK

__all__ = ["BF16", "CODECS", "E3M0", "QSGD", "Codec", "FedPAQ", "Int8", "Octets", "PowerSGD", "RandomK", "Sign", "TopK",
           "Undecodable", "Uniform", "choose"]
