"""The ``dpframe`` command: files in, files out.

Exit codes: 0 done, 1 verification failed, 2 bad input (one line on standard error), 3 budget exceeded, 70 a fault
of dpframe itself, 130 stopped. No value of the data is ever printed but by ``estimate`` and ``demo``, whose numbers
are the released ones.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from dpframe import datasets
from dpframe.api.options import PlanOptions
from dpframe.api.parquet import plan_parquet, sanitize_parquet
from dpframe.cli.ledger import app as ledger_app
from dpframe.cli.ledger import plain
from dpframe.cli.stopping import loaded
from dpframe.cli.words import in_options
from dpframe.errors import BudgetExceeded, DpframeError, FileError, NotSanitizedError, ParameterError
from dpframe.estimate import Estimates
from dpframe.infer.private import MOST_ITEMS
from dpframe.io.parquet_reader import ParquetInput
from dpframe.io.released import read_info
from dpframe.io.verify import verify_file
from dpframe.ledger.currencies import difference, yearly
from dpframe.ledger.ledger import Ledger
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.report.report import Report
from dpframe.spaces import Categorical, Nullable, Real, check_declaration

app = typer.Typer(
    name="dpframe",
    help="Make tables about people safe to share: every row randomised under differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ledger_app, name="ledger")

REFUTED, BAD_INPUT, OVERDRAWN, FAULT, STOPPED = 1, 2, 3, 70, 130

Source = Annotated[Path, typer.Argument(help="Parquet file, directory or quoted glob.", show_default=False)]
Epsilon = Annotated[float | None, typer.Option(help="Budget ε, replace-one, per person.", show_default=False)]
Delta = Annotated[
    float | None,
    typer.Option(help="Budget δ; 0 is pure, without credit for a secret order.  [default: min(1e-6, rows^-1.5)]"),
]
Spaces = Annotated[
    Path | None,
    typer.Option(
        help=(
            'JSON file of spaces by column, e.g. {"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"], "children": '
            '{"categories": [0, 1, 2]}, "income": {"space": "nullable", "inner": {"lower": 0, "upper": 250000}}}: '
            "bounds of numbers and times, lists of categories, and nullable where nulls are to stay. Other spaces have "
            "their tags, as in a plan file."
        ),
        show_default=False,
    ),
]
Infer = Annotated[
    str,
    typer.Option(help="Where undeclared spaces come from: private (paid for from ε), public (types), data (leaks)."),
]
InferShare = Annotated[
    float | None,
    typer.Option(help="Share of the budget (of μ²) for private inference; by default by the rows.", show_default=False),
]
MaxItems = Annotated[int, typer.Option(help="Items of a set that private inference counts, at most.")]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="Ledger to spend from; see dpframe ledger.", show_default=False)
]
Dataset = Annotated[str | None, typer.Option(help="The ledger's dataset.", show_default=False)]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out; repeat.", show_default=False)]
Passthrough = Annotated[list[str] | None, typer.Option(help="Column to copy UNPROTECTED; repeat.", show_default=False)]
Group = Annotated[
    list[str] | None, typer.Option(help="Columns to randomise together, e.g. sex,income; repeat.", show_default=False)
]
Mechanism = Annotated[
    list[str] | None, typer.Option(help="Another mechanism of a column, as column=tag; repeat.", show_default=False)
]
Nulls = Annotated[str, typer.Option(help="A null where its space holds none: error or impute.")]
Contributions = Annotated[int, typer.Option(help="Rows that one person may own.")]
Shuffle = Annotated[bool, typer.Option(help="Let rows leave in a secret random order; noise is far smaller for it.")]
Sample = Annotated[
    str | None,
    typer.Option(help="Rows to choose in secret and release instead of all: a number, or optimal.", show_default=False),
]
Allocation = Annotated[
    str, typer.Option(help="How columns share the budget: uniform, or error (least total expected error).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def _options(
    spaces: Path | None,
    infer: str,
    infer_share: float | None,
    max_items: int,
    drop: list[str] | None,
    passthrough: list[str] | None,
    group: list[str] | None,
    mechanism: list[str] | None,
    nulls: str,
    contributions: int,
    shuffle: bool,
    sample: str | None,
    allocation: str,
) -> PlanOptions:
    """Return the plan options that differ from their defaults."""
    given: PlanOptions = {}
    if spaces is not None:
        given["spaces"] = _read_spaces(spaces)
    if infer != "private":
        given["infer"] = infer
    if infer_share is not None:
        given["infer_share"] = infer_share
    if max_items != MOST_ITEMS:
        given["max_items"] = max_items
    if drop:
        given["drop"] = drop
    if passthrough:
        given["passthrough"] = passthrough
    if group:
        given["groups"] = [tuple(name.strip() for name in names.split(",")) for names in group]
    if mechanism:
        given["mechanisms"] = dict(map(_column_and_tag, mechanism))
    if nulls != "error":
        given["nulls"] = nulls
    if contributions != 1:
        given["contributions"] = contributions
    if not shuffle:
        given["shuffle"] = False
    if sample is not None:
        given["sample"] = _rows_or_word(sample)
    if allocation != "uniform":
        given["allocation"] = allocation
    return given


def _rows_or_word(text: str) -> int | str:
    """Return a number of rows as one; what is neither that nor a known word the plan refuses."""
    return int(text) if text.isdecimal() and len(text) < 19 else text


def _column_and_tag(text: str) -> tuple[str, str]:
    column, sign, tag = text.rpartition("=")
    if not (column and sign and tag):
        raise ParameterError("--mechanism takes column=tag, e.g. --mechanism age=randomized_response")
    return column, tag


def _read_spaces(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise FileError(f"{path} is not a readable file of spaces") from None
    except ValueError:
        raise FileError(f"{path} is not JSON; write {{column: space}}") from None
    if not isinstance(data, dict):
        raise FileError(f"{path} must hold one JSON object {{column: space}}")
    for name, spec in data.items():
        try:
            check_declaration(spec)
        except DpframeError as error:
            raise ParameterError(f"{path}, column {name!r}: {error}") from None
    return data


@app.command()
def plan(
    source: Source,
    epsilon: Epsilon = None,
    delta: Delta = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan here.", show_default=False)
    ] = None,
    spaces: Spaces = None,
    infer: Infer = "private",
    infer_share: InferShare = None,
    max_items: MaxItems = MOST_ITEMS,
    drop: Drop = None,
    passthrough: Passthrough = None,
    group: Group = None,
    mechanism: Mechanism = None,
    nulls: Nulls = "error",
    contributions: Contributions = 1,
    shuffle: Shuffle = True,
    sample: Sample = None,
    allocation: Allocation = "uniform",
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    as_json: AsJson = False,
) -> None:
    """Plan how a file would be sanitised, and write the plan to reuse or edit."""
    if epsilon is None:
        raise ParameterError("give --epsilon, e.g. --epsilon 1")
    options = _options(
        spaces,
        infer,
        infer_share,
        max_items,
        drop,
        passthrough,
        group,
        mechanism,
        nulls,
        contributions,
        shuffle,
        sample,
        allocation,
    )
    made = plan_parquet(source, epsilon, delta, ledger=ledger, dataset=dataset, **options)
    if output is not None:
        try:
            output.write_text(made.to_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(f"{output} could not be written: {error.strerror}") from None
    typer.echo(made.to_json() if as_json else str(made))
    if not as_json and made.columns and made.n and made.delta:
        typer.echo(f"\nWhat each lever of the accounting contributes, at the same promise:\n{_gains(made)}")


def _gains(made: Plan) -> str:
    table = made.accounting_gains().drop(columns="in_force")
    return table.to_string(float_format=lambda x: f"{x:.3g}", na_rep="out of reach")


@app.command()
def sanitize(
    source: Source,
    target: Annotated[Path, typer.Argument(help="Parquet file to write.", show_default=False)],
    epsilon: Epsilon = None,
    delta: Delta = None,
    plan: Annotated[Path | None, typer.Option(help="Plan file instead of options.", show_default=False)] = None,
    spaces: Spaces = None,
    infer: Infer = "private",
    infer_share: InferShare = None,
    max_items: MaxItems = MOST_ITEMS,
    drop: Drop = None,
    passthrough: Passthrough = None,
    group: Group = None,
    mechanism: Mechanism = None,
    nulls: Nulls = "error",
    contributions: Contributions = 1,
    shuffle: Shuffle = True,
    sample: Sample = None,
    allocation: Allocation = "uniform",
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    as_json: AsJson = False,
) -> None:
    """Randomise every row of a file into a new file that may be given away."""
    options = _options(
        spaces,
        infer,
        infer_share,
        max_items,
        drop,
        passthrough,
        group,
        mechanism,
        nulls,
        contributions,
        shuffle,
        sample,
        allocation,
    )
    ready = None if plan is None else Plan.read(plan)
    start = time.perf_counter()
    with _progress("randomising") as progress:
        info = sanitize_parquet(
            source, target, epsilon, delta, plan=ready, ledger=ledger, dataset=dataset, progress=progress, **options
        )
    if as_json:
        typer.echo(info.to_json())
        return
    typer.echo(f"{target}: {_rows(info)} in {time.perf_counter() - start:.1f} s")
    for line in info.plan.lines():
        typer.echo(line)
    if ledger is not None and dataset is not None:
        left = Ledger(ledger).remaining(dataset)
        typer.echo(f"Ledger: {plain(dataset)} has {left} left; {_nights(info.plan)}")


def _nights(plan: Plan) -> str:
    """Say what a year of such jobs costs: those that reuse inferred spaces pay for the release of rows alone."""
    inferred = plan.inferred
    cost = plan.release if inferred is None or inferred.receipt is None else difference(plan.release, inferred.budget)
    return yearly(cost.epsilon, cost.delta)


def _rows(info: ReleaseInfo) -> str:
    return f"{info.n:,} rows" if info.rows is None else f"{info.n:,} of {info.rows:,} rows"


@app.command()
def inspect(
    source: Source,
    html: Annotated[Path | None, typer.Option(help="Write a report as one HTML page here.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a released file says about itself."""
    table = ParquetInput.open(source)
    if table.text is None:
        if html is not None:
            raise NotSanitizedError(f"{source} is not a release, so there is nothing to report; leave --html out")
        if as_json:
            typer.echo(json.dumps({"release": False, "n": table.n, "columns": table.names}))
            return
        typer.echo(f"{source}: not a release; {table.n:,} rows, columns {', '.join(table.names)}")
        return
    info = read_info(table.text)
    if html is not None:
        Report(info, source).save(html)
        typer.echo(f"wrote {html}: the report on {source} as one HTML page", err=as_json)
    if as_json:
        typer.echo(info.to_json())
        return
    typer.echo(f"{source}: a release of {_rows(info)}")
    typer.echo(str(info.plan))


@app.command()
def verify(source: Source, as_json: AsJson = False) -> None:
    """Prove what a released file claims, and that its rows are those released."""
    certificate = verify_file(source)
    typer.echo(certificate.to_json() if as_json else f"{source}\n{certificate}")
    for failure in certificate.failures:
        typer.echo(f"dpframe: {source}: {' '.join(failure.split())}", err=True)
    if not certificate.ok:
        raise typer.Exit(REFUTED)


@dataclass(frozen=True)
class _Question:
    """What ``dpframe estimate`` was asked, beside the columns."""

    by: str | None
    bins: int | None
    normalize: bool
    given: list[str]
    method: str | None
    q: list[float]
    target: str

    @property
    def common(self) -> dict[str, Any]:
        """Options of every statistic."""
        return {"target": self.target}

    @property
    def counted(self) -> dict[str, Any]:
        """Options of counts."""
        return self.common | {"normalize": self.normalize} | ({} if self.method is None else {"method": self.method})

    def binned(self, columns: list[str]) -> dict[str, Any]:
        """Options of joints; bins are for the numeric columns among them."""
        return self.counted | ({} if self.bins is None else {"bins": dict.fromkeys(columns, self.bins)})


@dataclass(frozen=True)
class _Statistic:
    """A statistic of ``dpframe estimate``: how many columns it takes, which options, and how it is asked."""

    columns: range
    options: frozenset[str]
    ask: Callable[[Estimates, list[str], _Question], Any]


def _one(options: str, ask: Callable[[Estimates, list[str], _Question], Any]) -> _Statistic:
    return _Statistic(range(1, 2), frozenset(options.split()), ask)


STATISTICS: dict[str, _Statistic] = {
    "value-counts": _one("bins normalize method", lambda e, c, q: e.value_counts(c[0], bins=q.bins, **q.counted)),
    "crosstab": _Statistic(
        range(2, 3),
        frozenset({"bins", "normalize", "method"}),
        lambda e, c, q: _stacked(e.crosstab(c[0], c[1], **q.binned(_numeric(e, c)))),
    ),
    "joint": _Statistic(
        range(1, 99),
        frozenset({"bins", "normalize", "method", "given"}),
        lambda e, c, q: e.joint(c, given=q.given, **q.binned(_numeric(e, c))),
    ),
    "mean": _one("by bins", lambda e, c, q: e.mean(c[0], q.by, bins=q.bins, **q.common)),
    "sum": _one("", lambda e, c, q: e.sum(c[0], **q.common)),
    "var": _one("", lambda e, c, q: e.var(c[0], **q.common)),
    "std": _one("", lambda e, c, q: e.std(c[0], **q.common)),
    "cov": _Statistic(range(2, 99), frozenset(), lambda e, c, q: _stacked(e.cov(c, **q.common))),
    "corr": _Statistic(range(2, 99), frozenset(), lambda e, c, q: _stacked(e.corr(c, **q.common))),
    "null-rate": _one("", lambda e, c, q: e.null_rate(c[0], **q.common)),
    "support": _one("by bins", lambda e, c, q: _support(e, c[0], q)),
    "cooccurrence": _one(
        "normalize", lambda e, c, q: _stacked(_named(e.cooccurrence(c[0], normalize=q.normalize, **q.common)))
    ),
    "set-sizes": _one("normalize", lambda e, c, q: e.set_sizes(c[0], normalize=q.normalize, **q.common)),
    "histogram": _one("bins", lambda e, c, q: e.histogram(c[0], q.bins or 10, **q.common)),
    "quantile": _one("q", lambda e, c, q: e.quantile(c[0], q.q or [0.25, 0.5, 0.75], **q.common)),
}


def _named(pairs: pd.DataFrame) -> pd.DataFrame:
    """Tell the rows' items from the columns', which belong to one column."""
    return pairs.rename_axis(index="item 1").rename_axis(columns=["", "item 2"])


def _support(estimates: Estimates, column: str, asked: _Question) -> pd.DataFrame:
    found = estimates.support(column, by=asked.by, bins=asked.bins, **asked.common)
    return found if asked.by is None else _stacked(found)


def _numeric(estimates: Estimates, columns: list[str]) -> list[str]:
    return [name for name in columns if not estimates.is_listed(name)]


@app.command()
def estimate(
    source: Source,
    statistic: Annotated[str, typer.Argument(help=", ".join(STATISTICS) + ".", show_default=False)],
    columns: Annotated[list[str], typer.Argument(help="Its columns.", show_default=False)],
    by: Annotated[str | None, typer.Option(help="Group means by this column.", show_default=False)] = None,
    bins: Annotated[int | None, typer.Option(min=1, help="Bins of numeric columns.", show_default=False)] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Shares instead of counts.")] = False,
    given: Annotated[list[str] | None, typer.Option(help="Condition a joint on; repeat.", show_default=False)] = None,
    method: Annotated[str | None, typer.Option(help="inverse, project, em, model or auto.", show_default=False)] = None,
    q: Annotated[list[float] | None, typer.Option(help="Levels of quantiles; repeat.", show_default=False)] = None,
    target: Annotated[str, typer.Option(help="table or population.")] = "table",
    confidence_level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Estimate a statistic of the original table from a released file alone."""
    if statistic not in STATISTICS:
        raise ParameterError(f"statistic must be one of {', '.join(STATISTICS)}")
    asked = STATISTICS[statistic]
    if len(columns) not in asked.columns:
        least = asked.columns[0]
        count = f"{least} column{'s' * (least > 1)}" + (" or more" if len(asked.columns) > 1 else "")
        raise ParameterError(f"{statistic} takes {count}; got {len(columns)}")
    question = _Question(by, bins, normalize, given or [], method, q or [], target)
    for option in sorted({"by", "bins", "normalize", "given", "method", "q"} - asked.options):
        # Left unsaid, the answer would be to another question.
        if getattr(question, option):
            raise ParameterError(f"{statistic} takes no --{option}; leave it out")
    if bins is not None and statistic in ("mean", "support") and by is None:
        raise ParameterError(f"{statistic} takes --bins for the column of --by only")
    found = asked.ask(Estimates(source, confidence_level=confidence_level), columns, question)
    table = found.to_frame().T.rename_axis("column") if isinstance(found, pd.Series) else found
    if as_json:
        plain = table.reset_index()
        spans = [name for name, dtype in plain.dtypes.items() if isinstance(dtype, pd.IntervalDtype)]
        plain = plain.astype(dict.fromkeys(spans, str))
        typer.echo(plain.to_json(orient="records", date_format="iso", force_ascii=False))
        return
    typer.echo(table.to_string(float_format=lambda x: f"{x:,.4g}" if abs(x) < 100 else f"{x:,.0f}"))
    if "method" in table.attrs:
        typer.echo(f"method: {table.attrs['method']}")


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="Rows of the made-up census.")] = 200_000,
    epsilon: Annotated[float, typer.Option(help="Budget ε for all seven columns together.")] = 1.0,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the files here.  [default: a temporary one]", show_default=False)
    ] = None,
) -> None:
    """Make a census, sanitise it, and compare estimates from the release with the truth."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _demo(rows, epsilon, folder)
        return
    with tempfile.TemporaryDirectory(prefix="dpframe-demo-") as temporary:
        _demo(rows, epsilon, Path(temporary))


def _demo(rows: int, epsilon: float, folder: Path) -> None:
    source, target = folder / "census.parquet", folder / "release.parquet"
    census = datasets.make_census(rows, columns=list(DEMO_SPACES))
    census.to_parquet(source, index=False)
    typer.echo(f"made {source}: {rows:,} rows, {len(census.columns)} columns, nulls among them")
    start = time.perf_counter()
    with _progress("randomising") as progress:
        info = sanitize_parquet(source, target, epsilon, spaces=DEMO_SPACES, progress=progress)
    typer.echo(f"wrote {target} in {time.perf_counter() - start:.2f} s")
    typer.echo(str(info.plan))
    released = Estimates(target)
    for name in ("sex", "education", "occupation"):
        _compare(f"\nrows by {name}", released.value_counts(name, sort=False), census[name].value_counts())
    crossed = released.crosstab("sex", "education")
    _compare("\nsex by education", _stacked(crossed), pd.crosstab(census["sex"], census["education"]).stack())
    _compare("\nmean age by sex", released.mean("age", by="sex"), census.groupby("sex", observed=True)["age"].mean())
    means = pd.DataFrame({name: released.mean(name) for name in ("age", "income")}).T
    _compare("\nmeans", means, census[["age", "income"]].mean())
    typer.echo("\nEvery estimate was made from the release alone; about one interval in twenty misses the truth.")


DEMO_SPACES: dict[str, Any] = {
    "age": (0, 120),
    "sex": list(datasets.SEXES),
    "education": list(datasets.EDUCATION),
    "occupation": Nullable(Categorical(datasets.OCCUPATIONS)),
    "region": list(datasets.REGIONS),
    "income": Nullable(Real(0, 250_000)),
    "birth_date": ("1930-01-01", "2008-01-01"),
}


def _stacked(wide: pd.DataFrame) -> pd.DataFrame:
    """Return a cross table with one row per cell."""
    tall = pd.DataFrame(wide.stack(level=1, future_stack=True))
    tall.attrs = wide.attrs
    names = [name or f"column {i}" for i, name in enumerate(tall.index.names, 1)]
    return tall.rename_axis(names)


def _compare(title: str, estimates: Any, truth: Any) -> None:
    table = estimates.assign(truth=truth.reindex(estimates.index))
    table["interval"] = [f"{a:,.1f} … {b:,.1f}" for a, b in zip(table["lower"], table["upper"], strict=True)]
    typer.echo(title)
    typer.echo(table[["truth", "estimate", "interval"]].to_string(float_format=lambda x: f"{x:,.1f}"))


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar with rows/s and time left on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, start = bar.add_task(what, total=None, rate=""), time.perf_counter()

        def update(done: int, total: int) -> None:
            rate = done / max(time.perf_counter() - start, 1e-9)
            bar.update(task, completed=done, total=total, rate=f"{rate:,.0f} rows/s")

        yield update


def _one_line_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"dpframe: warning: {in_options(str(message))}", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; errors are one line, and never a traceback with values in it."""
    warnings.showwarning = _one_line_warning
    try:
        loaded()
        code = app(arguments, standalone_mode=False)
        if code == STOPPED:  # typer's own answer to an interruption, without a word
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except DpframeError as error:
        _fail(in_options(" ".join(str(error).split())), OVERDRAWN if isinstance(error, BudgetExceeded) else BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        _fail(
            "stopped; nothing was written. Under a ledger a spend may stand: the same command again costs nothing more",
            STOPPED,
        )
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        show = getattr(error, "format_message", None)
        if show is not None:
            _fail(f"{show()}; see dpframe --help", BAD_INPUT)
        # The message of a foreign exception may quote a value of the data: only its kind is shown.
        _fail(f"internal error ({type(error).__name__}); please report it", FAULT)


def _fail(message: str, code: int) -> None:
    typer.echo(f"dpframe: {message}", err=True)
    sys.exit(code)
