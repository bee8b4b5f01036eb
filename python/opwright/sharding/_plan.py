"""Plans: rules on names that say which weights are cut, and how."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .. import _core

ACTIONS = (
    "columns",
    "rows",
    "heads",
    "vocabulary",
    "experts",
    "split",
    "gather",
    "replicate",
)


@dataclass(frozen=True)
class Rule:
    """What happens to the weights of some names."""

    pattern: str
    """A glob on names of weights, of nodes that use them, of inputs, outputs and other tensors."""
    action: str
    """One of ``columns``, ``rows``, ``heads``, ``vocabulary``, ``experts``, ``split``, ``gather``
    and ``replicate``."""
    axis: int | None = field(default_factory=lambda: None)
    """The axis that ``split`` cuts."""
    blocks: int | tuple[int, ...] = 1
    """For a weight that holds several side by side, such as queries, keys and values: how many of
    one size there are, or the extent of each along the axis. Each is cut by itself."""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            meant = _core._did_you_mean(self.action, list(ACTIONS))
            raise ValueError(
                f"shard: the rule for '{self.pattern}' has the action '{self.action}'; expected one of "
                f"{', '.join(ACTIONS)}{meant}"
            )
        if (self.axis is None) == (self.action == "split"):
            raise ValueError(
                f"shard: the rule for '{self.pattern}' has the action '{self.action}' and "
                f"{'no axis' if self.axis is None else f'the axis {self.axis}'}; 'split' needs an axis, "
                "and other actions find it themselves"
            )


def matches(rule: Rule, *names: str) -> bool:
    """Whether the rule's pattern matches one of the names."""
    return any(fnmatch.fnmatchcase(name, rule.pattern) for name in names if name)


def blocks_of(rule: Rule, extent: int) -> tuple[int, ...]:
    """The rule's blocks of an axis of that extent. They may not add up to it."""
    if isinstance(rule.blocks, int):
        return (extent // max(rule.blocks, 1),) * rule.blocks
    return tuple(rule.blocks)


#: Rules for models of common structures. Not every pattern has to match.
PLANS: dict[str, tuple[Rule, ...]] = {
    "llama": (
        Rule("*experts.[0-9]*.gate_proj*", "columns"),  # a weight for each expert
        Rule("*experts.[0-9]*.up_proj*", "columns"),
        Rule("*experts.[0-9]*.down_proj*", "rows"),
        Rule("*experts*", "experts"),  # one weight for all experts
        *(Rule(f"*{name}_proj*", "heads") for name in "qkv"),
        *(Rule(f"*{name}_proj*", "columns") for name in ("gate", "up")),
        *(Rule(f"*{name}_proj*", "rows") for name in ("o", "down")),
        Rule("*embed_tokens*", "vocabulary"),
        Rule("*lm_head*", "vocabulary"),
        Rule("past_key*", "split", axis=1),
        Rule("past_value*", "split", axis=1),
        Rule("present*", "split", axis=1),
    ),
    "gpt2": (
        Rule("*c_attn*", "heads", blocks=3),
        Rule("*c_fc*", "columns"),
        Rule("*c_proj*", "rows"),
        Rule("*wte*", "vocabulary"),
        Rule("*lm_head*", "vocabulary"),
    ),
}
_MARKS = {"llama": ("*q_proj*", "*o_proj*"), "gpt2": ("*c_attn*", "*c_fc*")}


def rules_of(
    plan: str | Iterable[Rule | tuple[str, str]], names: Sequence[str]
) -> tuple[tuple[Rule, ...], bool]:
    """The rules of a plan, and whether each must match something.

    :param names: the names in the model, of which "auto" recognizes the structure.
    """
    if plan == "auto":
        for known, marks in _MARKS.items():
            if all(any(fnmatch.fnmatchcase(n, mark) for n in names) for mark in marks):
                return PLANS[known], False
        raise _core.Error(
            f"shard: no known plan ({', '.join(PLANS)}) fits the model's names, such as "
            f"{', '.join(repr(n) for n in names[:4])}; give the rules: "
            'plan=[("*.up.weight", "columns"), ("*.down.weight", "rows")]'
        )
    if isinstance(plan, str):
        if plan not in PLANS:
            meant = _core._did_you_mean(plan, list(PLANS))
            raise ValueError(
                f"shard: there is no plan '{plan}'; there are 'auto', "
                f"{', '.join(repr(n) for n in PLANS)}; or give a list of rules{meant}"
            )
        return PLANS[plan], False
    return tuple(rule if isinstance(rule, Rule) else Rule(*rule) for rule in plan), True
