"""Models by name. Each is a function (input_shape, outputs) -> torch.nn.Module, which imports torch when called. Some
take options: `model: {transformer: {blocks: 5}}` is called with (input_shape, outputs, blocks=5).

The MNIST nets are those of the Fair-SecCoGC experiments: `mnist_printed` as the paper prints it (no activation, no
pooling: a linear map), `mnist_pooled` with ReLU and pooling added, `mnist_classic` the widely used net of 5 x 5
convolutions; `cinic_cnn` is the paper's net for CINIC-10. Models of users are looked up by `emul.learning.names`.

Prototype methods cut a model in two: the *representation*, whose output is the feature vector C of a sample, and the
*decision* on it. A model that can be cut is an nn.Sequential with the number of modules before the cut; `convolutions`
is the number of modules at the front that some methods share alone. Models of users say all three as attributes of the
module: `features` (the length of C), `features_at`, `convolutions_at`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from emul.base.errors import EmulError
from emul.base.plain import PlainMapping
from emul.base.streams import torch_stream
from emul.learning.names import MODEL, find, unknown, with_options
from emul.learning.names import names as names_of

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]
Build = Callable[..., "nn.Module"]      # (input_shape, outputs, **options)


class ModelError(EmulError):
    """A model is unknown or does not fit the data."""


@dataclass(frozen=True)
class ModelBuilder:
    """A function that builds a model, and the one input shape that the model accepts (None: any)."""

    build: Build
    input_shape: Shape | None = None
    features: int | None = None         # length n of C; None: the model is not cut
    features_at: int | None = None      # modules before the cut
    convolutions_at: int | None = None  # modules at the front up to the last convolution
    relu: bool = True                   # true if the representation ends with a ReLU
    tokens: bool = False                # true if samples are rows of tokens
    options: Mapping[str, int] = field(default_factory=dict)    # each with its default; all are 1 or more


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


def characters_mlp(input_shape: Shape, classes: int) -> nn.Module:
    """The next token of the t before it: embeddings of 8 numbers, one hidden layer of 50. Bengio et al., JMLR 2003.

    For t = 8 and 29 characters 232 + 64-50-29: 4,961 parameters. Tokens are those of the classes.
    """
    from torch import nn

    return nn.Sequential(nn.Embedding(classes, 8), nn.Flatten(), nn.Linear(8 * prod(input_shape), 50), nn.ReLU(),
                         nn.Linear(50, classes))


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


def mnist_lenet(input_shape: Shape, classes: int) -> nn.Module:
    """Two 5 x 5 convolutions to 20 and 50 channels with ReLU and pooling, 800-500-10: 431,080 parameters. The LeNet of
    Caffe's and PyTorch's examples."""
    from torch import nn

    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, classes))


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

    from emul.learning.residual import projected_block

    def stage(inside: int, outside: int, stride: int) -> nn.Module:
        return nn.Sequential(projected_block(inside, outside, stride), projected_block(outside, outside, 1))

    return nn.Sequential(nn.Conv2d(input_shape[0], 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1), stage(64, 64, 1), stage(64, 128, 2), stage(128, 256, 2),
                         stage(256, 512, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


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


def transformer(input_shape: Shape, classes: int, **options: int) -> nn.Module:
    """The language model of `emul.learning.transformer`, which imports torch when it is built."""
    from emul.learning import transformer as made

    return made.transformer(input_shape, classes, **options)


_DIGITS, _MNIST, _CIFAR, _FEMNIST = (1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 128, 128)
BUILT_IN = {
    "digits_cnn": ModelBuilder(digits_cnn, _DIGITS), "digits_mlp": ModelBuilder(digits_mlp),
    "logistic": ModelBuilder(logistic), "characters_mlp": ModelBuilder(characters_mlp, tokens=True),
    "mnist_printed": ModelBuilder(mnist_printed, _MNIST), "mnist_pooled": ModelBuilder(mnist_pooled, _MNIST),
    "mnist_2nn": ModelBuilder(mnist_2nn, _MNIST), "mnist_classic": ModelBuilder(mnist_classic, _MNIST, 50, 10, 7),
    "mnist_lenet": ModelBuilder(mnist_lenet, _MNIST), "cinic_cnn": ModelBuilder(cinic_cnn, _CIFAR, 256, 13, 6),
    "digits_classic": ModelBuilder(digits_classic, _DIGITS, 50, 9, 6),
    "femnist_classic": ModelBuilder(femnist_classic, _FEMNIST, 50, 10, 7),
    "transformer": ModelBuilder(transformer, tokens=True, options={"blocks": 5, "width": 128, "heads": 4}),
    "resnet18": ModelBuilder(resnet18, None, 512, 10, 8, relu=False),
    "digits_residual": ModelBuilder(_residual("digits_residual"), _DIGITS),
    "mnist_residual": ModelBuilder(_residual("mnist_residual"), _MNIST),
    **{name: ModelBuilder(_residual(name)) for name in ("resnet20", "resnet20_bn", "resnet56", "resnet56_bn")},
}


def names(plugins: Sequence[str] = ()) -> list[str]:
    """Every model that can be asked for."""
    return names_of(MODEL, BUILT_IN, plugins)


def parse(spec: object) -> tuple[str, dict[str, int]]:
    """Name and options of a model as a scenario writes it. Raises ModelError.

    >>> parse("logistic"), parse({"transformer": {"blocks": 5}})
    (('logistic', {}), ('transformer', {'blocks': 5}))
    """
    found = with_options(spec)
    if found is None:
        raise ModelError("expected the name of a model, or one with options such as {transformer: {blocks: 5}}")
    return found


def name_of(spec: object) -> str:
    """The name of the model of a task as written; "" where it names none."""
    try:
        return parse(spec)[0]
    except ModelError:
        return ""


def wrong_options(name: str, options: PlainMapping) -> Iterator[tuple[str, object, str]]:
    """(option, found, expected) of the mistakes in the options of a built-in model; those of others are their
    author's."""
    if name not in BUILT_IN:
        return
    known = BUILT_IN[name].options
    for key, value in options.items():
        if key not in known:
            yield key, value, unknown("option", known, key, show_name=False) if known else f"{name} has no options"
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield key, value, "expected an integer >= 1"
        elif key == "heads" and type(width := options.get("width", known["width"])) is int and width % value:
            yield key, value, f"expected a number that divides the width {width}"


def misfit(name: str, input_shape: object) -> str | None:
    """The shape that a built-in model expects if it cannot take this one; None if it can, or nobody knows."""
    if name in BUILT_IN and BUILT_IN[name].tokens and not (isinstance(input_shape, tuple) and len(input_shape) == 1):
        return f"{name} takes rows of tokens, such as those of the set text, the data have {input_shape}"
    wanted = BUILT_IN[name].input_shape if name in BUILT_IN else None
    if wanted is None or wanted == input_shape:
        return None
    return f"{name} takes samples of shape {wanted}, the data have {input_shape}"


def create(spec: object, input_shape: Any, outputs: int, seed: int, plugins: Sequence[str] = (),
           ) -> nn.Module:
    """Build the model with its first weights: equal for everybody who gives the same arguments.

    spec: its name, or {name: options}. input_shape: of a sample; {name: shape} where it has several tensors. outputs:
    the number of classes, or of what is predicted. Weights come from the stream (seed, "init", name). Raises ModelError
    if the name is unknown, an option or the shape wrong.
    """
    name, options = parse(spec)
    build = BUILT_IN[name].build if name in BUILT_IN else find(MODEL, name, plugins)
    if build is None:
        raise ModelError(unknown("model", names(plugins), name))
    for key, found, expected in wrong_options(name, options):
        raise ModelError(f"model {name}: {key}: {expected}, found {found!r}")
    reason = misfit(name, input_shape)
    if reason:
        raise ModelError(reason)
    cut = BUILT_IN.get(name)
    with torch_stream(seed, "init", name):
        module = build(input_shape, outputs, **{**(cut.options if cut is not None else {}), **options})
    for said in ("features", "features_at", "convolutions_at") if cut is not None and cut.features_at else ():
        setattr(module, said, getattr(cut, said))
    return module
