"""Tools that every layer may use: errors, units, keyed streams of randomness."""
