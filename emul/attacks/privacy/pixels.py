"""Distances between found samples and true ones, and pictures of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emul.base.extras import optional

if TYPE_CHECKING:
    from emul.learning.dataset import DataSet

Array = np.ndarray


def is_image(data: DataSet) -> bool:
    """True if samples are grey or coloured images of stored bytes."""
    shape = data.input_shape
    return isinstance(shape, tuple) and len(shape) == 3 and shape[0] in (1, 3) and data.scale != 1.0


def _levels(data: DataSet) -> tuple[Array, Array]:
    """Mean and standard deviation, (C or 1, 1, 1)."""
    return np.reshape(np.asarray(data.mean, np.float64), (-1, 1, 1)), np.reshape(
        np.asarray(data.std, np.float64), (-1, 1, 1))


def pixels(x: Array, data: DataSet) -> Array:
    """Network inputs (n, C, H, W) as pixels in [0, 1], float64; what lies outside is cut."""
    mean, std = _levels(data)
    return np.clip(np.asarray(x, np.float64) * std + mean, 0, 1)


def limits(data: DataSet) -> tuple[Array, Array]:
    """The least and the greatest number of a network input, that broadcast over (n, *input_shape): of pixels 0 and 1,
    of anything else those of the training samples."""
    if is_image(data):
        mean, std = _levels(data)
        return (0 - mean) / std, (1 - mean) / std
    x = np.asarray(data.inputs(data.train_x), np.float64)
    return x.min(0), x.max(0)


def matched(found: Array, true: Array) -> Array:
    """The found samples in the order of the true ones, by the least sum of squared errors; both (n, ...)."""
    with optional("to compare images needs", "privacy"):
        from scipy.optimize import linear_sum_assignment

    a, b = found.reshape(len(found), -1), true.reshape(len(true), -1)
    cost = ((b[:, None] - a[None])**2).mean(2)          # (true, found)
    return linear_sum_assignment(cost)[1]


def psnr(found: Array, true: Array) -> float:
    """Peak signal-to-noise ratio, dB: -10 log10 MSE of pixels in [0, 1], mean over the images (n, C, H, W). At most
    200, so that it is finite where they are equal."""
    mse = ((found - true)**2).reshape(len(true), -1).mean(1)
    return float(np.mean(-10 * np.log10(np.maximum(mse, 1e-20))))


def ssim(found: Array, true: Array) -> float:
    """Structural similarity of pixels in [0, 1], 1 where equal, mean over images and channels. Wang et al., IEEE TIP
    2004, with Gaussian windows of 1.5 pixels and K = 0.01, 0.03; (n, C, H, W)."""
    with optional("to compare images needs", "privacy"):
        from scipy.ndimage import gaussian_filter

    def local(image: Array) -> Array:
        smoothed: Array = gaussian_filter(image, (0, 0, 1.5, 1.5), truncate=3.5)
        return smoothed

    a, b = local(found), local(true)
    variances = local(found**2) - a**2 + local(true**2) - b**2
    covariance = local(found * true) - a * b
    c1, c2 = 0.01**2, 0.03**2
    return float(np.mean((2 * a * b + c1) * (2 * covariance + c2) / ((a**2 + b**2 + c1) * (variances + c2))))


def of_images(found: Array, true: Array, data: DataSet) -> dict[str, float]:
    """Columns of network inputs that are images (n, C, H, W): psnr, ssim; psnr_blind, of the mean training image."""
    a, b = pixels(found, data), pixels(true, data)
    mean = pixels(np.asarray(data.inputs(data.train_x), np.float64).mean(0, keepdims=True), data)
    return {"psnr": psnr(a, b), "psnr_blind": psnr(np.repeat(mean, len(b), 0), b), "ssim": ssim(a, b)}
