"""Run options: keywords of every call, next to the options of methods."""

import pytest

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.explain.options import split_options

TEXT = "it is a good movie"


def test_keywords_are_split_by_name():
    run_options, method_options = split_options({"steps": 3, "batch_size": 2, "progress": False})
    assert run_options == tl.RunOptions(batch_size=2, progress=False)
    assert method_options == {"steps": 3}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is a positive whole number, found 0"),
        ({"batch_size": 2.0}, ValueError, "batch_size is a positive whole number, found 2.0"),
        ({"low_memory": "yes"}, TypeError, "low_memory is True or False, found 'yes'"),
        ({"fused": 1}, TypeError, "fused is True, False or None, found 1"),
        ({"progress": None}, TypeError, "progress is True or False, found None"),
    ],
)
def test_values_of_another_type_are_refused(options, error, message):
    for call in (explainer_for("bert").explain, explainer_for("bert").explain_all):
        with pytest.raises(error, match=message):
            call(TEXT, **options)


def test_methods_and_runs_share_no_names():
    names = {"batch_size", "low_memory", "fused", "progress"}
    assert all(names.isdisjoint(method.options) for method in tl.METHODS.values())


@pytest.mark.parametrize(("count", "batch_size", "batches"), [(5, 2, 3), (33, None, 2), (32, None, 1)])
def test_texts_of_a_batch(count, batch_size, batches, fused_ways):
    explainer_for("bert").explain([TEXT] * count, "random", progress=False, batch_size=batch_size)
    assert len(fused_ways) == batches


@pytest.mark.parametrize(("batch_size", "batches"), [(None, 2), (3, 3)])
def test_answers_of_a_batch(batch_size, batches, fused_ways):
    explainer = explainer_for("llama", "text-generation")
    explainer.explain_answer([TEXT] * 9, [" at all"] * 9, "random", progress=False, batch_size=batch_size)
    assert len(fused_ways) == batches


@pytest.mark.parametrize(
    "settings", [{"low_memory": 1}, {"keep_text": "no"}, {"fused": 0}], ids=lambda settings: next(iter(settings))
)
def test_settings_of_a_corpus_are_checked_before_any_row(settings):
    ((name, value),) = settings.items()
    with pytest.raises(TypeError, match=f"^{name} is True.*, found {value!r}$"):
        tl.CorpusSettings(**settings)
