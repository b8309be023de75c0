"""The public entry points of the library."""
