"""Digits, equal shards, a CNN of 3,658 parameters; the order of batches is fixed by seed, round and client."""

import json
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

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


def _digits(where):
    x, y = load_digits(return_X_y=True)
    return TensorDataset(torch.from_numpy(x[where].reshape(-1, 1, 8, 8) / 16).float(), torch.from_numpy(y[where]))


def load_data(partition_id: int, num_partitions: int, batch_size: int, seed: int):
    """Loaders of 80 % and 20 % of the client's share."""
    mine = np.array_split(np.arange(TRAINING), num_partitions)[partition_id]
    cut = int(0.8 * len(mine))
    shuffled = torch.Generator().manual_seed(seed)
    return (DataLoader(_digits(mine[:cut]), batch_size=batch_size, shuffle=True, generator=shuffled),
            DataLoader(_digits(mine[cut:]), batch_size=batch_size))


def load_test():
    return DataLoader(_digits(slice(TRAINING, None)), batch_size=297)


def train(net, trainloader, epochs, lr):
    """Train the model; the mean loss of its batches."""
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / len(trainloader) / max(1, epochs)


@torch.no_grad()
def test(net, testloader):
    """Loss and accuracy."""
    net.eval()
    correct, loss, seen = 0, 0.0, 0
    for images, labels in testloader:
        outputs = net(images)
        loss += nn.functional.cross_entropy(outputs, labels, reduction="sum").item()
        correct += (outputs.argmax(1) == labels).sum().item()
        seen += len(labels)
    return loss / seen, correct / seen


def save(path, metrics):
    """Accuracies by round, where a file is asked for."""
    if path:
        Path(path).write_text(json.dumps(metrics))
