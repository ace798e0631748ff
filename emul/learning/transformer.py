"""A small language model: a causal transformer over tokens, in the manner of GPT-2.

Radford et al., 2019: layer norms before attention and before the layers of a block, GELU, learnt positions, and first
weights of standard deviation 0.02, of those that end a branch 0.02 / sqrt(2 blocks). Deviations: layers without a bias,
and no dropout. The embeddings are tied to the output (Press and Wolf, EACL 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_STD = 0.02                     # of the first weights


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + layers(norm(x)): 12 width^2 weights in matrices."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_in, self.norm_between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_in(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)             # (B, heads, L, width / heads)
        x = x + self.mix(a.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_between(x))))


class Transformer(nn.Module):
    """Tokens (B, L) -> logits of the token after each of them (B, L, tokens)."""

    def __init__(self, length: int, tokens: int, blocks: int, width: int, heads: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        for name, weights in self.named_parameters():
            if weights.ndim == 2:
                ends = name.endswith(("mix.weight", "down.weight"))
                nn.init.normal_(weights, std=_STD / sqrt(2 * blocks) if ends else _STD)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return torch.matmul(self.norm(h), self.tokens.weight.T)


def transformer(input_shape: Sequence[int], classes: int, blocks: int, width: int, heads: int) -> nn.Module:
    """(tokens + length) width + blocks (12 width^2 + 4 width) + 2 width parameters: 1,035,008 of 256 tokens, windows of
    128, 5 blocks of width 128."""
    return Transformer(input_shape[0], classes, blocks, width, heads)
