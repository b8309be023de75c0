"""Budgets on disk: spent before any noise is drawn, by any number of processes."""

from dpframe.ledger.ledger import Ledger

__all__ = ["Ledger"]
