"""A Flower app in NumPy: softmax regression on handwritten digits."""
