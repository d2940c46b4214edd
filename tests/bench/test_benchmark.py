"""The benchmark's runner: the same numbers as `evaluate`, bad rows, other tasks, and being killed at any moment."""

import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests.copies import run_killed
from tests.tokenizers_ import explainer_for
from tokenlight.bench import benchmark as run
from tokenlight.bench import measure_chunk as bench_measure
from tokenlight.bench.benchmark import bench
from tokenlight.bench.cases import select_cases
from tokenlight.bench.protocol import Protocol, clean
from tokenlight.bench.robustness import robustness
from tokenlight.bench.tabulate import read_table
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example
from tokenlight.metrics.evaluate import Measure, evaluate
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.model import block_structure
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.runs.method_specs import MethodSpec, choose_methods, parse_measure, read_value
from tokenlight.runs.model_hash import hash_model
from tokenlight.runs.run_folder import Journal, check_settings, lock_folder

TEXTS = [
    "it is a good movie and they are not bad at all",
    "the key is here",
    "unbelievable films are rarely believable",
    "the book was written by a young author in Paris",
    "they are not here",
    "the movie is bad and the book is good",
    "who wrote the book ?",
]
QUESTION, CONTEXT = "who wrote the book ?", "the book was written by a young author in Paris"
QUICK: dict[str, Any] = {"methods": ["attn_lrp", "attcat"], "metrics": ["aopc", "log_odds"], "progress": False}


def write_table(path: Path, rows: list[tuple[Any, str]]) -> Path:
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path) -> Path:
    return write_table(tmp_path / "data.tsv", [(i % 3, text) for i, text in enumerate(TEXTS)])


@pytest.fixture
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(run, "CHUNK_ROWS", 2)


def records(folder: Path, stage: int = 0) -> list[dict[str, Any]]:
    return list(Journal(folder / f"results-0000{stage}.jsonl"))


# --- what one writes ---------------------------------------------------------------------------------------------


def test_methods_are_written_with_their_options():
    spec = MethodSpec.parse("mask_lrp:variant=released,empty=residual")
    assert (spec.name, dict(spec.options)) == ("mask_lrp", {"variant": "released", "empty": "residual"})
    assert spec.label == "mask_lrp:variant=released,empty=residual"
    assert spec.title == "Mask-LRP (variant=released, empty=residual)"
    assert MethodSpec.parse("AttnLRP").label == "attn_lrp"
    with pytest.raises(TypeError, match="no option nothing; its options: heads="):
        MethodSpec.parse("mask_lrp:nothing=1")
    with pytest.raises(ValueError, match="option=value,option=value; found 'attcat:x'"):
        MethodSpec.parse("attcat:x")
    with pytest.raises(ValueError, match=r"no method 'atcat'\. Did you mean 'attcat'"):
        MethodSpec.parse("atcat")


@pytest.mark.parametrize(
    ("written", "value"), [("3", 3), ("0.5", 0.5), ("True", True), ("none", None), ("pad", "pad"), ("[1]", "[1]")]
)
def test_values_of_options(written, value):
    assert read_value(written) == value
    assert type(read_value(written)) is type(value)


def test_metrics_are_written_with_their_options():
    assert parse_measure("pointing_game:k=1") == Measure("pointing_game", options={"k": 1}, name="pointing_game:k=1")
    with pytest.raises(TypeError, match="no option j"):
        parse_measure("pointing_game:j=1")


def test_controls_come_last_and_once():
    model = explainer_for("bert").inner
    specs = choose_methods(["erasure:removal=mask", "attcat"], model)
    assert [spec.label for spec in specs] == ["attcat", "erasure:removal=mask", "random"]
    assert [s.label for s in choose_methods(["attcat"], model, erasure=False)] == ["attcat", "random"]
    assert "mask_lrp" not in [s.name for s in choose_methods(None, model)]  # this model comes without a head mask
    with pytest.raises(ValueError, match="attcat is named twice"):
        choose_methods(["attcat", "AttCAT"], model)
    with pytest.raises(ValueError, match="in addition to the controls"):
        choose_methods(["random"], model)
    with pytest.raises(TypeError, match="list of names"):
        choose_methods("attcat", model)


# --- numbers -----------------------------------------------------------------------------------------------------


def test_runs_of_one_method_are_one_line(data, tmp_path):
    """Such as random head masks: the row is their mean on every text, with the deviation of the runs' means."""
    masks = [tl.HeadMask.by_hand(torch.eye(2, 4)).random(seed) for seed in range(3)]
    specs = [MethodSpec(f"mask {i}", "mask_lrp", {"heads": mask}, run_of="random mask") for i, mask in enumerate(masks)]
    given: dict[str, Any] = {"metrics": ["aopc", "log_odds"], "erasure": False, "progress": False}
    merged = bench(explainer_for("bert"), data, ["attcat", *specs], output=tmp_path / "merged", **given)
    apart = bench(explainer_for("bert"), data, ["attcat", *(replace(one, run_of="") for one in specs)], **given)
    assert [line.label for line in merged.lines[:3]] == ["attcat", "random mask", "random"]
    assert merged.lines[1].title == "random mask"
    assert merged.lines[0].spreads == merged.lines[2].spreads == ()
    for k, metric in enumerate(("aopc", "log_odds")):
        means = torch.tensor([apart.cell(one.label, metric).mean for one in specs], dtype=torch.float64)
        assert means.std() > 0
        assert merged.cell("random mask", metric).mean == pytest.approx(float(means.mean()))
        assert merged.lines[1].spreads[k] == pytest.approx(float(means.std()))
    assert merged.panels[0].curves.keys() == {line.label for line in merged.lines}
    assert read_table(tmp_path / "merged").to_markdown() == merged.to_markdown()
    shown = json.loads((tmp_path / "merged" / "examples.json").read_text(encoding="utf-8"))
    assert [one["method"] for one in next(iter(shown.values()))] == ["attcat", "random mask", "random"]


def test_the_inverse_is_that_of_the_best_line_not_of_a_lucky_run(data):
    masks = {f"mask {i}": tl.HeadMask.by_hand(torch.eye(2, 4)).random(i) for i in range(6)}
    specs = {label: MethodSpec(label, "mask_lrp", {"heads": mask}) for label, mask in masks.items()}
    given: dict[str, Any] = {"metrics": ["aopc"], "erasure": False, "progress": False}
    apart = bench(explainer_for("bert"), data, list(specs.values()), **given)
    means = {label: apart.cell(label, "aopc").mean for label in specs}
    ordered = sorted(means, key=lambda label: -means[label])
    lucky, other, unlucky = next(
        three for three in combinations(ordered, 3) if 2 * means[three[1]] > means[three[0]] + means[three[2]]
    )
    assert means[lucky] > means[other]
    runs = [replace(specs[label], run_of="runs") for label in (lucky, unlucky)]
    for some, expected in ([*runs, specs[other]], other), (runs, lucky):
        found = bench(explainer_for("bert"), data, some, **given)
        assert [line.label for line in found.lines if line.control][-1] == f"inverse of {expected}"


def test_runs_and_methods_do_not_share_a_label():
    spec = MethodSpec("one", "attcat", run_of="attcat")
    with pytest.raises(ValueError, match="attcat is named twice"):
        choose_methods(["attcat", spec], explainer_for("bert").inner)


def test_random_runs_and_seed_models_exclude_each_other(data):
    judge = replace(clean(["aopc"]), random_runs=2)
    with pytest.raises(ValueError, match="random_runs and seed models"):
        bench(explainer_for("bert"), data, ["attcat"], protocol=judge, seed_models=[explainer_for("bert")])


def test_values_are_those_of_evaluate(data, tmp_path, small_parts):
    explainer = explainer_for("bert")
    table = bench(explainer, data, output=tmp_path / "out", **QUICK)
    found = records(tmp_path / "out")
    assert [record["row"] for record in found] == list(range(len(TEXTS)))
    for label in ("attn_lrp", "attcat", "random", "erasure"):
        explanations = explainer.explain(TEXTS, label)
        for record, expected in zip(found, evaluate(explainer, explanations, ["aopc", "log_odds"]), strict=True):
            assert record["methods"][label]["values"] == pytest.approx(expected, abs=1e-5)
    best = table.methods[0] if table.methods[0].cells[0].best else table.methods[1]
    turned = [
        replace(e, scores=-e.scores) for e in explainer.explain(TEXTS, best.label)
    ]  # the third control is the best method reversed
    expected = evaluate(explainer, turned, ["aopc"])
    for record, one in zip(records(tmp_path / "out", 1), expected, strict=True):
        assert list(record["methods"]) == [f"inverse of {best.label}"]
        assert record["methods"][f"inverse of {best.label}"]["values"]["aopc"] == pytest.approx(one["aopc"], abs=1e-5)
    mean = sum(record["methods"]["attcat"]["values"]["aopc"] for record in found) / len(found)
    assert table.cell("attcat", "aopc").mean == pytest.approx(mean)
    assert [line.label for line in table.controls] == ["random", "erasure", f"inverse of {best.label}"]


def test_a_curve_is_stored_once_for_all_metrics_that_read_it(data, tmp_path):
    bench(explainer_for("bert"), data, ["attcat"], None, output=tmp_path / "out", progress=False)
    curves = records(tmp_path / "out")[0]["methods"]["attcat"]["curves"]
    assert {name: len(points) for name, points in curves.items()} == {
        "aopc": 11,
        "comprehensiveness": 6,
        "sufficiency": 6,
    }


def test_all_methods_of_a_rule_table_share_a_pass(data, monkeypatch):
    from tokenlight.explain import passes
    from tokenlight.record import recorder

    seen = []
    monkeypatch.setattr(passes, "record", lambda *a, **k: seen.append(a) or recorder.record(*a, **k))
    plain = ["attcat", "cat", "gradient_x_input", "grad_sam", "attention_grad_cam"]
    bench(explainer_for("bert"), data, plain, ["aopc"], erasure=False, progress=False)
    assert len(seen) == 2  # the methods and the best of them reversed; random reads the same pass


def test_a_part_is_tokenized_once_and_has_one_twin_of_each_model(data, monkeypatch, small_parts):
    """Predictions, all methods, another class, and changed inputs."""
    models = seeds()
    for model in models:
        behavior_of(model.inner)  # a new model is looked at first
    texts, instrumented_models = [], []
    tokenize, make = type(models[0].tokenizer).__call__, InstrumentedModel.__init__
    monkeypatch.setattr(
        type(models[0].tokenizer),
        "__call__",
        lambda self, some, **removal: texts.append(some) or tokenize(self, some, **removal),
    )
    monkeypatch.setattr(
        InstrumentedModel, "__init__", lambda self, model: instrumented_models.append(model) or make(self, model)
    )
    metrics = ["aopc", "sufficiency", "kendall_confidence"]
    bench(models[0], data, ["attn_lrp", "attcat"], metrics, seed_models=models[1:], progress=False)
    parts = [TEXTS[i : i + 2] for i in range(0, len(TEXTS), 2)]
    stages = 2  # the methods, and the best of them turned round
    assert texts == [part for part in parts for _ in models] * stages
    assert instrumented_models == [model.model for _ in parts for model in models] * stages


def test_the_gold_class_is_explained_where_the_protocol_says_so(tmp_path):
    explainer = explainer_for("bert")
    protocol = replace(clean(["aopc"]), target="gold")
    table = write_table(tmp_path / "data.tsv", [("negative", TEXTS[0]), ("positive", TEXTS[0])])
    bench(explainer, table, ["attcat"], protocol=protocol, output=tmp_path / "out", progress=False)
    for record, label in zip(records(tmp_path / "out"), ("negative", "positive"), strict=True):
        expected = evaluate(explainer, [explainer.explain(TEXTS[0], "attcat", target=label)], ["aopc"])[0]
        assert record["methods"]["attcat"]["values"] == pytest.approx(expected, abs=1e-5)


def test_filters_set_examples_aside_with_their_reason(tmp_path):
    explainer = explainer_for("bert")
    said = explainer.explain(TEXTS[0], "random").prediction
    wrong = next(label for label in explainer.task.labels.values() if label != said)
    file = write_table(tmp_path / "d.tsv", [(said, TEXTS[0]), (wrong, TEXTS[0]), (said, TEXTS[1]), (said, TEXTS[0])])
    protocol = replace(clean(["aopc"]), shortest=7, only_right=True)
    table = bench(explainer, file, ["attcat"], protocol=protocol, output=tmp_path / "out", progress=False)
    assert table.run.set_aside == Counter({"fewer than 7 tokens": 1, "predicted wrongly": 1})
    assert (table.run.right, table.run.judged, table.run.examples) == (3, 4, 2)  # set aside, but judged


def test_the_other_class_is_explained_where_classes_are_compared(data, tmp_path):
    explainer = explainer_for("bert")
    bench(explainer, data, ["attcat"], ["kendall_confidence"], output=tmp_path / "out", progress=False)
    own = explainer.explain(TEXTS[0], "attcat")
    label = next(k for k, name in explainer.task.labels.items() if name == own.target)
    other = explainer.explain(TEXTS[0], "attcat", target=1 if label == 0 else label - 1)
    expected = own.evaluate(["kendall_confidence"], others=other)
    assert records(tmp_path / "out")[0]["methods"]["attcat"]["values"] == pytest.approx(expected)
    assert records(tmp_path / "out")[0]["methods"]["random"]["values"] == {"kendall_confidence": 1.0}


def test_the_other_class_is_compared_with_the_examples_foil(tmp_path):
    explainer = explainer_for("bert")
    predicted = explainer.explain(TEXTS[0], "random").indices[0]
    other = 1 if predicted == 0 else predicted - 1
    (foil,) = {0, 1, 2} - {predicted, other}
    example = Example("0", TEXTS[0], foil=explainer.task.labels[foil])
    bench(explainer, [example], ["attcat"], ["kendall_confidence"], output=tmp_path / "out", progress=False)
    own, others = (explainer.explain(TEXTS[0], "attcat", target=target, foil=foil) for target in (predicted, other))
    expected = own.evaluate(["kendall_confidence"], others=others)
    assert records(tmp_path / "out")[0]["methods"]["attcat"]["values"] == pytest.approx(expected)


def test_the_perturbation_can_be_chosen(data, tmp_path):
    explainer = explainer_for("bert")
    bench(explainer, data, removal="delete", output=tmp_path / "out", **{**QUICK, "metrics": ["aopc"]})
    explanation = explainer.explain(TEXTS[0], "attcat")
    expected = explanation.evaluate(["aopc"], perturbation=Perturbation(removal="delete"))
    assert records(tmp_path / "out")[0]["methods"]["attcat"]["values"] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="leave metrics and removal out"):
        bench(explainer, data, protocol="attcat", removal="delete")
    with pytest.raises(ValueError, match="removal is one of 'delete', 'pad', 'mask'"):
        bench(explainer, data, removal="hide")  # type: ignore[arg-type]


# --- other tasks -------------------------------------------------------------------------------------------------


def squad(path: Path, answers: list[tuple[str, int]]) -> Path:
    qas = [
        {"id": f"q{i}", "question": QUESTION, "answers": [{"text": text, "answer_start": start}]}
        for i, (text, start) in enumerate(answers)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}), encoding="utf-8")
    return path


def test_answers_are_marked_by_their_characters(tmp_path):
    explainer = explainer_for("bert", "question-answering")
    start = CONTEXT.index("young author")
    file = squad(tmp_path / "squad.json", [("young author", start), ("Paris", 0), ("Paris", CONTEXT.index("Paris"))])
    metrics = ["aopc", "precision_at_k:k=3", "recall_at_k:k=3"]
    table = bench(explainer, file, ["attcat"], metrics, output=tmp_path / "out", progress=False)
    first, bad, last = records(tmp_path / "out")
    assert bad["bad"] == "the answer is not in the context where answer_start says"
    assert (first["marked"], last["marked"]) == (2, 1)
    explanation = explainer.explain((QUESTION, CONTEXT), "attcat")
    marks = torch.tensor(
        [
            s == 1 and CONTEXT[slice(*span)] in ("young", "author")
            for s, span in zip(explanation.segments, explanation.spans, strict=True)
        ]
    )
    found = evaluate(explainer, [explanation], [Measure("precision_at_k", options={"k": 3})], marks=[marks])[0]
    assert first["methods"]["attcat"]["values"]["precision_at_k:k=3"] == found["precision_at_k"]
    counts = [record["methods"]["attcat"]["values"]["precision_at_k:k=3"] for record in (first, last)]
    assert table.cell("attcat", "recall_at_k:k=3").mean == pytest.approx(100 * sum(counts) / 3)  # micro-average


def test_masked_words_with_evidence(tmp_path):
    explainer = explainer_for("bert", "fill-mask")
    text, target, foil = "the key ***mask*** here", " is", " are"
    examples = [
        Example("0", text, target=target, foil=foil, evidence=((4, 7),), group="0"),
        Example("1", text, target=foil, foil=target, evidence=((4, 7),), group="1"),
        Example("2", text, target=" unbelievable", foil=" are", evidence=((4, 7),)),
    ]
    table = bench(explainer, examples, ["attn_lrp"], output=tmp_path / "out", progress=False)
    first, second, third = records(tmp_path / "out")
    assert third["set_aside"] == "a form of the word is not one token"
    assert {first["right"], second["right"]} == {True, False}  # the model prefers one of the two
    assert first["marked"] == 1
    explanation = explainer.explain("the key [MASK] here", "attn_lrp", target="is", foil="are")
    marks = torch.tensor([token == "key" for token in explanation.tokens])
    names = ["pointing_game", "mean_reciprocal_rank", "relevance_mass", "per_token_accuracy"]
    assert first["methods"]["attn_lrp"]["values"] == pytest.approx(
        evaluate(explainer, [explanation], names, marks=[marks])[0]
    )
    assert [column.label for column in table.columns] == names
    right = bench(explainer, examples, ["attn_lrp"], protocol="arras", output=tmp_path / "arras", progress=False)
    assert right.run.examples == 1
    assert right.run.set_aside == Counter({"predicted wrongly": 1, "a form of the word is not one token": 1})


def test_prefixes_with_evidence_from_a_file(tmp_path):
    file = tmp_path / "pairs.csv"
    file.write_text("prefix,target,foil,evidence\nThe keys to the table,are,is,keys\n,are,is,keys\n", encoding="utf-8")
    explainer = explainer_for("gpt2", "text-generation")
    table = bench(explainer, file, ["attn_lrp"], ["pointing_game", "aopc"], output=tmp_path / "out", progress=False)
    assert table.run.examples == 1
    assert [record["bad"] for record in table.run.bad] == ["expected a prefix, a right and a wrong word"]
    explanation = explainer.explain("The keys to the table", "attn_lrp", target=" are", foil=" is")
    value = evaluate(explainer, [explanation], ["aopc"])[0]["aopc"]
    assert records(tmp_path / "out")[0]["methods"]["attn_lrp"]["values"]["aopc"] == pytest.approx(value, abs=1e-5)


def test_tasks_that_do_not_fit_are_refused(data, tmp_path):
    with pytest.raises(ValueError, match="label for every token"):
        bench(explainer_for("bert", "token-classification"), data, output=tmp_path / "out")
    with pytest.raises(ValueError, match="protocol 'arras' is for fill-mask"):
        bench(explainer_for("bert"), data, protocol="arras", output=tmp_path / "out")
    with pytest.raises(ValueError, match="compares classes"):
        bench(explainer_for("gpt2", "text-generation"), data, metrics=["kendall_confidence"])
    with pytest.raises(ValueError, match="it has no probability"):
        bench(explainer_for("bert", num_labels=1), data)
    assert not (tmp_path / "out").exists()


# --- models that differ in their seed ----------------------------------------------------------------------------


def seeds() -> list[tl.Explainer]:
    """The model, and one whose last bit of training went otherwise."""
    first = explainer_for("bert")
    model = type(first.model)(first.model.config).eval()
    model.load_state_dict(first.model.state_dict())
    torch.manual_seed(4)  # the same noise whether the first model was there before or is made here
    with torch.no_grad():
        for parameter in block_structure.blocks(model)[-1].parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return [first, tl.Explainer(model, first.tokenizer)]


def test_robustness_counts_texts_on_which_the_models_agree(data, tmp_path):
    models = seeds()
    said = [[e.prediction for e in one.explain(TEXTS, "random")] for one in models]
    same = [i for i in range(len(TEXTS)) if said[0][i] == said[1][i]]
    assert 0 < len(same) < len(TEXTS), "the test needs both kinds"
    found = robustness(models, TEXTS, ["attcat"], ["spearman"], progress=False)
    assert [(one.pair, one.texts) for one in found] == [((0, 1), len(same)), ((1, 0), len(same))]
    one, two = ([model.explain(TEXTS, "attcat")[i] for i in same] for model in models)
    expected = [e["spearman"] for e in evaluate(models[0], one, ["spearman"], others=two)]
    assert found[0].mean == pytest.approx(sum(expected) / len(expected))
    table = bench(models[0], data, seed_models=models[1:], output=tmp_path / "out", **QUICK)
    assert table.cell("attcat", "spearman").mean == pytest.approx(found[0].mean)
    assert table.weights[:, 3].tolist() == [float(i in same) for i in range(len(TEXTS))]
    with pytest.raises(ValueError, match="two models or more"):
        robustness(models[:1], TEXTS, ["attcat"])
    with pytest.raises(ValueError, match="name others as seed models"):
        bench(models[0], data, metrics=["spearman"])


# --- bad rows ----------------------------------------------------------------------------------------------------


def test_bad_rows_are_reported_and_skipped_or_refused(tmp_path):
    file = write_table(tmp_path / "d.tsv", [(0, TEXTS[0]), ("great", TEXTS[1]), (1, " "), (2, TEXTS[2] + "\tmore")])
    explainer = explainer_for("bert")
    table = bench(explainer, file, output=tmp_path / "out", **QUICK)
    assert table.run.examples == 1
    reasons = [json.loads(line)["bad"] for line in (tmp_path / "out/bad_rows.jsonl").read_text().splitlines()]
    assert reasons[0] == "the model has no label 'great'; it has 0 ('negative'), 1 ('neutral'), 2 ('positive')"
    assert reasons[1:] == ["text: expected a text, found an empty one", "expected 2 columns, found 3"]
    with pytest.raises(ValueError, match="example 3: the model has no label 'great'"):
        bench(explainer, file, output=tmp_path / "strict", bad_rows="refuse", **QUICK)
    assert records(tmp_path / "strict") == []
    assert bench(explainer, file, output=tmp_path / "strict", **QUICK).run.examples == 1  # and goes on with skip
    with pytest.raises(ValueError, match="example 3: the model has no label 'great'"):  # also of a run that has ended
        bench(explainer, file, output=tmp_path / "strict", bad_rows="refuse", **QUICK)
    with pytest.raises(ValueError, match="bad_rows is"):
        bench(explainer, file, bad_rows="hide", **QUICK)  # type: ignore[arg-type]


def test_data_of_which_nothing_is_left_is_an_error(tmp_path):
    explainer = explainer_for("bert")
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(ValueError, match="expected rows of data, found none"):
        bench(explainer, tmp_path / "empty.tsv", output=tmp_path / "out", **QUICK)
    with pytest.raises(ValueError, match="expected rows of data, found none"):
        bench(explainer, [], output=tmp_path / "out", **QUICK)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        bench(explainer, tmp_path / "gone.tsv", output=tmp_path / "out", **QUICK)
    file = write_table(tmp_path / "d.tsv", [(0, "ok")])
    with pytest.raises(ValueError, match="has no column 'verdict'"):
        bench(explainer, DataSource(file, label="verdict"), output=tmp_path / "out", **QUICK)
    assert not (tmp_path / "out").exists()
    file = write_table(tmp_path / "wrong.tsv", [("great", text) for text in TEXTS[:2]])
    with pytest.raises(ValueError, match=r"no example was measured: the model has no label 'great'.*\(2\)"):
        bench(explainer, file, output=tmp_path / "out", **QUICK)
    with pytest.raises(ValueError, match=r"no answer or evidence is marked \(1\)"):
        bench(explainer, [Example("0", "ok")], metrics=["pointing_game"], progress=False)


def test_texts_that_were_cut_are_counted(tmp_path):
    explainer = explainer_for("bert", max_position_embeddings=8)
    table = bench(explainer, [Example(str(i), text) for i, text in enumerate(TEXTS[:2])], **QUICK)
    assert table.run.cut == 1


# --- the store ---------------------------------------------------------------------------------------------------


def test_a_journal_keeps_whole_groups(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    assert journal.recover() == (frozenset(), ())
    journal.append(0, [{"row": 0}, {"row": 1}])
    journal.append(1, [{"row": 2}])
    whole = journal.path.read_bytes()
    journal.append(2, [{"row": 3, "text": "é"}, {"row": 4}])
    longer = journal.path.read_bytes()
    for end in range(len(whole), len(longer)):  # killed at any byte of the third group
        journal.path.write_bytes(longer[:end])
        assert [record["row"] for record in journal] == [0, 1, 2]
        assert journal.recover() == ({0, 1}, ())
        assert journal.path.read_bytes() == whole
    journal.path.write_bytes(whole + b"\0" * 50)  # as some file systems leave it after a power cut
    assert journal.recover() == ({0, 1}, ())


def test_another_run_in_the_same_folder_is_refused_and_the_difference_named(data, tmp_path):
    explainer, out = explainer_for("bert"), tmp_path / "out"
    bench(explainer, data, output=out, **QUICK)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ValueError, match=r"another run: data.limit is None there and 3 here"):
        bench(explainer, DataSource(data, limit=3), output=out, **QUICK)
    with pytest.raises(ValueError, match=r"another run: methods.cat is only here\. Use another"):
        bench(explainer, data, output=out, **{**QUICK, "methods": ["attn_lrp", "attcat", "cat"]})
    with pytest.raises(ValueError, match=r"protocol.measures.0.metric is 'aopc' there and 'log_odds' here"):
        bench(explainer, data, output=out, **{**QUICK, "metrics": ["log_odds", "aopc"]})
    with pytest.raises(ValueError, match=r"model.sha256 is '\w+' there and '\w+' here"):
        bench(seeds()[1], data, output=out, **QUICK)
    with pytest.raises(ValueError, match=r"data.sha256 is"):
        bench(explainer, write_table(data, [(0, TEXTS[0])]), output=out, **QUICK)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_the_same_bytes_read_as_another_kind_of_data_are_another_run(tmp_path):
    lines = tmp_path / "texts.txt"
    lines.write_text("text\n" + "".join(f"{text}\n" for text in TEXTS[:3]))
    bench(explainer_for("bert"), lines, output=tmp_path / "out", **QUICK)
    with pytest.raises(ValueError, match=r"another run: data.kind is 'text' there and 'csv' here"):
        bench(explainer_for("bert"), lines.rename(tmp_path / "texts.csv"), output=tmp_path / "out", **QUICK)
    bench(explainer_for("bert"), DataSource(tmp_path / "texts.csv", kind="text"), output=tmp_path / "out", **QUICK)


def test_data_that_was_changed_while_it_was_read_is_reported(data, tmp_path, monkeypatch):
    honest = run.best_method

    def change_data(folder: Path) -> str:
        write_table(data, [(i % 3, text) for i, text in enumerate(reversed(TEXTS))])
        return honest(folder)

    monkeypatch.setattr(run, "best_method", change_data)
    with pytest.warns(
        RuntimeWarning, match=r"data\.tsv was changed while it was read: .*out holds results of rows from"
    ):
        bench(explainer_for("bert"), data, output=tmp_path / "out", **QUICK)


@pytest.mark.parametrize("name", ["table.csv", "report.html", "bad_rows.jsonl", "examples.json", "results-00000.jsonl"])
def test_a_file_that_is_not_of_a_run_is_not_overwritten(data, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    with pytest.raises(ValueError, match=rf"out holds {name} but no run\.json: .* would overwrite it\. Use another"):
        bench(explainer_for("bert"), data, output=out, **QUICK)
    assert (out / name).read_text() == "mine"
    assert {path.name for path in out.iterdir()} == {name, ".lock"}


def test_results_go_to_a_folder_of_their_own(data, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    data.rename(texts / "data.tsv")
    with pytest.raises(ValueError, match="texts holds the data: name another folder"):
        bench(explainer_for("bert"), texts, output=texts, **QUICK)
    assert [path.name for path in texts.iterdir()] == ["data.tsv"]
    with pytest.raises(ValueError, match=r"cannot write to .*data\.tsv: expected a folder"):
        bench(explainer_for("bert"), texts, output=texts / "data.tsv", **QUICK)


def test_versions_are_part_of_the_settings(tmp_path):
    check_settings(tmp_path, {"versions": {"torch": "1"}, "model": {"name": "here"}})
    check_settings(tmp_path, {"versions": {"torch": "1"}, "model": {"name": "there"}})  # the folder may have moved
    with pytest.raises(ValueError, match=r"versions.torch is '1' there and '2' here"):
        check_settings(tmp_path, {"versions": {"torch": "2"}, "model": {"name": "here"}})


def test_a_folder_has_one_writer(tmp_path):
    with lock_folder(tmp_path), pytest.raises(ValueError, match="another process is writing"), lock_folder(tmp_path):
        pass


def test_hashes_tell_models_and_data_apart(tmp_path):
    one, two = seeds()
    assert hash_model(one) == hash_model(tl.Explainer(one.model, one.tokenizer)) != hash_model(two)
    before = hash_model(two)
    two.model.save_pretrained(tmp_path / "saved")
    two.tokenizer.save_pretrained(tmp_path / "saved")
    assert before == hash_model(two) == hash_model(tl.load(tmp_path / "saved"))
    assert DataSource([Example("0", "a")]).hash() != DataSource([Example("0", "b")]).hash()
    (tmp_path / "a.txt").write_text("a")
    assert DataSource(tmp_path / "a.txt").hash() != DataSource([Example("0", "a")]).hash()
    assert DataSource("hf:glue:sst2").hash() is None


def test_a_run_goes_on_where_it_stopped(data, tmp_path, small_parts, monkeypatch):
    explainer = explainer_for("bert")
    bench(explainer, data, output=tmp_path / "whole", **QUICK)
    whole = (tmp_path / "whole/results-00000.jsonl").read_bytes()
    bench(explainer, data, output=tmp_path / "again", **QUICK)
    path = tmp_path / "again/results-00000.jsonl"
    assert path.read_bytes() == whole
    path.write_bytes(whole[: len(whole) // 2])
    done: list[int] = []
    measure = bench_measure.measure_chunk

    def measure_chunk(plan, part):
        done.extend(number for number, _ in part.rows)
        return measure(plan, part)

    monkeypatch.setattr(bench_measure, "measure_chunk", measure_chunk)
    bench(explainer, data, output=tmp_path / "again", **QUICK)
    assert path.read_bytes() == whole
    assert done[-1] == len(TEXTS) - 1
    assert 0 < done[0] < len(TEXTS) - 1
    assert done[0] % 2 == 0  # a part that was begun is done again as a whole


def bench_by_two(data: Path, output: Path) -> None:
    run.CHUNK_ROWS = 2
    bench(explainer_for("bert"), data, ["attcat", "raw_attention"], ["aopc"], progress=False, output=output)


@pytest.mark.xdist_group("copies")
@pytest.mark.usefixtures("small_parts")
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed the way of Unix")
def test_killed_at_random_moments_it_ends_with_the_same_table(data, tmp_path):
    run_killed(partial(bench_by_two, data), tmp_path / "whole", tmp_path / "killed", seed=3)
    assert read_table(tmp_path / "killed").to_csv() == read_table(tmp_path / "whole").to_csv()
    for name in ("results-00000.jsonl", "results-00001.jsonl", "examples.json", "table.csv", "report.html"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_sorting_out_keeps_every_row():
    explainer, protocol = explainer_for("bert"), Protocol("p", (Measure("aopc"),), longest=8)
    items = [(i, Example(str(i), text, label=i % 4)) for i, text in enumerate(TEXTS)]
    cases, rest = select_cases(explainer, protocol, items)
    assert sorted([case.draft.number for case in cases] + [record["row"] for record in rest]) == list(range(len(TEXTS)))
    assert {"set_aside", "bad"} == {key for record in rest for key in record if key in ("bad", "set_aside")}


def test_random_scores_of_two_models_are_two_draws():
    """Drawn alike, chance would look perfectly robust."""
    explainer = explainer_for("bert")
    found = robustness([explainer, explainer], TEXTS, ["random", "attn_lrp"], ["spearman"], progress=False)
    means = {one.method: one.mean for one in found}
    assert means["attn_lrp"] == pytest.approx(1.0)
    assert abs(means["random"]) < 0.6


def test_a_row_without_words_is_set_aside(tmp_path):
    table = bench(explainer_for("bert"), [TEXTS[0], "[SEP]", TEXTS[1]], **QUICK, output=tmp_path / "out")
    assert table.run.set_aside == Counter({"no token can be removed": 1})
    assert table.run.examples == 2


def test_labels_of_classes_say_nothing_of_a_language_model(tmp_path):
    file = write_table(tmp_path / "d.tsv", [(0, TEXTS[0]), (9, TEXTS[1])])
    table = bench(explainer_for("gpt2", "text-generation"), file, ["attcat"], ["aopc"], erasure=False, progress=False)
    assert (table.run.examples, table.run.judged, table.run.bad) == (2, 0, ())


def test_a_wrong_option_leaves_the_folder_as_it_was(tmp_path):
    folder = tmp_path / "out"
    settings = {"metrics": ["aopc"], "erasure": False, "progress": False, "output": folder, "heads": [[1] * 4] * 2}
    with pytest.raises(ValueError, match="'paper' or 'released'"):
        bench(explainer_for("bert"), TEXTS[:1], ["mask_lrp:variant=foo"], **settings)
    bench(explainer_for("bert"), TEXTS[:1], ["mask_lrp:variant=released"], **settings)


def test_the_hash_does_not_see_what_the_last_call_left_in_the_tokenizer():
    explainer = explainer_for("bert")
    before = hash_model(explainer)
    explainer.tokenizer(["it is"], truncation=True, max_length=4, padding="max_length")
    assert hash_model(explainer) == before


def test_attention_fused_or_written_out_is_a_setting_of_the_run(tmp_path, fused_ways):
    quick = {"metrics": ["aopc"], "erasure": False, "progress": False}
    for way in (None, True, False):
        folder = tmp_path / str(way)
        bench(explainer_for("bert"), TEXTS[:1], ["attn_lrp"], output=folder, fused=way, **quick)
        assert json.loads((folder / "run.json").read_text())["fused"] is way
        assert set(fused_ways) == {way}
        fused_ways.clear()
    with pytest.raises(ValueError, match="fused is True there and False here"):
        bench(explainer_for("bert"), TEXTS[:1], ["attn_lrp"], output=tmp_path / "True", fused=False, **quick)
    with pytest.raises(ValueError, match="fused=True: attcat need attention weights"):
        bench(explainer_for("bert"), TEXTS[:1], ["attcat"], output=tmp_path / "refused", fused=True, **quick)
    assert not (tmp_path / "refused").exists()


def test_evidence_of_which_a_part_was_cut_off_is_not_marked_in_part():
    explainer = explainer_for("bert")
    limit = explainer.task.max_length
    assert limit is not None
    text = "good " * (limit - 5) + "the book was written by a young author"
    evidence = text.index("the book"), len(text)
    examples = [
        Example("0", text, evidence=(evidence,)),
        Example("1", text, evidence=((evidence[0], evidence[0] + len("the book ")),)),
    ]
    cases, (record,) = select_cases(explainer, clean(["pointing_game"]), list(enumerate(examples)))
    assert record["id"] == "0"
    assert record["set_aside"] == "the evidence is not among the tokens that fit into the model"
    assert [int(case.draft.marks.sum()) for case in cases if case.draft.marks is not None] == [2]


def test_a_table_says_how_many_examples_are_copies(tmp_path, small_parts):
    """Four times the same text make no interval narrower, in truth."""
    explainer = explainer_for("bert")
    texts = [TEXTS[1], TEXTS[1], TEXTS[2], TEXTS[1] + " ", TEXTS[1]]
    method = {"methods": ["attcat"], "metrics": ["aopc"], "erasure": False, "progress": False}
    table = bench(explainer, texts, **method, output=tmp_path / "copies")
    assert table.run.copies == 3
    assert "3 of the examples are copies of others" in table.to_markdown()
    different = bench(explainer, TEXTS[:3], **method, output=tmp_path / "different")
    assert different.run.copies == 0
    assert "copies" not in different.to_markdown()
