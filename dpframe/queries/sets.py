"""Questions about the values of lists: the most common ones, how many occur, and the items and sizes of sets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.errors import ParameterError, check_whole, name_list
from dpframe.noise.keystream import Keystream
from dpframe.queries import base as asking
from dpframe.queries.base import AUTO, Asking, Paid, check_mechanism, counted_axis, facts_of, fitted_noises, with_facts
from dpframe.queries.columns import QueryColumn, linear, series
from dpframe.totals.answers import MECHANISMS, Noise, Portion
from dpframe.totals.questions import CellCounts, Holds, Question
from dpframe.totals.selection import SELECTORS, Scores, Selector, best_selector, whole_cost
from dpframe.totals.set_questions import ChosenCounts, Distinct, ItemCounts, size_places

_MOST_COMMON = 5
"""Default number of values of `most_common`."""

_EXPONENTIAL_SD = math.pi / math.sqrt(6)
"""Standard deviation of the noise that the exponential mechanism comes to, in units of 1/k (Gumbel's law)."""

Fit = tuple[str, tuple[list[Selector], tuple[Noise, ...]], Budget]


class SetQueries(Asking):
    """Values of lists, and sets of items; see `Queries`."""

    def most_common(
        self,
        column: str,
        k: int | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.DataFrame:
        """Return the k values of a column, or items of its sets, with the largest counts, and these with noise.

        The one of two ways with less expected error is taken; that choice is public. With noise on *all counts*
        (``"geometric"``, ``"gaussian"``) the choice costs nothing more, but counts that were chosen for being large are
        too large on average. A row counts in one cell, so that this is best for categories; the items of a set of c
        items move 2c counts. *A choice* (``"exponential"``, ``"noisy_max"``) of one item after the other, by counts
        that one row moves by 1, takes half of the share, and the counts of those that were chosen the other half; it is
        best for few items of large sets.

        Parameters
        ----------
        column
            A column of categories or sets.
        k
            How many, at most as many as there are; None is 5, or all if there are fewer.
        where
            Conditions on rows, as for `Queries.count`.
        share, mechanism
            See the class.

        Returns
        -------
        DataFrame ``estimate, std_error, lower, upper``, the most common first; with noise on all counts of sets, those
        larger than their space's ``max_size`` are cut to it.

        Raises
        ------
        ParameterError
            For a column without a space or of neither categories nor sets, or k beyond their number.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(20_000, columns=["hobbies"])
        >>> q = dpf.Queries(people, 1.0, delta=1e-6, spaces={"hobbies": dpf.Subset(dpf.datasets.HOBBIES)})
        >>> top = q.most_common("hobbies", 2, share=0.5)
        >>> top.index.tolist(), top.attrs["mechanism"]
        (['watching films', 'reading'], 'exponential')
        """
        query_column = self._column(column)
        if not (query_column.space.is_listed or query_column.space.holds_sets):
            raise ParameterError(
                f"column {name_list([column])} holds no categories and no sets, which most_common needs; ask for "
                "histogram"
            )
        read_columns, conditions = self._conditions(where, query_column)
        noisy_question, labels = self._count_question(query_column, conditions, cuts_sets=True)
        exact_question, _ = self._count_question(query_column, conditions, cuts_sets=False)
        k = min(_MOST_COMMON, len(labels)) if k is None else k
        check_whole(k, "k", 1, len(labels), of="values")
        check_mechanism(mechanism, [*MECHANISMS, *SELECTORS])
        # All of the budget at once pays for more of pure choices, and for as much Gaussian noise.
        portion = self._allowed_portions(share)[-1]
        if mechanism in SELECTORS or (
            mechanism is None and self._choice_errs_less(noisy_question, exact_question, k, portion)
        ):
            choices = self._fit_choices(exact_question, k, portion, mechanism)
            return self._choose_values(exact_question, labels, read_columns, share, choices)
        noisy_answer = self._answer(noisy_question, read_columns, share, mechanism, "most_common")
        results = linear(noisy_answer.values[0], noisy_answer.noises[0], 1.0, self.confidence_level)
        table = pd.DataFrame(results, index=labels).sort_values("estimate", ascending=False, kind="stable")
        return with_facts(table.head(int(k)), noisy_answer)

    def _count_question(
        self, query_column: QueryColumn, conditions: Mapping[str, Holds], cuts_sets: bool
    ) -> tuple[CellCounts | ItemCounts, pd.Index[Any]]:
        """Return the question that counts a column's values, or its sets' items, truncated or not; and the labels."""
        if not query_column.space.holds_sets:
            axis = counted_axis(query_column, None)
            return CellCounts({query_column.name: (axis.cells, axis.cell_of)}, self.unit, conditions), axis.labels
        space = query_column.sets("most_common")
        # The choice that cuts a set rests on its row and a word that serves for nothing else.
        stream = (
            Keystream(asking.fresh_key()).column("cut", "measure") if cuts_sets and space.most < space.count else None
        )
        largest_size = space.most if cuts_sets else space.count
        labels = pd.Index(space.listed.labels(), name=query_column.name)
        return ItemCounts(query_column.name, space.count, largest_size, self.unit, stream, conditions), labels

    def _score_bounds(self) -> Scores:
        """Return the bounds by which one row moves the counts of values as scores: both ways, or all one way."""
        return Scores(((1, 1 if self.unit.added else 2),), self.unit.rows)

    def _fit_choices(self, exact_question: Question, k: int, portion: Portion, mechanism: str | None) -> Fit:
        """Return the mechanism, k selectors and the noise on the chosen counts, and their cost."""
        choice_portion, count_portion = portion.split([1, 1])
        parts = choice_portion.split([1] * k)
        name = mechanism or best_selector(self._score_bounds(), parts[0])
        selectors = [SELECTORS[name](self._score_bounds(), part) for part in parts]
        _, noises = fitted_noises(ChosenCounts(exact_question, tuple(range(k))), count_portion, AUTO)
        costs = whole_cost(selectors, choice_portion), count_portion.spent_by(noises)
        is_pure = all(cost.delta == 0 for cost in costs) and portion.step is not None
        # The factor covers the rounding error of the sum: a stated cost must not lie below the true cost.
        budget = Budget(math.fsum(cost.epsilon for cost in costs) * (1 + 1e-15)) if is_pure else portion.budget
        return name, (selectors, noises), budget

    def _choice_errs_less(self, noisy_question: Question, exact_question: Question, k: int, portion: Portion) -> bool:
        """Return, from public facts, whether choices err less: noise that values are compared with, and on counts."""
        try:
            # A share too small for k choices may still pay for noise on all counts.
            _, (selectors, noises), _ = self._fit_choices(exact_question, k, portion, None)
        except ParameterError:
            return False
        _, all_count_noises = fitted_noises(noisy_question, portion, AUTO)
        choice_error = _EXPONENTIAL_SD / selectors[0].rate + math.sqrt(noises[0].variance)
        return choice_error < 2 * math.sqrt(all_count_noises[0].variance)

    def _choose_values(
        self,
        exact_question: CellCounts | ItemCounts,
        labels: pd.Index[Any],
        read_columns: Sequence[QueryColumn],
        share: float,
        choices: Fit,
    ) -> pd.DataFrame:
        def draw_choices(receipt: Paid[Fit]) -> pd.DataFrame:
            name, (selectors, noises), budget = receipt.fitted
            (counts,), unchosen_places, chosen_places = exact_question.totals, list(range(len(labels))), []
            for choice_index, selector in enumerate(selectors):
                choice_stream = receipt.stream.column(json.dumps(["most_common", choice_index]), "measure")
                chosen_places.append(
                    unchosen_places.pop(
                        selector.choose([counts[place] for place in unchosen_places], None, choice_stream)
                    )
                )
            noisy_counts = noises[0].add(
                [counts[place] for place in chosen_places], receipt.stream.column("counts", "measure")
            )
            values = np.array(noisy_counts, dtype=np.float64)
            results = linear(values, noises[0], 1.0, self.confidence_level)
            table = pd.DataFrame(results, index=labels[chosen_places]).sort_values(
                "estimate", ascending=False, kind="stable"
            )
            table.attrs.update(facts_of(name, receipt.share, budget, self.unit))
            return table

        return self._run_answer_job(exact_question.add, read_columns, share, "most_common", choices, draw_choices)

    def support(
        self,
        column: str,
        *,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.DataFrame:
        """Return in how many rows' sets each item lies; sensitivity 2c, or √(2c), for sets of c items.

        A replaced row takes c items away and brings c others at most (c where rows are added or removed). Sets larger
        than their space's ``max_size`` c are cut to so many items, chosen at random, which lowers supports. Whether a
        set holds any or all of some items is asked with `Queries.count`, whose sensitivity is 1.

        Parameters
        ----------
        column
            A column of sets.
        where
            Conditions on rows, as for `Queries.count`.
        share, mechanism
            See the class.

        Raises
        ------
        ParameterError
            For a column without a space, or of no sets.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(20_000, columns=["hobbies"])
        >>> q = dpf.Queries(people, 1.0, delta=1e-6, spaces={"hobbies": dpf.Subset(dpf.datasets.HOBBIES, max_size=4)})
        >>> q.support("hobbies", share=0.5)["std_error"].round(1).iloc[0]
        np.float64(17.0)
        >>> q.count({"hobbies": {"any": ["reading", "walking"]}}, share=0.5)["std_error"].round(1)
        np.float64(6.0)
        """
        query_column = self._column(column)
        query_column.sets("support")
        read_columns, conditions = self._conditions(where, query_column)
        question, labels = self._count_question(query_column, conditions, cuts_sets=True)
        return self._count_table(self._answer(question, read_columns, share, mechanism, "support"), labels)

    def set_sizes(
        self,
        column: str,
        *,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.DataFrame:
        """Return how many rows' sets have each number of items; sensitivity 2, or √2, as for a histogram.

        Parameters
        ----------
        column, where, share, mechanism
            See `support`; sets are not cut.

        Returns
        -------
        DataFrame with a row per size from 0 on; null has none.

        Raises
        ------
        ParameterError
            For a column without a space, or of no sets.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = pd.DataFrame({"hobbies": [["chess"], [], ["chess", "golf"]] * 1_000})
        >>> q = dpf.Queries(frame, 5.0, delta=0, spaces={"hobbies": dpf.Subset(["chess", "golf"])})
        >>> (q.set_sizes("hobbies", share=1)["estimate"] / 1_000).round(1).tolist()
        [1.0, 1.0, 1.0]
        """
        query_column = self._column(column)
        count = query_column.sets("set_sizes").count
        read_columns, conditions = self._conditions(where, query_column)
        question = CellCounts({column: (count + 1, size_places(count))}, self.unit, conditions)
        noisy_answer = self._answer(question, read_columns, share, mechanism, "set_sizes")
        return self._count_table(noisy_answer, pd.RangeIndex(count + 1, name=column))

    def nunique(
        self,
        column: str,
        *,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.Series[Any]:
        """Return how many of a column's listed values, or of the items of its sets, occur in the table at all.

        A replaced row takes one value away and brings another: the number moves by 1 at most. A set takes c items away
        or brings c others: it moves by c, its space's ``max_size``, to which larger sets are cut.

        Parameters
        ----------
        column
            A column of categories or sets; null is no value.
        where, share, mechanism
            See `support`.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; the interval lies between 0 and the number of values.

        Raises
        ------
        ParameterError
            For a column without a space, or of neither categories nor sets.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = pd.DataFrame({"ward": ["a", "b", "b"] * 1_000})
        >>> q = dpf.Queries(frame, 8.0, delta=0, spaces={"ward": list("abcdefgh")})
        >>> float(q.nunique("ward", share=1)["std_error"].round(2))
        0.03
        """
        query_column = self._column(column)
        if not (query_column.space.is_listed or query_column.space.holds_sets):
            raise ParameterError(
                f"column {name_list([column])} holds no categories and no sets, whose values nunique counts; ask for "
                "histogram"
            )
        read_columns, conditions = self._conditions(where, query_column)
        question, size, largest_size = self._distinct_question(query_column, conditions)
        noisy_answer = self._answer(Distinct(question, largest_size), read_columns, share, mechanism, "nunique")
        results = linear(noisy_answer.values[0], noisy_answer.noises[0], 1.0, self.confidence_level)
        # The truth lies in this range, so that truncated estimates and intervals stay valid.
        results = {
            name: np.clip(values, 0.0, size) if name != "std_error" else values for name, values in results.items()
        }
        return with_facts(series(results, column), noisy_answer)

    def _distinct_question(
        self, query_column: QueryColumn, conditions: Mapping[str, Holds]
    ) -> tuple[Question, int, int]:
        """Return the question that counts a column's values except null, their number, and the most in a row."""
        if query_column.space.holds_sets:
            question, labels = self._count_question(query_column, conditions, cuts_sets=True)
            return question, len(labels), query_column.sets("nunique").most
        axis = counted_axis(query_column, None)
        size = query_column.space.values
        return CellCounts({query_column.name: (size, axis.cell_of)}, self.unit, conditions), size, 1
