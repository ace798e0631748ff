"""The workload of common_task.py as a Flower app."""
