"""`Contrast`: InfoNCE on pairs of related samples."""
