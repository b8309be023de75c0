"""What runs and describes a release: checks, plan, spend, key, noise, order, and the description."""
