import re

import pytest
import torch

from emul.learning import models
from emul.learning.models import ModelError


@pytest.mark.parametrize(("name", "shape", "count"), [
    ("digits_cnn", (1, 8, 8), 3658), ("digits_mlp", (1, 8, 8), 3760), ("logistic", (1, 8, 8), 650),
    ("mnist_printed", (1, 28, 28), 786_480), ("mnist_pooled", (1, 28, 28), 51_480),
    ("mnist_classic", (1, 28, 28), 21_840), ("mnist_2nn", (1, 28, 28), 199_210), ("mnist_lenet", (1, 28, 28), 431_080),
    ("cinic_cnn", (3, 32, 32), 1_193_130),
    ("digits_residual", (1, 8, 8), 4850), ("mnist_residual", (1, 28, 28), 12_530), ("resnet20", (3, 32, 32), 268_346),
    ("resnet20_bn", (3, 32, 32), 269_722), ("resnet56", (3, 32, 32), 848_954), ("resnet56_bn", (3, 32, 32), 853_018)])
def test_nets_have_the_published_number_of_parameters(name, shape, count):
    net = models.create(name, shape, 10, seed=1)
    assert sum(p.numel() for p in net.parameters()) == count
    assert net(torch.zeros(2, *shape)).shape == (2, 10)


def test_the_printed_net_is_linear_and_the_others_are_not():
    x, y = torch.rand(2, 4, 1, 28, 28)

    def bend(name):                                     # f(x + y) + f(0) - f(x) - f(y), 0 for an affine f
        net = models.create(name, (1, 28, 28), 10, seed=1).eval()
        return (net(x + y) + net(0 * x) - net(x) - net(y)).abs().max()
    assert bend("mnist_printed") < 1e-5
    assert bend("mnist_pooled") > 1e-3
    assert bend("mnist_classic") > 1e-3


def test_initial_weights_depend_on_the_seed_alone_and_leave_torchs_generator_alone():
    before = torch.get_rng_state()
    one, two, other = (models.create("digits_cnn", (1, 8, 8), 10, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])


@pytest.mark.parametrize(("name", "text"), [
    ("digit_cnn", 'unknown model "digit_cnn"; did you mean "digits_cnn"?'),
    ("perceptron", 'unknown model "perceptron"; known are characters_mlp, cinic_cnn, digits_classic, digits_cnn, '
                    "digits_mlp, digits_residual, femnist_classic, logistic, mnist_2nn, mnist_classic, mnist_lenet, "
                    "mnist_pooled, mnist_printed, mnist_residual, resnet18, resnet20, resnet20_bn, resnet56, "
                    "resnet56_bn, transformer"),
    ("mnist_pooled", "mnist_pooled takes samples of shape (1, 28, 28), the data have (1, 8, 8)")])
def test_what_cannot_be_built_is_said(name, text):
    with pytest.raises(ModelError, match=f"^{re.escape(text)}$"):
        models.create(name, (1, 8, 8), 10, seed=0)


def test_a_model_of_the_user_is_called_with_shape_and_classes(monkeypatch):
    def build(shape, outputs):
        return torch.nn.Linear(shape[0], outputs)
    monkeypatch.setattr(models, "find", lambda kind, name, plugins: build)
    net = models.create("mine", (3,), 4, seed=0)
    assert net.weight.shape == (4, 3)
