"""FedAvg of 100,000 numbers as a Flower app."""
