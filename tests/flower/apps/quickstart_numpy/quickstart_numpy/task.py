"""Digits, equal shards, softmax regression by full-batch gradient descent: nothing is drawn."""

import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TRAINING = 1500             # of 1797 samples; the server tests on the others


def load_data(partition_id: int, num_partitions: int):
    """The client's share of the training samples."""
    x, y = load_digits(return_X_y=True)
    mine = np.array_split(np.arange(TRAINING), num_partitions)[partition_id]
    return x[mine] / 16, y[mine]


def load_test():
    x, y = load_digits(return_X_y=True)
    return x[TRAINING:] / 16, y[TRAINING:]


def get_model():
    return [np.zeros((64, 10), np.float32), np.zeros(10, np.float32)]


def _probabilities(model, x):
    logits = x @ model[0] + model[1]
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def train(model, x, y, epochs, learning_rate):
    """The trained model and its loss."""
    for _ in range(epochs * 10):
        slope = (_probabilities(model, x) - np.eye(10)[y]) / len(x)
        model = [model[0] - learning_rate * (x.T @ slope), model[1] - learning_rate * slope.sum(axis=0)]
    return [array.astype(np.float32) for array in model], test(model, x, y)[0]


def test(model, x, y):
    """Loss and accuracy."""
    p = _probabilities(model, x)
    return float(-np.log(p[np.arange(len(y)), y] + 1e-12).mean()), float((p.argmax(axis=1) == y).mean())


def save(path, metrics):
    """Accuracies by round, where a file is asked for."""
    if path:
        Path(path).write_text(json.dumps(metrics))
