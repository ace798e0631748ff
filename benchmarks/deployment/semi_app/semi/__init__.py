"""An app that waits for m of n replies and goes on; some nodes sleep in their training."""
