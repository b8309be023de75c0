"""The command ``dpframe demo``: a census, its release, and estimates from the release next to the truth."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from dpframe.api.public import Estimates, datasets
from dpframe.api.verbs import sanitize
from dpframe.cli.shared import option
from dpframe.cli.terminal import progress
from dpframe.errors import FileError
from dpframe.estimate.answer_options import to_rows
from dpframe.plan.words import table_text
from dpframe.spaces import Categorical, Nullable, Real
from dpframe.tables.sinks import check_place


def demo(
    rows: Annotated[int, typer.Option(min=100, help="Rows of the made-up census.")] = 200_000,
    epsilon: Annotated[float, typer.Option(help="Budget ε for all seven columns together.")] = 1.0,
    folder: Annotated[Path | None, option("Keep the files here.  [default: a temporary one]")] = None,
) -> None:
    """Make a census, sanitise it, and compare estimates from the release with the truth."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} could not be made: {error.strerror}; name another folder") from None
        _run_demo(rows, epsilon, folder)
        return
    # The census is synthetic, so that nothing of value is lost with the folder.
    with tempfile.TemporaryDirectory(prefix="dpframe-demo-") as temporary:
        _run_demo(rows, epsilon, Path(temporary))


def _run_demo(rows: int, epsilon: float, folder: Path) -> None:
    source, target = folder / "census.parquet", folder / "release.parquet"
    # The census would otherwise replace a file of that name without a word.
    check_place(source)
    census = datasets.make_census(rows, columns=list(DEMO_SPACES))
    census.to_parquet(source, index=False)
    typer.echo(f"made {source}: {rows:,} rows, {len(census.columns)} columns, nulls among them")
    start = time.perf_counter()
    with progress("randomising") as report_progress:
        info = sanitize(source, target, epsilon, spaces=DEMO_SPACES, progress=report_progress)
    typer.echo(f"wrote {target} in {time.perf_counter() - start:.2f} s")
    typer.echo("\n".join([*info.lines(), "", table_text(info.plan)]))
    estimates = Estimates(target)
    for name in ("sex", "education", "occupation"):
        _print_comparison(f"\nrows by {name}", estimates.value_counts(name, sort=False), census[name].value_counts())
    cross_table = estimates.crosstab("sex", "education")
    _print_comparison(
        "\nsex by education", to_rows(cross_table), pd.crosstab(census["sex"], census["education"]).stack()
    )
    _print_comparison(
        "\nmean age by sex", estimates.mean("age", by="sex"), census.groupby("sex", observed=True)["age"].mean()
    )
    means = pd.DataFrame({name: estimates.mean(name) for name in ("age", "income")}).T
    _print_comparison("\nmeans", means, census[["age", "income"]].mean())
    typer.echo("\nEvery estimate was made from only the release; about one interval in twenty misses the truth.")


DEMO_SPACES: dict[str, Any] = {
    "age": (0, 120),
    "sex": list(datasets.SEXES),
    "education": list(datasets.EDUCATION),
    "occupation": Nullable(Categorical(datasets.OCCUPATIONS)),
    "region": list(datasets.REGIONS),
    "income": Nullable(Real(0, 250_000)),
    "birth_date": ("1930-01-01", "2008-01-01"),
}


def _print_comparison(title: str, estimates: Any, truth: Any) -> None:
    table = estimates.assign(truth=truth.reindex(estimates.index))
    table["interval"] = [f"{a:,.1f} … {b:,.1f}" for a, b in zip(table["lower"], table["upper"], strict=True)]
    typer.echo(title)
    typer.echo(table[["truth", "estimate", "interval"]].to_string(float_format=lambda x: f"{x:,.1f}"))
