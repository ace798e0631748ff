import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from emul.learning import data, models
from emul.learning.evaluation import Scores, label_distribution, scores, spread
from emul.learning.parameters import FlatModule


@pytest.fixture
def digits():
    return data.load({"set": "digits"})


def test_accuracy_and_loss_are_those_of_the_whole_test_set_at_once(digits):
    net = models.create("digits_cnn", (1, 8, 8), 10, seed=3)
    x = torch.from_numpy((digits.test_x.astype(np.float32) / 16 - np.float32(0.3053)) / np.float32(0.3763))
    y = torch.from_numpy(digits.test_y.astype(np.int64))
    with torch.no_grad():
        output = net(x)
    flat = FlatModule(net)
    got = scores(flat, flat.read(), digits).overall()
    assert got["accuracy"] == (output.argmax(1) == y).double().mean().item()
    assert got["loss"] == pytest.approx(cross_entropy(output, y).item(), rel=1e-5)


class Noisy(nn.Module):
    """Draws even when it is evaluated."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.norm = nn.BatchNorm1d(10)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.linear(x.flatten(1)))) + torch.rand(10)


def test_evaluation_changes_no_state_and_no_stream(digits):
    flat = FlatModule(Noisy().train())
    vector = flat.read()
    vector.flags.writeable = False
    state = torch.get_rng_state()
    one = scores(flat, vector, digits).overall()
    assert torch.equal(state, torch.get_rng_state())
    assert flat.module.training
    np.testing.assert_array_equal(flat.read(), vector)
    torch.rand(1)
    assert scores(flat, vector, digits).overall() == one


def test_a_client_sees_the_test_set_through_its_own_labels():
    s = Scores(np.array([10, 40, 0, 50]), {"accuracy": np.array([5, 40, 0, 10]),
                                           "loss": np.array([10., 4, 0, np.inf])})
    assert s.overall()["accuracy"] == 0.55
    assert s.under(np.array([0.5, 0.5, 0, 0])) == {"accuracy": 0.75, "loss": 0.55}      # no 0 * inf
    assert s.under(np.array([0.25, 0.25, 0.5, 0])) == {"accuracy": 0.75, "loss": 0.55}  # class 2 is not in the test
    assert np.isnan(s.under(np.array([0, 0, 1.0, 0]))["accuracy"])
    assert s.under(s.count / 100)["accuracy"] == pytest.approx(0.55)


def test_label_distribution_and_spread():
    assert label_distribution(np.array([0, 2, 2, 2], np.uint8), 4).tolist() == [0.25, 0, 0.75, 0]
    assert label_distribution(np.array([], np.uint8), 2).tolist() == [0, 0]
    assert spread(np.array([1.0, 3.0])) == {"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0}
