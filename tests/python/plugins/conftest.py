"""Fixtures of the tests that every kind of plugin passes."""

from __future__ import annotations

import pytest

import plugin_kinds


@pytest.fixture
def make_plugin():
    """`plugin_kinds.make`, whose creators are registered until the test ends."""
    made = []

    def make(*args, **options):
        made.append(plugin_kinds.make(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.deregister()


@pytest.fixture(params=plugin_kinds.KINDS)
def kind(request):
    return request.param
