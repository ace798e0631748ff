"""An app that waits for m of n replies and goes on; node 0 sleeps in its training."""
