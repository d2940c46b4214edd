"""A request is read once: its text tokenized, its target looked up, and never again for what follows from it."""

import pytest

from tests.serving import QUESTIONS, in_process, small_explainer

REQUESTS = {
    "predict": {},
    "explain": {"methods": ["attcat", "lrp", "erasure", "integrated_gradients"]},
    "curves": {"methods": ["attcat", "lrp"]},
    "attention": {"layer": 0, "head": 1},
    "remove": {"gone": [2]},
    "download": {"methods": ["attcat", "erasure"], "format": "json"},
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("kind", ["text-classification", "question-answering", "token-classification"])
def test_a_request_is_read_once(kind, request_, monkeypatch):
    explainer, tokenized, resolved = small_explainer(kind), [], []
    tokenizer, task = type(explainer.tokenizer), type(explainer.task)
    call, resolve_target = tokenizer.__call__, task.resolve_target
    monkeypatch.setattr(tokenizer, "__call__", lambda *a, **k: tokenized.append(a) or call(*a, **k))
    monkeypatch.setattr(task, "resolve_target", lambda *a: resolved.append(a) or resolve_target(*a))
    with in_process(explainer) as client:
        tokenized.clear()  # what the page shows first was read before
        resolved.clear()
        response = client.post(f"/api/{request_}", json=QUESTIONS[kind] | REQUESTS[request_])
    assert response.status_code == 200, response.text
    assert '"failed"' not in response.text
    assert (len(tokenized), len(resolved)) == (1, 1)
