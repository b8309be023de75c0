"""Messages between the parties: Parquet files of codes, whose header is signed and bound to one run.

The header is JSON in the file's metadata. It holds a digest of a random nonce and of all codes, column by column
across row groups. Its sender signs it, so that a changed, damaged or swapped file is refused before it is used. A
message is only for its receiver, as a pad decrypts it. Its header is public, in a file next to it. The nonce is only in
the message. Without a nonce, anybody with the pad could compare the digest with digests of guessed values, without
noise.
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
from dpframe.vertical.keys import Identity, is_signed_by

MESSAGE_BATCH_ROWS = 1 << 17
"""Rows of a batch (limit of memory)."""

_HEADER, _SIGNATURE, _NONCE = b"dpframe.vertical", b"dpframe.signature", b"dpframe.nonce"
_HEADER_SCHEMA_VERSION = 2
_NONCE_BYTES = 32


@dataclass(frozen=True)
class Header:
    """Public description of a message.

    ``kind`` is ``"codes"`` (a curator's, padded), ``"pad"``, or ``"perturbed"``; ``facts`` depend on the kind.
    """

    kind: str
    run: str
    sender: str
    rows: int
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    content: str = ""
    schema: int = _HEADER_SCHEMA_VERSION

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
        # True is an int to isinstance.
        if type(header.rows) is not int or type(header.schema) is not int:
            raise TypeError
        return header


def parse_header(text: str | bytes, path: Path) -> Header:
    """Read a header from its text; `FileError` for another schema than this version's."""
    # Headers of the first schema have no nonce, and confirm guessed values.
    schema = json.loads(text)["schema"]
    if type(schema) is int and schema != _HEADER_SCHEMA_VERSION:
        remedy = "make a new run with this version" if schema < _HEADER_SCHEMA_VERSION else "upgrade dpframe"
        raise FileError(f"{path} has schema {schema}, this version reads {_HEADER_SCHEMA_VERSION}; {remedy}")
    return Header.from_text(text)


def header_file(message: Path) -> Path:
    """Return the name of the file that holds only a message's header."""
    return message.with_name(f"{message.name}.header")


def write_header(path: Path, header: Header, sender: Identity) -> None:
    """Write a header and its signature, for everyone."""
    write_text(path, json.dumps({"header": header.text, "signature": sender.sign(header.text.encode())}))


def read_header(path: str | Path, run: str, key_of: Callable[[str], str]) -> Header:
    """Read a header from its file, and check its run and its signature; `FileError` if either is wrong."""
    try:
        document = json.loads(Path(path).read_bytes())
        header, signature = parse_header(document["header"], Path(path)), str(document["signature"])
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
    if not is_signed_by(key_of(header.sender), signature, header.text.encode()):
        raise FileError(f"{path} is not what {header.sender} signed: it was changed or damaged; get it again")
    return header


def check_new(path: Path, past_action: str) -> None:
    """Raise `FileError` for a file that exists, or whose folder does not."""
    if path.exists():
        raise FileError(f"{path} is there already, and a run is {past_action} once; take another name")
    if not path.parent.is_dir():
        raise FileError(f"{path} cannot be written: there is no folder {path.parent}; make it first")


class _ContentDigest:
    """Digest of a nonce and of codes, column by column; without the nonce it reveals nothing of the codes."""

    def __init__(self, names: Iterator[str] | Mapping[str, Any], nonce: bytes) -> None:
        self._nonce = nonce
        self._columns = {name: hashlib.sha256() for name in names}

    def add(self, codes: Batch) -> None:
        for name, digest in self._columns.items():
            digest.update(_to_little_endian(codes[name]).data)

    def hexdigest(self) -> str:
        parts = [[name, digest.hexdigest()] for name, digest in self._columns.items()]
        return hashlib.sha256(self._nonce + json.dumps(parts).encode()).hexdigest()


def _stored_type(space: Space) -> pa.DataType:
    # As bytes: Parquet has no integers of fewer than four bytes, and loses values of three.
    return pa.binary(space.code_type.itemsize * max(1, space.code_words))


def _to_arrow(codes: Any, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(codes), [None, pa.py_buffer(_to_little_endian(codes))])


def _to_codes(array: pa.Array, space: Space) -> Any:
    kind, words = space.code_type.newbyteorder("<"), max(1, space.code_words)
    start = array.offset * kind.itemsize * words
    flat = np.frombuffer(array.buffers()[1], kind, count=len(array) * words, offset=start)
    return (flat.reshape(-1, words) if space.code_words else flat).astype(space.code_type, copy=False)


def _to_little_endian(codes: Any) -> Any:
    return np.ascontiguousarray(codes, dtype=codes.dtype.newbyteorder("<"))


class MessageWriter:
    """Writes codes, and at the end their signed header."""

    def __init__(self, file: IO[bytes], spaces: Mapping[str, Space]) -> None:
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._spaces, self._content, self._rows = spaces, _ContentDigest(spaces, self._nonce), 0
        self._schema = pa.schema(
            [pa.field(name, _stored_type(space), nullable=False) for name, space in spaces.items()]
        )
        # Codes under a pad are uniform: compression and statistics would gain nothing.
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
        metadata = {_HEADER: header.text, _SIGNATURE: sender.sign(header.text.encode()), _NONCE: self._nonce.hex()}
        self._writer.add_key_value_metadata({key.decode(): value for key, value in metadata.items()})
        self._writer.close()
        return header


@dataclass(frozen=True)
class Message:
    """A message in a file; made by `open`, checked by `verify`."""

    path: Path
    header: Header
    signature: str
    nonce: bytes = field(repr=False)

    @classmethod
    def open(cls, path: str | Path) -> Message:
        """Read the header of a message."""
        path = Path(path)
        try:
            metadata: dict[bytes, bytes] = pq.read_metadata(path).metadata or {}
        # Names of columns that are no text raise UnicodeDecodeError.
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            is_missing = isinstance(error, FileNotFoundError)
            raise FileError(f"{path} {'does not exist' if is_missing else 'is damaged or no Parquet file'}") from None
        try:
            header, signature = parse_header(metadata[_HEADER], path), metadata[_SIGNATURE].decode("ascii")
            nonce = bytes.fromhex(metadata.get(_NONCE, b"").decode("ascii"))
        except (KeyError, ValueError, TypeError, RecursionError):
            raise FileError(f"{path} is no message of a vertical run; encrypt and perturb write them") from None
        return cls(path, header, signature, nonce)

    def verify(self, kind: str, run: str, public: str, spaces: Mapping[str, Space]) -> None:
        """Raise `FileError` unless the message has this kind, run and sender, and is unchanged."""
        header = self.header
        if header.kind != kind:
            raise FileError(f"{self.path} is a message of kind {header.kind!r} and not {kind!r}; pass the other file")
        if header.run != run:
            raise FileError(f"{self.path} is of another run; pass the one that was made for this run")
        change_error = FileError(
            f"{self.path} is not what {header.sender} signed: it was changed or damaged; get it again"
        )
        if not is_signed_by(public, self.signature, header.text.encode()):
            raise change_error
        content, rows = _ContentDigest(spaces, self.nonce), 0
        for codes in self.batches(spaces):
            content.add(codes)
            rows += length(codes)
        if len(self.nonce) != _NONCE_BYTES or rows != header.rows or content.hexdigest() != header.content:
            raise change_error

    def batches(self, spaces: Mapping[str, Space], rows: int = MESSAGE_BATCH_ROWS) -> Iterator[Batch]:
        """Yield the codes of columns in batches of ``rows`` rows across row groups."""
        return row_groups(self._batches(spaces, rows), rows)

    def _batches(self, spaces: Mapping[str, Space], rows: int) -> Iterator[Batch]:
        damage_error = FileError(f"{self.path} is not what {self.header.sender} signed: it was damaged; get it again")
        try:
            # A file that another process cuts short under a memory map would end this process.
            with pq.ParquetFile(self.path, memory_map=False, pre_buffer=False) as file:
                stored_types = [(name, _stored_type(space)) for name, space in spaces.items()]
                if [(field.name, field.type) for field in file.schema_arrow] != stored_types:
                    raise damage_error
                for batch in file.iter_batches(rows):
                    yield {name: _to_codes(batch.column(name), space) for name, space in spaces.items()}
        except (pa.ArrowException, OSError, ValueError):
            raise damage_error from None
