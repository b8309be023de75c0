"""What proves a plan's claims, checks a release, or refutes both by replay."""
