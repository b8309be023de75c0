"""The one loop that every entry point releases through, the shuffle, and what a release says about itself."""
