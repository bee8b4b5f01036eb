"""The checks of a plugin, one after the other."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core
from ._check_memory import can_store
from ._check_probe import PATTERNS, Combination, EngineRun, Probe, Result, data_type
from ._check_report import CHECKS, Report, Row, place_of, place_of_error
from ._core import DataType
from ._types import nptype
from .plugin._decorators import Plugin
from .plugin._op import fields_of

Arrays = list[np.ndarray]

# Relative to the largest element, by the lowest type that takes part; other types are exact.
_TOLERANCES = {DataType.FLOAT: 1e-5, DataType.HALF: 5e-3, DataType.BF16: 4e-2, DataType.FP8: 0.3}
_MOST_NOTES = 3
_ROUNDS = 8  # of two threads, each time at once


@dataclass
class Example:
    """Inputs and attributes to check a plugin with."""

    inputs: Arrays
    attributes: dict[str, Any] = field(default_factory=dict)
    rtol: float | None = None
    is_made: bool = False

    def __str__(self) -> str:
        inputs = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        values = ", ".join(f"{k}={v!r}" for k, v in self.attributes.items())
        return inputs + (f"; {values}" if values else "")


def _same(a: Arrays, b: Arrays) -> bool:
    return all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b))


def _has_integers(x: np.ndarray) -> bool:
    """Whether the elements may be indices, which other values or shapes would make wrong."""
    return x.dtype.kind in "iu"


def _first(mask: np.ndarray) -> str:
    """The first True of a mask, as an index."""
    return str([int(i) for i in np.argwhere(mask)[0]])


def _difference(got: Arrays, expected: Arrays, rtol: float) -> str:
    """How results differ beyond the tolerance; empty: they do not."""
    for o, (y, e) in enumerate(zip(got, expected)):
        if y.shape != e.shape:
            return f"output {o} has the shape {list(y.shape)} instead of {list(e.shape)}"
        inexact = y.dtype.kind not in "iub"
        a, b = (v.astype(np.float64) if inexact else v for v in (y, e))
        if inexact:
            finite = np.abs(b[np.isfinite(b)])
            limit = rtol * finite.max() if finite.size else 0.0
            with np.errstate(invalid="ignore"):
                is_wrong = ~((np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b)))
        else:
            is_wrong = a != b
        if is_wrong.any():
            count, at = int(is_wrong.sum()), tuple(np.argwhere(is_wrong)[0])
            tolerance = f", tolerance {limit:.3g}" if inexact else ""
            return (
                f"output {o} differs in {count} of {a.size} elements: at {_first(is_wrong)} it is "
                f"{a[at]:.6g} instead of {b[at]:.6g}{tolerance}"
            )
    return ""


def _element_bytes(x: np.ndarray) -> np.ndarray:
    """[elements, bytes of each]"""
    return np.frombuffer(x.tobytes(), np.uint8).reshape(x.size, x.dtype.itemsize)


@dataclass
class _Engine:
    """An engine in one combination that passed what concerns a single run."""

    run: EngineRun
    combination: Combination
    aot: bool
    inputs: Arrays
    outputs: Arrays


class Checker:
    """Checks one plugin with examples."""

    def __init__(self, plugin: Plugin):
        self._plugin = plugin
        self._probe = Probe(plugin)
        self._failures: dict[str, list[Row]] = {}
        self._passed: dict[str, int] = {}
        self._notes: dict[str, list[str]] = {}

    # Results -------------------------------------------------------------------------------------

    def _functions(self) -> list[Callable[..., Any]]:
        probe = self._probe
        others = [f.call for f in (probe.impl, probe.autotune, probe.aot) if f is not None]
        return [probe.register, *others]

    def _computes(self, aot: bool) -> Callable[..., Any]:
        function = self._probe.aot if aot else self._probe.impl
        assert function is not None
        return function.call

    def _fail(self, check: str, detail: str, where: str) -> None:
        self._failures.setdefault(check, []).append(Row(check, "FAIL", detail, where))

    def _raised(self, check: str, error: Exception, what: str, default: Callable[..., Any]) -> None:
        where = place_of_error(error, self._functions()) or place_of(default)
        self._fail(check, f"{what}: {type(error).__name__}: {error}", where)

    def _pass(self, check: str) -> None:
        self._passed[check] = self._passed.get(check, 0) + 1

    def _note(self, check: str, note: str) -> None:
        notes = self._notes.setdefault(check, [])
        if note not in notes:
            notes.append(note)

    def report(self) -> Report:
        """What was found so far."""
        rows = []
        for check in CHECKS:
            failures, notes = self._failures.get(check, []), self._notes.get(check, [])
            if len(notes) > _MOST_NOTES:
                notes = [*notes[:_MOST_NOTES], f"and {len(notes) - _MOST_NOTES} more"]
            if failures:
                first = failures[0]
                more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
                rows.append(Row(check, "FAIL", first.detail + more, first.where))
            elif check in self._passed:
                rows.append(Row(check, "ok", "; ".join(notes), ""))
            elif check == "aot" and not notes and None in (self._probe.aot, self._probe.impl):
                missing = "impl" if self._probe.impl is None else "aot_impl"
                rows.append(Row(check, "skip", f"there is no {missing} to compare with", ""))
            else:
                rows.append(Row(check, "skip", "; ".join(notes) or "what it needs failed", ""))
        return Report(self._plugin.id, tuple(rows))

    # Examples ------------------------------------------------------------------------------------

    def check(self, examples: Sequence[Example]) -> Report:
        """Runs all checks with each example; without any, with inputs that are made here."""
        if self._probe.impl is None and self._probe.aot is None:
            self._fail(
                "runs",
                f"the plugin has no implementation for the CPU; add @impl('{self._plugin.id}') or "
                "@aot_impl",
                place_of(self._probe.register),
            )
            return self.report()
        examples = list(examples) or self._make_examples()
        for number, example in enumerate(examples):
            self._example(example, examples, is_last=number == len(examples) - 1)
        return self.report()

    def _make_examples(self) -> list[Example]:
        advice = f"add opwright.testing.example('{self._plugin.id}', inputs=[...], ...) to the file"
        try:
            fields = fields_of(self._plugin, {})
        except TypeError as error:
            where = place_of(self._probe.register)
            self._fail("example", f"none is given, and {error}; {advice}", where)
            return []
        rng = np.random.default_rng(0)
        made: list[Example] = []
        refusal: Exception | None = None
        for shape in [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5)]:
            arrays = [rng.standard_normal(shape, np.float32) for _ in range(self._probe.num_inputs)]
            example = Example(arrays, is_made=True)
            try:
                first = self._probe.combinations(arrays, fields)[0]
                self._engine_run(first, self._probe.impl is None, fields, arrays).run(
                    self._cast(arrays, first)
                )
                made.append(example)
            except Exception as refused:  # of the user's functions: any
                refusal = refused
        if made:
            shapes = ", ".join(str(list(e.inputs[0].shape)) for e in made)
            self._note("example", f"made here, FP32 {shapes}; for others {advice}")
            self._pass("example")
        elif refusal is not None:
            what = f"none is given, and FP32 inputs of ranks 1 to 4 do not do; {advice}"
            self._raised("example", refusal, what, self._probe.register)
        return made

    def _example(self, example: Example, examples: Sequence[Example], is_last: bool) -> None:
        try:
            if len(example.inputs) != self._probe.num_inputs:
                names = ", ".join(self._plugin.signature.tensors)
                raise TypeError(f"{len(example.inputs)} inputs; the plugin takes {names}")
            fields = fields_of(self._plugin, example.attributes)
            for x in example.inputs:
                data_type(x.dtype)
        except TypeError as error:
            self._raised("example", error, f"{example}", self._probe.register)
            return
        self._pass("example")
        try:
            combinations = self._probe.combinations(example.inputs, fields)
        except Exception as error:  # of the user's functions: any
            default, tune = self._probe.register, self._probe.autotune
            if tune is not None and "autotune" in str(error):
                default = tune.call
            self._raised("runs", error, f"building for {example}", default)
            return
        modes = [False] if self._probe.impl is not None else []
        if self._probe.aot is not None and (is_last or not example.is_made or not modes):
            modes.append(True)  # takes a compiler's time
        reference: _Engine | None = None
        for combination in combinations:
            if not all(can_store(f) for f in combination.formats):
                self._note("runs", f"not run: {combination}")
                continue
            engines = [self._single(combination, aot, example, fields) for aot in modes]
            passed = [engine for engine in engines if engine is not None]
            if not passed:
                continue
            if reference is None:
                reference = passed[0]
            else:
                self._agree("combinations", passed[0], reference, example)
            if len(passed) == 2:
                self._agree("aot", passed[1], passed[0], example)
        listed = " | ".join(map(str, combinations[:8])) + (" ..." if len(combinations) > 8 else "")
        self._note("combinations", f"{len(combinations)}: {listed}")
        if reference is not None:
            self._attributes(reference, example, "", report_passed=True)
            self._reload(reference, example, fields)
            for aot in modes:
                self._profile(reference, aot, example, examples, fields)
            self._threads(reference, example)

    # Single runs ---------------------------------------------------------------------------------

    def _cast(self, inputs: Arrays, combination: Combination) -> Arrays:
        with np.errstate(over="ignore"):
            return [x.astype(nptype(t)) for x, t in zip(inputs, combination.types)]

    def _engine_run(
        self, combination: Combination, aot: bool, fields: list[Any], inputs: Arrays, **options: Any
    ) -> EngineRun:
        """An engine of the combination for the inputs' shapes, or those in the options."""
        shapes = options.pop("shapes", [x.shape for x in inputs])
        engine = self._probe.build(
            self._probe.define(combination),
            combination.types[: len(inputs)],
            shapes,
            fields,
            formats=combination.formats,
            aot=aot,
            **options,
        )
        return EngineRun(engine, self._probe, aot)

    def _single(
        self, combination: Combination, aot: bool, example: Example, fields: list[Any]
    ) -> _Engine | None:
        """What a single engine can show; None if it failed."""
        function = self._computes(aot)
        where, what = place_of(function), f"{combination}{', compiled' if aot else ''}; {example}"
        inputs = self._cast(example.inputs, combination)
        try:
            run = self._engine_run(combination, aot, fields, inputs)
            first = run.run(inputs)
        except NotImplementedError as error:
            if not aot:
                self._raised("runs", error, what, function)
            else:
                self._note("aot", f"refused: {error}")
            return None
        except Exception as error:  # of the user's functions: any
            read_only = isinstance(error, ValueError) and "read-only" in str(error)
            self._raised("inputs" if read_only else "runs", error, what, function)
            return None
        if not aot and self._probe.combination != combination:
            ran = self._probe.combination
            self._fail("runs", f"{what}: the engine ran {ran} instead", where)
            return None
        if run.unseen():
            count = self._probe.num_inputs
            unseen = [f"input {i}" if i < count else f"output {i - count}" for i in run.unseen()]
            self._note("bounds", f"without guards in {combination}: {', '.join(unseen)}")
        self._pass("runs")
        if first.damage:
            self._fail("bounds", f"{what}: it wrote to memory of others at {first.damage}", where)
            return None
        if first.changed_inputs:
            tensors = list(self._plugin.signature.tensors)
            names = ", ".join(tensors[i] for i in first.changed_inputs)
            advice = "write to the outputs only, or return aliased() in register"
            self._fail("inputs", f"{what}: it changed {names}; {advice}", where)
            return None
        if not aot and not self._attributes_are_kept(example, what):
            return None
        self._pass("inputs")
        if not self._repeats(run, inputs, first, what, function):
            return None
        return _Engine(run, combination, aot, inputs, first.outputs)

    def _repeats(
        self,
        run: EngineRun,
        inputs: Arrays,
        first: Result,
        what: str,
        function: Callable[..., Any],
    ) -> bool:
        """Runs again, and on memory that holds other things."""
        where = place_of(function)
        try:
            again = run.run(inputs)
            inside = run.run(inputs, inside=PATTERNS[1])
            outside = run.run(inputs, outside=PATTERNS[1])
        except Exception as error:  # of the user's functions: any
            self._raised("runs", error, f"{what}, run again", function)
            return False
        if not _same(again.outputs, first.outputs):
            difference = _difference(again.outputs, first.outputs, 0) or "its bytes differ"
            self._fail("determinism", f"{what}: run again, {difference}", where)
            return False
        self._pass("determinism")
        for o, (a, b) in enumerate(zip(first.outputs, inside.outputs)):
            if not self._is_independent(o, a, b, what, where):
                return False
        self._pass("written")
        self._pass("uninitialized")
        if not _same(outside.outputs, first.outputs):
            detail = "the results depend on bytes beside the inputs or outputs"
            self._fail("bounds", f"{what}: {detail}", where)
            return False
        self._pass("bounds")
        return True

    def _is_independent(self, o: int, a: np.ndarray, b: np.ndarray, what: str, where: str) -> bool:
        """Whether an output is the same over memory with different content."""
        if _same([a], [b]):
            return True
        if a.shape != b.shape:
            detail = f"output {o} has a size that depends on what its memory held"
            self._fail("uninitialized", f"{what}: {detail}", where)
            return False
        bytes_a, bytes_b = _element_bytes(a), _element_bytes(b)
        differs = (bytes_a != bytes_b).any(1)
        unwritten = (bytes_a == PATTERNS[0]).all(1) & (bytes_b == PATTERNS[1]).all(1)
        is_left = bool(unwritten.any())
        mask = (unwritten if is_left else differs).reshape(a.shape)
        count = f"{int(mask.sum())} of {mask.size} elements, the first at {_first(mask)}"
        if is_left:
            detail = f"output {o}, of shape {list(a.shape)} by register, is not written in {count}"
            self._fail("written", f"{what}: {detail}", where)
        else:
            detail = f"output {o} depends on what its memory held before in {count}"
            self._fail("uninitialized", f"{what}: {detail}", where)
        return False

    # Several runs --------------------------------------------------------------------------------

    def _tolerance(self, example: Example, *combinations: Combination) -> float:
        if example.rtol is not None:
            return example.rtol
        types = {t for combination in combinations for t in combination.types}
        return max((_TOLERANCES[t] for t in types if t in _TOLERANCES), default=0.0)

    def _agree(self, check: str, engine: _Engine, reference: _Engine, example: Example) -> None:
        """Compares two engines on inputs that both types hold."""
        inputs = self._cast(engine.inputs, reference.combination)
        expected = reference.run.run(inputs).outputs
        rtol = self._tolerance(example, engine.combination, reference.combination)
        difference = _difference(engine.outputs, expected, rtol)
        if difference:
            other = "impl" if check == "aot" else f"{reference.combination}"
            detail = f"{engine.combination} against {other}; {example}: {difference}"
            self._fail(check, detail, place_of(self._computes(engine.aot)))
        else:
            self._pass(check)

    def _attributes_are_kept(self, example: Example, what: str) -> bool:
        """Whether impl has seen the example's attributes, to the bit."""
        for attribute in self._plugin.signature.attributes:
            if attribute.name not in self._probe.values:
                continue
            seen = self._probe.values[attribute.name]
            given = example.attributes.get(attribute.name, attribute.default)
            hint = attribute.hint
            given = np.asarray(given, hint) if attribute.is_array else hint(given)
            is_same = type(seen) is type(given) and (
                _same([seen], [given])
                if attribute.is_array
                else seen == given or (seen != seen and given != given)
            )
            if not is_same:
                detail = f"attribute {attribute} is {seen!r} after the call, but was {given!r}"
                advice = "impl must not change it: its arrays are used again in the next call"
                where = place_of(self._computes(False))
                self._fail("attributes", f"{what}: {detail}; {advice}", where)
                return False
        return True

    def _attributes(
        self, engine: _Engine, example: Example, what: str, report_passed: bool = False
    ) -> None:
        if engine.aot:
            self._note("attributes", "compiled kernels have none")
        elif self._attributes_are_kept(example, what) and report_passed:
            self._pass("attributes")

    def _reload(self, engine: _Engine, example: Example, fields: list[Any]) -> None:
        """Saves and loads the engine."""
        definition = self._probe.define(engine.combination)
        runtime = _core.Runtime(_core.Logger(_core.Logger.ERROR))
        runtime.engine_host_code_allowed = True
        try:
            with self._probe.findable(definition):
                data = engine.run.engine.serialize()
                loaded = runtime.deserialize_cuda_engine(data)
                run = EngineRun(loaded, self._probe, engine.aot)
            result = run.run(engine.inputs)
        except Exception as error:  # of the user's functions: any
            what = f"the engine saved and loaded; {example}"
            self._raised("reload", error, what, self._computes(engine.aot))
            return
        rtol = self._tolerance(example, engine.combination)
        difference = _difference(result.outputs, engine.outputs, rtol)
        where = place_of(self._computes(engine.aot))
        if difference:
            self._fail("reload", f"the engine saved and loaded; {example}: {difference}", where)
            return
        self._attributes(engine, example, "the engine saved and loaded")
        self._pass("reload")

    def _corners(self, example: Example, examples: Sequence[Example]) -> list[Arrays]:
        """Inputs of several shapes: those of like examples, otherwise of other lengths of the
        first axis."""

        def kind(e: Example) -> Any:
            return [(x.ndim, x.dtype) for x in e.inputs], repr(e.attributes)

        alike = [e.inputs for e in examples if kind(e) == kind(example)]
        if len(alike) > 1:
            return alike
        first = example.inputs[0]
        if first.ndim == 0 or first.shape[0] == 0 or any(map(_has_integers, example.inputs)):
            return []
        length = first.shape[0]

        def resized(count: int) -> Arrays:
            return [
                np.resize(x, (count, *x.shape[1:])) if x.shape[:1] == (length,) else x
                for x in example.inputs
            ]

        return [example.inputs, resized(1), resized(2 * length)]

    def _profile(
        self,
        reference: _Engine,
        aot: bool,
        example: Example,
        examples: Sequence[Example],
        fields: list[Any],
    ) -> None:
        """Compares an engine of dynamic shapes with engines of fixed ones."""
        combination = reference.combination
        corners = [self._cast(c, combination) for c in self._corners(example, examples)]
        expected = []
        try:
            for inputs in corners:
                expected.append(
                    self._engine_run(combination, aot, fields, inputs).run(inputs).outputs
                )
        except Exception as error:  # of the user's functions: any
            note = f"{type(error).__name__} for other lengths of the first axis"
            self._note("profile", f"{note}: give examples of several shapes")
            return
        if not corners:
            self._note(
                "profile", "nothing is varied here by itself: give examples of several shapes"
            )
            return
        shapes, ranges = [], []
        for i in range(len(example.inputs)):
            extents = [
                [inputs[i].shape[axis] for inputs in corners] for axis in range(corners[0][i].ndim)
            ]
            shapes.append([e[0] if len(set(e)) == 1 else -1 for e in extents])
            ranges.append(
                ([min(e) for e in extents], [e[0] for e in extents], [max(e) for e in extents])
            )
        what = f"dynamic shapes {', '.join(map(str, shapes))}{', compiled' if aot else ''}"
        try:
            run = self._engine_run(
                combination, aot, fields, corners[0], shapes=shapes, ranges=ranges
            )
        except Exception as error:  # of the user's functions: any
            self._raised("shapes", error, what, self._probe.register)
            return
        rtol, where = self._tolerance(example, combination), place_of(self._computes(aot))
        for number in [*range(len(corners)), 0]:
            inputs, outputs = corners[number], expected[number]
            at = f"{what}, at {', '.join(str(list(x.shape)) for x in inputs)}"
            try:
                result = run.run(inputs)
            except Exception as error:  # of the user's functions: any
                self._raised("profile", error, at, self._computes(aot))
                return
            for o, (y, e) in enumerate(zip(result.outputs, outputs)):
                if y.shape != e.shape:
                    detail = (
                        f"register says {list(y.shape)} for output {o}, but {list(e.shape)} where "
                        "the shapes are fixed"
                    )
                    self._fail("shapes", f"{at}: {detail}", place_of(self._probe.register))
                    return
            difference = _difference(result.outputs, outputs, rtol)
            if difference or result.damage:
                detail = difference or f"it wrote to memory of others at {result.damage}"
                self._fail("profile", f"{at}, against an engine of this shape: {detail}", where)
                return
        self._pass("shapes")
        self._pass("profile")

    def _threads(self, engine: _Engine, example: Example) -> None:
        """Runs two contexts at once, on different inputs."""
        others = [x if _has_integers(x) else np.roll(x, 1) for x in engine.inputs]
        sets = [engine.inputs, others]
        function = self._computes(engine.aot)
        what = f"two contexts in two threads; {example}"
        errors: list[Exception] = []
        differences: list[str] = []
        try:
            runs = [EngineRun(engine.run.engine, self._probe, engine.aot) for _ in sets]
            expected = [run.run(inputs).outputs for run, inputs in zip(runs, sets)]
        except Exception as error:  # of the user's functions: any
            self._raised("threads", error, what, function)
            return

        def work(k: int) -> None:
            try:
                for _ in range(_ROUNDS):
                    outputs = runs[k].run(sets[k]).outputs
                    if not _same(outputs, expected[k]):
                        difference = _difference(outputs, expected[k], 0)
                        differences.append(difference or "an output's bytes differ")
            except Exception as error:  # of the user's functions: any
                errors.append(error)
                barrier.abort()

        barrier = threading.Barrier(len(sets))
        with _switching_often():
            self._probe.barrier = barrier
            threads = [threading.Thread(target=work, args=(k,)) for k in range(len(sets))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self._probe.barrier = None
        if errors:
            self._raised("threads", errors[0], what, function)
        elif differences:
            detail = f"{differences[0]}; what impl keeps between calls is shared by all contexts"
            self._fail("threads", f"{what}: {detail}", place_of(function))
        else:
            self._pass("threads")


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    """Lets Python's threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
