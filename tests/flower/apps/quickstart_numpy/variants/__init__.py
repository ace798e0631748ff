"""The same task in other ways that Flower apps are written: run with the names of other components."""
