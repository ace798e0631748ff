"""The record of a run: journal, tables, invariants, summary, golden log, progress."""
