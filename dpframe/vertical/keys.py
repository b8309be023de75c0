"""Keys of the parties, in their folders: a pair to sign with, the curators' shared secret, and what was done before.

Each party signs with its own Ed25519 key, whose public half is in the description of the run: so every receiver can
check a message, and only its sender can make it. The shared secret is the curators'; the server and the researcher
must not have it, as it reveals which rows are in the sample, and their places.
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
_DOMAIN = b"dpframe vertical\0"


@dataclass(frozen=True)
class Identity:
    """A party's folder: its signing key, the curators' shared secret if it has it, and marks of the runs it served.

    Parameters
    ----------
    folder
        The folder, which is nobody else's.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     alice = Identity.create(f"{folder}/alice")
    ...     verified(alice.public, alice.sign(b"hello"), b"hello"), verified(alice.public, alice.sign(b"hi"), b"hello")
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
        made = cls(Path(folder))
        try:
            made.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} could not be made: {error.strerror}") from None
        write_secret(made.folder / SIGNING, Ed25519PrivateKey.generate().private_bytes_raw())
        write_text(made.folder / PUBLIC, f"{made.public}\n")
        return made

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(read_secret(self.folder / SIGNING, "make one with keygen"))

    @property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return self._private.public_key().public_bytes_raw().hex()

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
        return self._private.sign(_DOMAIN + text).hex()

    def check_unused(self, what: str, noun: str) -> None:
        """Raise `FileError` for what was done before."""
        if (self.folder / USED / what).exists():
            raise FileError(f"{self.folder} has {noun} before, and once is all that a run allows; make a new run")

    def use(self, what: str, noun: str) -> None:
        """Mark something as done, for good; `FileError` if it was."""
        try:
            (self.folder / USED).mkdir(exist_ok=True)
            sync_folder(self.folder)
            mark(self.folder / USED / what)
        except FileExistsError:
            self.check_unused(what, noun)
        except OSError as error:
            raise FileError(f"{self.folder / USED} could not be written: {error.strerror}") from None

    @contextlib.contextmanager
    def using(self, what: str, noun: str) -> Iterator[None]:
        """Mark something as done, unless a block that draws nothing is refused; raises as `use`."""
        self.use(what, noun)
        try:
            yield
        except DpframeError:
            with contextlib.suppress(OSError):
                (self.folder / USED / what).unlink()
            raise


def mark(path: Path) -> None:
    """Make an empty file that outlives a loss of power, or raise `FileExistsError`: of two processes one succeeds."""
    descriptor = new_file(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def write_secret(path: Path, secret: bytes) -> None:
    """Write a secret in hexadecimal to a file of mode 0600, which must not be there."""
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
        found = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror}; {remedy}") from None
    except ValueError:
        found = b""
    if len(found) != 32:
        raise FileError(f"{path} is no secret of 32 bytes in hexadecimal; {remedy}")
    return found


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
    """Return 32 public bytes in hexadecimal, or raise `ParameterError` that says what they should be."""
    try:
        raw = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise ParameterError(f"{name} must be {noun}")
    return raw.hex()


def verified(public: str, signature: str, text: bytes) -> bool:
    """Return whether a text was signed by the holder of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), _DOMAIN + text)
    except (InvalidSignature, ValueError):
        return False
    return True
