"""Sources: what gives batches, and how rows and what belongs to them are read."""
