"""Messages between the parties: Parquet files of codes, whose header is signed and bound to one run.

The header is JSON in the file's metadata. It holds a digest of a random nonce and of all codes, column by column
across row groups, and is signed by its sender: so a file that was changed, damaged or swapped is refused before it is
used. A message is only for its receiver, as pads turn it into what it hides; its header is public, and lies next to
it. The nonce is in the message and not in the header: without it, anybody with the pad could compare the digest with
that of guessed values, without any noise.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.disk import write_text
from dpframe.errors import FileError
from dpframe.spaces import Space
from dpframe.tables.batches import Batch, length, row_groups
from dpframe.vertical.keys import Identity, verified

ROWS = 1 << 17
"""Rows that are worked on at a time."""

_HEADER, _SIGNATURE, _NONCE = b"dpframe.vertical", b"dpframe.signature", b"dpframe.nonce"
_SCHEMA = 2
_NONCE_BYTES = 32


@dataclass(frozen=True)
class Header:
    """What a message says of itself, to everyone.

    ``kind`` is ``"codes"`` (a curator's, padded), ``"pad"``, or ``"perturbed"``; ``facts`` are those of the kind.
    """

    kind: str
    run: str
    sender: str
    rows: int
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    content: str = ""
    schema: int = _SCHEMA

    @property
    def text(self) -> str:
        """The header as JSON text, which is signed."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @property
    def digest(self) -> str:
        """SHA-256 of the header, and so of the whole message."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def from_text(cls, text: str | bytes) -> Header:
        """Read a header back; `ValueError` or `TypeError` for any other text."""
        header = cls(**json.loads(text))
        kinds = (header.kind, header.run, header.sender, header.content)
        if not all(isinstance(kind, str) for kind in kinds) or not isinstance(header.facts, dict):
            raise TypeError
        if type(header.rows) is not int or type(header.schema) is not int:
            raise TypeError
        return header


def read_text(text: str | bytes, path: Path) -> Header:
    """Read the header of a file back, of this version's schema: of the first one a header confirms guesses."""
    schema = json.loads(text)["schema"]
    if type(schema) is int and schema != _SCHEMA:
        remedy = "make a new run with this version" if schema < _SCHEMA else "upgrade dpframe"
        raise FileError(f"{path} has schema {schema}, this version reads {_SCHEMA}; {remedy}")
    return Header.from_text(text)


def header_file(message: Path) -> Path:
    """Return the name of the file that holds only a message's header."""
    return message.with_name(f"{message.name}.header")


def write_header(path: Path, header: Header, sender: Identity) -> None:
    """Write a header and its signature, for everyone."""
    write_text(path, json.dumps({"header": header.text, "signature": sender.sign(header.text.encode())}))


def read_header(path: str | Path, run: str, key_of: Callable[[str], str]) -> Header:
    """Read a header back, signed by a sender of the run whose public key is known."""
    try:
        found = json.loads(Path(path).read_bytes())
        header, signature = read_text(found["header"], Path(path)), str(found["signature"])
    except FileNotFoundError:
        raise FileError(f"{path} does not exist") from None
    except FileError:
        raise
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise FileError(
            f"{path} is no header; pass the .header file that encrypt writes: a message is only for the server"
        ) from None
    if header.kind != "codes" or header.run != run:
        raise FileError(f"{path} is of another run; pass the one that was made for this run")
    if not verified(key_of(header.sender), signature, header.text.encode()):
        raise FileError(f"{path} is not what {header.sender} signed: it was changed or damaged; get it again")
    return header


def check_new(path: Path, once: str) -> None:
    """Raise `FileError` for a file that is there already, or that lies in no folder."""
    if path.exists():
        raise FileError(f"{path} is there already, and a run is {once} once; take another name")
    if not path.parent.is_dir():
        raise FileError(f"{path} cannot be written: there is no folder {path.parent}; make it first")


class _Content:
    """Digest of a nonce and of codes, column by column: without the nonce it commits to codes and reveals none."""

    def __init__(self, names: Iterator[str] | Mapping[str, Any], nonce: bytes) -> None:
        self._nonce = nonce
        self._columns = {name: hashlib.sha256() for name in names}

    def add(self, codes: Batch) -> None:
        for name, digest in self._columns.items():
            digest.update(_little(codes[name]).data)

    def hexdigest(self) -> str:
        parts = [[name, digest.hexdigest()] for name, digest in self._columns.items()]
        return hashlib.sha256(self._nonce + json.dumps(parts).encode()).hexdigest()


def _stored(space: Space) -> pa.DataType:
    # As bytes: Parquet has no integers of fewer than four, and would read back what three of them hold as nothing.
    return pa.binary(space.code_type.itemsize * max(1, space.code_words))


def _to_arrow(codes: Any, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(codes), [None, pa.py_buffer(_little(codes))])


def _to_codes(array: pa.Array, space: Space) -> Any:
    kind, words = space.code_type.newbyteorder("<"), max(1, space.code_words)
    start = array.offset * kind.itemsize * words
    flat = np.frombuffer(array.buffers()[1], kind, count=len(array) * words, offset=start)
    return (flat.reshape(-1, words) if space.code_words else flat).astype(space.code_type, copy=False)


def _little(codes: Any) -> Any:
    return np.ascontiguousarray(codes, dtype=codes.dtype.newbyteorder("<"))


class MessageWriter:
    """Writes codes, and a signed header when all are there."""

    def __init__(self, file: IO[bytes], spaces: Mapping[str, Space]) -> None:
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._spaces, self._content, self._rows = spaces, _Content(spaces, self._nonce), 0
        self._schema = pa.schema([pa.field(name, _stored(space), nullable=False) for name, space in spaces.items()])
        # Codes under a pad are uniform: nothing compresses them, and no statistics are to be had.
        self._writer = pq.ParquetWriter(
            file, self._schema, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
        )

    def write(self, codes: Batch) -> None:
        """Write the codes of the next rows."""
        self._content.add(codes)
        self._rows += length(codes)
        arrays = [_to_arrow(codes[field.name], field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def finish(self, header: Header, sender: Identity) -> Header:
        """Write the header with the codes' number and digest, signed, and the nonce; return the header."""
        header = replace(header, rows=self._rows, content=self._content.hexdigest())
        told = {_HEADER: header.text, _SIGNATURE: sender.sign(header.text.encode()), _NONCE: self._nonce.hex()}
        self._writer.add_key_value_metadata({key.decode(): value for key, value in told.items()})
        self._writer.close()
        return header


@dataclass(frozen=True)
class Message:
    """A message as it was read; made by `open`, checked by `verify`."""

    path: Path
    header: Header
    signature: str
    nonce: bytes = field(repr=False)

    @classmethod
    def open(cls, path: str | Path) -> Message:
        """Read the header of a message."""
        path = Path(path)
        try:
            found: dict[bytes, bytes] = pq.read_metadata(path).metadata or {}
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # a column's name that is no text
            missing = isinstance(error, FileNotFoundError)
            raise FileError(f"{path} {'does not exist' if missing else 'is damaged or no Parquet file'}") from None
        try:
            header, signature = read_text(found[_HEADER], path), found[_SIGNATURE].decode("ascii")
            nonce = bytes.fromhex(found.get(_NONCE, b"").decode("ascii"))
        except (KeyError, ValueError, TypeError, RecursionError):
            raise FileError(f"{path} is no message of a vertical run; encrypt and perturb write them") from None
        return cls(path, header, signature, nonce)

    def verify(self, kind: str, run: str, public: str, spaces: Mapping[str, Space]) -> None:
        """Check who made the message, for which run, and that it is unchanged."""
        header = self.header
        if header.kind != kind:
            raise FileError(f"{self.path} is a message of kind {header.kind!r} and not {kind!r}; pass the other file")
        if header.run != run:
            raise FileError(f"{self.path} is of another run; pass the one that was made for this run")
        changed = FileError(f"{self.path} is not what {header.sender} signed: it was changed or damaged; get it again")
        if not verified(public, self.signature, header.text.encode()):
            raise changed
        content, rows = _Content(spaces, self.nonce), 0
        for codes in self.batches(spaces):
            content.add(codes)
            rows += length(codes)
        if len(self.nonce) != _NONCE_BYTES or rows != header.rows or content.hexdigest() != header.content:
            raise changed

    def batches(self, spaces: Mapping[str, Space], rows: int = ROWS) -> Iterator[Batch]:
        """Yield the codes of columns, so many rows at a time across row groups."""
        return row_groups(self._batches(spaces, rows), rows)

    def _batches(self, spaces: Mapping[str, Space], rows: int) -> Iterator[Batch]:
        damaged = FileError(f"{self.path} is not what {self.header.sender} signed: it was damaged; get it again")
        try:
            with pq.ParquetFile(self.path, memory_map=False, pre_buffer=False) as file:
                stored = [(name, _stored(space)) for name, space in spaces.items()]
                if [(field.name, field.type) for field in file.schema_arrow] != stored:
                    raise damaged
                for batch in file.iter_batches(rows):
                    yield {name: _to_codes(batch.column(name), space) for name, space in spaces.items()}
        except (pa.ArrowException, OSError, ValueError):
            raise damaged from None
