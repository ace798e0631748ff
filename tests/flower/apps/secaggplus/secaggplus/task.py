"""Digits, equal shards, a CNN of 3,658 parameters; the order of batches is fixed by seed, round and client."""

import json
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

TRAINING = 1500             # of 1797 samples; the server tests on the others


class Net(nn.Module):
    """For images of 8 x 8 pixels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def load_data(partition_id: int, num_partitions: int):
    """The client's share of the training samples."""
    return _digits(np.array_split(np.arange(TRAINING), num_partitions)[partition_id])


def load_test():
    return _digits(slice(TRAINING, None))


def _digits(where):
    x, y = load_digits(return_X_y=True)
    return torch.from_numpy(x[where].reshape(-1, 1, 8, 8) / 16).float(), torch.from_numpy(y[where])


def get_weights(net):
    return [value.numpy() for value in net.state_dict().values()]


def set_weights(net, parameters):
    net.load_state_dict({name: torch.tensor(value) for name, value in zip(net.state_dict(), parameters, strict=True)})


def train(net, x, y, epochs, lr, seed):
    """Plain SGD in batches of 10."""
    order_of = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order_of).split(10):
            optimizer.zero_grad()
            functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()


@torch.no_grad()
def test(net, x, y):
    """Loss and accuracy."""
    outputs = net(x)
    return functional.cross_entropy(outputs, y).item(), (outputs.argmax(1) == y).double().mean().item()


def save(path, metrics):
    """Accuracies by round, where a file is asked for."""
    if path:
        Path(path).write_text(json.dumps(metrics))
