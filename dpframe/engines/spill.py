"""Released rows between the two passes of a job: sealed files next to its target, which the driver and workers see."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpframe.disk import new_file
from dpframe.engines.sealing import Seal
from dpframe.engines.staging import unwritable
from dpframe.engines.work import CHANGED, FirstPass, Pieces, Work
from dpframe.errors import FileError

Block = tuple[str, int, int]
"""Sealed rows of one bucket: a file's name, and where in it they begin and how long they are, in bytes."""


@dataclass(frozen=True)
class SealedSpill:
    """Files of sealed rows in a folder, under a key that is on no disk: they are in the input's order."""

    folder: str
    key: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))

    @classmethod
    def within(cls, folder: Path) -> SealedSpill:
        """Return files in a new folder that only its owner may list: their sizes show how many rows a part has."""
        rows = folder / "rows"
        rows.mkdir(mode=0o700)
        return cls(str(rows))

    @property
    def seal(self) -> Seal:
        """What rows are closed and opened with."""
        return Seal(self.key)

    def first_pass(self, work: Work, pieces: Pieces) -> FirstPass:
        """Do the first pass over a part of a table, and write its released rows to a file.

        A second attempt writes another file: which one is read is decided by whose result arrives.
        """
        path = Path(self.folder, secrets.token_hex(16))
        blocks: list[tuple[int, Block]] = []
        try:
            with os.fdopen(new_file(path), "wb") as file:

                def send(bucket: int, content: bytes) -> None:
                    blocks.append((bucket, (path.name, file.tell(), len(content))))
                    file.write(content)

                first_pass = work.first_pass(pieces, send, self.seal)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise unwritable(path.parent, error) from None
        first_pass.blocks = blocks
        return first_pass

    def read(self, blocks: Sequence[Block]) -> Iterator[bytes]:
        """Yield sealed rows."""
        for name, offset, size in blocks:
            try:
                with Path(self.folder, name).open("rb") as file:
                    file.seek(offset)
                    content = file.read(size)
            except OSError as error:
                raise FileError(f"{self.folder} cannot be read: {error.strerror or 'input/output error'}") from None
            if len(content) < size:
                raise FileError(CHANGED)
            yield content
