"""The researcher: takes off the pads of the curators who gave them, and has an ordinary release.

Rows are shuffled anew first. That costs nothing, and somebody who sees only the release, be it a curator who knows
the place of each record when it left, cannot recognise its rows by their places.
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
from dpframe.tables.batches import Batch, length, row_groups, written
from dpframe.tables.info import ReleaseInfo, unpacked
from dpframe.tables.inputs import open_input
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.release import Digest, order_words
from dpframe.tables.sinks import Sink, check_target
from dpframe.tables.spill import BUCKET_ROWS, Spill
from dpframe.vertical.curator import fields_of
from dpframe.vertical.keys import mark, verified
from dpframe.vertical.messages import Header, Message, read_text
from dpframe.vertical.pads import PadStream, unpadded
from dpframe.vertical.run import Member, Run

_MARK = ".used"


@dataclass(frozen=True)
class Researcher:
    """The party that receives the sanitised table.

    Parameters
    ----------
    run
        The run, which has all public keys; the researcher needs none of its own.
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
            What the server wrote.
        pads
            The curators' pads, one of each, in any order.
        target
            The release to write, Parquet, or CSV by its ending: `dpframe.read_parquet` reads it with its plan.
        without
            Names of curators who withheld their pads: their columns are uniform noise, and left out.

        Returns
        -------
        What the release says about itself.

        Raises
        ------
        FileError
            If a pad is missing, twice there, of another run or message, or used before, or a file was changed.
        """
        run, source = self.run, Message.open(perturbed)
        source.verify("perturbed", run.id, run.server, run.plan.spaces)
        if source.header.rows != run.rows:
            raise FileError(f"{perturbed} has {source.header.rows:,} rows, the sample {run.rows:,}; perturb it anew")
        heads = self._headers(source)
        found = self._pads(heads, pads, {run.member(name).name for name in without})
        target = check_target(Path(target), open_input(perturbed))
        if target.resolve() in {pad.path.resolve() for pad in found.values()}:
            raise FileError(f"{target} is one of the pads; write to another place")
        sink = Sink(target, "snappy")
        with ExitStack() as undo:
            for pad in found.values():
                undo.callback(_use(pad.path).unlink)
            info = self._release(source, heads, found, sink)
            undo.pop_all()
        return info

    def _headers(self, source: Message) -> dict[str, Header]:
        """Return what the curators signed, by their names, as the server passed it on."""
        try:
            told = {m: source.header.facts[m.name] for m in self.run.curators}
            heads = {m: read_text(text, source.path) for m, (text, _) in told.items()}
            honest = all(verified(m.key, told[m][1], heads[m].text.encode()) for m in told)
        except (KeyError, ValueError, TypeError):
            honest = False
        if not honest or any(
            (head.kind, head.run, head.sender) != ("codes", self.run.id, m.name) for m, head in heads.items()
        ):
            raise FileError(f"{source.path} does not hold what the curators signed; ask the server what it perturbed")
        return {m.name: head for m, head in heads.items()}

    def _pads(self, heads: Mapping[str, Header], paths: Sequence[str | Path], without: set[str]) -> dict[str, Message]:
        """Return the pads by curator, once each is known to fit the message that was perturbed."""
        run = self.run
        found: dict[str, Message] = {}
        for path in paths:
            pad = Message.open(path)
            member = run.member(pad.header.sender)
            spaces = run.spaces(member.columns) if run.pad == "one-time" else {}
            pad.verify("pad", run.id, member.key, spaces)
            if member.name in found or member.name in without:
                raise FileError(
                    f"{path} is a pad of curator {member.name} too many; pass one of each that is not left out"
                )
            if pad.header.facts.get("message") != heads[member.name].digest:
                raise FileError(f"{path} is the pad of another message of curator {member.name}; get the one that fits")
            found[member.name] = pad
        missing = [member.name for member in run.curators if member.name not in found and member.name not in without]
        if missing:
            raise FileError(
                f"the pad of curator {missing[0]} is missing; pass it, or leave the curator's columns out with "
                f"without=[{missing[0]!r}]"
            )
        if not found:
            raise FileError("all curators are left out: nothing would be released; pass one pad or more")
        return found

    def _release(
        self, source: Message, heads: Mapping[str, Header], pads: Mapping[str, Message], sink: Sink
    ) -> ReleaseInfo:
        """Write the release in a fresh order."""
        run = self.run
        key, digest = secrets.token_bytes(32), Digest(run.plan)
        members = [member for member in run.curators if member.name in pads]
        fields = {name: field for m in members for name, field in fields_of(heads[m.name], m.columns).items()}
        kept = {name: fields[name] for name in run.plan.names if name in fields}
        form, first = ParquetForm(run.plan, pa.schema(list(kept.values()))), 0
        sink.check(form.schema)
        with (
            Spill(sink.path.parent, (run.rows // BUCKET_ROWS).bit_length()) as spill,
            sink.publishing() as (file, describe),
            sink.rows(file, form) as writer,
        ):
            for codes in self._plain(source, {m: pads[m.name] for m in members}):
                digest.update(codes)
                words = order_words(run.plan, key, first, length(codes))
                spill.add(words, {name: codes[name] for name in kept})
                first += length(codes)
            rows = written(writer.write, row_groups(map(spill.read, range(spill.buckets)), form.group_rows), 2)
            tables = self._tables([pads[member.name].header for member in members])
            drawn_from = None if run.plan.sample is None else run.plan.n
            info = ReleaseInfo(run.plan, rows, digest.hexdigest(tables), drawn_from, False, tables)
            writer.describe(form.metadata(info.to_json()))
            describe(info.to_json())
        return info

    def _plain(self, source: Message, pads: Mapping[Member, Message]) -> Iterator[Batch]:
        """Yield the perturbed codes, without the pads that are known."""
        run = self.run
        takers = [(run.spaces(member.columns), _taker(run, member, pad)) for member, pad in pads.items()]
        for codes in source.batches(run.plan.spaces):
            out = dict(codes)
            for spaces, take in takers:
                out |= unpadded(spaces, codes, take(length(codes)))
            yield out

    def _tables(self, pads: Sequence[Header]) -> tuple[MeasuredTable, ...]:
        """Return what the curators measured, in the order of the plan's tables; none if one curator is left out."""
        plan = self.run.plan
        if not plan.measures or len(pads) < len(self.run.curators):
            return ()
        by_measure: dict[Measure, MeasuredTable] = {}
        for pad in pads:
            measures = self.run.tables_of(self.run.member(pad.sender))
            tables = unpacked(pad.facts.get("tables"), measures, plan.spaces) if measures else ()
            if tables is None:
                raise PlanError(f"the tables that curator {pad.sender} measured do not fit the run; make a new run")
            by_measure |= {table.measure: table for table in tables}
        return tuple(by_measure[measure] for measure in plan.measures)


def _taker(run: Run, member: Member, pad: Message) -> Any:
    """Return what gives the pads of the next so many rows."""
    spaces = run.spaces(member.columns)
    if run.pad == "stream":
        return PadStream(spaces, bytes.fromhex(pad.header.facts["key"]), run.digest).take
    batches = pad.batches(spaces)
    return lambda count: next(batches)


def _use(pad: Path) -> Path:
    """Mark a pad as used, and return the mark; `FileError` if it was used."""
    place = pad.with_name(pad.name + _MARK)
    try:
        mark(place)
    except FileExistsError:
        raise FileError(
            f"{pad} was used before, and a pad is good for one decryption; make a new run (if a decryption was killed "
            f"and left no release, remove {place.name})"
        ) from None
    except OSError as error:
        raise FileError(f"{place} could not be written: {error.strerror}") from None
    return place
