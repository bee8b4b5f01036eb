"""Models over several ranks: tensor parallelism by rules on names.

``opwright.shard`` cuts a model and writes one model per rank with a manifest. ``ShardedEngine``
starts a process per rank and is called as an engine is.
"""

from __future__ import annotations

from ._engine import ShardedEngine
from ._plan import PLANS, Rule
from ._shards import Port, Shards, shard

__all__ = ["PLANS", "Port", "Rule", "ShardedEngine", "Shards", "shard"]
