"""The release of a table in memory."""

from __future__ import annotations

from typing import Any

from dpframe.api.job import Ready
from dpframe.tables.frames import Frame
from dpframe.tables.info import ReleaseInfo
from dpframe.tables.noisy_tables import measured_tables
from dpframe.tables.release import Digest, permutation, release
from dpframe.tables.released import described


def drawn(frame: Frame, ready: Ready) -> Any:
    """Return the release of a frame that is ready for it, as a table of its kind."""
    plan, key = ready.plan, ready.key
    released, order = release(ready.codes, plan, key), permutation(plan, key, frame.n)
    tables, digest = measured_tables(ready.codes, plan, key), Digest(plan)
    digest.update(released if plan.sample is None else {name: codes[order] for name, codes in released.items()})
    rows = None if plan.sample is None else frame.n
    count = digest.count if plan.columns else frame.n
    info = ReleaseInfo(plan, count, digest.hexdigest(tables), rows, ready.own, tables, ready.part)
    return frame.rebuild(plan, plan.released_spaces, released, order, described(info))
