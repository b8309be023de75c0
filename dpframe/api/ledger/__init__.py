"""Budgets on disk: spent before any noise is drawn, by any number of processes."""

from dpframe.api.ledger.ledger import Ledger

__all__ = ["Ledger"]
