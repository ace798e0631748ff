"""Linear codes over the reals: gradient codes and key generator matrices."""
