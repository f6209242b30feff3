"""Audit a fit: checks, refits, evidence, claims, report."""
