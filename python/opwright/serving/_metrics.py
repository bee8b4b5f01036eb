"""Metrics of a server in Prometheus' text format."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """Counts of observations up to each bound."""

    def __init__(self, bounds: Sequence[float]):
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, model: str) -> Iterator[str]:
        total = 0
        for bound, count in zip([*self._bounds, "+Inf"], self._counts):
            total += count
            yield f'{name}_bucket{{model="{model}",le="{bound}"}} {total}'
        yield f'{name}_sum{{model="{model}"}} {self._sum:.9g}'
        yield f'{name}_count{{model="{model}"}} {total}'


class ModelMetrics:
    """Metrics of one model. They continue across reloads."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        """Number of requests by HTTP status."""
        self.seconds = Histogram(_SECONDS)
        self.batches = Histogram(_ROWS)
        self.in_flight = 0


def prometheus_text(models: Mapping[str, tuple[ModelMetrics, int]]) -> str:
    """The page of metrics. `models` has the metrics and the number of waiting requests by name."""
    names = {
        name: name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name in models
    }
    families = [
        ("opwright_requests_total", "counter", "Requests of inference by HTTP status."),
        ("opwright_request_seconds", "histogram", "From a request's head to its response."),
        ("opwright_batch_rows", "histogram", "Rows of the runs of the engine."),
        ("opwright_in_flight", "gauge", "Requests that are accepted and not answered."),
        ("opwright_queue_length", "gauge", "Requests that wait for a run."),
    ]
    lines: list[str] = []
    for family, kind, description in families:
        lines += [f"# HELP {family} {description}", f"# TYPE {family} {kind}"]
        for name, (metrics, queued) in models.items():
            label = names[name]
            if family == "opwright_requests_total":
                lines += [
                    f'{family}{{model="{label}",status="{status}"}} {count}'
                    for status, count in sorted(metrics.requests.items())
                ]
            elif family == "opwright_request_seconds":
                lines += metrics.seconds.lines(family, label)
            elif family == "opwright_batch_rows":
                lines += metrics.batches.lines(family, label)
            else:
                value = metrics.in_flight if family == "opwright_in_flight" else queued
                lines.append(f'{family}{{model="{label}"}} {value}')
    return "\n".join(lines) + "\n"
