"""PyTorch's export without what most of its time goes to and no test needs."""

from __future__ import annotations

import functools
import logging

import pytest


@pytest.fixture(autouse=True, scope="session")
def exports_are_quiet_and_quick():
    """An export lists all of PyTorch's operators three times, and enters kernels into thousands of tables."""
    torch = pytest.importorskip("torch")
    from torch._export import utils
    from torch._ops import OperatorBase
    from torch.export import decomp_utils, exported_program

    checked = OperatorBase.py_impl

    def py_impl(self, key):
        """What py_impl does for a dispatch key, without the checks of its arguments' types."""
        if not isinstance(key, torch._C.DispatchKey):
            return checked(self, key)

        def enter(function):
            self.py_kernels[key] = function
            self._dispatch_cache.clear()
            return function

        return enter

    logging.getLogger("torch.export").setLevel(logging.ERROR)
    listed = functools.lru_cache(None)(utils._collect_all_valid_cia_ops)
    with pytest.MonkeyPatch.context() as patch:
        for module in (decomp_utils, exported_program):
            patch.setattr(module, "_collect_all_valid_cia_ops", listed)
        patch.setattr(OperatorBase, "py_impl", py_impl)
        yield
