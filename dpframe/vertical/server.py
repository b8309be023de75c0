"""The server: joins the curators' messages by position and adds the plan's noise to codes that it cannot read."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dpframe.disk import atomic
from dpframe.errors import FileError, ParameterError
from dpframe.noise.keystream import Keystream
from dpframe.plan.plan import Plan
from dpframe.tables.batches import Batch, length
from dpframe.vertical.keys import Identity
from dpframe.vertical.messages import Header, Message, MessageWriter, check_new
from dpframe.vertical.run import Run

_PERTURBED = "perturbed this run"


def randomise_padded(codes: Batch, plan: Plan, key: bytes, first_row: int = 0) -> Batch:
    """Return padded codes with the plan's noise; less the pads, they equal `dpframe.release.rows` of the plain codes.

    Sampling paper, Lemma III.1: with group noise z, (x + V) + z − V = x + z.
    """
    stream, randomised = Keystream(key, plan.digest), Batch()
    for unit in plan.units:
        randomised |= unit.sample_padded(codes, stream, first_row)
    return {name: randomised[name] for name in plan.names}


@dataclass(frozen=True)
class Server:
    """The party that joins and randomises.

    Parameters
    ----------
    run
        The run.
    folder
        The server's folder, with its signing key.

    Raises
    ------
    ParameterError
        If the key in the folder is not the server's of the run.
    """

    run: Run
    folder: str | Path

    def __post_init__(self) -> None:
        if self.identity.public != self.run.server:
            raise ParameterError(f"the key in {self.folder} is not the server's of this run; pass the server's folder")

    @cached_property
    def identity(self) -> Identity:
        """The server's keys."""
        return Identity(Path(self.folder))

    def perturb(self, messages: Sequence[str | Path], target: str | Path) -> Header:
        """Randomise the curators' messages, once for each run, under a fresh key that is forgotten.

        Parameters
        ----------
        messages
            The curators' files, one of each, in any order.
        target
            The file to write, of mode 0600, for the researcher and for nobody else.

        Returns
        -------
        The header of the written message.

        Raises
        ------
        FileError
            If a message is missing, repeated, of another run, changed, of other records or of another number of rows,
            if the target exists, or if the run was perturbed before.
        """
        target, run = Path(target), self.run
        check_new(target, "perturbed")
        self.identity.check_unused(f"{run.id}.perturbed", _PERTURBED)
        messages_by_curator = self._check_messages(messages)
        # Marked before any noise is drawn: two outputs of one run would have the same values under two noises.
        self.identity.use(f"{run.id}.perturbed", _PERTURBED)
        key, first_row = secrets.token_bytes(32), 0
        with atomic(target, 0o600) as file:
            writer = MessageWriter(file, run.plan.spaces)
            for codes in self._join_codes(messages_by_curator):
                writer.write(randomise_padded(codes, run.plan, key, first_row))
                first_row += length(codes)
            # The curators' signatures go along, so that the researcher can check that the server changed no header.
            facts = {name: [message.header.text, message.signature] for name, message in messages_by_curator.items()}
            return writer.finish(Header("perturbed", run.id, "server", 0, facts), self.identity)

    def _check_messages(self, paths: Sequence[str | Path]) -> dict[str, Message]:
        """Return the messages by curator; `FileError` unless all are present, unchanged, and of equal records."""
        run = self.run
        messages: dict[str, Message] = {}
        for path in paths:
            message = Message.open(path)
            member = run.member(message.header.sender)
            message.verify("codes", run.id, member.key, run.spaces(member.columns))
            if member.name in messages:
                raise FileError(f"{path} is the second message of curator {member.name}; pass one of each curator")
            if message.header.rows != run.rows:
                raise FileError(f"{path} has {message.header.rows:,} rows, the sample {run.rows:,}; encrypt it anew")
            messages[member.name] = message
        missing = [member.name for member in run.curators if member.name not in messages]
        if missing:
            raise FileError(f"the message of curator {missing[0]} is missing; pass one of each curator")
        if len({message.header.facts.get("records") for message in messages.values()}) > 1:
            raise FileError(
                f"the messages of {', '.join(messages)} are of different records, or were made with different shared "
                "secrets: curators need one secret and the same ids; make a new run"
            )
        return {member.name: messages[member.name] for member in run.curators}

    def _join_codes(self, messages: Mapping[str, Message]) -> Iterator[Batch]:
        """Yield the codes of all columns, joined by position."""
        spaces = {name: self.run.spaces(self.run.member(name).columns) for name in messages}
        readers = [message.batches(spaces[name]) for name, message in messages.items()]
        # Row i of each message is of one record, as curators rank their rows by one keyed hash.
        for parts in zip(*readers, strict=True):
            yield {name: codes for part in parts for name, codes in part.items()}
