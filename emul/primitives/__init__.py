"""Pure functions without I/O that schemes are built from: cryptography, codes, quantisation."""
