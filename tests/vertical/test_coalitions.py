"""What every coalition of parties sees, byte by byte, when one row of another curator's table is replaced.

The secrets that a coalition holds are fixed, those that it lacks are coupled: a pad that it has not is shifted by what
the row changed, and the digest of a nonce that it has not is left out, as it is uniform. Then only noisy codes may
differ. The module's docstring states what each coalition has; the same table is read here.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from parties import Parties

import dpframe.vertical as vertical
from dpframe.errors import FileError
from dpframe.vertical import curator
from dpframe.vertical.messages import Message, header_file
from dpframe.vertical.pads import padded, unpadded

N = 40
SPACES = {"job": ["farm", "shop"], "sick": ["no", "yes"], "age": (0, 99)}

# Which files of Bob's and of the server's a coalition against Bob holds, and what it has of Bob's columns.
COALITIONS = {
    "everybody": (set(), "nothing"),
    "another curator": ({"alice"}, "nothing"),
    "the server": ({"message", "perturbed"}, "nothing"),
    "the server and another curator": ({"alice", "message", "perturbed"}, "nothing"),
    "the researcher without the curator's pad": ({"alice's pad", "perturbed"}, "nothing"),
    "the researcher": ({"alice's pad", "pad", "perturbed"}, "(ε, δ)"),
    "the researcher and another curator": ({"alice", "alice's pad", "pad", "perturbed"}, "local (ε₀, δ₀)"),
    "the server and the researcher": ({"alice's pad", "message", "pad", "perturbed"}, "everything"),
}


def tables(sick: str) -> dict[str, pd.DataFrame]:
    """Return two curators' tables; one value of Bob's is given."""
    rng = np.random.default_rng(3)
    bob = pd.DataFrame({"id": range(N), "sick": rng.choice(["no", "yes"], N), "age": rng.integers(0, 100, N)})
    bob.loc[7, "sick"] = sick
    return {"alice": pd.DataFrame({"id": range(N), "job": rng.choice(["farm", "shop"], N)}), "bob": bob}


class Pads:
    """Stands for pads of the system: the same in both runs, or such that the same comes of them and of other codes."""

    def __init__(self, spaces: Any, key: Any, run: bytes) -> None:
        assert key is None
        self.spaces = spaces

    def take(self, rows: int) -> dict[str, Any]:
        rng = np.random.default_rng(len(self.spaces))
        return {name: rng.integers(0, space.size, rows).astype(space.code_type) for name, space in self.spaces.items()}


def went_through(root: Path, made: Parties, sick: str, patch: pytest.MonkeyPatch, *, shift: bool) -> Parties:
    """Run once more what another run did, with the same secrets and one other value of Bob's."""
    shutil.copytree(made.root, root)
    parties = replace(made, root=root, frames=tables(sick))
    drawn = count()
    patch.setattr(secrets, "token_bytes", lambda size=32: hashlib.shake_256(b"%d" % next(drawn)).digest(size))
    patch.setattr(curator, "PadStream", Pads)
    if shift:  # Pads that make of Bob's codes what the others made of the codes with the other value.
        patch.setattr(curator, "padded", lambda spaces, codes, pads: padded(spaces, same_row(codes), pads))
    parties.encrypt_all()
    parties.perturb()
    patch.undo()
    return parties


def same_row(codes: dict[str, Any]) -> dict[str, Any]:
    """Take back Bob's other value: adding a shifted pad to a code is adding the pad to the code that was."""
    if "sick" not in codes:
        return codes
    shifted = codes["sick"].copy()
    others = np.flatnonzero(shifted != same_row.codes)
    assert len(others) <= 1
    shifted[others] = same_row.codes[others]
    return codes | {"sick": shifted}


def seen(parties: Parties, holds: set[str]) -> dict[str, bytes]:
    """Return every byte that a coalition holds, by file."""
    files = {
        "run": parties.root / "run.json",
        "alice's header": header_file(parties.message("alice")),
        "header": header_file(parties.message("bob")),
        "alice's message": parties.message("alice"),
        "alice's pad": parties.pad("alice"),
        "message": parties.message("bob"),
        "pad": parties.pad("bob"),
        "perturbed": parties.perturbed,
    }
    if "alice" in holds:
        holds = holds | {"alice's message", "alice's pad"}
    if "message" in holds:  # the server has both
        holds = holds | {"alice's message"}
    files["run"].write_text(parties.run.to_json(), encoding="utf-8")
    return {
        name: file.read_bytes() for name, file in files.items() if name in {"run", "alice's header", "header"} | holds
    }


def without_redrawn(name: str, content: bytes, path: Path) -> Any:
    """Return a file without Bob's digest and what is signed with it, and without noisy codes: the rest must agree."""
    if name == "header":
        header = json.loads(json.loads(content)["header"])
        return header | {"content": None}
    if name not in ("pad", "perturbed"):
        return content
    message = Message.open(path)
    header = asdict(message.header)
    if name == "pad":
        return header | {"facts": {"pad": header["facts"]["pad"]}}, pq.read_table(path)
    told = {who: json.loads(text) for who, (text, _) in header["facts"].items()}
    told["bob"]["content"] = None
    return header | {"facts": told, "content": None}, len(content), pq.read_schema(path).remove_metadata()


@pytest.fixture
def twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what gives two runs of tables that differ in one value."""
    made = Parties.make(tmp_path / "made", tables("no"), SPACES, mechanisms={"age": "randomized_response"})

    def two(*, shift: bool) -> tuple[Parties, Parties]:
        first = went_through(tmp_path / "first", made, "no", monkeypatch, shift=False)
        spaces = made.run.spaces(made.run.member("bob").columns)
        (codes,) = Message.open(first.message("bob")).batches(spaces)
        same_row.codes = unpadded(spaces, codes, Pads(spaces, None, b"").take(N))["sick"]
        return first, went_through(tmp_path / "second", made, "yes", monkeypatch, shift=shift)

    return two


@pytest.mark.parametrize("name", COALITIONS)
def test_a_coalition_sees_one_row_of_another_curator_in_noisy_codes_alone(name: str, twins: Any) -> None:
    holds, has = COALITIONS[name]
    first, second = twins(shift="pad" not in holds)
    views = [seen(parties, holds) for parties in (first, second)]
    assert views[0].keys() == views[1].keys()
    if has == "everything":
        assert views[0]["message"] != views[1]["message"]
        return
    if "pad" not in holds:
        # Nothing differs at all: with its pad shifted, Bob's message is the same, and so is all that is made of it.
        assert views[0] == views[1]
        return
    nonce = Message.open(first.message("bob")).nonce
    for file, content in views[0].items():
        assert nonce not in content
        assert nonce.hex().encode() not in content
        paths = [getattr(parties, file)("bob") if file == "pad" else parties.perturbed for parties in (first, second)]
        one, other = (without_redrawn(file, view[file], path) for view, path in zip(views, paths, strict=True))
        assert one == other, file


def test_the_docstring_states_what_each_coalition_has() -> None:
    text = " ".join((vertical.__doc__ or "").split())
    for name, (_, has) in COALITIONS.items():
        assert f"{name}: {has}" in text, name


def test_leak_the_digest_of_padded_codes_confirms_no_guess(twins: Any) -> None:
    """The exact number of "yes" was found from a public header and its pad; now the very codes are no better guess."""
    first, _ = twins(shift=False)
    spaces = first.run.spaces(first.run.member("bob").columns)
    message = Message.open(first.message("bob"))
    (codes,) = message.batches(spaces)
    header = json.loads(json.loads(header_file(first.message("bob")).read_bytes())["header"])
    assert header["content"] == message.header.content
    parts = [[name, hashlib.sha256(np.ascontiguousarray(codes[name])).hexdigest()] for name in spaces]
    assert hashlib.sha256(json.dumps(parts).encode()).hexdigest() != header["content"]


def test_the_same_codes_under_the_same_pads_have_another_digest_each_time(twins: Any, tmp_path: Path) -> None:
    first, second = twins(shift=True)
    assert Message.open(first.message("bob")).header.content == Message.open(second.message("bob")).header.content
    fresh = replace(first, root=tmp_path / "made", frames=tables("no"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curator, "PadStream", Pads)
        fresh.encrypt("bob")
    one, other = (Message.open(parties.message("bob")) for parties in (first, fresh))
    assert pq.read_table(one.path).equals(pq.read_table(other.path))
    assert one.header.content != other.header.content


def test_messages_of_the_first_schema_are_refused(twins: Any) -> None:
    """Their headers confirm guesses."""
    first, _ = twins(shift=True)
    path = first.message("bob")
    table, metadata = pq.read_table(path), dict(pq.read_metadata(path).metadata)
    old = {key: value for key, value in metadata.items() if key != b"dpframe.nonce"}
    old[b"dpframe.vertical"] = old[b"dpframe.vertical"].replace(b'"schema": 2', b'"schema": 1')
    pq.write_table(table.replace_schema_metadata(old), path)
    with pytest.raises(FileError, match="has schema 1, this version reads 2; make a new run"):
        Message.open(path)
