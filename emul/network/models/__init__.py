"""What changes by chance or by a trace: losses, latencies, rates, absences; pure functions of names and indices."""
