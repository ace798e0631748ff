"""Rounds of FedAvg by Flower's strategy."""
