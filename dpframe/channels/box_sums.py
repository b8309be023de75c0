"""Sums of a function over a box about every value, clipped to the grid, and their inverse in linear time.

With φ continued beyond 0…span by its values at the ends, the sum over the places x − left … x − left + width − 1
is (Bφ)(x). The difference of two neighbouring sums is φ(x − left + width) − φ(x − left): the places of each residue
class modulo ``width`` form a chain along which φ adds up differences of the sums. left + 1 chains begin at φ(0), and
width − left end at φ(span). B is invertible if and only if exactly one chain does both, which holds if and only if
``width`` divides span or span − 1. That chain says φ(span) − φ(0), the sum over the first box says φ(0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpframe.spaces.arrays import FloatArray

IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BoxSums:
    """The matrix B on arrays of shape (span + 1, …), along axis 0."""

    span: int
    width: int
    left: int

    def sums(self, f: FloatArray) -> FloatArray:
        """Return Bf."""
        right = self.width - 1 - self.left
        padded = np.concatenate([np.repeat(f[:1], self.left, axis=0), f, np.repeat(f[-1:], right, axis=0)])
        total = np.concatenate([np.zeros_like(padded[:1]), np.cumsum(padded, axis=0)])
        return np.asarray(total[self.width :] - total[: -self.width])

    def spread(self, c: FloatArray) -> FloatArray:
        """Return Bᵀc."""
        total = np.concatenate([np.zeros_like(c[:1]), np.cumsum(c, axis=0)])
        ends = np.arange(1, self.span + self.width + 1)
        at_places = total[np.minimum(ends, self.span + 1)] - total[np.maximum(ends - self.width, 0)]
        out = at_places[self.left : self.left + self.span + 1].copy()
        out[0] += at_places[: self.left].sum(axis=0)
        out[-1] += at_places[self.left + self.span + 1 :].sum(axis=0)
        return np.asarray(out)

    def solve(self, f: FloatArray) -> FloatArray:
        """Return B⁻¹f."""
        along = self._along(np.diff(f, axis=0))
        ends = along[self._ends]
        whole = along[self._closed]
        first = (f[0] - len(self._free) * whole + ends[self._free].sum(axis=0)) / self.width
        begins = np.broadcast_to(first, ends.shape).copy()
        begins[self._free] += whole - ends[self._free]
        places = np.arange(self.left, self.left + self.span + 1)
        return np.asarray(along[places] + begins[places % self.width])

    def solve_adjoint(self, c: FloatArray) -> FloatArray:
        """Return B⁻ᵀc."""
        everything = c.sum(axis=0) / self.width
        at_places = np.zeros((self.span + self.width, *c.shape[1:]))
        at_places[self.left : self.left + self.span + 1] = c
        in_chain = self._by_chain(at_places).sum(axis=0)
        free = in_chain[self._free]
        at_places[self._ends[self._free]] += everything - free
        at_places[self._closed] += free.sum(axis=0) - len(self._free) * everything
        steps = self._beyond(at_places)
        out = np.zeros((self.span + 1, *c.shape[1:]))
        out[1:] += steps
        out[:-1] -= steps
        out[0] += everything
        return out

    def squares(self, c: FloatArray) -> FloatArray:
        """Return (B⁻¹ with squared entries)ᵀ c.

        The column of v is that of f = 1[x = v]: it is φ(0) or φ(span), by the place's chain, and 1 more or less on
        a part of the chains of v − 1 and v.
        """
        ends = np.zeros((self.span + 1, 2))
        ends[0, 0] = ends[-1, 1] = 1.0
        low, high = (part.reshape(-1, *[1] * (c.ndim - 1)) for part in self.solve_adjoint(ends).T)
        at_places = np.zeros((self.span + self.width, *c.shape[1:]))
        at_places[self.left : self.left + self.span + 1] = c
        in_chain = self._by_chain(at_places).sum(axis=0)
        beyond = self._beyond(at_places)
        before = in_chain[np.arange(self.span) % self.width] - beyond
        free = np.isin(np.arange(self.span) % self.width, self._free).reshape(-1, *[1] * (c.ndim - 1))
        of_free = in_chain[self._free].sum(axis=0)
        out = low**2 * (c.sum(axis=0) - of_free) + high**2 * of_free
        out[1:] += np.where(free, (1 - 2 * high[1:]) * before, (1 + 2 * low[1:]) * beyond)
        out[:-1] += np.where(free, (1 + 2 * high[:-1]) * before, (1 - 2 * low[:-1]) * beyond)
        if self.width == 1:  # the chains of v − 1 and v are one: + 1 and − 1 meet beyond v
            out[1:-1] -= 2 * beyond[1:]
        return np.asarray(out)

    def changes(self, at: IndexArray) -> IndexArray:
        """Return the places in 0…span from which B⁻¹f may differ from before, f changing only between x and x + 1.

        ``at`` are those x. Chains of them show wherever they pass, and chains of the two kinds differ.
        """
        rounds = np.arange(0, self.span + self.width, self.width) - self.left
        chains = np.unique(np.asarray(at) % self.width)
        found = (rounds[:, None] + np.concatenate([chains, chains + 1, [0, self.left + 1]])).ravel()
        return np.unique(np.append(found[(found >= 0) & (found <= self.span)], [0, 1, self.span]))

    @cached_property
    def _free(self) -> IndexArray:
        """The chains that do not begin at φ(0); they end at φ(span)."""
        return np.arange(self.left + 1, self.width)

    @cached_property
    def _ends(self) -> IndexArray:
        """The last place of every chain."""
        first = np.arange(self.width)
        return np.asarray(first + (self.span + self.width - 1 - first) // self.width * self.width)

    @property
    def _closed(self) -> int:
        """The last place of the chain that begins at φ(0) and ends at φ(span)."""
        return self.span + (self.left if self.span % self.width == 0 else self.width - 1)

    def _by_chain(self, at_places: FloatArray) -> FloatArray:
        """Return an array by place as one of shape (rounds, width, …), zeros at the end."""
        more = -len(at_places) % self.width
        padded = np.concatenate([at_places, np.zeros((more, *at_places.shape[1:]))])
        return padded.reshape(-1, self.width, *at_places.shape[1:])

    def _along(self, steps: FloatArray) -> FloatArray:
        """Return the sum of the steps before every place on its chain, one step between two of its places."""
        rounds = self._by_chain(np.concatenate([np.zeros((self.width, *steps.shape[1:])), steps]))
        return np.cumsum(rounds, axis=0).reshape(-1, *steps.shape[1:])[: self.span + self.width]

    def _beyond(self, at_places: FloatArray) -> FloatArray:
        """Return for every place up to span − 1 the sum over the places after it on its chain."""
        rounds = self._by_chain(at_places)
        after = np.cumsum(rounds[::-1], axis=0)[::-1] - rounds
        return after.reshape(-1, *at_places.shape[1:])[: self.span]
