"""Curators, server and researcher in folders of their own, for tests of split tables."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dpframe.tables.info import ReleaseInfo
from dpframe.vertical import Curator, Identity, Researcher, Run, Server, new_run


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

    def through(self) -> ReleaseInfo:
        """Take all steps."""
        self.encrypt_all()
        self.perturb()
        return self.decrypt()
