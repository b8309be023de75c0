"""The one loop that every face releases through, the secret order, and what a release says about itself."""
