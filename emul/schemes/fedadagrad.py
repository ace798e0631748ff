"""FedAdagrad: the server's steps shrink by all that a coordinate has moved. Reddi et al., ICLR 2021, Algorithm 2."""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("fedadagrad", "deadline: 1 s")

SCHEME = Variant(
    of="fedadam", fixed={"second": "adagrad"}, defaults={"rate": 0.1, "beta1": 0.0}, example=EXAMPLE)
