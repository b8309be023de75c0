"""Exact sampling: a keyed stream of words, and tables of integers that turn them into noise."""

from dpframe.noise.keystream import Keystream

__all__ = ["Keystream"]
