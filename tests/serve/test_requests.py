"""What the browser sends becomes a checked question, or a sentence that says what is wrong with it."""

import json
from typing import Any

import pytest

from tokenlight.serve.requests import (
    CHARACTERS,
    AttentionRequest,
    CurvesRequest,
    DownloadRequest,
    ExplainRequest,
    PageRequest,
    Refused,
    RemoveRequest,
    parse,
)


def body(**parts: Any) -> bytes:
    return json.dumps({"text": "a text", **parts}).encode()


def test_a_question_is_what_it_says():
    full = body(second="b", target="positive", foil=0, position=3, target_span=None, foil_span=None)
    assert parse(full, PageRequest) == PageRequest("a text", "b", "positive", 0, 3)
    assert parse(body(target_span=[2, 4]), PageRequest).target_span == (2, 4)


def test_methods_are_found_by_any_of_their_names_and_asked_once():
    asked = parse(body(methods=["AttCAT", "attcat", "lrp"], heads=[[0, 1], [0.5, 1]], layers=True), ExplainRequest)
    assert asked.methods == ("attcat", "lrp")
    assert asked.heads == ((0.0, 1.0), (0.5, 1.0))
    assert asked.layers is True


def test_requests_about_the_same_share_their_question():
    one = parse(body(methods=["lrp"], target=1), ExplainRequest)
    two = parse(body(layer=1, head=2, target=1), AttentionRequest)
    assert one.question == two.question == parse(body(target=1), PageRequest)


def test_tokens_that_go_are_sorted_and_distinct():
    assert parse(body(gone=[3, 1, 3]), RemoveRequest).gone == (1, 3)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b"[]", "expected a JSON object, found a list"),
        (b"null", "found null"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"text":' * 100_000, "nested too deeply"),
        (b'{"text": "a", "text": "b"}', "twice"),
        (b'{"text": NaN}', "NaN is not a number"),
        (b'{"text": -Infinity}', "-Infinity is not a number"),
        (b'{"text": "a", "target": ' + b"9" * 5000 + b"}", "too long"),
        (b"{}", "missing text"),
    ],
)
def test_what_is_no_question_at_all(sent, says):
    with pytest.raises(Refused, match=says):
        parse(sent, PageRequest)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"text": None}, "text is a text, found null"),
        ({"text": 1}, "text is a text, found a number"),
        ({"text": ["a"]}, "text is a text, found a list"),
        ({"text": "x" * (CHARACTERS + 1)}, "text has 30,001 characters, at most 30,000"),
        ({"text": "\ud83d"}, "half a character"),
        ({"second": 5}, "second is a text"),
        ({"second": "x" * (CHARACTERS + 1)}, "second has 30,001 characters"),
        ({"target": 1.5}, "target is a label"),
        ({"target": True}, "target is a label"),
        ({"target": {"a": 1}}, "found an object"),
        ({"target": -1}, "from 0 up"),
        ({"foil": 2**40}, "from 0 up"),
        ({"foil": "\udfff"}, "half a character"),
        ({"position": "3"}, "position is a whole number, found a text"),
        ({"position": True}, "found true or false"),
        ({"target_span": [1]}, "list of 2 entries, found 1"),
        ({"target_span": [1, 2.0]}, "whole number"),
        ({"target": "a", "target_span": [1, 2]}, "give one of them"),
        ({"foil": "a", "foil_span": [1, 2]}, "give one of them"),
        ({"path": "/etc/passwd"}, 'unknown "path"'),
        ({"x" * 1000: 1}, "unknown"),
    ],
)
def test_parts_of_a_question_that_are_wrong(parts, says):
    with pytest.raises(Refused, match=says) as caught:
        parse(body(**parts), PageRequest)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kind", "parts", "says"),
    [
        (ExplainRequest, {}, "missing methods"),
        (ExplainRequest, {"methods": []}, "1 to 100 entries, found 0"),
        (ExplainRequest, {"methods": "lrp"}, "methods is a list, found a text"),
        (ExplainRequest, {"methods": [1]}, "methods are names"),
        (ExplainRequest, {"methods": ["lpr"]}, "there is no method 'lpr'. Did you mean 'lrp'"),
        (ExplainRequest, {"methods": ["lrp"], "layers": 1}, "layers is true or false"),
        (ExplainRequest, {"methods": ["lrp"], "heads": 1}, "heads is a list"),
        (ExplainRequest, {"methods": ["lrp"], "heads": []}, "found 0"),
        (ExplainRequest, {"methods": ["lrp"], "heads": [[2]]}, "from 0 to 1, one row a layer; found 2"),
        (ExplainRequest, {"methods": ["lrp"], "heads": [[-0.1]]}, "found -0.1"),
        (ExplainRequest, {"methods": ["lrp"], "heads": [["1"]]}, 'found "1"'),
        (ExplainRequest, {"methods": ["lrp"], "heads": [[True]]}, "found true"),
        (ExplainRequest, {"methods": ["lrp"], "heads": [[[1]]]}, "found a list"),
        (ExplainRequest, {"methods": ["lrp"], "masked": "lrp"}, "masked is a list"),
        (ExplainRequest, {"methods": ["lrp"], "masked": ["lpr"]}, "there is no method 'lpr'"),
        (ExplainRequest, {"methods": ["lrp"], "format": "html"}, 'unknown "format"'),
        (CurvesRequest, {"methods": ["lrp"], "perturbation": "burn"}, "one of mask, pad, delete"),
        (DownloadRequest, {"methods": ["lrp"]}, "missing format"),
        (DownloadRequest, {"methods": ["lrp"], "format": "../x"}, "one of html, latex, json"),
        (AttentionRequest, {"layer": 1}, "missing head"),
        (AttentionRequest, {"layer": -1, "head": 0}, "from 0 up"),
        (RemoveRequest, {}, "missing gone"),
        (RemoveRequest, {"gone": [1.5]}, "whole number"),
        (RemoveRequest, {"gone": ["a"]}, "whole number"),
    ],
)
def test_requests_that_are_wrong(kind, parts, says):
    with pytest.raises(Refused, match=says):
        parse(body(**parts), kind)


def test_strengths_that_are_next_to_nothing_are_nothing():
    """Subnormal numbers would overflow where somebody divides by them."""
    body = json.dumps({"text": "a", "methods": ["attn_lrp"], "heads": [[1e-320, 1e-9, 0.5]]}).encode()
    assert parse(body, ExplainRequest).heads == ((0.0, 0.0, 0.5),)
