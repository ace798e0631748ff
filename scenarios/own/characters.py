"""Text: the next character of the descriptions of data sets that come with scikit-learn.

`cd scenarios/own && emul run characters.yaml --plugin characters`. A client holds whole documents (`by: document`).
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz0123456789.,:;()-_'`*=/<>[]{}#|^&%$!?\"+~\\@"
WINDOW = 24                         # characters of a sample
TEST_EVERY = 6                      # each sixth window of a document is a test sample


def descriptions(spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """Windows of 24 characters and those that come after each, (n, 24) int64 both; `document` is the file."""
    folder = resources.files("sklearn.datasets.descr")
    windows, documents = [], []
    for file in sorted((file for file in folder.iterdir() if file.name.endswith(".rst")), key=lambda file: file.name):
        tokens = encode(file.read_text("utf-8"))
        count = (len(tokens) - 1) // WINDOW
        windows.append(np.stack([tokens[i * WINDOW:(i + 1) * WINDOW + 1] for i in range(count)]))
        documents += [file.name.removesuffix(".rst")] * count
    found, names = np.concatenate(windows), np.array(documents)
    test = np.arange(len(found)) % TEST_EVERY == 0
    return {"train_x": found[~test, :-1], "train_y": found[~test, 1:], "train_document": names[~test],
            "test_x": found[test, :-1], "test_y": found[test, 1:], "test_document": names[test]}


def encode(text: str) -> np.ndarray:
    """Places in the alphabet, (len(text),) int64; of what is not in it, that of a space."""
    place = {character: i for i, character in enumerate(ALPHABET)}
    return np.array([place.get(character, place[" "]) for character in text.lower()], np.int64)


class Lstm(nn.Module):
    """Embedding, one LSTM layer, a linear layer on what it puts out after each character."""

    def __init__(self, outputs: int, width: int = 48):
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), 16)
        self.lstm = nn.LSTM(16, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:                 # (B, t) int64 -> (B, t, outputs)
        return self.head(self.lstm(self.embedding(x))[0])


class Transformer(nn.Module):
    """One block of causal attention and of a feed-forward net, on embeddings of characters and of places."""

    def __init__(self, outputs: int, width: int = 32, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.characters, self.places = nn.Embedding(len(ALPHABET), width), nn.Embedding(WINDOW, width)
        self.before, self.between, self.after = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:                 # (B, t) int64 -> (B, t, outputs)
        h = self.characters(x) + self.places(torch.arange(x.shape[1], device=x.device))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.before(h)).chunk(3, -1))                   # (B, heads, t, width / heads)
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        score = (q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5).masked_fill(~seen, float("-inf"))
        h = h + self.out((score.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        h = h + self.narrow(F.gelu(self.wide(self.between(h))))
        return self.head(self.after(h))


DATA = {"descriptions": descriptions}
MODELS = {"char_lstm": lambda input_shape, outputs: Lstm(outputs),
          "char_transformer": lambda input_shape, outputs: Transformer(outputs)}
