"""Observations: noisy counts of cells, the update of an estimate by them, and the parts of cells within ranges."""
