"""Models by name. Each is a function (input_shape, outputs) -> torch.nn.Module, which imports torch when called.

The MNIST nets are those of the Fair-SecCoGC experiments: `mnist_printed` as the paper prints it (no activation, no
pooling: a linear map), `mnist_pooled` with ReLU and pooling added, `mnist_classic` the widely used net of 5 x 5
convolutions; `cinic_cnn` is the paper's net for CINIC-10. Models of users are looked up by `emul.learning.names`.

Prototype methods cut a model in two: the *representation*, whose output is the feature vector C of a sample, and the
*decision* on it. A model that can be cut is an nn.Sequential with the number of modules before the cut; `convolutions`
is the number of modules at the front that some methods share alone. Models of users say all three as attributes of the
module: `features` (the length of C), `features_at`, `convolutions_at`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from emul.base.errors import EmulError
from emul.base.streams import torch_stream
from emul.learning.names import MODEL, find, unknown
from emul.learning.names import names as names_of

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]
Build = Callable[[Any, int], "nn.Module"]


class ModelError(EmulError):
    """A model is unknown or does not fit the data."""


@dataclass(frozen=True)
class Model:
    """How to build a model, and the one input shape that it accepts (None: any)."""

    build: Build
    input_shape: Shape | None = None
    features: int | None = None         # length n of C; None: the model is not cut
    features_at: int | None = None      # modules before the cut
    convolutions_at: int | None = None  # modules at the front up to the last convolution
    relu: bool = True                   # whether the representation ends with a ReLU


def digits_cnn(input_shape: Shape, classes: int) -> nn.Module:
    """Two 3 x 3 convolutions with ReLU and pooling, 64-32-10: 3,658 parameters.

    Initialised for ReLU (He et al. 2015), so that a few short rounds of plain SGD get it off the ground.
    """
    from torch import nn

    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),      # (B, 16, 2, 2)
                        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))
    for layer in net:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return net


def digits_mlp(input_shape: Shape, classes: int) -> nn.Module:
    """One hidden layer of 50: on digits 64-50-10, 3,760 parameters."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), 50), nn.ReLU(), nn.Linear(50, classes))


def logistic(input_shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes))


def mnist_printed(input_shape: Shape, classes: int) -> nn.Module:
    """C(1,10) C(10,20) D L(50) L(10), C = 3 x 3 with padding 1, D = dropout 0.2: 786,480 parameters, linear."""
    from torch import nn

    from emul.learning.dropout import Dropout

    return nn.Sequential(nn.Conv2d(1, 10, 3, padding=1), nn.Conv2d(10, 20, 3, padding=1),
                         nn.Flatten(), Dropout(0.2), nn.Linear(15680, 50), nn.Linear(50, classes))


def mnist_pooled(input_shape: Shape, classes: int) -> nn.Module:
    """`mnist_printed` with ReLU and 2 x 2 max-pooling: 51,480 parameters."""
    from torch import nn

    from emul.learning.dropout import Dropout

    return nn.Sequential(nn.Conv2d(1, 10, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(10, 20, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),    # (B, 20, 7, 7)
                         nn.Flatten(), Dropout(0.2), nn.Linear(980, 50), nn.ReLU(), nn.Linear(50, classes))


def mnist_classic(input_shape: Shape, classes: int) -> nn.Module:
    """Two 5 x 5 convolutions with pooling, dropout 0.5, 320-50-10: 21,840 parameters."""
    from torch import nn

    from emul.learning.dropout import Dropout

    return nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(10, 20, 5), nn.Dropout2d(0.5), nn.MaxPool2d(2), nn.ReLU(),   # (B, 20, 4, 4)
                         nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), Dropout(0.5), nn.Linear(50, classes))


def mnist_2nn(input_shape: Shape, classes: int) -> nn.Module:
    """784-200-200-10 with ReLU: 199,210 parameters. McMahan et al., AISTATS 2017, section 3, "2NN"."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(),
                         nn.Linear(200, classes))


def digits_classic(input_shape: Shape, classes: int) -> nn.Module:
    """`mnist_classic` for 8 x 8: two 3 x 3 convolutions to 10 and 20 channels, 80-50-10: 6,480 parameters."""
    from torch import nn

    return nn.Sequential(nn.Conv2d(1, 10, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(10, 20, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),       # (B, 20, 2, 2)
                         nn.Flatten(), nn.Linear(80, 50), nn.ReLU(), nn.Linear(50, classes))


def femnist_classic(input_shape: Shape, classes: int) -> nn.Module:
    """`mnist_classic` for raw 128 x 128 images of 62 classes: 16,820-50-62, 849,332 parameters."""
    from torch import nn

    return nn.Sequential(nn.Conv2d(1, 10, 3), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(10, 20, 5), nn.Dropout2d(0.5), nn.MaxPool2d(2), nn.ReLU(),    # (B, 20, 29, 29)
                         nn.Flatten(), nn.Linear(16820, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, classes))


def resnet18(input_shape: Shape, classes: int) -> nn.Module:
    """He et al. 2016, table 1, 18 layers, untrained: 11,181,642 parameters for 10 classes. C (512) = average pool."""
    from torch import nn

    def stage(inside: int, outside: int, stride: int) -> nn.Module:
        return nn.Sequential(_block(inside, outside, stride), _block(outside, outside, 1))

    return nn.Sequential(nn.Conv2d(input_shape[0], 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1), stage(64, 64, 1), stage(64, 128, 2), stage(128, 256, 2),
                         stage(256, 512, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def _block(inside: int, outside: int, stride: int) -> nn.Module:
    """relu(f(x) + g(x)): f two 3 x 3 convolutions, g the identity, or a 1 x 1 convolution where shapes differ."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside),
                                   nn.ReLU(), nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
                                   nn.BatchNorm2d(outside))
            self.g = nn.Identity() if stride == 1 and inside == outside else nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.f(x) + self.g(x))

    return Block()


def cinic_cnn(input_shape: Shape, classes: int) -> nn.Module:
    """C(3,32) R M C(32,32) R M D L(512) R D L(256) R D L(10), 1,193,130 parameters: for CINIC-10 and CIFAR-10.

    C = 3 x 3 with padding 1, R = ReLU, M = 2 x 2 max-pooling, D = dropout 0.2.
    """
    from torch import nn

    from emul.learning.dropout import Dropout

    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),    # (B, 32, 8, 8)
                         nn.Flatten(), Dropout(0.2), nn.Linear(2048, 512), nn.ReLU(),
                         Dropout(0.2), nn.Linear(512, 256), nn.ReLU(), Dropout(0.2), nn.Linear(256, classes))


def _residual(name: str) -> Build:
    """A net of `emul.learning.residual`, which imports torch when it is built."""
    def build(input_shape: Shape, classes: int) -> nn.Module:
        from emul.learning import residual

        found: nn.Module = getattr(residual, name)(input_shape, classes)
        return found

    return build


_DIGITS, _MNIST, _CIFAR, _FEMNIST = (1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 128, 128)
BUILT_IN = {
    "digits_cnn": Model(digits_cnn, _DIGITS), "digits_mlp": Model(digits_mlp), "logistic": Model(logistic),
    "mnist_printed": Model(mnist_printed, _MNIST), "mnist_pooled": Model(mnist_pooled, _MNIST),
    "mnist_2nn": Model(mnist_2nn, _MNIST), "mnist_classic": Model(mnist_classic, _MNIST, 50, 10, 7),
    "cinic_cnn": Model(cinic_cnn, _CIFAR),
    "digits_classic": Model(digits_classic, _DIGITS, 50, 9, 6),
    "femnist_classic": Model(femnist_classic, _FEMNIST, 50, 10, 7),
    "resnet18": Model(resnet18, None, 512, 10, 8, relu=False),
    "digits_residual": Model(_residual("digits_residual"), _DIGITS),
    "mnist_residual": Model(_residual("mnist_residual"), _MNIST),
    **{name: Model(_residual(name)) for name in ("resnet20", "resnet20_bn", "resnet56", "resnet56_bn")},
}


def names(plugins: Sequence[str] = ()) -> list[str]:
    """Every model that can be asked for."""
    return names_of(MODEL, BUILT_IN, plugins)


def misfit(name: str, input_shape: Any) -> str | None:
    """What a built-in model expects if it cannot take samples of that shape; None if it can, or nobody knows."""
    wanted = BUILT_IN[name].input_shape if name in BUILT_IN else None
    if wanted is None or wanted == input_shape:
        return None
    return f"{name} takes samples of shape {wanted}, the data have {input_shape}"


def create(name: str, input_shape: Any, outputs: int, seed: int, plugins: Sequence[str] = ()) -> nn.Module:
    """Build the model with its first weights: equal for everybody who gives the same arguments.

    input_shape: of a sample; {name: shape} where it has several tensors. outputs: the number of classes, or of what is
    predicted. Weights come from the stream (seed, "init", name). Raises ModelError if the name is unknown or the shape
    wrong.
    """
    build = BUILT_IN[name].build if name in BUILT_IN else find(MODEL, name, plugins)
    if build is None:
        raise ModelError(unknown("model", names(plugins), name))
    reason = misfit(name, input_shape)
    if reason:
        raise ModelError(reason)
    with torch_stream(seed, "init", name):
        module = build(input_shape, outputs)
    cut = BUILT_IN.get(name)
    for said in ("features", "features_at", "convolutions_at") if cut is not None and cut.features_at else ():
        setattr(module, said, getattr(cut, said))
    return module
