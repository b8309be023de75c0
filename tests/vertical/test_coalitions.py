"""What every coalition of parties sees, byte by byte, when one row of another curator's table is replaced.

The secrets that a coalition holds are fixed, those that it lacks are coupled: a pad that it has not is shifted by what
the row changed, and what comes of a nonce that it has not is computed anew from nonce and codes, and taken for redrawn.
Then only noisy codes and noisy tables may differ. The words are those of `Run.trust` and of the module's docstring.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parties import Parties

import dpframe as dpf
import dpframe.vertical as vertical
from dpframe.errors import FileError
from dpframe.plan.steps import central_budget
from dpframe.release.info import unpacked
from dpframe.vertical import Identity, Researcher, curator
from dpframe.vertical.keys import is_signed_by
from dpframe.vertical.messages import Header, Message, MessageWriter, header_file, read_header, write_header
from dpframe.vertical.pads import PadStream, add_pads, subtract_pads

N = 40
SPACES = {
    "job": ["farm", "shop"],
    "sick": ["no", "yes"],
    "age": (0, 99),
    "hobbies": dpf.Subset(["chess", "tennis", "choir"], 2),
    "town": ["north", "south"],
}
RESPONSE = {"mechanisms": {"age": "randomized_response"}}

# What is run: the columns of Bob, the options of the run, and whether there is a third curator.
SETTINGS: dict[str, tuple[list[str], dict[str, Any], bool]] = {
    "two curators": (["sick", "age"], RESPONSE, False),
    "short pads": (["sick", "age"], RESPONSE | {"pad": "stream"}, False),
    "sample": (["sick", "age"], RESPONSE | {"sample": 25}, False),
    "sets": (["hobbies", "age"], {}, False),
    "groups": (["sick", "age"], {"groups": [("job", "sick")]}, False),
    "three curators": (["sick", "age"], {"groups": [("town", "sick")], "pad": "stream"}, True),
    "tables": (["sick", "age"], {"measure": [("sick",), ("job",)]}, False),
    "tables of three": (["sick", "age"], {"measure": [("sick",), ("town",)], "pad": "stream", "sample": 25}, True),
}

# Who is in a coalition against Bob: c(urators), s(erver), r(esearcher), and whether it has his p(ad).
HAS = {
    "": "nothing", "c": "nothing", "s": "nothing", "r": "nothing",
    "cs": "nothing", "cr": "nothing", "sr": "nothing", "csr": "nothing",
    "p": "the tables", "cp": "the tables", "rp": "the promise", "crp": "the local promise",
    "sp": "everything", "csp": "everything", "srp": "everything", "csrp": "everything",
}  # fmt: skip
STATED = {
    "everybody": "",
    "another curator": "c",
    "the server": "s",
    "the server and another curator": "cs",
    "all others, without the curator's pad": "csr",
    "whoever has the pad alone": "p",
    "the researcher": "rp",
    "the researcher and another curator": "crp",
    "the server and the researcher": "srp",
}


def tables(columns: list[str], three: bool, row: int = 0, sick: str = "no") -> dict[str, pd.DataFrame]:
    """Return the curators' tables; all of Bob's values in one row follow one of them."""
    rng = np.random.default_rng(3)
    bob = pd.DataFrame({"id": range(N), "sick": rng.choice(["no", "yes"], N), "age": rng.integers(0, 100, N)})
    bob["hobbies"] = [["chess"] if age % 2 else ["choir", "tennis"] for age in bob["age"]]
    bob.loc[row, ["sick", "age"]] = [sick, 90 if sick == "yes" else 5]
    bob.at[row, "hobbies"] = ["choir"] if sick == "yes" else ["chess", "tennis"]
    frames = {"alice": pd.DataFrame({"id": range(N), "job": rng.choice(["farm", "shop"], N)}), "bob": bob}
    frames["bob"] = bob[["id", *columns]]
    if three:
        frames["carol"] = pd.DataFrame({"id": range(N), "town": rng.choice(["north", "south"], N)})
    return frames


def left(made: Parties) -> npt.NDArray[np.intp]:
    """Return the rows of the sample, in the order in which they leave."""
    tags = curator.row_tags(pa.array(range(N)), curator.tag_key(Identity(made.root / "alice").shared, made.run.digest))
    return np.lexsort((tags[:, 0], tags[:, 1]))[: made.run.rows]


@dataclass
class Went:
    """A run that went through, with the codes that were padded."""

    parties: Parties
    codes: dict[tuple[str, ...], Any]

    @property
    def bobs(self) -> tuple[str, ...]:
        return tuple(self.parties.run.spaces(self.parties.run.member("bob").columns))

    @property
    def others(self) -> list[str]:
        return [name for name in self.parties.frames if name != "bob"]

    @property
    def partly(self) -> Path:
        """The release of the researcher whom Bob gave no pad."""
        return self.parties.root / "partly.parquet"

    def seen(self, who: str) -> dict[str, bytes]:
        """Return every byte that a coalition holds, by file: whole folders of those who are in it."""
        made = self.parties
        files = [made.root / "run.json", *(header_file(message) for message in made.messages)]
        if "c" in who:
            files += [file for name in self.others for file in (made.root / name).rglob("*") if file.is_file()]
        if "s" in who:
            files += [*made.messages, *(file for file in (made.root / "server").rglob("*") if file.is_file())]
        if "r" in who:
            files += [made.perturbed, *(made.pad(name) for name in self.others)]
        if "p" in who:
            files.append(made.pad("bob"))
        elif "r" in who:
            files.append(self.partly)
        return {str(file.relative_to(made.root)): file.read_bytes() for file in files}


def go(
    root: Path, made: Parties, frames: dict[str, pd.DataFrame], before: Mapping[tuple[str, ...], Any] | None = None
) -> Went:
    """Take all steps with secrets that are the same each time; with the codes of a run before, pads are shifted.

    The last step is a researcher's to whom Bob gives no pad.
    """
    shutil.copytree(made.root, root)
    went, drawn = Went(replace(made, root=root, frames=frames), {}), count()

    def recorded(spaces: Any, codes: Any, pads: Any) -> dict[str, Any]:
        went.codes[tuple(spaces)] = codes
        # To add a shifted pad to a code is to add the pad to the code that was.
        return add_pads(spaces, (before or went.codes)[tuple(spaces)], pads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda size=32: hashlib.shake_256(b"%d" % next(drawn)).digest(size))
        patch.setattr(curator, "PadStream", lambda spaces, key, run: PadStream(spaces, key or bytes(32), run))
        patch.setattr(curator, "add_pads", recorded)
        went.parties.encrypt_all()
        went.parties.perturb()
        pads = [went.parties.pad(name) for name in went.others]
        Researcher(made.run).decrypt(went.parties.perturbed, pads, went.partly, without=["bob"])
    return went


@dataclass
class Twins:
    """A run, the run with another row of Bob's under the same pads, and that under shifted ones."""

    first: Went
    same: Went
    shifted: Went


def twins_of(root: Path, setting: str) -> Twins:
    columns, options, three = SETTINGS[setting]
    made = Parties.make(root / "made", tables(columns, three), SPACES, **options)
    made.run.write(made.root / "run.json")
    frames = partial(tables, columns, three, int(left(made)[3]))
    first = go(root / "first", made, frames(sick="no"))
    same = go(root / "same", made, frames(sick="yes"))
    return Twins(first, same, go(root / "shifted", made, frames(sick="yes"), first.codes))


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return twins_of(tmp_path, "two curators")


def digest(nonce: bytes, codes: Mapping[str, Any]) -> str:
    """Return what a header must say of codes: SHA-256 of a nonce and of each column's."""
    parts = [[name, hashlib.sha256(np.ascontiguousarray(column)).hexdigest()] for name, column in codes.items()]
    return hashlib.sha256(nonce + json.dumps(parts).encode()).hexdigest()


def codes_in(path: Path, spaces: Any) -> dict[str, Any]:
    found = list(Message.open(path).batches(spaces)) if spaces else []
    return found[0] if found else {}


def checked(message: Message, key: str, spaces: Any, nonce: bytes) -> dict[str, Any]:
    """Return a header's own facts, once digest and signature are known to be of nonce, codes and header alone."""
    head = message.header
    assert head.content == digest(nonce, codes_in(message.path, spaces))
    assert is_signed_by(key, message.signature, head.text.encode())
    return {"kind": head.kind, "run": head.run, "rows": head.rows, "schema": head.schema, **head.facts}


def of_header(went: Went, content: bytes) -> Any:
    made, message = went.parties, Message.open(went.parties.message("bob"))
    told = json.loads(content)
    assert told == {"header": message.header.text, "signature": message.signature}
    spaces = made.run.spaces(went.bobs)
    return checked(message, made.run.member("bob").key, spaces, message.nonce)


def of_pad(went: Went, content: bytes) -> Any:
    made, pad = went.parties, Message.open(went.parties.pad("bob"))
    spaces = made.run.spaces(went.bobs) if made.run.pad == "one-time" else {}
    facts = checked(pad, made.run.member("bob").key, spaces, pad.nonce)
    assert facts.pop("message") == Message.open(made.message("bob")).header.digest
    assert ("tables" in facts) == bool(made.run.plan.measures)
    facts.pop("tables", None)  # noisy ones, by the next test
    return facts, pad.nonce, {name: codes.tolist() for name, codes in codes_in(pad.path, spaces).items()}


def of_perturbed(went: Went, content: bytes) -> Any:
    made, sent = went.parties, Message.open(went.parties.perturbed)
    facts = checked(sent, made.run.server, made.run.plan.spaces, sent.nonce)
    bobs = Message.open(made.message("bob"))
    assert facts.pop("bob") == [bobs.header.text, bobs.signature]
    codes = codes_in(sent.path, made.run.plan.spaces)
    # Of Bob's columns one row is noisy, the fourth that left; that of all others is the same.
    rest = {name: np.delete(codes[name], 3, axis=0) if name in went.bobs else codes[name] for name in codes}
    return facts, sent.nonce, len(content), {name: column.tolist() for name, column in rest.items()}


MAY_DIFFER = {
    "bob/message.parquet.header": of_header,
    "bob/pad.parquet": of_pad,
    "server/perturbed.parquet": of_perturbed,
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.slow
def test_a_coalition_sees_one_row_of_another_curator_in_noisy_codes_and_tables_alone(
    setting: str, tmp_path: Path
) -> None:
    twins = twins_of(tmp_path, setting)
    first, same = twins.first, twins.same
    changed = [first.codes[first.bobs][name] != same.codes[first.bobs][name] for name in first.bobs]
    assert [np.flatnonzero(np.asarray(rows).reshape(len(rows), -1).any(axis=1)).tolist() for rows in changed] == [
        [3] for _ in first.bobs
    ]
    for who, has in HAS.items():
        if "p" not in who:
            # Nothing differs at all: with its pad shifted, Bob's message is the same, and so is all that comes of it.
            assert first.seen(who) == twins.shifted.seen(who), who
        elif has == "everything":
            assert_recovered(first, who)
            assert_recovered(same, who)
        else:
            assert_noisy_alone(first, same, who)


def assert_recovered(went: Went, who: str) -> None:
    """Read Bob's columns, without any noise, from the files that a coalition holds."""
    made, spaces = went.parties, went.parties.run.spaces(went.bobs)
    assert {"bob/message.parquet", "bob/pad.parquet"} <= went.seen(who).keys()
    message, pad = Message.open(made.message("bob")), Message.open(made.pad("bob"))
    if made.run.pad == "stream":
        pads = PadStream(spaces, bytes.fromhex(pad.header.facts["key"]), made.run.digest).take(made.run.rows)
    else:
        pads = codes_in(pad.path, spaces)
    plain = subtract_pads(spaces, codes_in(message.path, spaces), pads)
    for name, space in spaces.items():
        np.testing.assert_array_equal(plain[name], space.encode(made.frames["bob"][name].iloc[left(made)]))


def assert_noisy_alone(first: Went, same: Went, who: str) -> None:
    """Compare two views of a coalition that has Bob's pad, and lacks his message."""
    views = first.seen(who), same.seen(who)
    assert views[0].keys() == views[1].keys()
    nonce = Message.open(first.parties.message("bob")).nonce
    assert len(nonce) == 32
    for name, content in views[0].items():
        assert nonce not in content, name
        assert nonce.hex().encode() not in content, name
        if content != views[1][name]:
            told = MAY_DIFFER[name]
            assert told(first, content) == told(same, views[1][name]), (who, name)


def test_measured_tables_are_in_the_pad_alone_and_noisy(tmp_path: Path) -> None:
    """They stood in the public header. Under the same noise they differ by one row, and are not the true ones."""
    twins = twins_of(tmp_path, "tables")
    run, bob = twins.first.parties.run, twins.first.parties.run.member("bob")
    made = twins.first.parties
    for path in (header_file(made.message("bob")), made.message("bob"), made.perturbed):
        assert b"tables" not in path.read_bytes()
    found = [
        unpacked(Message.open(went.parties.pad("bob")).header.facts["tables"], run.tables_of(bob), run.plan.spaces)
        for went in (twins.first, twins.same)
    ]
    ((one,), (other,)) = found
    assert (one.counts - other.counts).tolist() == [1, -1]
    truth = twins.first.parties.frames["bob"]["sick"].value_counts()
    assert one.counts.tolist() != [truth["no"], truth["yes"]]


def test_a_run_and_the_docstring_state_what_each_coalition_has() -> None:
    """Cell by cell; the docstring's table is what its example prints, which is executed."""
    assert set(HAS) == {"".join(who) for size in range(5) for who in combinations("csrp", size)}
    stated = {name: HAS[who] for name, who in STATED.items()}
    spaces = {"alice": ({"job": ["farm", "shop"]}, "aa" * 32), "bob": ({"age": (0, 99)}, "bb" * 32)}
    run = vertical.new_run(spaces, "cc" * 32, n=1_000, epsilon=1, sample=900, measure=[("job",)])
    trust = run.trust()
    assert trust["has"].to_dict() == stated
    tables = central_budget(None, run.plan.tables_step, run.plan.delta)
    assert tables is not None
    assert 0 < tables.epsilon < 1
    numbers = {
        "nothing": (0, 0),
        "the tables": (tables.epsilon, tables.delta),
        "the promise": (1, run.plan.delta),
        "the local promise": (run.plan.local.epsilon, run.plan.local.delta),
        "everything": (math.inf, 1),
    }
    shown = re.findall(r"^([a-z][a-z,' ]*?) {2,}(.*?) +(\S+) +(\S+)$", vertical.__doc__ or "", re.MULTILINE)
    assert len(shown) == len(stated)
    for (name, has, epsilon, delta), (coalition, row) in zip(shown, trust.iterrows(), strict=True):
        assert (name, has) == (coalition, stated[name])
        assert (row["epsilon"], row["delta"]) == numbers[has]
        assert (epsilon, delta) == tuple(f"{number:.3g}" for number in numbers[has])
    without = vertical.new_run(spaces, "cc" * 32, n=1_000, epsilon=1).trust()
    assert without.loc["whoever has the pad alone"].tolist() == ["nothing", 0, 0]


# --- a digest that confirms guesses -----------------------------------------------------------------------


def guessed(content: str, pads: Mapping[str, Any], spaces: Any, nonce: bytes) -> list[int] | None:
    """Find up to two "yes" and their places, by hashes of all such columns under a pad: 821 of forty rows."""
    for most in range(3):
        for places in combinations(range(N), most):
            codes = np.zeros(N, dtype=np.uint8)
            codes[list(places)] = 1
            if digest(nonce, add_pads(spaces, {"sick": codes}, pads)) == content:
                return list(places)
    return None


def test_leak_the_number_of_yes_by_guesses_of_a_column_under_its_pad(tmp_path: Path) -> None:
    """Found of 300 rows after 3,061 hashes: without the nonce, which the server alone has, no guess is confirmed."""
    bob = pd.DataFrame({"id": range(N), "sick": ["yes", "no"] + ["no"] * (N - 3) + ["yes"]})
    made = Parties.make(tmp_path, {"alice": tables(["sick"], False)["alice"], "bob": bob}, SPACES)
    made.encrypt_all()
    made.perturb()
    public = json.loads(json.loads(header_file(made.message("bob")).read_bytes())["header"])["content"]
    pad, sent = Message.open(made.pad("bob")), Message.open(made.perturbed)
    spaces = made.run.spaces(["sick"])
    guess = partial(guessed, public, codes_in(pad.path, spaces), spaces)
    held = [b"", bytes(32), pad.nonce, sent.nonce, bytes.fromhex(made.run.nonce), made.run.digest]
    assert [guess(nonce) for nonce in held] == [None] * len(held)
    places = np.flatnonzero(np.isin(left(made), [0, N - 1])).tolist()
    assert guess(Message.open(made.message("bob")).nonce) == places


def test_the_same_codes_under_the_same_pads_have_another_digest_each_time(twins: Twins, tmp_path: Path) -> None:
    first = twins.first.parties
    fresh = replace(first, root=tmp_path / "made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curator, "PadStream", lambda spaces, key, run: PadStream(spaces, bytes(32), run))
        fresh.encrypt("bob")
    one, other = (Message.open(parties.message("bob")) for parties in (first, fresh))
    assert pq.read_table(one.path).equals(pq.read_table(other.path))
    assert one.header.content != other.header.content


# --- types that follow the data ---------------------------------------------------------------------------

DAYS = pd.to_datetime(["2020-01-03", "2020-01-04"] * 10).to_series(index=range(20))
NEIGHBOURS: dict[str, tuple[Any, list[Any]]] = {
    "a null among whole numbers": ((0, 9), [[1, 2] * 10, [1, None] + [1, 2] * 9]),
    "a null among codes": ([1, 2], [[1, 2] * 10, [1, None] + [1, 2] * 9]),
    "a fraction": ((0, 9), [[1, 2] * 10, [1, 2.5] + [1, 2] * 9]),
    "a null among truth values": ([False, True], [[True] * 20, [True] * 19 + [None]]),
    "a null among words": (["a", "b"], [["a", "b"] * 10, ["a", None] + ["a", "b"] * 9]),
    "objects": (["a", "b"], [pd.Series(["a", "b"] * 10, dtype=kind) for kind in ("str", "object")]),
    "a time of finer parts": (
        dpf.Datetime("2020-01-01", "2020-02-01", "D"),
        [DAYS.astype("datetime64[s]"), DAYS.astype("datetime64[ns]")],
    ),
    "a column that may be null": (
        (0, 9),
        [
            pa.table([range(20), [1, 2] * 10], pa.schema([("id", "int64"), pa.field("x", "int64", nullable)]))
            for nullable in (False, True)
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NEIGHBOURS)
def test_leak_no_row_moves_a_public_header(what: str, tmp_path: Path) -> None:
    space, columns = NEIGHBOURS[what]
    alice = pd.DataFrame({"id": range(20), "job": ["farm", "shop"] * 10})
    bobs = [x if isinstance(x, pa.Table) else pd.DataFrame({"id": range(20), "x": x}) for x in columns]
    shape = {"alice": alice, "bob": pd.DataFrame({"id": range(20), "x": 0})}
    made = Parties.make(tmp_path / "made", shape, {"job": SPACES["job"], "x": space}, nulls="impute")
    told = []
    for number, bob in enumerate(bobs):
        shutil.copytree(made.root, tmp_path / str(number))
        header = replace(made, root=tmp_path / str(number)).encrypt("bob", bob)
        told.append(replace(header, content=""))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("space", "column", "back"),
    [
        (dpf.Integer(0, 9), pd.Series([1.0, 2.0] * 10), "int64"),
        (dpf.Integer(0, 9), pd.Series([1, 2] * 10, dtype="int8"), "int64"),
        (dpf.Categorical([1, 2]), pd.Series([1.0, 2.0] * 10), "int64"),
        (dpf.Categorical(["a", "b"]), pd.Series(pd.Categorical(["a", "b"] * 10, ordered=True)), "category"),
        (dpf.Datetime("2020-01-01", "2020-02-01", "D"), DAYS.dt.tz_localize("UTC"), "datetime64[us, UTC]"),
        (dpf.Datetime("2020-01-01", "2020-02-01", "D"), DAYS.astype("datetime64[s]"), "datetime64[us]"),
        (dpf.Datetime("2020-01-01T00", "2020-02-01T00", "h"), DAYS.astype("datetime64[ns]"), "datetime64[us]"),
        (dpf.Datetime(pd.Timedelta(0), pd.Timedelta("9h"), "h"), DAYS - DAYS[0], "timedelta64[us]"),
    ],
)
def test_columns_come_back_in_their_spaces_types(space: Any, column: Any, back: str, tmp_path: Path) -> None:
    frames = {
        "alice": pd.DataFrame({"id": range(20), "job": ["farm", "shop"] * 10}),
        "bob": pd.DataFrame({"id": range(20), "x": column}),
    }
    made = Parties.make(tmp_path, frames, {"job": SPACES["job"], "x": space})
    made.through()
    safe = dpf.read(made.release)["x"]
    assert str(safe.dtype) == back
    if back == "category":
        assert safe.cat.ordered


# --- schemas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "remedy"), [(1, "make a new run with this version"), (3, "upgrade dpframe")], ids=["older", "newer"]
)
def test_headers_and_messages_of_another_schema_are_refused(
    schema: int, remedy: str, twins: Twins, tmp_path: Path
) -> None:
    """Those of the first schema confirm guesses; what a newer one has is not known."""
    made = twins.first.parties
    message = Message.open(made.message("bob"))
    other = replace(message.header, schema=schema)
    match = f"has schema {schema}, this version reads 2; {remedy}$"
    identity, path = Identity(made.root / "bob"), tmp_path / "bob.header"
    write_header(path, other, identity)
    with pytest.raises(FileError, match=match):
        read_header(path, made.run.id, lambda name: made.run.member(name).key)
    with pytest.raises(FileError, match=match):
        replace(made, root=tmp_path / "made").encrypt("alice", beside=[path])
    # One with more in it is newer before it is damaged.
    text = json.dumps(json.loads(other.text) | {"more": 1})
    path.write_text(json.dumps({"header": text, "signature": ""}))
    with pytest.raises(FileError, match=match):
        read_header(path, made.run.id, lambda name: made.run.member(name).key)
    table, metadata = pq.read_table(message.path), dict(pq.read_metadata(message.path).metadata)
    pq.write_table(table.replace_schema_metadata(metadata | {b"dpframe.vertical": text.encode()}), message.path)
    with pytest.raises(FileError, match=match):
        Message.open(message.path)
    # Nor does the server bring one to the researcher.
    sent = Message.open(made.perturbed)
    (codes,) = sent.batches(made.run.plan.spaces)
    facts = {**sent.header.facts, "bob": [other.text, identity.sign(other.text.encode())]}
    with made.perturbed.open("wb") as file:
        writer = MessageWriter(file, made.run.plan.spaces)
        writer.write(codes)
        writer.finish(replace(sent.header, facts=facts), Identity(made.root / "server"))
    with pytest.raises(FileError, match=match):
        made.decrypt()


@pytest.mark.parametrize("change", [{"schema": "2"}, {"schema": 2.0}, {"schema": True}, {"rows": "40"}, {"facts": []}])
def test_what_is_no_header(change: dict[str, Any], twins: Twins, tmp_path: Path) -> None:
    text = json.dumps(json.loads(Message.open(twins.first.parties.message("bob")).header.text) | change)
    with pytest.raises(TypeError):
        Header.from_text(text)
    path = tmp_path / "bob.header"
    path.write_text(json.dumps({"header": text, "signature": ""}))
    with pytest.raises(FileError, match="is no header"):
        read_header(path, "", str)
