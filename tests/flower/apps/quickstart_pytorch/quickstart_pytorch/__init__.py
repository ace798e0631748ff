"""A Flower app in PyTorch: a small CNN on handwritten digits."""
