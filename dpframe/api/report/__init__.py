"""What people should know about a release: its promise, its proof and its figures, in plain words."""
