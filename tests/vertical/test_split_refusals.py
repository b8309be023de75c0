"""Whatever does not fit a run is refused by its noun and with a remedy, before anything is spent or drawn."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import refused
from parties import Parties

import dpframe as dpf
from dpframe.disk import Folder
from dpframe.errors import AlreadySanitizedError, ColumnError, FileError, ParameterError, PlanError
from dpframe.ledger.ledger import Ledger
from dpframe.vertical import Curator, Identity, Member, Researcher, Run, Server, new_run, read_public
from dpframe.vertical.messages import Header, Message, MessageWriter, header_file

N = 50
SPACES: dict[str, Any] = {"sex": ["F", "M"], "job": ["farm", "shop", "office"], "age": (0, 99)}


def frames(n: int = N) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(1)
    ids = [f"swordfish {i}" for i in range(n)]
    return {
        "alice": pd.DataFrame({"id": ids, "job": rng.choice(SPACES["job"], n)}),
        "bob": pd.DataFrame({"id": ids[::-1], "sex": rng.choice(["F", "M"], n), "age": rng.integers(0, 99, n)}),
    }


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties.make(tmp_path, frames(), SPACES, sample=30)


@pytest.fixture
def other(tmp_path: Path) -> Parties:
    """Another run, whose files have all been made."""
    made = Parties.make(tmp_path / "other", frames(), SPACES, sample=30)
    made.encrypt_all()
    made.perturb()
    return made


def forged(parties: Parties, name: str, rows: int, **facts: Any) -> None:
    """Write a message that a curator signed, of so many rows of noughts."""
    spaces = parties.run.spaces(parties.run.member(name).columns)
    with parties.message(name).open("wb") as file:
        writer = MessageWriter(file, spaces)
        writer.write({column: np.zeros(rows, dtype=space.code_type) for column, space in spaces.items()})
        writer.finish(Header("codes", parties.run.id, name, 0, facts), Identity(parties.root / name))


def test_a_run_is_marked_as_used_on_disk_before_anything_leaves(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark that a loss of power took would let a curator draw its tables and pads twice for one spend."""
    synced: list[int] = []
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    parties.encrypt("alice")
    used = parties.root / "alice" / "used"
    (mark,) = used.iterdir()
    first = min(synced.index(path.stat().st_ino) for path in (parties.message("alice"), parties.pad("alice")))
    with Folder.open_folder(used) as folder:  # where none is opened, the system puts names on disk by itself
        there = (mark,) if folder.descriptor is None else (mark, used, used.parent)
    assert all(path.stat().st_ino in synced[:first] for path in there)


# --- what a curator refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda f: f.iloc[1:], ParameterError, "the run is for 50 records and the table has 49; make a new run"),
        (
            lambda f: f.assign(id=["swordfish", *f["id"][1:-1], "swordfish"]),
            ColumnError,
            "column 'id': has an id twice; ",
        ),
        (
            lambda f: f.assign(id=[*f["id"][:7], None, *f["id"][8:]]),
            ColumnError,
            "'id' at row position 7: is null, and",
        ),
        (lambda f: f.assign(id=np.arange(N) / 7), ColumnError, "column 'id': has type double, and ids must be whole"),
        (lambda f: f.rename(columns={"job": "work"}), ColumnError, "'job': is in the run but not in the table; rename"),
        (lambda f: f.rename(columns={"id": "key"}), ColumnError, "'id': is in the run but not in the table; rename"),
        (
            lambda f: f.assign(job=[*f["job"][:9], None, *f["job"][10:]]),
            ColumnError,
            "'job' at row position 9: is null",
        ),
        (lambda f: f.assign(job=np.arange(N)), ColumnError, "column 'job'"),
    ],
    ids=["rows", "duplicates", "null id", "float id", "column", "no id", "null", "type"],
)
def test_tables(parties: Parties, change: Callable[[Any], Any], error: type[Exception], match: str) -> None:
    ledger = Ledger(parties.root / "ledger.sqlite")
    ledger.create("d", epsilon=1.0, delta=1e-3)
    wrong = change(parties.frames["alice"])
    refused(error, match, lambda: parties.encrypt("alice", wrong, ledger=ledger, dataset="d"))
    wrong.to_parquet(parties.root / "alice.parquet", index=False)
    refused(error, match, lambda: parties.encrypt("alice", parties.root / "alice.parquet"))
    assert ledger.spent("d").epsilon == 0
    assert not parties.message("alice").exists()
    assert not parties.pad("alice").exists()
    parties.encrypt("alice")  # nothing was used up


def test_ids_that_are_twice_in_batches_of_a_file(parties: Parties) -> None:
    wrong = parties.frames["alice"]
    wrong = pd.concat([wrong.iloc[:-1], wrong.iloc[:1]])
    wrong.to_parquet(parties.root / "alice.parquet", index=False, row_group_size=7)
    refused(
        ColumnError,
        "has an id twice; each record must",
        lambda: parties.encrypt("alice", parties.root / "alice.parquet"),
    )


def test_an_id_that_is_a_column_of_the_run(parties: Parties) -> None:
    refused(
        ParameterError, "id 'job' is a column of the run; .*take it out", lambda: parties.encrypt("alice", id="job")
    )


def test_a_release(parties: Parties) -> None:
    safe = dpf.sanitize(parties.frames["alice"], epsilon=1.0, spaces={"job": SPACES["job"]}, drop=["id"])
    refused(AlreadySanitizedError, "a release already; encrypt the original", lambda: parties.encrypt("alice", safe))


def test_other_records_than_those_beside_cost_nothing(parties: Parties) -> None:
    ledger = Ledger(parties.root / "ledger.sqlite")
    ledger.create("d", epsilon=1.0, delta=1e-3)
    parties.encrypt("alice")
    wrong = parties.frames["bob"].assign(id=[f"salmon {i}" for i in range(N)])
    header = header_file(parties.message("alice"))
    call = partial(parties.encrypt, "bob", wrong, beside=[header], ledger=ledger, dataset="d")
    refused(FileError, "is of other records, or .*another shared secret: .*the same ids; nothing was spent", call)
    assert ledger.spent("d").epsilon == 0
    parties.encrypt("bob", beside=[header])


def test_curators_compare_headers_and_never_see_messages(parties: Parties, tmp_path: Path) -> None:
    parties.encrypt("alice")
    message = parties.message("alice")
    header = header_file(message)
    for path in (message, parties.pad("alice")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def beside(path: Path) -> Callable[[], Any]:
        return lambda: parties.encrypt("bob", beside=[path])

    refused(FileError, "is no header; pass the .header file .* a message is only for the server", beside(message))
    refused(FileError, "absent does not exist", beside(tmp_path / "absent"))
    changed = tmp_path / "changed"
    changed.write_text(header.read_text().replace("records", "recorda"))
    refused(FileError, "is not what alice signed: it was changed or damaged; get it again", beside(changed))
    other = Parties.make(tmp_path / "other", parties.frames, SPACES)
    other.encrypt("alice")
    refused(FileError, "is of another run", beside(header_file(other.message("alice"))))


def test_a_run_is_encrypted_once(parties: Parties, tmp_path: Path) -> None:
    parties.encrypt("alice")
    refused(FileError, "is there already, and a run is encrypted once; take another", lambda: parties.encrypt("alice"))
    parties.message("alice").rename(tmp_path / "message")
    refused(FileError, "pad.parquet is there already", lambda: parties.encrypt("alice"))
    parties.pad("alice").rename(tmp_path / "pad")
    refused(FileError, "parquet.header is there already", lambda: parties.encrypt("alice"))
    header_file(parties.message("alice")).rename(tmp_path / "header")
    refused(FileError, "has encrypted for this run before, .*; make a new run", lambda: parties.encrypt("alice"))


@pytest.mark.parametrize("name", ["message.parquet", "message.parquet.header", "../alice/message.parquet"])
def test_a_pad_that_would_be_written_over(parties: Parties, name: str) -> None:
    curator, message = Curator(parties.run, parties.root / "alice"), parties.message("alice")
    refused(
        FileError,
        "message and pad are both .*take another name for pad",
        lambda: curator.encrypt(parties.frames["alice"], message, message.parent / name, id="id"),
    )
    parties.encrypt("alice")  # nothing was used up


def test_keys_that_are_nobodys(parties: Parties, tmp_path: Path) -> None:
    stranger = Identity.create(tmp_path / "stranger")
    refused(ParameterError, "is no curator's of this run; pass", lambda: Curator(parties.run, stranger.folder))
    refused(ParameterError, "is not the server's of this run; pass", lambda: Server(parties.run, stranger.folder))
    refused(FileError, "signing.key could not be read: .*keygen", lambda: Curator(parties.run, tmp_path / "nowhere"))
    refused(FileError, "shared.secret could not be read: .*keygen --share", lambda: stranger.shared)
    refused(FileError, "is there already, and secrets are not written over", lambda: Identity.create(stranger.folder))
    (stranger.folder / "signing.key").write_text("swordfish\n")
    refused(FileError, "is no secret of 32 bytes in hex", lambda: Server(parties.run, stranger.folder))
    (tmp_path / "short").write_text("abcd")
    refused(FileError, "is no public key; keygen writes", lambda: read_public(tmp_path / "short"))
    refused(FileError, "could not be read: .*keygen writes public.key", lambda: read_public(tmp_path / "none"))


# --- what the server refuses --------------------------------------------------------------------------


def test_messages_that_are_missing_twice_there_or_strange(parties: Parties) -> None:
    server, out = Server(parties.run, parties.root / "server"), parties.perturbed
    parties.encrypt_all()
    alice, bob = parties.messages
    refused(FileError, "message of curator bob is missing; pass one of each", lambda: server.perturb([alice], out))
    refused(FileError, "second message of curator alice; pass one", lambda: server.perturb([alice, alice, bob], out))
    refused(
        FileError, "of kind 'pad' and not 'codes'; pass the other", lambda: server.perturb([parties.pad("bob")], out)
    )
    refused(FileError, "does not exist", lambda: server.perturb([parties.root / "none"], out))
    (parties.root / "text").write_text("swordfish")
    refused(FileError, "is damaged or no Parquet file", lambda: server.perturb([parties.root / "text"], out))
    parties.frames["bob"].to_parquet(parties.root / "plain.parquet")
    refused(
        FileError, "is no message of a vertical run; ", lambda: server.perturb([parties.root / "plain.parquet"], out)
    )
    assert not out.exists()
    parties.perturb()  # nothing was used up


def test_messages_of_another_run(parties: Parties, other: Parties) -> None:
    server = Server(parties.run, parties.root / "server")
    refused(FileError, "is of another run; pass the one", lambda: server.perturb(other.messages, parties.perturbed))


@pytest.mark.parametrize("rows", [0, 29, 31])
def test_mismatched_samples(parties: Parties, rows: int) -> None:
    parties.encrypt("alice")
    forged(parties, "bob", rows)
    refused(FileError, f"message.parquet has {rows} rows, the sample 30; encrypt it anew", parties.perturb)


def test_different_records_and_secrets(parties: Parties) -> None:
    parties.encrypt("alice", parties.frames["alice"].assign(id=[f"salmon {i}" for i in range(N)]))
    parties.encrypt("bob")
    refused(FileError, "alice, bob are of different records, or .*make a new run", parties.perturb)


def test_another_shared_secret(parties: Parties) -> None:
    (parties.root / "bob" / "shared.secret").unlink()
    Identity(parties.root / "bob").share()
    parties.encrypt_all()
    refused(FileError, "made with different shared secrets: curators need one", parties.perturb)


def with_another_code(path: Path) -> None:
    table = pq.read_table(path)
    name = table.column_names[-1]
    codes = table[name].to_pylist()
    changed = table.set_column(
        len(table.column_names) - 1, name, pa.array([*codes[:-1], bytes([codes[-1][0] ^ 1])], table[name].type)
    )
    pq.write_table(changed, path)


def with_another_fact(path: Path) -> None:
    table = pq.read_table(path)
    metadata = {
        key: value.replace(b'"facts": {', b'"facts": {"more": 1, ') for key, value in table.schema.metadata.items()
    }
    assert metadata != table.schema.metadata
    pq.write_table(table.replace_schema_metadata(metadata), path)


def with_fewer_rows(path: Path) -> None:
    pq.write_table(pq.read_table(path)[:-1], path)


def with_columns_renamed(path: Path) -> None:
    table = pq.read_table(path)
    metadata = table.schema.metadata
    pq.write_table(
        table.rename_columns([f"{name}2" for name in table.column_names]).replace_schema_metadata(metadata), path
    )


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def with_a_name_that_is_no_text(path: Path) -> None:
    name = pq.read_schema(path).names[-1].encode()
    path.write_bytes(path.read_bytes().replace(name, b"\xe5" * len(name)))


TAMPERINGS = [
    with_another_code,
    with_another_fact,
    with_fewer_rows,
    with_columns_renamed,
    with_a_name_that_is_no_text,
    cut_short,
]


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
@pytest.mark.parametrize("what", ["message", "pad", "perturbed"])
def test_tampered_files(parties: Parties, what: str, tamper: Callable[[Path], None]) -> None:
    parties.encrypt_all()
    if what == "message":
        tamper(parties.message("bob"))
        call: Callable[[], Any] = parties.perturb
    else:
        parties.perturb()
        tamper(parties.pad("bob") if what == "pad" else parties.perturbed)
        call = parties.decrypt
    refused(
        FileError, "(is not what (bob|server) signed: it was .*damaged; get it again|is damaged or no Parquet)", call
    )
    assert not (parties.perturbed if what == "message" else parties.release).exists()


def test_every_byte_of_a_message_counts(parties: Parties) -> None:
    """But for those of Parquet's own that say nothing: a message that passes has the codes that were signed."""
    parties.encrypt("alice")
    path, run = parties.message("alice"), parties.run
    spaces, key = run.spaces(["job"]), run.member("alice").key
    (kept,) = Message.open(path).batches(spaces)
    raw, passed = path.read_bytes(), 0
    for at in range(0, len(raw), 3):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])
        try:
            message = Message.open(path)
            message.verify("codes", run.id, key, spaces)
        except FileError:
            continue
        passed += 1
        (codes,) = message.batches(spaces)
        assert codes["job"].tolist() == kept["job"].tolist()
    assert passed < len(raw) / 6


def test_messages_signed_by_another(parties: Parties) -> None:
    parties.encrypt("alice")
    forged(parties, "bob", 30)
    message = Message.open(parties.message("bob"))
    public, spaces = parties.run.member("alice").key, parties.run.spaces(["sex", "age"])
    call = partial(message.verify, "codes", parties.run.id, public, spaces)
    refused(FileError, "is not what bob signed: it was changed or damaged; get it again", call)


def test_a_run_is_perturbed_once(parties: Parties, tmp_path: Path) -> None:
    parties.encrypt_all()
    parties.perturb()
    refused(FileError, "is there already, and a run is perturbed once; take another", parties.perturb)
    parties.perturbed.rename(tmp_path / "moved")
    refused(FileError, "has perturbed this run before, .*; make a new run", parties.perturb)


# --- what the researcher refuses ----------------------------------------------------------------------


def test_pads_that_are_missing_or_too_many(parties: Parties) -> None:
    parties.encrypt_all()
    parties.perturb()
    alice, bob = parties.pads
    remedy = r"pad of curator bob is missing; pass it, or .*without=\['bob'\]"
    refused(FileError, remedy, lambda: parties.decrypt(pads=[alice]))
    refused(FileError, "curator alice too many; pass one", lambda: parties.decrypt(pads=[alice, alice, bob]))
    refused(FileError, "curator bob too many; pass one", lambda: parties.decrypt(without=["bob"]))
    refused(
        FileError,
        "all curators are left out: .*pass one pad",
        lambda: parties.decrypt(pads=[], without=["alice", "bob"]),
    )
    refused(
        ParameterError,
        "curator eve is not in the run; its curators are alice, bob",
        lambda: parties.decrypt(without=["eve"]),
    )
    refused(FileError, "of kind 'codes' and not 'pad'", lambda: parties.decrypt(pads=parties.messages))
    parties.decrypt()  # nothing was used up


def test_pads_of_another_run_or_message(parties: Parties, other: Parties) -> None:
    parties.encrypt_all()
    parties.perturb()
    refused(FileError, "pad.parquet is of another run; pass", lambda: parties.decrypt(pads=other.pads))
    swapped = parties.pad("bob").read_bytes()
    for path in (parties.message("bob"), header_file(parties.message("bob")), parties.pad("bob")):
        path.unlink()
    shutil.rmtree(parties.root / "bob" / "used")
    parties.encrypt("bob")  # as a curator who breaks the rule: the same run again, under another pad
    assert parties.pad("bob").read_bytes() != swapped
    refused(FileError, "is the pad of another message of curator bob; get the one that fits", parties.decrypt)


def test_pads_are_good_for_one_decryption(parties: Parties) -> None:
    parties.encrypt_all()
    parties.perturb()
    parties.decrypt()
    parties.release.unlink()
    refused(
        FileError, "pad.parquet was used before, and a pad is good for one decryption; make a new run", parties.decrypt
    )
    assert not parties.release.exists()


def test_a_decryption_that_fails_uses_nothing_up(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    parties.encrypt_all()
    parties.perturb()
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(FileError, match=r"release.parquet could not be written"):
            parties.decrypt()
    assert not parties.release.exists()
    parties.decrypt()


def test_places_that_nothing_can_be_written_to(parties: Parties) -> None:
    nowhere = parties.root / "nowhere" / "file"
    curator = Curator(parties.run, parties.root / "alice")
    call = partial(curator.encrypt, parties.frames["alice"], nowhere, parties.pad("alice"), id="id")
    refused(FileError, "cannot be written: there is no folder .*nowhere; make it first", call)
    parties.encrypt_all()
    server = Server(parties.run, parties.root / "server")
    refused(FileError, "no folder .*nowhere; make it", lambda: server.perturb(parties.messages, nowhere))
    parties.perturb()
    researcher = Researcher(parties.run)
    for target, match in [
        (nowhere, "nowhere is not a directory; make it first"),
        (parties.root, "is a directory; name a file"),
        (parties.perturbed, "is part of the input; write to another place"),
        (parties.pad("bob"), "is one of the pads; write to another place"),
    ]:
        refused(FileError, match, partial(researcher.decrypt, parties.perturbed, parties.pads, target))
    parties.decrypt()


def test_a_server_that_alters_what_curators_say(parties: Parties) -> None:
    """A server signs what it likes; what curators signed it cannot change."""
    parties.encrypt_all()
    parties.perturb()
    source, identity = Message.open(parties.perturbed), Identity(parties.root / "server")
    (codes,) = source.batches(parties.run.plan.spaces)
    text, signature = source.header.facts["bob"]
    for told in (
        [text.replace('"facts": {', '"facts": {"more": 1, '), signature],
        source.header.facts["alice"],
        ["{}", ""],
    ):
        with parties.perturbed.open("wb") as file:
            writer = MessageWriter(file, parties.run.plan.spaces)
            writer.write(codes)
            writer.finish(dataclasses.replace(source.header, facts={**source.header.facts, "bob": told}), identity)
        refused(FileError, "does not hold what the curators signed; ask the server", parties.decrypt)


def test_what_is_perturbed_of_another_run_or_with_other_noise(parties: Parties, other: Parties) -> None:
    parties.encrypt_all()
    parties.perturb()
    shutil.copy(other.perturbed, parties.perturbed)
    refused(FileError, "perturbed.parquet is of another run; pass", parties.decrypt)


# --- what no run can be -------------------------------------------------------------------------------

KEYS = {"alice": "aa" * 32, "bob": "bb" * 32}
SERVER = "cc" * 32


def made(alice: Any = None, bob: Any = None, server: str = SERVER, **options: Any) -> Run:
    spaces = {"alice": alice or {"job": SPACES["job"]}, "bob": bob or {"sex": SPACES["sex"]}}
    curators = {name: (spaces[name], KEYS[name]) for name in spaces}
    return new_run(curators, server, **{"n": 100, "epsilon": 1.0, **options})


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: made({"sex": ["F", "M"]}), ParameterError, "column 'sex' is held by two curators; rename it"),
        (lambda: made(server=KEYS["bob"]), ParameterError, "different keys; let keygen make one for each"),
        (lambda: made(server="swordfish"), ParameterError, "server must be a public key of 64 hexadecimal"),
        (lambda: made(pad="short"), ParameterError, "pad must be one of one-time, stream"),
        (lambda: made(sample=200), ParameterError, "sample must be a whole number of rows from 1 to 100"),
        (
            lambda: made({"age": (0, 9)}, mechanisms={"age": "geometric"}),
            PlanError,
            "age: mechanism geometric adds no noise in a group, .*; use wrapped_geometric or randomized_response",
        ),
        (
            lambda: made({"hobbies": dpf.Nullable(dpf.Subset(["a", "b"]))}),
            ParameterError,
            "column 'hobbies': space nullable has no noise that can act under a pad; .*declare",
        ),
        (lambda: made({"load": dpf.Vector(3, 1.0)}), ParameterError, "'load': space vector has no noise that can act"),
        (lambda: made(measure=[("job", "sex")]), PlanError, "table of job, sex is of two curators, .*leave it out"),
        (lambda: made({"income": (0, 1 << 21)}), ParameterError, "column 'income': size .*declare a coarser step"),
        (lambda: made({"income": (0, 1 << 19)}, epsilon=1e-9), ParameterError, "too small for a ring of 524289 codes"),
        (
            lambda: new_run({"alice": ({"a": [1, 2]}, KEYS["alice"])}, SERVER, n=9, epsilon=1),
            ParameterError,
            "two or more",
        ),
    ],
)
def test_runs(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    refused(error, match, call)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.pop("plan"), "a run has the fields"),
        (lambda d: d.update(schema=2), "another schema, this version reads 1; upgrade"),
        (lambda d: d.update(curators={}), "a list of curators"),
        (lambda d: d["curators"][0].pop("key"), "a curator has the fields columns, key, name"),
        (
            lambda d: d["curators"][0].update(columns=["work"]),
            "column '.*' must be in the plan and at one of the curators",
        ),
        (lambda d: d["plan"].update(n=None, epsilon=30.0), "needs the number of records n and shuffled rows"),
        (lambda d: d["plan"].update(shuffle=False, epsilon=30.0), "needs the number of records n and shuffled rows"),
        (lambda d: d["plan"].update(leaks=["job"]), "no inferred spaces; declare"),
    ],
)
def test_files_of_runs(change: Callable[[Any], Any], match: str) -> None:
    data = json.loads(made().to_json())
    change(data)
    refused(PlanError, match, lambda: Run.from_json(json.dumps(data)))


def test_what_is_no_run(tmp_path: Path) -> None:
    refused(PlanError, "no run of a vertical release; new_run makes one", lambda: Run.from_json("swordfish"))
    refused(FileError, "is not a readable run; .*vertical plan writes one", lambda: Run.read(tmp_path / "none"))
    refused(ParameterError, "curator alice must hold one column or more", lambda: Member("alice", (), "aa" * 32))
    refused(ParameterError, "name must be text that can be printed", lambda: Member("a\nb", ("x",), "aa" * 32))
