"""Tests that share a cluster, a browser or the machine's memory run one after another, in one process."""

import pytest


@pytest.mark.xdist_group("example")
def test_groups_are_kept_together(request):
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("the tests run in one process, or not by group")
    assert request.node.nodeid.endswith("@example"), "pytest-xdist no longer marks groups: see pyproject.toml"
