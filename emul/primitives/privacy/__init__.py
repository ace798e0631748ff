"""The information that observers of masked updates gain: mutual information (`lmip`) and differential privacy
(`ldp`)."""
