"""Reports on a release for its readers: its promise, its proof and its figures, in plain words."""
