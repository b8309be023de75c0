"""Keys of the parties, in their folders: a signing pair, the curators' shared secret, and marks of finished steps.

Each party signs with its own Ed25519 key, whose public half is in the run. Every receiver can check a message, and only
its sender can make it. Only curators have the shared secret. The server and the researcher must not have it, as it
reveals the rows of the sample and their order.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpframe.disk import new_file, sync_folder, write_text
from dpframe.errors import DpframeError, FileError, ParameterError

SIGNING, PUBLIC, SHARED, USED = "signing.key", "public.key", "shared.secret", "used"
_SIGNATURE_DOMAIN = b"dpframe vertical\0"
"""Prefix of signed texts: a signature made for another purpose is of no use here."""


@dataclass(frozen=True)
class Identity:
    """A party's folder: its signing key, the shared secret if it is a curator, and marks of its finished steps.

    Parameters
    ----------
    folder
        The folder, which only the party can read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     alice = Identity.create(f"{folder}/alice")
    ...     tuple(is_signed_by(alice.public, alice.sign(text), b"hello") for text in (b"hello", b"hi"))
    (True, False)
    """

    folder: Path

    @classmethod
    def create(cls, folder: str | Path) -> Identity:
        """Make a folder with a fresh pair of keys.

        Raises
        ------
        FileError
            If it has keys already, or cannot be written.
        """
        identity = cls(Path(folder))
        try:
            identity.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} could not be made: {error.strerror}") from None
        write_secret(identity.folder / SIGNING, Ed25519PrivateKey.generate().private_bytes_raw())
        write_text(identity.folder / PUBLIC, f"{identity.public}\n")
        return identity

    @cached_property
    def _private_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(read_secret(self.folder / SIGNING, "make one with keygen"))

    @property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return self._private_key.public_key().public_bytes_raw().hex()

    def share(self) -> bytes:
        """Make the secret that curators share, in the file ``shared.secret``; the others need a copy of it.

        Raises
        ------
        FileError
            If the folder has one already.
        """
        secret = secrets.token_bytes(32)
        write_secret(self.folder / SHARED, secret)
        return secret

    @property
    def shared(self) -> bytes:
        """The secret that curators share."""
        return read_secret(self.folder / SHARED, "the first curator makes it with keygen --share, the others copy it")

    def sign(self, text: bytes) -> str:
        """Return the signature of a text, in hexadecimal."""
        return self._private_key.sign(_SIGNATURE_DOMAIN + text).hex()

    def check_unused(self, mark_name: str, past_action: str) -> None:
        """Raise `FileError` if a mark exists: its step was done before."""
        if (self.folder / USED / mark_name).exists():
            raise FileError(
                f"{self.folder} has {past_action} before, and once is all that a run allows; make a new run"
            )

    def use(self, mark_name: str, past_action: str) -> None:
        """Mark a step as done, for good; `FileError` if it was done before."""
        try:
            (self.folder / USED).mkdir(exist_ok=True)
            # A mark that a loss of power undoes would let a second pad of the same rows out.
            sync_folder(self.folder)
            mark(self.folder / USED / mark_name)
        except FileExistsError:
            self.check_unused(mark_name, past_action)
        except OSError as error:
            raise FileError(f"{self.folder / USED} could not be written: {error.strerror}") from None

    @contextlib.contextmanager
    def using(self, mark_name: str, past_action: str) -> Iterator[None]:
        """Mark a step as done; remove the mark if the block, which draws nothing, is refused. Raises as `use`."""
        self.use(mark_name, past_action)
        try:
            yield
        except DpframeError:
            with contextlib.suppress(OSError):
                (self.folder / USED / mark_name).unlink()
            raise


def mark(path: Path) -> None:
    """Make an empty file on disk, or raise `FileExistsError`; only one of two processes succeeds."""
    descriptor = new_file(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def write_secret(path: Path, secret: bytes) -> None:
    """Write a secret in hexadecimal to a new file of mode 0600; `FileError` if it exists."""
    # The mode is set when the file is made: at no moment can others read it.
    try:
        descriptor = new_file(path)
    except FileExistsError:
        raise FileError(f"{path} is there already, and secrets are not written over; take another folder") from None
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secret.hex() + "\n")


def read_secret(path: Path, remedy: str) -> bytes:
    """Read 32 secret bytes; `FileError` for anything else."""
    try:
        secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror}; {remedy}") from None
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise FileError(f"{path} is no secret of 32 bytes in hexadecimal; {remedy}")
    return secret


def read_public(path: str | Path) -> str:
    """Read a public key, in hexadecimal, from its file.

    Raises
    ------
    FileError
        If it cannot be read as one.
    """
    try:
        return check_public(Path(path).read_text(encoding="ascii").strip(), "key")
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror}; keygen writes {PUBLIC}") from None
    except ValueError:
        raise FileError(f"{path} is no public key; keygen writes {PUBLIC}") from None


def check_public(text: object, name: str, noun: str = f"a public key of 64 hexadecimal digits, as in {PUBLIC}") -> str:
    """Return 32 public bytes in hexadecimal, or raise `ParameterError` with the expected form."""
    # Keys are compared as text, so that their form has to be unique: bytes.fromhex also reads capitals and blanks.
    try:
        raw = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise ParameterError(f"{name} must be {noun}")
    return raw.hex()


def is_signed_by(public: str, signature: str, text: bytes) -> bool:
    """Return whether a text was signed by the holder of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            bytes.fromhex(signature), _SIGNATURE_DOMAIN + text
        )
    except (InvalidSignature, ValueError):
        return False
    return True
