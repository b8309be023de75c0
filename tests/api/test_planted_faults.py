"""Faults that are planted in a release are found by the audit by replay."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from test_replay import CENSUS, SPACES

import dpframe as dpf
from dpframe.proofs.replay import replayed


def order_of_first_appearance(table, made, key):
    """A dictionary with its entries in the order in which they occur in the input."""
    safe = dpf.sanitize(table, plan=made, key=key)
    seen = [v for v in dict.fromkeys(table.column("sex").to_pylist()) if v is not None]
    again = pd.Categorical(safe.column("sex").to_pylist(), categories=[*seen, *({"F", "M"} - set(seen))])
    column = pa.DictionaryArray.from_pandas(again)
    return safe.set_column(safe.column_names.index("sex"), "sex", column)


def row_groups_of_the_input(table, made, key):
    """A layout that follows the rows that came in: chunks end where the first value occurs."""
    safe = dpf.sanitize(table, plan=made, key=key)
    cut = table.column("age").to_pylist().index(max(v for v in table.column("age").to_pylist() if v is not None))
    return pa.concat_tables([safe.slice(0, cut), safe.slice(cut)])


def null_mask_copied(table, made, key):
    """Nulls where they were in the input, whatever was drawn."""
    safe = dpf.sanitize(table, plan=made, key=key)
    mask = table.column("income").is_null().to_numpy()
    values = np.where(mask, np.nan, np.array(safe.column("income").to_pandas().fillna(0.0)))
    return safe.set_column(safe.column_names.index("income"), "income", pa.array(values, from_pandas=True))


def noise_by_content(table, made, key):
    """Noise that hangs on another row's value: a key derived from the data."""
    first = table.column("age").to_pylist()[0] or 0
    return dpf.sanitize(table, plan=made, key=bytes([int(first) % 256]) + key[1:])


def attrs_kept(table, made, key):
    """A description that tells of the input."""
    safe = dpf.sanitize(table, plan=made, key=key)
    top = str(max(v for v in table.column("age").to_pylist() if v is not None))
    return safe.replace_schema_metadata({**safe.schema.metadata, b"max": top.encode()})


def warns_of_a_value(table, made, key):
    if max(v for v in table.column("age").to_pylist() if v is not None) > 95:
        warnings.warn("clipped", stacklevel=1)
    return dpf.sanitize(table, plan=made, key=key)


PLANTED = {
    order_of_first_appearance: "order of a dictionary changed",
    row_groups_of_the_input: "layout changed",
    null_mask_copied: "row changed",
    noise_by_content: "more than one released row changed",
    attrs_kept: "other metadata changed",
    warns_of_a_value: "warnings changed",
}


@pytest.mark.slow
@pytest.mark.parametrize("face", PLANTED, ids=lambda face: face.__name__)
def test_planted_faults_are_found(face):
    """On a table of six rows, most of whose edits touch what the fault hangs on."""
    table = pa.Table.from_pandas(CENSUS.head(6), preserve_index=False)
    found = replayed(
        table, dpf.plan(table, 2.0, 1e-4, spaces=SPACES, nulls="impute", measure=None), {"planted": face}, 120, 0
    )
    assert not found.ok
    assert any(PLANTED[face] in failure for failure in found.failures), str(found)
    assert "planted" in str(found)
