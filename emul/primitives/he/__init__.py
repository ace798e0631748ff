"""Homomorphic encryption: sums and products of numbers that nobody who computes them sees."""
