"""`Classify`: cross-entropy on labels, or on instance indices (DIET)."""
