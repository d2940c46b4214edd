"""A batch with a bad row is tried by halves."""

import pytest

from tokenlight.runs.isolate_failures import isolate_failures


@pytest.mark.parametrize(("error", "collected"), [(ValueError("bad row"), 0), (MemoryError(), 3)])
def test_garbage_is_collected_only_where_memory_ran_out(error, collected, monkeypatch):
    calls: list[None] = []
    monkeypatch.setattr("tokenlight.runs.isolate_failures.free_memory", lambda: calls.append(None))

    def explain(items):
        if 5 in items:
            raise error
        return items

    found = isolate_failures(range(8), explain, lambda item, error, reason: -item)
    assert found == [0, 1, 2, 3, 4, -5, 6, 7]
    assert len(calls) == collected
