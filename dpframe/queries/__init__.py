"""Answers to questions of a table, with noise on each: `dpframe.Queries`."""
