"""JSON that was valid, changed at random: values, fields and elements, numbers by a little, and the text itself."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from fuzzing import JSON
from hypothesis import strategies as st

Place = tuple[Any, Any]
"""A list or an object, and where in it."""


def places(value: Any) -> Iterator[Place]:
    """Yield every place in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from places(inner)


def _replace(draw: st.DrawFn, inside: Any, at: Any) -> None:
    inside[at] = draw(JSON)


def _delete(draw: st.DrawFn, inside: Any, at: Any) -> None:
    del inside[at]


def _nudge(draw: st.DrawFn, inside: Any, at: Any) -> None:
    value = inside[at]
    if isinstance(value, bool):
        inside[at] = not value
    elif isinstance(value, int | float) and abs(value) < 1e300:
        inside[at] = draw(st.sampled_from(NUDGES))(value)
    elif isinstance(value, str):
        inside[at] = draw(st.sampled_from([value[:-1], value + "0", value.upper(), value[::-1], ""]))
    elif isinstance(value, list):
        inside[at] = draw(st.sampled_from([value[:-1], value[1:], value + value[-1:], value[::-1], value * 2]))
    else:
        inside[at] = draw(JSON)


NUDGES: list[Callable[[Any], Any]] = [
    lambda v: v + 1,
    lambda v: v - 1,
    lambda v: -v,
    lambda v: 0,
    lambda v: v * 2,
    lambda v: v // 2,
    lambda v: float(v),
    lambda v: str(v),
    lambda v: v * 1.001,
    lambda v: v * 0.999,
    lambda v: math.nextafter(v, math.inf),
    lambda v: math.nextafter(v, -math.inf),
    lambda v: [v],
    lambda v: v + 2**64,
]


def _add(draw: st.DrawFn, inside: Any, at: Any) -> None:
    value = draw(JSON)
    if isinstance(inside, list):
        inside.insert(at, draw(st.sampled_from([copy.deepcopy(inside[at]), value])))
    else:
        inside[draw(st.sampled_from(["epsilon", "delta", "sample", "colour", "shuffle", "n", "mechanism"]))] = value


def _swap(draw: st.DrawFn, inside: Any, at: Any) -> None:
    there = list(inside) if isinstance(inside, dict) else range(len(inside))
    other = there[draw(st.integers(0, len(there) - 1))]
    inside[at], inside[other] = inside[other], inside[at]


def _rename(draw: st.DrawFn, inside: Any, at: Any) -> None:
    if isinstance(inside, dict):
        inside[draw(st.text(max_size=3))] = inside.pop(at)


CHANGES = [_replace, _delete, _nudge, _nudge, _nudge, _add, _swap, _rename]


@st.composite
def mutated(draw: st.DrawFn, valid: str) -> str:
    """Draw JSON text that differs from a valid one in up to three places; sometimes in its characters."""
    data = json.loads(valid)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        there = list(places(data))
        # Where objects are long lists of numbers, the few other places are as likely.
        own = [place for place in there if isinstance(place[1], str)]
        chosen = own if own and draw(st.booleans()) else there
        if chosen:
            inside, at = chosen[draw(st.integers(0, len(chosen) - 1))]
            draw(st.sampled_from(CHANGES))(draw, inside, at)
    text = json.dumps(data, ensure_ascii=draw(st.booleans()))
    return draw(torn(text)) if draw(st.integers(0, 9)) == 0 else text


@st.composite
def torn(draw: st.DrawFn, text: str) -> str:
    """Draw a text cut short, or with some characters replaced."""
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 20)))
    put = st.sampled_from(["", "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 5000, '"', "\x00", "\\ud800"])
    return text[:start] + draw(put | st.text(max_size=3)) + draw(st.sampled_from([text[end:], ""]))
