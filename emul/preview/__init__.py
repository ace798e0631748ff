"""A scenario before it runs: what it amounts to (`explain`), its memory (`footprint`), a message alone (`outlook`)."""
