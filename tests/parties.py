"""Curators, server and researcher in folders of their own, for tests of split tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpframe as dpf
from dpframe.release.info import ReleaseInfo
from dpframe.vertical import Curator, Identity, Researcher, Run, Server, new_run
from dpframe.vertical.messages import Message

N = 600
SPACES = {
    "sex": ["F", "M"],
    "job": ["farm", "shop", "office"],
    "age": (0, 99),
    "hobbies": dpf.Subset(["chess", "tennis", "choir"], 2),
    "town": dpf.Nullable(dpf.Categorical(["north", "south"])),
}


def people(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = rng.integers(20, 70, n)
    return pd.DataFrame(
        {
            "id": [f"person {i}" for i in rng.permutation(n)],
            "sex": rng.choice(["F", "M"], n),
            "job": np.where(age < 40, "shop", rng.choice(["farm", "office"], n)),
            "age": age,
            "hobbies": [["chess"] if a % 2 else ["choir", "tennis"] for a in age],
            "town": rng.choice(np.array(["north", "south", None], dtype=object), n),
        }
    )


def halves(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return two curators' tables, each in an order of its own."""
    return {
        "alice": frame[["id", "job", "hobbies"]].sample(frac=1, random_state=1),
        "bob": frame[["id", "sex", "age", "town"]].sample(frac=1, random_state=2),
    }


@dataclass
class Parties:
    """Folders with keys, the run, and where each file lies."""

    root: Path
    run: Run
    frames: Mapping[str, pd.DataFrame]

    @classmethod
    def make(cls, root: Path, frames: Mapping[str, pd.DataFrame], spaces: Mapping[str, Any], **options: Any) -> Parties:
        """Make keys for the curators of some frames, and a run of their columns."""
        people = {name: Identity.create(root / name) for name in (*frames, "server")}
        first, *others = frames
        people[first].share()
        for name in others:
            shutil.copy(root / first / "shared.secret", root / name / "shared.secret")
        curators = {
            name: ({column: spaces[column] for column in frame.columns if column in spaces}, people[name].public)
            for name, frame in frames.items()
        }
        run = new_run(curators, people["server"].public, **{"n": len(frames[first]), "epsilon": 1.0, **options})
        return cls(root, run, frames)

    def message(self, name: str) -> Path:
        return self.root / name / "message.parquet"

    def pad(self, name: str) -> Path:
        return self.root / name / "pad.parquet"

    @property
    def messages(self) -> list[Path]:
        return [self.message(name) for name in self.frames]

    @property
    def pads(self) -> list[Path]:
        return [self.pad(name) for name in self.frames]

    @property
    def perturbed(self) -> Path:
        return self.root / "server" / "perturbed.parquet"

    @property
    def release(self) -> Path:
        return self.root / "release.parquet"

    def encrypt(self, name: str, source: Any = None, **options: Any) -> Any:
        source = self.frames[name] if source is None else source
        curator = Curator(self.run, self.root / name)
        return curator.encrypt(source, self.message(name), self.pad(name), **{"id": "id", **options})

    def encrypt_all(self) -> None:
        for name in self.frames:
            self.encrypt(name)

    def perturb(self) -> Any:
        return Server(self.run, self.root / "server").perturb(self.messages, self.perturbed)

    def decrypt(self, **options: Any) -> ReleaseInfo:
        return Researcher(self.run).decrypt(self.perturbed, options.pop("pads", self.pads), self.release, **options)

    def codes_in(self, path: Path, names: Iterable[str]) -> Mapping[str, Any]:
        """Return what a message, a pad or the server's output holds of some columns, in one batch."""
        (codes,) = Message.open(path).batches(self.run.spaces([*names]))
        return codes

    def through(self) -> ReleaseInfo:
        """Take all steps."""
        self.encrypt_all()
        self.perturb()
        return self.decrypt()
