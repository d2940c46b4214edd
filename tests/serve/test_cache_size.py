"""What the page keeps is counted as large as it is in memory."""

import pickle
import tracemalloc
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from tests.serving import in_process, lines
from tests.tokenizers_ import explainer_for
from tokenlight.serve.session import Cache, size_of

TEXT = "it is a good movie and they are not bad at all"


def memory_of(value: Any) -> int:
    """What Python allocates for a copy of it."""
    stored = pickle.dumps(value)
    pickle.loads(stored)  # whatever is made once is made now
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    copied = pickle.loads(stored)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del copied
    return after - before


def without_tensors(value: Any) -> dict[str, Any]:
    """The fields of a result that Python's allocator sees."""
    return {
        name: part
        for name, part in vars(value).items()
        if name not in ("maps", "extras", "explainer") and not isinstance(part, Tensor)
    }


def results() -> dict[str, Any]:
    classifier, writer = explainer_for("bert"), explainer_for("llama", "text-generation")
    return {
        "explanation": classifier.explain(TEXT, "attn_lrp"),
        "explanation with maps": classifier.explain(TEXT, "attn_lrp", detail=("layers", "heads")),
        "answer": writer.explain_answer("The keys to the cabinet", " are on the table", "gradient_x_input"),
    }


@pytest.mark.parametrize("name", ["explanation", "explanation with maps", "answer"])
def test_a_result_counts_as_much_as_it_takes(name):
    """Never less, up to rounding, and not much more: a copy shares strings that are several objects here."""
    value = results()[name]
    plain = without_tensors(value)
    assert 0.9 < size_of(plain) / memory_of(plain) < 2
    tensors = [
        part for part in (*vars(value).values(), *getattr(value, "maps", {}).values()) if isinstance(part, Tensor)
    ]
    assert tensors
    assert size_of(value) > 0.9 * memory_of(plain) + sum(tensor.nbytes for tensor in tensors)


def test_everything_on_the_page_is_counted(monkeypatch):
    kept: dict[Any, Any] = {}
    put = Cache.put

    def noting(cache: Cache, key: Any, value: Any) -> None:
        kept[key] = value
        before = cache.size
        put(cache, key, value)
        assert cache.size - before == size_of((key, value))

    monkeypatch.setattr(Cache, "put", noting)
    with in_process(explainer_for("llama", "text-generation")) as client:
        asked = {"text": "The keys to the cabinet", "answer": " are on the table", "methods": ["gradient_x_input"]}
        assert lines(client, "answer", asked)
    assert kept


def test_views_count_what_they_keep_alive_and_nothing_counts_twice():
    large = torch.zeros(1000)
    assert 4000 <= size_of(large[:1]) < 4500
    assert size_of([large, large[:1], large]) < 4700
    assert size_of(numpy.zeros(1000)) >= 8000
    assert size_of(["a" * 1000] * 5) < 1300


def test_the_model_is_not_counted():
    answer = results()["answer"]
    assert answer.explainer is not None
    assert size_of(answer) < 100_000
