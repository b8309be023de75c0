"""The command ``dpframe record``: a released file as a record of the public registry of deployments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dpframe.cli.pipes import Source, check_text_target, describe_replacement
from dpframe.cli.shared import option
from dpframe.disk import YAML
from dpframe.errors import NotSanitizedError, name_list
from dpframe.plan.certificate import Certificate
from dpframe.release.info import ReleaseInfo
from dpframe.release.reader import read_info
from dpframe.report.record import record_of
from dpframe.tables.inputs import open_input


def record(
    source: Source,
    output: Annotated[Path | None, option("YAML file to write; else it is printed.", "--output", "-o")] = None,
    name: Annotated[str | None, option("Name of the data product.")] = None,
    curator: Annotated[list[str] | None, option("Who publishes it; repeat.")] = None,
    intended_use: Annotated[str | None, option("What it is for.")] = None,
    region: Annotated[str | None, option("Which region it describes, or whose laws apply.")] = None,
    sector: Annotated[str | None, option("Technology, Healthcare, Education, Government, Energy or Finance.")] = None,
    published: Annotated[str | None, typer.Option(help="Date, e.g. 2026-01-31.  [default: today]")] = None,
    author: Annotated[list[str] | None, option("Who fills it in; repeat.")] = None,
) -> None:
    """Describe a released file for the public registry of deployments; people fill in the facts that only they know."""
    registry_record = record_of(
        _read_release_info(source),
        name=name,
        curators=curator or (),
        intended_use=intended_use,
        region=region,
        sector=sector,
        published=published,
        authors=author or (),
    )
    if output is None:
        typer.echo(registry_record.to_yaml(), nl=False)
    else:
        replacement = describe_replacement(output)
        registry_record.save(check_text_target(output, open_input(source), YAML))
        typer.echo(f"wrote {output}{replacement}", err=True)
    # On standard error, as standard output may be the record.
    if registry_record.open_fields:
        typer.echo(f"Still to fill in by hand: {name_list(registry_record.open_fields)}", err=True)


def with_record(certificate: Certificate, source: Path, path: Path) -> Certificate:
    """Return a certificate extended by a check that a record agrees with its release."""
    failures = record_of(_read_release_info(source)).differences(path)
    checks = () if failures else (f"the record {path.name} says what the release does",)
    return replace(certificate, checks=(*certificate.checks, *checks), failures=(*certificate.failures, *failures))


def _read_release_info(source: Path) -> ReleaseInfo:
    text = open_input(source).text
    if text is None:
        raise NotSanitizedError(f"{source} is not a release, so there is nothing to record")
    return read_info(text)
