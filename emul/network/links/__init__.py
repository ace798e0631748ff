"""State machines of links: plain, with everything a link can have, and with bandwidth shared by flows."""
