"""PyTorch's export without what most of its time goes to and no test needs."""

from __future__ import annotations

import contextlib
import functools
import logging

import pytest


@pytest.fixture(autouse=True, scope="session")
def exports_are_quiet_and_quick():
    """An export lists all of PyTorch's operators three times, and enters kernels into thousands of tables twice."""
    pytest.importorskip("torch")
    from torch._export import utils
    from torch.export import decomp_utils, exported_program

    logging.getLogger("torch.export").setLevel(logging.ERROR)
    listed = functools.lru_cache(None)(utils._collect_all_valid_cia_ops)
    overridden = overriding(exported_program)
    with pytest.MonkeyPatch.context() as patch:
        for module in (decomp_utils, exported_program):
            patch.setattr(module, "_collect_all_valid_cia_ops", listed)
        patch.setattr(exported_program, "_override_composite_implicit_decomp", overridden)
        yield


def overriding(exported_program):
    """PyTorch's `_override_composite_implicit_decomp` that makes the tables of an operator once.

    Of its 30 entries only one, the decomposition, is another from export to export.
    """
    from torch._C import DispatchKey
    from torch._subclasses.fake_impls import op_implementations_dict

    override = exported_program._override_composite_implicit_decomp
    composite = DispatchKey.CompositeImplicitAutograd
    made = {}

    def tables_of(operator):
        """Its kernels before and while it is overridden, and how it is computed on fake tensors."""
        before = dict(operator.py_kernels)
        if operator not in made or made[operator][0] != before:
            with override({operator: None}):
                fake = op_implementations_dict[operator]
                made[operator] = before, dict(operator.py_kernels), fake
        return made[operator]

    @contextlib.contextmanager
    def quick(decompositions):
        entered = []
        try:
            for operator, decomposition in decompositions.items():
                before, during, fake = tables_of(operator)
                entered.append((operator, before))
                operator.py_kernels.clear()
                operator.py_kernels.update(during)
                operator.py_kernels[composite] = decomposition
                operator._dispatch_cache.clear()
                op_implementations_dict.setdefault(operator, fake)
            yield
        finally:
            for operator, before in entered:
                operator.py_kernels.clear()
                operator.py_kernels.update(before)
                operator._dispatch_cache.clear()
                op_implementations_dict.pop(operator, None)

    return quick
