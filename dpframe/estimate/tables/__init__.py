"""Estimates from measured tables and noisy rows, as plain arrays."""
