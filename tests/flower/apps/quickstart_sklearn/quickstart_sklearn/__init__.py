"""A Flower app with scikit-learn: logistic regression on handwritten digits."""
