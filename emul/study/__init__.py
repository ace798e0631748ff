"""Many runs of one scenario: sweeps over values and seeds, comparisons of schemes, and their statistics."""
