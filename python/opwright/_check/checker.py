"""The checks of a plugin, one after the other."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .compare import (
    Arrays,
    difference,
    element_bytes,
    first_of,
    has_integers,
    same,
    tolerance,
)
from .engine import EngineRun, Result, build, combinations
from .examples import make_examples
from .memory import can_store
from .report import Findings, Report
from .subject import PATTERNS, Call, Combination, Example, Subject, Watch

_ROUNDS = 8  # rounds in which two threads call at the same time
_ROUNDS_OF_MACHINE_CODE = 200  # its calls are short and cannot wait for each other


@dataclass
class _Engine:
    """An engine in one combination that passed the checks of a single run."""

    run: EngineRun
    combination: Combination
    aot: bool
    example: Example
    call: Call
    inputs: Arrays
    outputs: Arrays

    def run_again(self) -> EngineRun:
        """Makes another context of the same engine."""
        return EngineRun(self.run.engine, self.run.watch, self.call, self.aot)


class Checker:
    """Checks one plugin with examples.

    :param progress: called with a few words on the next step.
    """

    def __init__(self, subject: Subject, progress: Callable[[str], None] | None = None):
        self._subject = subject
        self._findings = Findings(subject)
        self._progress = progress or (lambda what: None)

    def check(self, examples: Sequence[Example]) -> Report:
        """Runs all checks with each example. Without examples it makes inputs."""
        subject = self._subject
        if not subject.call_name and not subject.kernel_name:
            self._findings.fail("runs", subject.missing, subject.place("shapes"))
            return self._findings.report()
        if not examples:
            self._progress("looking for inputs")
            examples = make_examples(subject, self._findings)
        for number, example in enumerate(examples):
            self._example(example, examples, is_last=number == len(examples) - 1)
        return self._findings.report()

    def _example(self, example: Example, examples: Sequence[Example], is_last: bool) -> None:
        subject, findings = self._subject, self._findings
        try:
            call = subject.call(example)
        except Exception as error:  # the user's functions may raise anything
            findings.raised("example", error, f"{example}", subject.place("create"))
            return
        findings.passed("example")
        self._progress("combinations")
        try:
            possible = combinations(subject, call)
        except Exception as error:  # the user's functions may raise anything
            if "clone" in subject.checks and self._possible(call, clones=False):
                self._clone_does_not_run(error, f"{example}")
                return
            is_choice = any(name in str(error) for name in ("autotune", "format_combination"))
            default = subject.place("types" if is_choice else "shapes")
            findings.raised("runs", error, f"building for {example}", default)
            return
        if not possible:
            findings.fail("runs", f"{example}: the engine runs without it", subject.place("call"))
            return
        modes = [False] if subject.call_name else []
        if subject.kernel_name and (is_last or not example.is_made or not modes):
            modes.append(True)  # each needs a compilation, so not for every made example
        reference: _Engine | None = None
        for number, combination in enumerate(possible):
            self._progress(f"combination {number + 1} of {len(possible)}: {combination}")
            if not all(can_store(f) for f in combination.formats):
                findings.note("runs", f"not run: {combination}")
                continue
            engines = [self._single(combination, aot, example, call) for aot in modes]
            passed = [engine for engine in engines if engine is not None]
            if not passed:
                continue
            if reference is None:
                reference = passed[0]
            else:
                self._agree("combinations", passed[0], reference)
            if len(passed) == 2:
                self._agree("aot", passed[1], passed[0])
        listed = " | ".join(map(str, possible[:8])) + (" ..." if len(possible) > 8 else "")
        one_alone = "nothing to compare with " if len(possible) == 1 else f"{len(possible)}: "
        findings.note("combinations", one_alone + listed)
        if reference is not None:
            self._keeps(reference, "", report_passed=True)
            if "clone" in subject.checks:
                self._progress("clone")
                self._clone(reference)
            self._progress("reload")
            self._reload(reference)
            for aot in modes:
                self._progress("profile")
                self._profile(reference, aot, examples)
            self._progress("threads")
            self._threads(reference)

    def _clone_does_not_run(self, error: Exception, what: str) -> None:
        raised = f"{type(error).__name__}: {error}"
        detail = f"{what}: the plugin runs, but its clone does not: {raised}"
        self._findings.fail("clone", detail, self._subject.place("clone"))

    def _possible(self, call: Call, clones: bool) -> list[Combination]:
        """The combinations; empty if they cannot be found."""
        if not clones and not self._subject.runs_unattached():
            return []
        try:
            return combinations(self._subject, call, clones)
        except Exception:  # the user's functions may raise anything
            return []

    # Single runs ---------------------------------------------------------------------------------

    def _place(self, aot: bool) -> str:
        return self._subject.place("kernel" if aot else "call")

    def _start(self, watch: Watch, call: Call, aot: bool, corners: Any = None) -> EngineRun:
        return EngineRun(build(self._subject, watch, call, corners, aot=aot), watch, call, aot)

    def _single(
        self, combination: Combination, aot: bool, example: Example, call: Call
    ) -> _Engine | None:
        """Runs the checks that need a single engine; None if one failed."""
        findings, where = self._findings, self._place(aot)
        what = f"{combination}{', compiled' if aot else ''}; {example}"
        inputs = call.cast(combination)
        watch = Watch(combination)
        try:
            run = self._start(watch, call, aot)
            first = run.run(inputs)
        except Exception as error:  # the user's functions may raise anything
            if aot and isinstance(error, NotImplementedError):
                findings.note("aot", f"refused: {error}")
            elif isinstance(error, ValueError) and "read-only" in str(error):
                findings.raised("inputs", error, what, where)
            elif "clone" in self._subject.checks and self._original(combination, call) is not None:
                self._clone_does_not_run(error, what)
            else:
                findings.raised("runs", error, what, where)
            return None
        if not aot and watch.combination != combination:
            findings.fail("runs", f"{what}: the engine ran {watch.combination} instead", where)
            return None
        if run.unseen():
            unseen = ", ".join(run.unseen())
            findings.note("bounds", f"without guards in {combination}: {unseen}")
        findings.passed("runs")
        if first.damage:
            detail = f"it wrote to memory of others at {first.damage}"
            findings.fail("bounds", f"{what}: {detail}", where)
            return None
        if first.changed_inputs:
            names = ", ".join(call.names[i] for i in first.changed_inputs)
            detail = f"it changed {names}; write to the outputs only, or alias one to it"
            findings.fail("inputs", f"{what}: {detail}", where)
            return None
        engine = _Engine(run, combination, aot, example, call, inputs, first.outputs)
        if not self._keeps(engine, what):
            return None
        findings.passed("inputs")
        return engine if self._repeats(run, inputs, first, what, where) else None

    def _repeats(
        self, run: EngineRun, inputs: Arrays, first: Result, what: str, where: str
    ) -> bool:
        """Runs again, also on memory with other content."""
        findings = self._findings
        try:
            again = run.run(inputs)
            inside = run.run(inputs, inside=PATTERNS[1])
            outside = run.run(inputs, outside=PATTERNS[1])
            scratch = run.run(inputs, scratch=PATTERNS[1])
        except Exception as error:  # the user's functions may raise anything
            findings.raised("runs", error, f"{what}, run again", where)
            return False
        if not same(again.outputs, first.outputs):
            found = difference(again.outputs, first.outputs, 0) or "its bytes differ"
            findings.fail("determinism", f"{what}: run again, {found}", where)
            return False
        findings.passed("determinism")
        for o, (a, b) in enumerate(zip(first.outputs, inside.outputs)):
            if not self._is_independent(o, a, b, what, where):
                return False
        if not same(scratch.outputs, first.outputs):
            detail = "the results depend on what the workspace held before"
            findings.fail("uninitialized", f"{what}: {detail}", where)
            return False
        findings.passed("written")
        findings.passed("uninitialized")
        if not same(outside.outputs, first.outputs):
            detail = "the results depend on bytes beside the inputs, outputs or workspace"
            findings.fail("bounds", f"{what}: {detail}", where)
            return False
        findings.passed("bounds")
        return True

    def _is_independent(self, o: int, a: np.ndarray, b: np.ndarray, what: str, where: str) -> bool:
        """Whether an output is the same over memory with different content."""
        if same([a], [b]):
            return True
        findings = self._findings
        if a.shape != b.shape:
            detail = f"output {o} has a size that depends on what its memory held"
            findings.fail("uninitialized", f"{what}: {detail}", where)
            return False
        bytes_a, bytes_b = element_bytes(a), element_bytes(b)
        differs = (bytes_a != bytes_b).any(1)
        unwritten = (bytes_a == PATTERNS[0]).all(1) & (bytes_b == PATTERNS[1]).all(1)
        is_left = bool(unwritten.any())
        mask = (unwritten if is_left else differs).reshape(a.shape)
        count = f"{int(mask.sum())} of {mask.size} elements, the first at {first_of(mask)}"
        if is_left:
            said = self._subject.says_shapes
            detail = f"output {o}, of shape {list(a.shape)} by {said}, is not written in {count}"
            findings.fail("written", f"{what}: {detail}", where)
        else:
            detail = f"output {o} depends on what its memory held before in {count}"
            findings.fail("uninitialized", f"{what}: {detail}", where)
        return False

    def _keeps(self, engine: _Engine, what: str, report_passed: bool = False) -> bool:
        """Whether the plugin's attributes are unchanged."""
        check = "fields" if "fields" in self._subject.checks else "attributes"
        if engine.aot:
            self._findings.note(check, "compiled kernels have none")
            return True
        changed = engine.run.watch.changed
        if changed:
            self._findings.fail(check, f"{what}: {changed}", self._place(False))
        elif report_passed:
            self._findings.passed(check)
        return not changed

    # Several runs --------------------------------------------------------------------------------

    def _tolerance(self, example: Example, *combinations: Combination) -> float:
        if example.rtol is not None:
            return example.rtol
        return tolerance(t for combination in combinations for t in combination.types)

    def _agree(self, check: str, engine: _Engine, reference: _Engine) -> None:
        """Compares two engines on inputs that both types hold."""
        inputs = engine.call.cast(reference.combination, engine.inputs)
        expected = reference.run.run(inputs).outputs
        rtol = self._tolerance(engine.example, engine.combination, reference.combination)
        found = difference(engine.outputs, expected, rtol)
        if found:
            other = self._subject.call_name if check == "aot" else f"{reference.combination}"
            detail = f"{engine.combination} against {other}; {engine.example}: {found}"
            self._findings.fail(check, detail, self._place(engine.aot))
        else:
            self._findings.passed(check)

    def _original(self, combination: Combination, call: Call) -> Result | None:
        """A run of the plugin itself instead of clones; None if that is not possible."""
        if not self._subject.runs_unattached():
            return None
        try:
            watch = Watch(combination, clones=False)
            return self._start(watch, call, False).run(call.cast(combination))
        except Exception:  # the user's functions may raise anything
            return None

    def _clone(self, engine: _Engine) -> None:
        """Checks that clones are other objects and compute the same as the plugin itself."""
        findings, where = self._findings, self._subject.place("clone")
        if engine.aot:
            findings.note("clone", "compiled kernels have none")
            return
        if engine.run.watch.not_cloned:
            findings.fail("clone", engine.run.watch.not_cloned, where)
            return
        found = self._subject.lost_by_clone(engine.run.watch)
        original = None if found else self._original(engine.combination, engine.call)
        if original is not None:
            rtol = self._tolerance(engine.example, engine.combination)
            found = difference(engine.outputs, original.outputs, rtol)
        elif not found:
            findings.note("clone", "compared by what it stores, since no plugin runs by itself")
        if found:
            detail = f"{engine.example}: of a clone, compared with the plugin itself, {found}"
            findings.fail("clone", detail, where)
        else:
            findings.passed("clone")

    def _reload(self, engine: _Engine) -> None:
        """Saves and loads the engine."""
        findings, watch = self._findings, Watch(engine.combination)
        # A plugin that is not watched leaves these as they are.
        watch.shapes, watch.aliased = engine.run.watch.shapes, engine.run.watch.aliased
        watch.device = engine.run.watch.device
        what = f"the engine saved and loaded; {engine.example}"
        try:
            loaded = self._subject.load(engine.run.engine.serialize(), watch, engine.call)
            result = EngineRun(loaded, watch, engine.call, engine.aot).run(engine.inputs)
            other = self._subject.stored_again(engine.call)
        except Exception as error:  # the user's functions may raise anything
            findings.raised("reload", error, what, self._subject.place("store"))
            return
        rtol = self._tolerance(engine.example, engine.combination)
        found = difference(result.outputs, engine.outputs, rtol)
        if found or other:
            detail = found or f"{other} once a plugin is made of what was stored"
            findings.fail("reload", f"{what}: {detail}", self._subject.place("store"))
            return
        if watch.changed:
            findings.fail("attributes", f"{what}: {watch.changed}", self._place(False))
        findings.passed("reload")

    def _corners(self, engine: _Engine, examples: Sequence[Example]) -> list[Arrays]:
        """Inputs of several shapes: those of similar examples, or else with other lengths of the
        first axis."""

        def kind(e: Example) -> Any:
            arrays = [*e.inputs, *e.shape_inputs]
            kinds = [None if x is None else (x.ndim, x.dtype) for x in arrays]
            return kinds, repr(e.attributes)

        alike = [e for e in examples if kind(e) == kind(engine.example)]
        if len(alike) > 1:
            return [self._subject.call(e).arrays for e in alike]
        arrays = engine.call.arrays
        first = arrays[0]
        if first.ndim == 0 or first.shape[0] == 0 or any(map(has_integers, arrays)):
            return []
        length = first.shape[0]

        def resized(count: int) -> Arrays:
            return [
                np.resize(x, (count, *x.shape[1:])) if x.shape[:1] == (length,) else x
                for x in arrays
            ]

        return [arrays, resized(1), resized(2 * length)]

    def _profile(self, reference: _Engine, aot: bool, examples: Sequence[Example]) -> None:
        """Compares an engine of dynamic shapes with engines of fixed ones."""
        findings, combination, call = self._findings, reference.combination, reference.call
        corners = [call.cast(combination, c) for c in self._corners(reference, examples)]
        if not corners:
            note = "nothing is varied here by itself: give examples of several shapes"
            findings.note("profile", note)
            return
        expected = []
        try:
            for inputs in corners:
                fixed = self._start(Watch(combination), call.with_arrays(inputs), aot)
                expected.append(fixed.run(inputs).outputs)
        except Exception as error:  # the user's functions may raise anything
            note = f"{type(error).__name__} for other lengths of the first axis"
            findings.note("profile", f"{note}: give examples of several shapes")
            return
        shapes = [
            [e[0] if len(set(e)) == 1 else -1 for e in zip(*(x.shape for x in arrays))]
            for arrays in zip(*corners)
        ]
        what = f"dynamic shapes {', '.join(map(str, shapes))}{', compiled' if aot else ''}"
        try:
            run = self._start(Watch(combination), call, aot, corners)
        except Exception as error:  # the user's functions may raise anything
            findings.raised("shapes", error, what, self._subject.place("shapes"))
            return
        rtol, where = self._tolerance(reference.example, combination), self._place(aot)
        for number in [*range(len(corners)), 0]:
            inputs, outputs = corners[number], expected[number]
            at = f"{what}, at {', '.join(str(list(x.shape)) for x in inputs)}"
            try:
                result = run.run(inputs)
            except Exception as error:  # the user's functions may raise anything
                findings.raised("profile", error, at, where)
                return
            for o, (y, e) in enumerate(zip(result.outputs, outputs)):
                if y.shape != e.shape:
                    detail = (
                        f"{self._subject.says_shapes} says {list(y.shape)} for output {o}, but "
                        f"{list(e.shape)} where the shapes are fixed"
                    )
                    findings.fail("shapes", f"{at}: {detail}", self._subject.place("shapes"))
                    return
            found = difference(result.outputs, outputs, rtol)
            if found or result.damage:
                detail = found or f"it wrote to memory of others at {result.damage}"
                findings.fail("profile", f"{at}, against an engine of this shape: {detail}", where)
                return
        findings.passed("shapes")
        findings.passed("profile")

    def _threads(self, engine: _Engine) -> None:
        """Runs two contexts at once, on different inputs."""
        findings, where = self._findings, self._place(engine.aot)
        others = [x if has_integers(x) else np.roll(x, 1) for x in engine.inputs]
        sets = [engine.inputs, others]
        what = f"two contexts in two threads; {engine.example}"
        errors: list[Exception] = []
        differences: list[str] = []
        waits = not engine.aot and not self._subject.is_machine_code
        try:
            runs = [self._unwatched(engine) for _ in sets]
            expected = [run.run(inputs).outputs for run, inputs in zip(runs, sets)]
        except Exception as error:  # the user's functions may raise anything
            findings.raised("threads", error, what, where)
            return

        def work(k: int) -> None:
            try:
                for _ in range(_ROUNDS if waits else _ROUNDS_OF_MACHINE_CODE):
                    outputs = runs[k].run(sets[k]).outputs
                    if not same(outputs, expected[k]):
                        found = difference(outputs, expected[k], 0)
                        differences.append(found or "an output's bytes differ")
            except Exception as error:  # the user's functions may raise anything
                errors.append(error)
                barrier.abort()

        barrier = threading.Barrier(len(sets))
        with _switching_often():
            for run in runs:
                run.watch.barrier = barrier
            threads = [threading.Thread(target=work, args=(k,)) for k in range(len(sets))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for run in runs:
                run.watch.barrier = None
        if errors:
            findings.raised("threads", errors[0], what, where)
        elif differences:
            detail = f"{differences[0]}; what it keeps between calls is shared by all contexts"
            findings.fail("threads", f"{what}: {detail}", where)
        else:
            findings.passed("threads")

    def _unwatched(self, engine: _Engine) -> EngineRun:
        """Another context. For machine code its engine calls the plugin directly, since a watched
        plugin runs under Python's lock."""
        if engine.aot or not self._subject.is_machine_code:
            return engine.run_again()
        loaded = self._subject.load(engine.run.engine.serialize(), Watch(), engine.call)
        return EngineRun(loaded, engine.run.watch, engine.call)


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    """Lets Python's threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
