"""Pictures as PNG, by nothing but zlib: what was there beside what an attack made of it."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_LEAST = 96                 # pixels of the screen that an image is high, at least
_GAP = 8


def png(image: np.ndarray) -> bytes:
    """A PNG of pixels, uint8, (H, W) grey or (H, W, 3) coloured. W3C PNG, third edition, without filters."""
    height, width = image.shape[:2]
    kind = 0 if image.ndim == 2 else 2
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)
    return b"\x89PNG\r\n\x1a\n" + b"".join([
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), _chunk(b"IEND", b"")])


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def side_by_side(left: np.ndarray, right: np.ndarray) -> bytes:
    """A PNG of two images (C, H, W) in [0, 1], C 1 or 3, with a white gap; enlarged by a whole factor if small."""
    factor = -(-_LEAST // left.shape[1])
    one, other = (np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8).repeat(factor, 1).repeat(factor, 2)
                  for image in (left, right))
    gap = np.full((*one.shape[:2], _GAP), 255, np.uint8)
    both = np.concatenate([one, gap, other], axis=2)
    return png(both[0] if len(both) == 1 else np.moveaxis(both, 0, 2))
