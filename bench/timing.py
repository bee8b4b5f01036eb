"""Shared code of the benchmark programs: their arguments, measuring in turns, and printing figures
beside their peer's."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Collection, Sequence


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """The type of a program's arguments that must be some of these names."""

    def check(name: str) -> str:
        if name not in names:
            raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(names)}")
        return name

    return check


def chosen_names(description: str | None, names: Collection[str]) -> list[str]:
    """The names that a program's arguments choose; all without arguments."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", type=one_of(names))
    return parser.parse_args().names or list(names)


def threads() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


# Pause before each turn. Threads of ONNX Runtime look for work for 50 ms and more after their last
# call, and would take a core from the function that is measured next.
REST = 0.1


def in_turns(
    functions: Sequence[Callable[[], object]], *, rounds: int = 5, seconds: float = 0.3
) -> list[float]:
    """Seconds per call of each function: in each round every function runs for about `seconds`, its
    median is taken, and the smallest median over the rounds counts. A noisy neighbour then has to
    disturb every round to change a figure. Each turn begins with a pause and a call that does not
    count."""
    best = [float("inf")] * len(functions)
    for function in functions:
        function()
    for _ in range(rounds):
        for index, function in enumerate(functions):
            times = []
            time.sleep(REST)
            function()
            end = time.perf_counter() + seconds
            while len(times) < 3 or time.perf_counter() < end:
                start = time.perf_counter()
                function()
                times.append(time.perf_counter() - start)
            times.sort()
            best[index] = min(best[index], times[len(times) // 2])
    return best


def slope(lengths: Sequence[int], times: Sequence[float]) -> float:
    """The cost of one more element of a chain: a least-squares line through the measured times."""
    n = len(lengths)
    mean_x, mean_y = sum(lengths) / n, sum(times) / n
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(lengths, times))
    return covariance / sum((x - mean_x) ** 2 for x in lengths)
