"""FedYogi: FedAdam whose second moment moves by squares alone. Reddi et al., ICLR 2021, Algorithm 2."""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("fedyogi", "deadline: 1 s")

SCHEME = Variant(of="fedadam", fixed={"second": "yogi"}, example=EXAMPLE)
