"""What a run leaves behind: journal, tables, invariants, summary, golden log, progress."""
