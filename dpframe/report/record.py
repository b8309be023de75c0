"""A release as a record of the public registry of deployments of differential privacy.

The fields are those of the registry's schema (github.com/opendp/deployments-registry-data, schemas/
deployments-schema.yaml), which rests on research by Ghazi, Nanayakkara and Vadhan. A release's own facts are
filled in; only people know its publisher, purpose and region.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpframe.disk import YAML, check_ending, write_text
from dpframe.errors import FileError, ParameterError, name_list
from dpframe.plan.measures import measure_parts
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.report.elements import mechanism_name
from dpframe.spaces.json_form import unique_names

SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
"""The allowed values of `data_product_sector`."""

OPEN = "TO FILL IN"
"""How the text of a field begins that only people can fill in."""

_PEOPLE_FIELDS = {
    "data_curators": "who publishes the data",
    "intended_use": "what the data are for",
    "data_product_region": "which region the data describe, or whose laws apply",
    "registry_authors": "who fills in this record",
}

_MAX_COLUMN_LINES = 40
"""Columns that are described one by one."""

_RELEASE_FIELDS = (
    "basic.data_product_type",
    "dp_variant.variant_name",
    "dp_variant.data_domain",
    "dp_variant.unprotected_quantities",
    "privacy_loss.privacy_unit",
    "privacy_loss.privacy_unit_details",
    "privacy_loss.privacy_parameters.epsilon",
    "privacy_loss.privacy_parameters.delta",
    "privacy_loss.privacy_parameters_details",
    "deployment_model.model_name",
    "deployment_model.access_type",
    "accounting.composition",
    "implementation.preprocessing_and_hyperparameter_tuning",
    "implementation.mechanisms",
    "administrative.sources",
)
"""Fields that the release decides; of text people may write more, and take nothing away."""


@dataclass(frozen=True)
class Record:
    """A release as the registry of deployments has it; prints as YAML, written in JSON.

    Parameters
    ----------
    fields
        The record's fields, nested as in the registry's schema.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(1_000, columns=["sex"], random_state=2)
    >>> safe = dpf.sanitize(frame, epsilon=1, spaces={"sex": ["F", "M"]})
    >>> record = safe.dp.record(curators=["Statistics Office"], region="Aldermark")
    >>> record.fields["deployment"]["privacy_loss"]["privacy_unit"]
    'Person (one row)'
    >>> record.open_fields
    ('intended_use', 'registry_authors')
    """

    fields: Mapping[str, Any]

    @property
    def open_fields(self) -> tuple[str, ...]:
        """The fields that people have still to fill in."""
        return tuple(path.rpartition(".")[2] for path, value in _leaves(self.fields) if OPEN in str(value))

    def to_yaml(self) -> str:
        """Return the record as YAML, written in JSON: every JSON text is YAML."""
        text = json.dumps(self.fields, indent=2, ensure_ascii=False)
        # YAML 1.1 reads 1e-06 as text.
        return re.sub(r'^( *"\w+": \d+)(?=e)', r"\1.0", text, flags=re.MULTILINE) + "\n"

    def save(self, path: str | Path) -> None:
        """Write `to_yaml` to a .yaml file, whole or not at all; `FileError` if it cannot be written."""
        check_ending(path, *YAML)
        write_text(path, self.to_yaml())

    def differences(self, path: str | Path) -> list[str]:
        """Return the differences between a record in a file and the release: none, if it is the release's record.

        Numbers and choices that the release decides must be equal, and its texts be part of the record's; what people
        have added, and the fields that only they can fill in, are not looked at.

        Raises
        ------
        FileError
            If the file cannot be read, or is not written as a record.
        """
        try:
            # Editors on Windows begin files with a byte order mark.
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise FileError(f"{path} is not a readable record; dpframe record writes one") from None
        release_fields = dict(_leaves(self.fields["deployment"]))
        record_fields = dict(_leaves(_read_fields(text, path).get("deployment")))
        failures = [
            f"the record's {name} is not what the release says: {release_fields[name]!r}"
            if name in record_fields
            else f"the record has no {name}; the release says {release_fields[name]!r}"
            for name in _RELEASE_FIELDS
            if name in release_fields and not _agrees_with(record_fields.get(name), release_fields[name])
        ]
        extra_names = [name for name in _RELEASE_FIELDS if name in record_fields and name not in release_fields]
        return failures + [f"the record has {name}, about which the release says nothing" for name in extra_names]

    def __str__(self) -> str:
        return self.to_yaml()

    __repr__ = __str__


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested mappings by their dotted names."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def _read_fields(text: str, path: str | Path) -> dict[str, Any]:
    """Return the fields of a record's text; `FileError` if the text is not an object in JSON with each name once."""
    try:
        # With a name twice, another reader could take the value that this check ignores.
        fields = json.loads(text, object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        # Only JSON errors know their line.
        line = getattr(error, "lineno", None)
    else:
        if isinstance(fields, dict):
            return fields
        line = 1
    where = f" at line {line}" if line else ""
    raise FileError(f"{path}{where} is not a record in JSON, with each name once; dpframe record writes one")


def _agrees_with(record_value: Any, release_value: Any) -> bool:
    """Return whether a field of a record agrees with the release."""
    if isinstance(release_value, str) and isinstance(record_value, str):
        # People may wrap a text anew and add sentences; only a missing part contradicts the release.
        return " ".join(release_value.split()) in " ".join(record_value.split())
    return bool(record_value == release_value)


def record_of(
    info: ReleaseInfo,
    *,
    name: str | None = None,
    curators: Sequence[str] = (),
    intended_use: str | None = None,
    region: str | None = None,
    sector: str | None = None,
    published: datetime.date | str | None = None,
    authors: Sequence[str] = (),
) -> Record:
    """Return the record of a release; see `ReleaseAccessor.record`."""
    if sector is not None and sector not in SECTORS:
        raise ParameterError(f"sector must be one of {', '.join(SECTORS)}, or left out")
    for argument_name, names in (("curators", curators), ("authors", authors)):
        if isinstance(names, str) or not all(isinstance(person_name, str) and person_name for person_name in names):
            raise ParameterError(f'{argument_name} must be a list of names, e.g. {argument_name}=["Statistics Office"]')
    title = name or f"Release of {info.title} and {len(info.plan.columns)} columns"
    basic: dict[str, Any] = {
        "name": title,
        "data_curators": list(curators) or [_open_field("data_curators")],
        "intended_use": intended_use or _open_field("intended_use"),
        "data_product_type": "Dataset",
        "data_product_region": region or _open_field("data_product_region"),
        "description": _describe_release(info),
        "publication_date": _date_text(published),
        **({} if sector is None else {"data_product_sector": sector}),
    }
    plan = info.plan
    deployment = {
        "basic": basic,
        "dp_variant": {
            "variant_name": "Approximate DP" if plan.delta > 0 else "Pure DP",
            "data_domain": _describe_domain(plan),
            "unprotected_quantities": _describe_unprotected(plan),
        },
        "privacy_loss": {
            "privacy_unit": f"Person ({_rows_text(plan)})",
            "privacy_unit_details": _describe_neighbours(plan),
            "privacy_parameters": {"epsilon": plan.epsilon, **({"delta": plan.delta} if plan.delta else {})},
            "privacy_parameters_details": _describe_local_loss(plan),
        },
        "deployment_model": _describe_model(plan),
        "accounting": {"post_processing": _describe_post_processing(plan), "composition": _describe_composition(plan)},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _describe_preprocessing(plan),
            "mechanisms": _describe_mechanisms(plan),
            "justification": _describe_justification(plan),
        },
        "administrative": {
            "sources": f"Release {info.digest or 'without a digest'}, plan {plan.digest.hex()}.",
            "notes": f"Written by dpframe {_package_version()} from the released file; dpframe verify compares both.",
            "registry_authors": list(authors) or [_open_field("registry_authors")],
        },
    }
    slug = "-".join(re.sub(r"[\W_]+", "-", text.lower()) for text in [title, *curators, basic["publication_date"][:4]])
    return Record({"url_slug": slug, "status": "Draft", "tier": 3, "deployment": deployment})


def _open_field(field: str) -> str:
    return f"{OPEN}: {_PEOPLE_FIELDS[field]}"


def _package_version() -> str:
    from importlib import metadata  # imported late: it takes the modules of e-mail along

    try:
        return metadata.version("dpframe")
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _date_text(published: datetime.date | str | None) -> str:
    if published is None:
        return datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        return datetime.date.fromisoformat(str(published)).isoformat()
    except ValueError:
        raise ParameterError('published must be a date, e.g. published="2026-01-31"') from None


def _rows_text(plan: Plan) -> str:
    return "one row" if plan.contributions == 1 else f"up to {plan.contributions} rows"


def _describe_release(info: ReleaseInfo) -> str:
    plan, tables = info.plan, len(info.plan.measures)
    order = "shuffled" if plan.shuffle else "in their order"
    more = f", with {tables} noisy tables of the original" if tables else ""
    sampled = "" if info.rows is None else f", a secret sample of {info.rows:,}"
    return f"A table of {info.n:,} rows{sampled}: every row was randomised, rows are {order}{more}."


def _describe_domain(plan: Plan) -> str:
    rows = "any number of rows" if plan.n is None else f"{plan.n:,} rows or more"
    column_lines = [f"- {column.name}: {column.space.contents}" for column in plan.columns[:_MAX_COLUMN_LINES]]
    hidden_count = len(plan.columns) - len(column_lines)
    hidden_line = [f"- and {hidden_count} more columns, see the plan in the released file"] if hidden_count else []
    return "\n".join([f"Tables of {rows} with these columns:", *column_lines, *hidden_line])


def _describe_unprotected(plan: Plan) -> str:
    lines = ["- the number of rows, the columns' names and types, and the values that each column may hold"]
    lines += [f"- {line}" for line in plan.verify().unprotected]
    return "\n".join(lines)


def _describe_neighbours(plan: Plan) -> str:
    enforcement = "believed, not enforced" if plan.privacy_id is None else f"enforced by column {plan.privacy_id!r}"
    rows = _rows_text(plan)
    return (
        f"Replace-one: adjacent tables have the same number of rows and differ in the values of {rows}, those of one "
        f"person (Hamming distance {plan.contributions}). That a person owns {rows} is {enforcement}. Nothing is "
        "promised "
        "about adding or removing a row, as the number of rows is public."
    )


def _describe_local_loss(plan: Plan) -> str:
    located = plan.located
    budget_text = f"epsilon = {located.epsilon:.6g}, delta = {located.delta:.3g}"
    if located == plan.release:
        return f"The same also holds against someone who knows which released row is the person's ({budget_text})."
    return f"Against someone who knows which released rows are the person's: {budget_text}."


def _describe_model(plan: Plan) -> dict[str, str]:
    order = (
        "The curator holds the raw table, randomises every row, and shuffles the rows before they leave; the shuffled "
        "order is part of the guarantee."
        if plan.shuffle
        else "The curator holds the raw table and randomises every row; rows keep their order."
    )
    return {
        "model_name": "Central",
        "model_name_details": order,
        "actors": (
            "- The curator holds the raw table and the key, and is trusted with both.\n"
            "- Everybody else may see the release, its plan and the code, and may know all other rows; none of them is "
            "trusted."
        ),
        "release_type": "One release",
        "release_type_details": "One release of one table. Further releases of the same people add to its loss.",
        "data_source_type": "Static",
        "data_source_type_details": "The table as it was when it was released.",
        "access_type": "Non-interactive",
        "access_type_details": "Anybody may read the release any number of times.",
    }


def _describe_post_processing(plan: Plan) -> str:
    bounds_text = "Noisy numbers are kept within their column's bounds"
    rules = " and rows within the rules of the plan" if plan.rules else ""
    return f"{bounds_text}{rules}. Estimates, intervals and synthetic rows are computed from only the release."


def _describe_composition(plan: Plan) -> str:
    if plan.delta == 0:
        return "The columns' losses, and what inference spent, add up (basic composition)."
    parts = {
        "inference": "what private inference of the columns' values spent",
        "tables": "the measured tables",
        "rows": "the rows",
    }
    part_texts = (
        ", ".join(parts[name] for name in plan.steps) if plan.terms.central is not None else "the columns of a row"
    )
    shuffled = (
        ", rows through the shuffle model (privacy blanket of their channels)"
        if plan.terms.shuffled_rows is not None
        else ""
    )
    kind = (
        "Gaussian differential privacy with a slack" if plan.terms.central is not None else "privacy-loss distributions"
    )
    return f"Composed by {kind}: {part_texts}{shuffled}."


def _describe_preprocessing(plan: Plan) -> str:
    inferred_names = [] if plan.inferred is None else list(plan.inferred.columns)
    lines = ["Values outside the values of a column are clamped or put into its bucket for others, row by row."]
    if inferred_names:
        lines.append(
            f"The values of {name_list(inferred_names)} were inferred from noisy counts, within the stated budget."
        )
    for past_inference in () if plan.reused is None else plan.reused.each:
        lines.append(f"Those of {name_list(past_inference.columns)} were inferred before, with a budget of its own.")
    if plan.leaks:
        lines.append(f"Those of {name_list(plan.leaks)} were read off the data and are not accounted for.")
    if len(inferred_names) + len(plan.leaks) < len(plan.columns):
        subject = "Those of the other columns" if len(lines) > 1 else "The values of all columns"
        lines.append(f"{subject} are stated by the curator to be declared without looking at the data.")
    lines.append("No other parameter was tuned on the data.")
    return " ".join(lines)


def _describe_mechanisms(plan: Plan) -> str:
    labels_by_mechanism: dict[str, list[str]] = {}
    for unit in plan.units:
        labels_by_mechanism.setdefault(mechanism_name(unit.mechanism.tag), []).append(unit.label)
    lines = [f"- {name}: {name_list(labels[:_MAX_COLUMN_LINES])}" for name, labels in labels_by_mechanism.items()]
    lines += [f"- discrete Gaussian noise on counts and sums: {part}" for part in measure_parts(plan.measures)]
    lines += [
        "- Library: dpframe. Noise is drawn from tables of integers with words of an AES-256 key stream: no floating "
        "point, no rejection, no work that follows a value.",
        "- Losses are computed from the integers that are sampled. That the key was secret is attested by the curator.",
    ]
    return "\n".join(lines)


def _describe_justification(plan: Plan) -> str:
    cap = "" if plan.local_epsilon is None else f" No row may lose more than epsilon = {plan.local_epsilon:g}."
    certificate = plan.verify()
    verdict, attested = "holds" if certificate.ok else "does not hold", "; ".join(certificate.attested)
    proved = f"The promise was recomputed from the integers of the plan, and {verdict}.{cap}"
    return f"{proved} What only the curator can attest: {attested}."
