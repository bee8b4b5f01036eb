"""Examples for plugins that come without one."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from .engine import EngineRun, build, combinations
from .report import Findings
from .subject import Example, Layout, Subject, Watch

_SHAPES = [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5)]
_TYPES = [np.float32, np.int32, np.int64, np.float16, np.bool_, np.uint8, np.int8]
_MOST_TRIALS = 400
_MOST_SECONDS = 10.0
# Exceptions that no other input mends. The plugin is at fault.
_FAULTS = (NameError, AttributeError, ImportError, NotImplementedError, ArithmeticError)

Made = tuple[tuple[int, ...], Any]  # shape and type of an input


def _is_accepted(subject: Subject, example: Example) -> None:
    """Runs the plugin in its first combination. Its exceptions pass."""
    call = subject.call(example)
    first = combinations(subject, call)[0]
    watch = Watch(first)
    aot = not subject.call_name
    run = EngineRun(build(subject, watch, call, aot=aot), watch, call, aot)
    run.run(call.cast(first))


def _array(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)  # valid as an index, a mask, a number


def _numbers(refusals: dict[str, None]) -> list[int]:
    """Extents that a plugin's own messages ask for, such as "a multiple of 8"."""
    found = [int(n) for text in refusals for n in re.findall(r"(?<![\w.])\d{1,3}(?![\w.])", text)]
    return [n for n in dict.fromkeys(found) if 5 < n <= 256][:3]


def _shapes_of(numbers: list[int]) -> list[tuple[int, ...]]:
    """The usual shapes, and shapes with extents that messages ask for."""
    shapes = list(_SHAPES)
    for n in numbers:
        shapes += [(n,), (2, n), (n, n), (2, 3, n), (2, n, 3, 4), (2, 3, n, n)]
    return shapes


def _beside(first: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Common shapes of another input: the first one's shape, one number for each channel or each
    element of a row, a matrix to multiply with, a single number."""
    last, channels = first[-1], first[1] if len(first) > 1 else first[0]
    square = (*first[:-2], last, last) if len(first) > 1 else (last, last)
    usual = [first, (last,), (channels,), (last, 6), (6, last), square, (*first[:-1], 1), (1,), ()]
    return list(dict.fromkeys(usual))


def _trials(layout: Layout, numbers: list[int]) -> Iterator[list[Made | None]]:
    """Shapes and types for the present inputs, the likeliest first."""
    count = sum(layout)

    def placed(made: tuple[Made, ...]) -> list[Made | None]:
        following = iter(made)
        return [next(following) if there else None for there in layout]

    if count == 0:
        return
    for dtype in _TYPES:
        for shape in _shapes_of(numbers):
            yield placed(((shape, dtype),) * count)
    for types in itertools.product(_TYPES[:3], repeat=min(count, 3)):
        for shape in reversed(_shapes_of(numbers)):
            for others in itertools.product(_beside(shape), repeat=min(count, 3) - 1):
                shapes = [shape, *others, *[shape] * (count - 1 - len(others))]
                dtypes = [*types, *[types[-1]] * (count - len(types))]
                yield placed(tuple(zip(shapes, dtypes)))


def _search(subject: Subject, layout: Layout, refusals: dict[str, None]) -> Example | None:
    """The first inputs that the plugin takes. Its messages about refused inputs guide the
    search."""
    rng = np.random.default_rng(0)
    begin = time.monotonic()
    tried: set[str] = set()
    numbers: list[int] = []
    again = True
    while again:  # with the numbers in new messages
        again = False
        for made in _trials(layout, numbers):
            if len(tried) >= _MOST_TRIALS or time.monotonic() - begin > _MOST_SECONDS:
                return None
            if str(made) in tried:
                continue
            tried.add(str(made))
            inputs = [None if m is None else _array(rng, *m) for m in made]
            example = Example(inputs, is_made=True)
            try:
                _is_accepted(subject, example)
            except Exception as refused:  # the user's functions may raise anything
                refusals.setdefault(f"{type(refused).__name__}: {refused}")
                new = _numbers(refusals)
                if new != numbers:
                    numbers, again = new, True
                    break
            else:
                return example
    return None


def _accept_usual(subject: Subject, layout: Layout, refusals: list[Exception]) -> list[Example]:
    """Random FP32 inputs of one shape, for each rank that the plugin takes."""
    rng = np.random.default_rng(0)
    made = []
    for shape in _SHAPES:
        inputs = [_array(rng, shape, np.float32) if there else None for there in layout]
        example = Example(inputs, is_made=True)
        try:
            _is_accepted(subject, example)
            made.append(example)
        except Exception as refused:  # the user's functions may raise anything
            refusals.append(refused)
    return made


def make_examples(subject: Subject, findings: Findings) -> list[Example]:
    """Random inputs of the shapes and types that the plugin accepts."""
    advice = subject.advice
    layouts = subject.layouts()
    rng = np.random.default_rng(0)
    ones = [_array(rng, (1,), np.float32) if there else None for there in layouts[0][0]]
    try:
        subject.call(Example(ones))
    except Exception as error:  # the user's functions may raise anything
        what = "none is given, and without attributes it cannot be made"
        findings.ask("example", error, f"{what}; {advice}", subject.place("create"))
        return []
    refusals: list[Exception] = []
    for group in layouts:
        made: list[Example] = []
        refused_with: list[str] = []
        for layout in group:
            found = _accept_usual(subject, layout, refusals)
            made += found
            if not found:
                raised = f"{type(refusals[-1]).__name__}: {refusals[-1]}"
                refused_with.append(f"refused with {sum(layout)} inputs: {raised}")
        if made:
            counts = sorted({sum(x is not None for x in e.inputs) for e in made})
            shapes = [list(x.shape) for e in made for x in e.inputs if x is not None]
            listed = ", ".join(dict.fromkeys(map(str, shapes)))
            several = f"{' or '.join(map(str, counts))} inputs, " if counts != [1] else ""
            findings.note("example", f"made here, {several}FP32 {listed}; for others {advice}")
            for note in refused_with:
                findings.note("example", note)
            findings.passed("example")
            return made
    if not refusals:
        return []
    if isinstance(refusals[0], _FAULTS):
        findings.raised("example", refusals[0], "none is given", subject.place("shapes"))
        return []
    texts = dict.fromkeys(f"{type(error).__name__}: {error}" for error in refusals)
    for layout in dict.fromkeys(itertools.chain.from_iterable(layouts)):
        example = _search(subject, layout, texts)
        if example is not None:
            findings.note(
                "example", f"made here from what it refuses: {example}; for others {advice}"
            )
            findings.passed("example")
            return [example]
    what = f"none is given, and of the inputs that were tried it takes none; {advice}"
    findings.ask("example", refusals[0], what, subject.place("shapes"))
    return []
