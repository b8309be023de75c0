"""Records of noise drawn under keys: two tables under equal noise reveal their difference.

A key draws noise under several names: digests of the request, of the inference of spaces, and of the plan. The ledger
has each as a MAC under the key, with a MAC of the table, from the transaction of the spend on; the plan's name from the
moment when the plan is known, before a row is drawn. A crash in between wastes budget, and hides no table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from dpframe.errors import LedgerError, name_list

Draws = Mapping[str, str]
"""Names of noise, and the table that each is drawn for, both as MACs under the key."""

_DRAWS_OF_NOISE = """
SELECT source, release_id, dataset, part FROM draws JOIN spends USING (release_id) WHERE noise = ? ORDER BY position
"""
# A repeated release of an older ledger has some draws already; the triggers would abort a second insert.
_INSERT_DRAW = """
INSERT INTO draws (noise, source, release_id) SELECT :noise, :source, :release_id
WHERE NOT EXISTS (SELECT 1 FROM draws WHERE (noise, release_id) = (:noise, :release_id))
"""


def find_release(connection: sqlite3.Connection, draws: Draws, dataset: str, part: str | None) -> str | None:
    """Return the id of the release of this dataset and part that drew all of this noise for this table, or None.

    Raises `LedgerError` if some of the noise was drawn for another table, or for another part of the dataset.
    """
    draw_counts: dict[str, int] = {}
    for noise, source in draws.items():
        for other_source, release_id, drawn_dataset, drawn_part in connection.execute(
            _DRAWS_OF_NOISE, (noise,)
        ).fetchall():
            # Equal noise over two tables would reveal their difference.
            if other_source != source:
                raise LedgerError(
                    "key has drawn the same noise for another table or an unknown one: two releases with equal "
                    "noise show how their tables differ; leave key out"
                )
            # None means all rows, which include every part: only two different named parts contradict each other.
            if drawn_dataset == dataset and len({drawn_part, part} - {None}) > 1:
                raise LedgerError(
                    f"these rows were released under this key as part {name_list([drawn_part or ''])}, and parts "
                    "have no "
                    "row in common; name that part"
                )
            if (drawn_dataset, drawn_part) == (dataset, part):
                draw_counts[release_id] = draw_counts.get(release_id, 0) + 1
    # A release that drew only part of this noise is another release.
    return next((release_id for release_id, times in draw_counts.items() if times == len(draws)), None)


def record(connection: sqlite3.Connection, draws: Draws, release_id: str) -> None:
    """Record the noise of a release, for good."""
    rows = [{"noise": noise, "source": source, "release_id": release_id} for noise, source in draws.items()]
    connection.executemany(_INSERT_DRAW, rows)
