"""The researcher: subtracts the pads that curators gave, and writes an ordinary release.

The release has its rows in a fresh order, which costs nothing. A curator knows the position of each record in the
messages, and cannot recognise records by their positions in the release.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpframe.errors import FileError, PlanError
from dpframe.plan.measures import Measure, MeasuredTable
from dpframe.release.info import ReleaseInfo, unpacked
from dpframe.release.library import installed_library
from dpframe.release.rows import Digest, order_words
from dpframe.release.spill import SPILL_BUCKET_ROWS, Spill
from dpframe.tables.batches import Batch, length, row_groups, written
from dpframe.tables.inputs import open_input
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.sinks import Sink, check_target
from dpframe.vertical.curator import read_fields
from dpframe.vertical.keys import is_signed_by, mark
from dpframe.vertical.messages import Header, Message, parse_header
from dpframe.vertical.pads import PadStream, subtract_pads
from dpframe.vertical.run import Member, Run

_MARK_SUFFIX = ".used"


@dataclass(frozen=True)
class Researcher:
    """The party that receives the sanitised table.

    Parameters
    ----------
    run
        The run, which has all public keys; the researcher needs no key.
    """

    run: Run

    def decrypt(
        self,
        perturbed: str | Path,
        pads: Sequence[str | Path],
        target: str | Path,
        *,
        without: Sequence[str] = (),
    ) -> ReleaseInfo:
        """Subtract the pads and write the release; a pad is good for one decryption.

        Parameters
        ----------
        perturbed
            The server's output.
        pads
            The curators' pads, one of each, in any order.
        target
            The release to write, Parquet or CSV by its ending; `dpframe.read` reads it with its plan.
        without
            Names of curators who withheld their pads: their columns are uniform noise, and left out.

        Returns
        -------
        The description of the release.

        Raises
        ------
        FileError
            If a pad is missing, repeated, of another run or message, or used before, or if a file was changed.
        """
        run, source = self.run, Message.open(perturbed)
        source.verify("perturbed", run.id, run.server, run.plan.spaces)
        if source.header.rows != run.rows:
            raise FileError(f"{perturbed} has {source.header.rows:,} rows, the sample {run.rows:,}; perturb it anew")
        headers = self._read_headers(source)
        pads_by_curator = self._match_pads(headers, pads, {run.member(name).name for name in without})
        target = check_target(Path(target), open_input(perturbed))
        if target.resolve() in {pad.path.resolve() for pad in pads_by_curator.values()}:
            raise FileError(f"{target} is one of the pads; write to another place")
        sink = Sink(target, "snappy")
        # Marked before use: a pad on two outputs of the server would give the same codes under two noises. A decryption
        # that fails gives nothing out, and removes the marks.
        with ExitStack() as undo:
            for pad in pads_by_curator.values():
                undo.callback(_mark_used(pad.path).unlink)
            info = self._write_release(source, headers, pads_by_curator, sink)
            undo.pop_all()
        return info

    def _read_headers(self, source: Message) -> dict[str, Header]:
        """Return the headers that the curators signed, by curator, from the server's message."""
        # A server could otherwise swap messages of curators, or invent their types.
        try:
            signed_texts = {m: source.header.facts[m.name] for m in self.run.curators}
            headers = {m: parse_header(text, source.path) for m, (text, _) in signed_texts.items()}
            is_signed = all(is_signed_by(m.key, signed_texts[m][1], headers[m].text.encode()) for m in signed_texts)
        except (KeyError, ValueError, TypeError):
            is_signed = False
        if not is_signed or any(
            (header.kind, header.run, header.sender) != ("codes", self.run.id, m.name) for m, header in headers.items()
        ):
            raise FileError(f"{source.path} does not hold what the curators signed; ask the server what it perturbed")
        return {m.name: header for m, header in headers.items()}

    def _match_pads(
        self, headers: Mapping[str, Header], paths: Sequence[str | Path], without: set[str]
    ) -> dict[str, Message]:
        """Return the pads by curator; `FileError` unless each fits the curator's perturbed message."""
        run = self.run
        pads: dict[str, Message] = {}
        for path in paths:
            pad = Message.open(path)
            member = run.member(pad.header.sender)
            spaces = run.spaces(member.columns) if run.pad == "one-time" else {}
            pad.verify("pad", run.id, member.key, spaces)
            if member.name in pads or member.name in without:
                raise FileError(
                    f"{path} is a pad of curator {member.name} too many; pass one of each that is not left out"
                )
            # A wrong pad would give uniform noise as if it were a release.
            if pad.header.facts.get("message") != headers[member.name].digest:
                raise FileError(f"{path} is the pad of another message of curator {member.name}; get the one that fits")
            pads[member.name] = pad
        missing = [member.name for member in run.curators if member.name not in pads and member.name not in without]
        if missing:
            raise FileError(
                f"the pad of curator {missing[0]} is missing; pass it, or leave the curator's columns out with "
                f"without=[{missing[0]!r}]"
            )
        if not pads:
            raise FileError("all curators are left out: nothing would be released; pass one pad or more")
        return pads

    def _write_release(
        self, source: Message, headers: Mapping[str, Header], pads: Mapping[str, Message], sink: Sink
    ) -> ReleaseInfo:
        """Write the release in a fresh order."""
        run = self.run
        key, digest = secrets.token_bytes(32), Digest(run.plan)
        members = [member for member in run.curators if member.name in pads]
        fields = {name: field for m in members for name, field in read_fields(headers[m.name], m.columns).items()}
        released_fields = {name: fields[name] for name in run.plan.names if name in fields}
        form, first_row = ParquetForm(run.plan, pa.schema(list(released_fields.values()))), 0
        sink.check(form.schema)
        with (
            Spill(sink.path.parent, (run.rows // SPILL_BUCKET_ROWS).bit_length()) as spill,
            sink.publishing() as (file, describe),
            sink.rows(file, form) as writer,
        ):
            for codes in self._remove_pads(source, {m: pads[m.name] for m in members}):
                digest.update(codes)
                words = order_words(run.plan, key, first_row, length(codes))
                spill.add(words, {name: codes[name] for name in released_fields})
                first_row += length(codes)
            rows = written(writer.write, row_groups(map(spill.read, range(spill.buckets)), form.group_rows), 2)
            tables = self._collect_tables([pads[member.name].header for member in members])
            table_rows = None if run.plan.sample is None else run.plan.n
            digests = digest.hexdigest(tables)
            info = ReleaseInfo(run.plan, rows, digests, table_rows, False, tables, library=installed_library())
            writer.describe(form.metadata(info.to_json()))
            describe(info.to_json())
        return info

    def _remove_pads(self, source: Message, pads: Mapping[Member, Message]) -> Iterator[Batch]:
        """Yield the perturbed codes with the known pads subtracted."""
        run = self.run
        pad_readers = [(run.spaces(member.columns), _pad_reader(run, member, pad)) for member, pad in pads.items()]
        for codes in source.batches(run.plan.spaces):
            batch = dict(codes)
            for spaces, read_pads in pad_readers:
                batch |= subtract_pads(spaces, codes, read_pads(length(codes)))
            yield batch

    def _collect_tables(self, pads: Sequence[Header]) -> tuple[MeasuredTable, ...]:
        """Return the measured tables in the order of the plan; no tables if a curator is left out."""
        plan = self.run.plan
        if not plan.measures or len(pads) < len(self.run.curators):
            return ()
        # Curators measure tables of their own columns only, and the plan has another order.
        by_measure: dict[Measure, MeasuredTable] = {}
        for pad in pads:
            measures = self.run.tables_of(self.run.member(pad.sender))
            tables = unpacked(pad.facts.get("tables"), measures, plan.spaces) if measures else ()
            if tables is None:
                raise PlanError(f"the tables that curator {pad.sender} measured do not fit the run; make a new run")
            by_measure |= {table.measure: table for table in tables}
        return tuple(by_measure[measure] for measure in plan.measures)


def _pad_reader(run: Run, member: Member, pad: Message) -> Any:
    """Return a function from a number of rows to the pads of the next rows."""
    spaces = run.spaces(member.columns)
    if run.pad == "stream":
        return PadStream(spaces, bytes.fromhex(pad.header.facts["key"]), run.digest).take
    batches = pad.batches(spaces)
    return lambda count: next(batches)


def _mark_used(pad: Path) -> Path:
    """Mark a pad as used, and return the path of the mark; `FileError` if it was used before."""
    mark_path = pad.with_name(pad.name + _MARK_SUFFIX)
    try:
        mark(mark_path)
    except FileExistsError:
        raise FileError(
            f"{pad} was used before, and a pad is good for one decryption; make a new run (if a decryption was killed "
            f"and left no release, remove {mark_path.name})"
        ) from None
    except OSError as error:
        raise FileError(f"{mark_path} could not be written: {error.strerror}") from None
    return mark_path
