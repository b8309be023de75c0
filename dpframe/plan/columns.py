"""Units of a plan that are randomised independently: columns, and groups of columns that share one channel.

A column without a named mechanism may have another than its space's default: forecasts decide.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting import ColumnLoss
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step
from dpframe.channels import (
    MECHANISMS,
    GammaDiagonal,
    Mechanism,
    family_for,
    mechanism_for,
    mechanism_from_json,
)
from dpframe.channels.staircase import MAX_STAIRCASE_STEPS
from dpframe.errors import ColumnError, ParameterError, PlanError, tuple_label
from dpframe.forecast.errors import CellMoments, mean_errors, share_errors
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Product, Space, as_space
from dpframe.spaces.base import forwarded

Codes = npt.NDArray[np.integer]


class Randomised(ABC):
    """Common part of columns and groups: names, a space, a channel on its codes, and the channel's loss.

    The units of a row are randomised independently of each other.
    """

    if TYPE_CHECKING:  # fields of the dataclasses below: a property would get in their way

        @property
        def names(self) -> tuple[str, ...]:
            """Names of the columns."""

        @property
        def space(self) -> Space:
            """Space of the values that are randomised."""

        @property
        def mechanism(self) -> Mechanism:
            """The channel on the space's codes."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The unit's columns, grouped ones with their marginal channels."""

    @abstractmethod
    def sample(self, codes: Mapping[str, Codes], stream: Keystream, first_row: int) -> dict[str, Codes]:
        """Randomise the codes of the unit's columns."""

    @abstractmethod
    def sample_padded(self, codes: Mapping[str, Codes], stream: Keystream, first_row: int) -> dict[str, Codes]:
        """Randomise codes under a pad, by the words of `sample`; see `Mechanism.sample_padded`."""

    @abstractmethod
    def remade(self, epsilon: float, delta: float) -> Randomised:
        """Return the unit with its mechanism calibrated anew."""

    @property
    def label(self) -> str:
        """The names as one line of text."""
        return tuple_label(self.names)

    certified: ClassVar[Budget] = forwarded("mechanism.certified")
    """The certified loss of the sampled integers, at the requested δ."""

    @property
    def takes_delta(self) -> bool:
        """Whether the unit's kind of mechanism needs δ > 0, so that the unit has part of a plan's δ."""
        family = MECHANISMS.get(self.mechanism.tag)
        return family is not None and family.takes_delta

    step: ClassVar[Step | None] = forwarded("mechanism.loss.step")
    """The unit's cost per row as a step, if its channel is made for a step."""

    @property
    def epsilon(self) -> float:
        """Certified loss at δ = 0."""
        return self.mechanism.loss.epsilon(0.0)

    blanket: ClassVar[float] = forwarded("mechanism.blanket")
    """γ, the share of a release that is independent of its row, rounded down."""

    column_loss: ClassVar[ColumnLoss] = forwarded("mechanism.column_loss")
    """The loss for the accountant of the whole release."""

    @property
    def expected_error(self) -> float:
        """Worst expected distance between a value and its release, in the space's unit."""
        return self.mechanism.expected_error(self.space) * self.space.step

    @property
    def error_bounds(self) -> tuple[float, float]:
        """Least expected errors of any mechanism at this budget, in the space's unit (metric-spaces paper).

        Theorem 6: (1−δ)·diam/(2(1+e^ε)); for m+1 points at least κ apart Theorem 7: (1−δ)·κm/(m+e^ε).
        """
        target, space = self.mechanism.budget, self.space
        # The largest exponent of a float is 709.
        likelihood_ratio, success = math.exp(min(target.epsilon, 700.0)), 1 - target.delta
        # Capped, as sets have more codes than a float can count.
        other_codes = math.exp(min(math.log(max(space.points - 1, 1)), 700.0))
        seventh = (
            success * space.min_distance * other_codes / (other_codes + likelihood_ratio) if space.size > 1 else 0.0
        )
        return success * space.diameter / (2 * (1 + likelihood_ratio)) if space.size > 1 else 0.0, seventh

    @property
    def error_bound(self) -> float:
        """The larger of the two `error_bounds`."""
        return max(self.error_bounds)


def _check_name(name: Any) -> None:
    """Raise `PlanError` unless a column's name is a string that is not empty."""
    if not isinstance(name, str) or not name:
        raise PlanError("a column's name must be a string that is not empty")


def _code_count_text(size: int) -> str:
    """Return a number of codes as text; Python writes no integer of thousands of digits."""
    if size < 1 << 64:
        return str(size)
    exponent = size.bit_length() - 1
    return f"2^{exponent}" + (f" + {size - (1 << exponent)}" if size > 1 << exponent else "")


@dataclass(frozen=True)
class Column(Randomised):
    """A randomised column: its name, its space and the channel on the space's codes.

    The mechanism of a grouped column is the marginal of the group's channel.
    """

    name: str
    space: Space
    mechanism: Mechanism

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.space.sizes) > 1:
            raise PlanError(
                f"column {self.name!r}: Product is for several columns; declare each and name them in groups"
            )
        if self.mechanism.size != self.space.size:
            mechanism_codes, space_codes = _code_count_text(self.mechanism.size), _code_count_text(self.space.size)
            raise PlanError(f"column {self.name!r}: the mechanism has {mechanism_codes} codes, the space {space_codes}")
        if self.mechanism.code_words != self.space.code_words:
            raise PlanError(f"column {self.name!r}: mechanism {self.mechanism.tag} is not for space {self.space.tag}")
        if self.mechanism.flag_codes not in (0, self.space.flag_codes):
            raise PlanError(
                f"column {self.name!r}: the mechanism's flag has {self.mechanism.flag_codes} codes, the space "
                f"{self.space.flag_codes} special values and null; plan the column anew"
            )
        # Raises an error if released codes are no values.
        _ = self.released
        if not self.mechanism.inner.reads(self.space.inner_space):
            raise PlanError(
                f"column {self.name!r}: the mechanism reads its codes otherwise than the space (another length, norm, "
                "bits or room, other items or another max_size); plan the column anew"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The name as a tuple."""
        return (self.name,)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The column itself."""
        return (self,)

    @cached_property
    def released(self) -> Space:
        """The space of released codes: the column's own, unless noise goes beyond its bounds."""
        return self.mechanism.released(self.space)

    def sample(self, codes: Mapping[str, Codes], stream: Keystream, first_row: int) -> dict[str, Codes]:
        """Randomise the column's codes by its own stream."""
        return {self.name: self.mechanism.sample(codes[self.name], stream.column(self.name), first_row)}

    def sample_padded(self, codes: Mapping[str, Codes], stream: Keystream, first_row: int) -> dict[str, Codes]:
        """Randomise the column's codes under a pad."""
        return {self.name: self.mechanism.sample_padded(codes[self.name], stream.column(self.name), first_row)}

    @classmethod
    def calibrated(cls, name: str, space: Space, epsilon: float, delta: float, tag: str | None = None) -> Column:
        """Return the column with its space's default mechanism, or a tag's, on a grid that suits the noise."""
        family = family_for(space, tag)
        suited = family.space_for(space, epsilon, delta)
        return cls(name, suited, family.calibrate(suited, epsilon, delta))

    def remade(self, epsilon: float, delta: float) -> Column:
        """Return the column with its mechanism calibrated anew; a fixed mechanism stays.

        If δ is 0, a mechanism that needs δ > 0 keeps its own.
        """
        family = MECHANISMS[self.mechanism.tag]
        # A calibration for pure columns gives δ = 0 to all of them.
        delta = delta or (self.mechanism.delta if family.takes_delta else 0.0)
        space = self.space if self.mechanism.fixed else family.space_for(self.space, epsilon, delta)
        return Column(self.name, space, self.mechanism.recalibrated(space, epsilon, delta))

    def to_json(self, grouped: bool = False) -> dict[str, Any]:
        """Return the column as a JSON object; one in a group has no mechanism of its own."""
        mechanism_fields = {} if grouped else {"mechanism": self.mechanism.to_json()}
        return {"name": self.name, "space": self.space.to_json(), **mechanism_fields}


@dataclass(frozen=True)
class Group(Randomised):
    """Columns that are randomised together by one γ-diagonal channel on their tuples, which spends its ε once.

    Parameters
    ----------
    names
        The columns, two or more, in the order of the channel's coordinates.
    space
        The product of their spaces.
    mechanism
        The channel, all its coordinates seen.

    Raises
    ------
    PlanError
        For fewer than two names, one that appears twice, or a channel for other sizes.

    Examples
    --------
    >>> space = Product(["F", "M"], ["low", "mid", "high"])
    >>> group = Group(("sex", "income"), space, GammaDiagonal((2, 3), epsilon=1.0))
    >>> group.label, group.column("income").mechanism.size
    ('sex × income', 3)
    """

    names: tuple[str, ...]
    space: Product
    mechanism: GammaDiagonal

    def __post_init__(self) -> None:
        for name in self.names:
            _check_name(name)
        if len(self.names) < 2 or len(set(self.names)) < len(self.names):
            raise PlanError("a group must name two or more columns, each once")
        channel = self.mechanism
        if not isinstance(channel, GammaDiagonal):
            raise PlanError(f"group {self.label}: the mechanism must be gamma_diagonal")
        if channel.sizes != self.space.sizes or channel.kept != tuple(range(len(self.names))):
            raise PlanError(
                f"group {self.label}: the mechanism must have all of the columns' numbers of codes, {self.space.sizes}"
            )

    def marginal(self, names: Sequence[str]) -> GammaDiagonal:
        """Return the channel of some of the columns, their coordinates in the group's order."""
        return self.mechanism.marginal(sorted(self.names.index(name) for name in names))

    def column(self, name: str) -> Column:
        """Return a column of the group with its marginal channel."""
        return Column(name, self.space.spaces[self.names.index(name)], self.marginal([name]))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with their marginal channels."""
        return tuple(map(self.column, self.names))

    def sample(self, codes: Mapping[str, Codes], stream: Keystream, first_row: int) -> dict[str, Codes]:
        """Randomise the columns' codes together, by the stream of the first column."""
        columns = [codes[name] for name in self.names]
        released = self.mechanism.sample_columns(columns, stream.column(self.names[0]), first_row)
        return dict(zip(self.names, released, strict=True))

    def sample_padded(self, codes: Mapping[str, Codes], stream: Keystream, first_row: int) -> dict[str, Codes]:
        """Randomise the columns' codes: noise is added coordinate by coordinate, under pads as without."""
        return self.sample(codes, stream, first_row)

    def remade(self, epsilon: float, delta: float) -> Group:
        """Return the group with its channel calibrated anew."""
        return Group(self.names, self.space, GammaDiagonal.calibrate(self.space, epsilon, delta))

    def to_json(self) -> dict[str, Any]:
        """Return the group as a JSON object; its columns have the spaces."""
        return {"names": list(self.names), "mechanism": self.mechanism.to_json()}


def parted(units: Iterable[Randomised], names: Iterable[str]) -> tuple[tuple[Column, ...], tuple[Group, ...]]:
    """Return the columns of units in the order of names, grouped ones with their marginal channels, and the groups."""
    randomised_units = tuple(units)
    columns = {column.name: column for unit in randomised_units for column in unit.columns}
    groups = tuple(unit for unit in randomised_units if isinstance(unit, Group))
    return tuple(columns[name] for name in names), groups


def column_from_json(data: Any, groups: Sequence[Group]) -> Column:
    """Read a column back; a grouped column has its channel from the group."""
    name, space = _read_space(data)
    group = next((group for group in groups if name in group.names), None)
    if group is not None:
        if {"mechanism", "epsilon", "delta"} & set(data):
            raise PlanError(
                f"column {name!r} is in the group {group.label}, which has the mechanism; leave its own out"
            )
        return group.column(name)
    try:
        mechanism = _read_mechanism(data, space)
    except (ParameterError, PlanError, ColumnError) as error:
        raise PlanError(f"column {name!r}: {error}") from None
    return Column(name, space, mechanism)


def _read_space(data: Any) -> tuple[str, Space]:
    """Return the name and the space of a column's JSON object, or raise `PlanError`."""
    if not isinstance(data, Mapping) or not {"name", "space"} <= set(data):
        raise PlanError("every column needs a name, a space, and a mechanism or an epsilon")
    unknown = sorted(set(data) - {"name", "space", "mechanism", "epsilon", "delta"})
    if unknown:
        raise PlanError(f"column {data['name']!r} has the unknown field {unknown[0]!r}")
    _check_name(data["name"])
    try:
        return data["name"], as_space(data["space"])
    except (ParameterError, PlanError, ColumnError) as error:
        raise PlanError(f"column {data['name']!r}: {error}") from None


def group_from_json(data: Any, columns: Sequence[Any]) -> Group:
    """Read a group back; ``columns`` are the JSON objects of the plan's columns."""
    if not isinstance(data, Mapping) or not set(data) <= {"names", "mechanism", "epsilon", "delta"}:
        raise PlanError("every group has names, and a mechanism or an epsilon")
    names = data.get("names")
    if not isinstance(names, list) or len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise PlanError("every group needs a list of two or more column names")
    spaces = dict(map(_read_space, columns))
    unknown = [name for name in names if name not in spaces]
    if unknown:
        raise PlanError(f"groups name {unknown[0]!r}, which is not a randomised column")
    try:
        space = Product(*(spaces[name] for name in names))
        mechanism = _read_mechanism(data, space)
    except (ParameterError, PlanError) as error:
        raise PlanError(f"group {tuple_label(names)}: {error}") from None
    if not isinstance(mechanism, GammaDiagonal):
        raise PlanError(f"group {tuple_label(names)}: the mechanism must be gamma_diagonal")
    return Group(tuple(names), space, mechanism)


def _read_mechanism(data: Mapping[str, Any], space: Space) -> Mechanism:
    """Return the mechanism of a JSON object for a space, or raise `PlanError`."""
    if ("mechanism" in data) == ("epsilon" in data):
        raise PlanError("give a mechanism or an epsilon, one of them")
    if "epsilon" in data:
        return mechanism_for(space, data["epsilon"], data.get("delta", 0.0))
    if "delta" in data:
        raise PlanError("delta goes with an epsilon; a mechanism has its own")
    if not isinstance(data["mechanism"], Mapping):
        raise PlanError("the mechanism must be an object with its tag")
    return mechanism_from_json(data["mechanism"])


RIVALS: Mapping[str, str] = {
    "symmetric difference": "set_response",
    "nullable symmetric difference": "nullable_set_response",
}
"""Mechanisms that may replace a space's default, by its metric."""

ADDITIVE = ("geometric", "nullable_geometric")
"""Default mechanisms that add noise of one law to every value."""

_RIVAL_ERROR_RATIO = 0.8
"""Largest ratio of errors, rival's over default's, at which the rival replaces the default (tuned; effect not
measured)."""

_RIVAL_EPSILON_FACTOR = 1.5
"""About the largest factor on a column's ε that a plan may give a rival: a rival too weak at this ε is not tried (limit
of time)."""


NOISE: Mapping[str, tuple[str, ...]] = {
    "numbers": ("laplace", "square_wave", "least_error"),
    "ordinals": ("least_error", "laplace", "square_wave"),
    "sets": ("least_error", "bitflip", "randomized_response"),
}
"""Kinds of noise for columns without a named mechanism, by option; the first is the default."""


def check_noise(option: str, noise: Any) -> str:
    """Return the noise that an option of `NOISE` names, or raise `ParameterError`."""
    if not isinstance(noise, str) or noise not in NOISE[option]:
        raise ParameterError(f"{option} must be one of {', '.join(NOISE[option])}")
    return str(noise)


def stand_in(space: Space, noise: str) -> str | None:
    """Return the tag of the mechanism that a plan tries first on a space of numbers or ranks, or None.

    ``noise`` is Laplace noise, the square wave, or the one of least forecast error. Inverting a smooth law has large
    errors; the edges of a square wave stay sharp. At one loss the square wave has 0.15 to 0.95 of Laplace noise's error
    for means, 0.1 to 0.5 for squares, and about a tenth for shares of a twelfth of the grid.
    """
    fits = space.mechanism in ADDITIVE and 2 <= space.values <= MAX_STAIRCASE_STEPS + 1
    return "staircase" if fits and noise != "laplace" else None


def errs_more(column: Column) -> bool:
    """Return whether a column's mechanism errs more than its space's default at an equal loss.

    The forecast error is of shares for ranks, of the mean for numbers.
    """
    space, mechanism = column.space, column.mechanism
    try:
        default_mechanism = mechanism_for(space, mechanism.epsilon, mechanism.delta)
    except ParameterError:  # an ε too small for it
        return False
    return _line_error(mechanism, space) > _line_error(default_mechanism, space)


def _line_error(mechanism: Mechanism, space: Space) -> float:
    """Return the forecast error per row of shares for ranks, of the mean for numbers."""
    if space.is_listed:
        return share_errors([CellMoments.of(mechanism)], 1).typical
    return mean_errors(space, mechanism, None, 1).typical


def promising_rival(column: Column, sets: str = "least_error") -> str | None:
    """Return the tag of a mechanism that may err less than a set column's own, or None.

    >>> from dpframe.spaces import Subset
    >>> for space, epsilon in [(Subset(["art", "chess", "yoga"]), 4.0), (Subset(range(100), max_size=6), 4.0)]:
    ...     print(promising_rival(Column("hobbies", space, mechanism_for(space, epsilon, 0.0))))
    set_response
    None
    """
    space, mechanism = column.space, column.mechanism
    tag = RIVALS.get(space.metric)
    if tag is None or sets == "bitflip":
        return None
    if sets == "randomized_response":
        return tag
    try:
        rival = mechanism_for(space, mechanism.epsilon * _RIVAL_EPSILON_FACTOR, mechanism.delta, tag)
    except ParameterError:  # too many sets, or an ε too small for so many
        return None
    return tag if support_error(rival, space) < _RIVAL_ERROR_RATIO * support_error(mechanism, space) else None


def is_clearly_better(rival: Column, own: Column) -> bool:
    """Return whether the rival's support error is clearly below the error of the column's own mechanism."""
    return support_error(rival.mechanism, rival.space) < _RIVAL_ERROR_RATIO * support_error(own.mechanism, own.space)


def support_error(mechanism: Mechanism, space: Space) -> float:
    """Return the root mean square over items of a support's error per row, for sets of the largest size.

    An item's variance is linear in its support, and supports add up to the mean size.
    """
    sets: Any = space.inner_space
    channel: Any = mechanism
    # The variance is linear in the support, from a rare item to one in every set.
    rare, common = channel.sets.support_variances
    return math.sqrt(rare + max(common - rare, 0.0) * sets.most / sets.count)


def padded_tags(space: Space) -> list[str]:
    """Return the mechanisms for a space that can act under a pad, the default first.

    >>> from dpframe.spaces import as_space
    >>> padded_tags(as_space((0, 120))), padded_tags(as_space(["F", "M"]))
    (['wrapped_geometric', 'randomized_response'], ['randomized_response'])
    """
    tags = [f.tag for f in MECHANISMS.values() if space.metric in f.metrics and f.adds_in_group]
    return sorted(tags, key=lambda tag: (tag == "randomized_response") == space.is_numeric)
