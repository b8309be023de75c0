"""Standard errors to expect of a release, in closed form and without data."""
