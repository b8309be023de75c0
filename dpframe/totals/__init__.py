"""Noise on totals instead of rows: exact integer counts and sums of codes, and discrete Gaussian noise on them."""
