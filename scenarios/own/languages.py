"""Fine-tuning a small transformer: which of six made-up languages is a text of 24 letters of?

`cd scenarios/own && emul run languages.yaml --plugin languages`. A language is a Markov chain of letters. The model was
trained before, on twelve other languages, by `python languages.py`, which writes languages.safetensors. Clients speak
some of the six more than others (`dirichlet`), and tune all of the model, a head, or a head and LoRA's adapters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from emul.learning.adapters import lora

LETTERS, LENGTH, WIDTH, HEADS, BLOCKS = 24, 24, 32, 4, 2
BEFORE, NEW = range(12), range(12, 18)          # languages
TRAINED = Path(__file__).with_name("languages.safetensors")


def texts(languages: range, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n texts (n, LENGTH) int64, and which of the languages each is of, from 0, (n,) int64."""
    chains = np.stack([np.random.default_rng(language).dirichlet(np.full(LETTERS, 0.1), LETTERS).cumsum(1)
                       for language in languages])                              # (languages, LETTERS, LETTERS)
    rng = np.random.default_rng(seed)
    label, found = rng.integers(0, len(languages), n), np.empty((n, LENGTH), np.int64)
    found[:, 0] = rng.integers(0, LETTERS, n)
    for i in range(1, LENGTH):
        found[:, i] = (chains[label, found[:, i - 1]] < rng.random(n)[:, None]).sum(1).clip(max=LETTERS - 1)
    return found, label


def new_languages(spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """Texts of the six languages that the model has not seen."""
    (train_x, train_y), (test_x, test_y) = (texts(NEW, spec.get(part, n), seed) for part, n, seed in (
        ("samples", 300, 1), ("test_samples", 1200, 2)))
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


class Block(nn.Module):
    """Attention, then a feed-forward net, each beside what it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, h: Tensor) -> Tensor:                 # (B, t, WIDTH) both
        normal = self.before(h)
        q, k, v = (layer(normal).unflatten(-1, (HEADS, -1)).transpose(-2, -3)           # (B, HEADS, t, WIDTH / HEADS)
                   for layer in (self.query, self.key, self.value))
        weights = (q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5).softmax(-1)
        h = h + self.out((weights @ v).transpose(-2, -3).flatten(-2))
        return h + self.narrow(F.gelu(self.wide(self.between(h))))


class Transformer(nn.Module):
    """Letters and their places, two blocks, the mean over the text, a linear head."""

    def __init__(self, outputs: int):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.after, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:                 # (B, t) int64 -> (B, outputs)
        h = self.letters(x) + self.places(torch.arange(x.shape[-1], device=x.device))
        return self.head(self.after(self.blocks(h)).mean(-2))


def trained_before(outputs: int) -> Transformer:
    """The transformer as it was trained on other languages, with a head of its own."""
    model = Transformer(outputs)
    model.load_state_dict(load_file(TRAINED), strict=False)
    return model


def head_only(input_shape: Any, outputs: int) -> nn.Module:
    model = trained_before(outputs).requires_grad_(False)
    model.head.requires_grad_(True)
    return model


def with_lora(input_shape: Any, outputs: int) -> nn.Module:
    return lora(trained_before(outputs), rank=4, alpha=8, layers=lambda name: name.endswith((".query", ".value")),
                trained=lambda name: name.startswith("head."))


DATA = {"new_languages": new_languages}
MODELS = {"languages_scratch": lambda input_shape, outputs: Transformer(outputs),
          "languages_full": lambda input_shape, outputs: trained_before(outputs),
          "languages_head": head_only, "languages_lora": with_lora}


def train_before(steps: int = 3000) -> Transformer:
    """Train on the other languages; 20 s on one core."""
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(1)
        model = Transformer(len(BEFORE))
        optimiser = torch.optim.Adam(model.parameters(), 2e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, steps)
        for step in range(steps):
            x, y = map(torch.from_numpy, texts(BEFORE, 64, 100 + step))
            loss = F.cross_entropy(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model


if __name__ == "__main__":
    save_file({name: value for name, value in train_before().state_dict().items() if not name.startswith("head.")},
              TRAINED)
