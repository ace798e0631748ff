"""What observers of masked updates learn: mutual information (`lmip`) and differential privacy (`ldp`)."""
