"""Properties that change by chance or by a trace: losses, latencies, rates, absences; pure functions of names and
indices."""
