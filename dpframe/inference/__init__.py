"""Spaces of columns that were not declared: from their types, from noisy counts, or read off the data."""
