"""Divides candidates into portions for the workers that time them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

Portion = list[str]

# A portion costs its worker a pass over the network, which takes as long as timing about this many
# candidates.
_LEAST = 8


class Schedule:
    """Keys of the timing cache, in portions that get smaller towards the end.

    Guided self-scheduling (Polychronopoulos and Kuck, 1987): a free worker takes two thirds of its
    share of the remaining candidates. The time of a candidate is unknown. So early portions are
    large, and late ones even out the differences. Layers are shuffled, since neighbours in a
    network are alike.
    """

    def __init__(self, candidates: Iterable[tuple[str, str]], workers: int):
        """
        :param candidates: layers and keys. Keys of a layer stay together if there are enough
            layers for all workers.
        """
        by_layer: dict[str, Portion] = {}
        for layer, key in candidates:
            by_layer.setdefault(layer, []).append(key)
        units = list(by_layer.values())
        if len(units) < 2 * workers:
            units = [[key] for unit in units for key in unit]
        random.Random(0).shuffle(units)  # the same order each time
        self._units = deque(units)
        self._left = sum(map(len, units))
        self._workers = workers
        self._least = min(_LEAST, -(-self._left // workers))

    def take(self) -> Portion:
        """The next portion; empty if nothing is left."""
        wanted = max(self._least, 2 * self._left // (3 * self._workers))
        portion: Portion = []
        while self._units and len(portion) < wanted:
            portion += self._units.popleft()
        self._left -= len(portion)
        return portion

    def give_back(self, portion: Portion) -> None:
        """Takes back the portion of a lost worker."""
        self._units.append(portion)
        self._left += len(portion)
