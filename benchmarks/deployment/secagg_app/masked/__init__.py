"""Rounds of FedAvg with SecAgg+ by Flower's workflow."""
