"""Examples for plugins that come without one."""

from __future__ import annotations

import numpy as np

from ._check_engine import EngineRun, build, combinations
from ._check_report import Findings
from ._check_subject import Example, Layout, Subject, Watch

_SHAPES = [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5)]


def _is_accepted(subject: Subject, example: Example) -> None:
    """Runs the plugin in its first combination; what it raises passes."""
    call = subject.call(example)
    first = combinations(subject, call)[0]
    watch = Watch(first)
    aot = not subject.call_name
    run = EngineRun(build(subject, watch, call, aot=aot), watch, call, aot)
    run.run(call.cast(first))


def make_examples(subject: Subject, findings: Findings) -> list[Example]:
    """Random FP32 inputs of the ranks that the plugin accepts."""
    advice = subject.advice
    rng = np.random.default_rng(0)

    def inputs(layout: Layout, shape: tuple[int, ...]) -> list[np.ndarray | None]:
        return [rng.standard_normal(shape, np.float32) if there else None for there in layout]

    try:
        subject.call(Example(inputs(subject.layouts()[0][0], (1,))))
    except Exception as error:  # of the user's functions: any
        what = "none is given, and without attributes it cannot be made"
        findings.raised("example", error, f"{what}; {advice}", subject.place("create"))
        return []
    first_refusal: Exception | None = None
    for layouts in subject.layouts():
        made: list[Example] = []
        refused_with: list[str] = []
        for layout in layouts:
            before = len(made)
            for shape in _SHAPES:
                example = Example(inputs(layout, shape), is_made=True)
                try:
                    _is_accepted(subject, example)
                    made.append(example)
                except Exception as refused:  # of the user's functions: any
                    first_refusal, refusal = first_refusal or refused, refused
            if len(made) == before:
                raised = f"{type(refusal).__name__}: {refusal}"
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
    if first_refusal is not None:
        what = f"none is given, and FP32 inputs of ranks 1 to 4 do not do; {advice}"
        findings.raised("example", first_refusal, what, subject.place("shapes"))
    return []
