"""Every preset against a slow transcription of its paper's protocol (see literal_protocols.py)."""

import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import tokenlight as tl
from tests import literal_protocols as literal
from tests.rounding import tolerance
from tests.tokenizers_ import explainer_for
from tokenlight.bench.benchmark import bench
from tokenlight.bench.cases import select_cases
from tokenlight.bench.presets import (
    ALTI,
    ALTI_ROBUSTNESS,
    ALTI_ROBUSTNESS_WRITTEN,
    ARRAS,
    ATTCAT,
    ATTCAT_SQUAD,
    MASK_LRP,
    MASK_LRP_SQUAD,
)
from tokenlight.bench.protocol import PROTOCOLS, HidingBatch, Protocol, clean, other_class, protocol
from tokenlight.data.examples import Example
from tokenlight.explain.options import Resources, RunOptions
from tokenlight.methods import METHODS, find_method
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.evaluate import Measure, evaluate, evaluate_scores
from tokenlight.metrics.evidence import micro_average
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.results.tables import Table
from tokenlight.tasks.question_answering import ExtractiveAnswers

CLOSE = 1e-7  # in double precision, where rounding decides no order; single precision is held to 1e-5 below
CASTING = tolerance(torch.float32, 1.0)  # eager Llama casts to single precision inside, ours does not
CASES = [  # with gold labels, which may differ from the prediction
    ("It is neither as clever as it believes nor as dull as its trailer, but I would never watch it twice.", 1),
    (("the river rose during the night and the old bridge was closed", "nobody could walk over the bridge"), 0),
    ("What a lovely little film about patience.", 0),  # from 10 to 19 tokens
    ("Simply wonderful.", 1),  # fewer than 10
]
PAIRS = [
    (("the keys to the cabinet are on the table and the key is here", "it is a good movie and not bad"), 1),
    (("who wrote the book ? the book was written by a young author in Paris", "they are rarely ok"), 0),
    (("unbelievable films are rarely believable and the author is naive", "the book is not here at all"), 1),
    (("is it here ?", "it is not here at all"), 2),
]


def explainer_in_double(explainer: tl.Explainer) -> tl.Explainer:
    return tl.Explainer(copy.deepcopy(explainer.model).double(), explainer.tokenizer)


@cache
def three_classes() -> tl.Explainer:
    return explainer_in_double(explainer_for("bert"))


@cache
def slow(explainer: tl.Explainer) -> Any:
    return literal.slow_copy(explainer.model)


def data(cases: list[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    texts, labels = zip(*cases, strict=True)
    return list(texts), list(labels)


def explained(
    protocol: Protocol, explainer: tl.Explainer, texts: list[Any], method: str, targets: Any, foils: Any = None
) -> list[tl.Explanation]:
    method_configs = {"it": MethodConfig.for_model(find_method(method), {}, explainer.inner)}
    found = explainer.explain_configs(
        texts,
        method_configs,
        target=targets,
        foil=foils,
        run_options=RunOptions(batch_size=3),
        resources=Resources(prepare=protocol.prepare(explainer.tokenizer)),
    )
    return [protocol.adjust(e) for e in found["it"]]


def judge(protocol: Protocol, explainer: tl.Explainer, cases: list[tuple[Any, int]], method: str) -> dict[str, float]:
    """Means over the examples that the protocol keeps, of a classifier."""
    explainer = protocol.fit(explainer)
    texts, labels = data(cases)
    tokenized_texts = explainer.encode(texts)
    with torch.no_grad():
        logits = [
            explainer.model(**protocol.measured(explainer.collate([tokenized_text])).inputs()).logits[0]
            for tokenized_text in tokenized_texts
        ]
    kept = [
        i
        for i, (tokenized_text, label, said) in enumerate(zip(tokenized_texts, labels, logits, strict=True))
        if protocol.keep(
            tokenized_text, label=label, probability=float(said.softmax(0)[label]), right=int(said.argmax()) == label
        )
        is None
    ]
    texts, labels = [texts[i] for i in kept], [labels[i] for i in kept]
    targets = protocol.targets(explainer, [tokenized_texts[i] for i in kept], labels)
    own = explained(protocol, explainer, texts, method, targets)
    others = explained(protocol, explainer, texts, method, [other_class(label) for label in labels])
    found = evaluate(explainer, own, protocol.measures, others=others, target=targets)
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


# --- AttCAT and Mask-LRP, classification -------------------------------------------------------------------------


@pytest.mark.parametrize("method", literal.METHODS)
@pytest.mark.parametrize("hide", [("cls", "sep"), ("sep",), ()])
def test_the_explained_pass_sees_what_the_releases_let_it_see(method, hide):
    """Hidden [CLS] and [SEP] look at others, and have scores; segment ids are 0. A pair has a [SEP] inside."""
    explainer = three_classes()
    texts, labels = data(CASES[:2])
    own = explained(replace(ATTCAT, hide=hide), explainer, texts, method, labels)
    hidden = tuple({"cls": "[CLS]", "sep": "[SEP]"}[role] for role in hide)
    for e, text, label in zip(own, texts, labels, strict=True):
        ids = literal.tokens_of(explainer.tokenizer, text)
        expected = literal.explain_class(slow(explainer), explainer.tokenizer, ids, label, hidden, method)
        np.testing.assert_allclose(e.scores.numpy(), expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize(
    ("paper", "method"),
    [("attcat", "raw_attention"), ("attcat", "attcat"), ("mask_lrp", "attention_cam"), ("mask_lrp", "attcat")],
)
def test_classification(paper, method):
    explainer = three_classes()
    transcribed = getattr(literal, f"{paper}_protocol")
    expected = transcribed(slow(explainer), explainer.tokenizer, *data(CASES), method)
    assert judge(protocol(paper), explainer, CASES, method) == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("method", literal.METHODS)
@pytest.mark.parametrize("preset", ["attcat", "attcat_qqp", "attcat_mnli", "mask_lrp"])
def test_pairs_and_three_classes(preset, method):
    explainer = three_classes()
    paper, _, notebook = preset.removeprefix("mask_").partition("_")
    transcribed = literal.attcat_protocol if paper == "attcat" else literal.mask_lrp_protocol
    expected = transcribed(slow(explainer), explainer.tokenizer, *data(PAIRS), method, notebook)
    assert judge(protocol(preset), explainer, PAIRS, method) == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("notebook", ["qqp", "mnli"])
def test_mask_lrp_filters(notebook):
    explainer = three_classes()
    cases = [(text, label) for text, _ in PAIRS for label in range(3)]
    model = (slow(explainer), explainer.tokenizer, *data(cases), "attcat")
    expected = literal.mask_lrp_protocol(*model, notebook)
    assert expected != literal.mask_lrp_protocol(*model)  # the filter has something to do here
    assert judge(protocol(f"mask_lrp_{notebook}"), explainer, cases, "attcat") == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("paper", ["attcat", "mask_lrp"])
def test_single_precision_agrees_to_five_digits(paper):
    explainer, cases = tl.load(), CASES[:3]
    transcribed = getattr(literal, f"{paper}_protocol")
    expected = transcribed(literal.slow_copy(explainer.model), explainer.tokenizer, *data(cases), "attcat")
    assert judge(protocol(paper), explainer, cases, "attcat") == pytest.approx(expected, abs=1e-5)


def test_the_settings_matter():
    """Each of them changes a number here, so the comparisons above would see it wrong."""
    explainer = three_classes()
    changes: list[dict[str, Any]] = [{"hide": ("sep",)}, {"hide": ()}, {"zero_types": False}, {"shortest": 22}]
    changes += [{"target": "predicted"}, {"measures": protocol("attcat_mnli").measures}]
    changes += [{"measures": tuple(with_removal(m, **one) for m in ATTCAT.measures)} for one in SETTINGS]
    published = judge(ATTCAT, explainer, PAIRS, "attcat")
    for change in changes:
        assert judge(replace(ATTCAT, **change), explainer, PAIRS, "attcat") != published, change
    kept = replace(ATTCAT, zero_first=frozenset())
    assert judge(kept, explainer, PAIRS, "attention_cam") != judge(ATTCAT, explainer, PAIRS, "attention_cam")
    signed = replace(protocol("attcat_qqp"), absolute=frozenset())
    assert judge(signed, explainer, PAIRS, "attcat") != judge(protocol("attcat_qqp"), explainer, PAIRS, "attcat")


SETTINGS: list[dict[str, Any]] = [
    {"share_of": "eligible"},
    {"rounding": "up"},
    {"skip_last": False},
    {"zero_types": False},
    {"grid": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)},
]


def with_removal(measure: Measure, **settings: Any) -> Measure:
    own = measure.perturbation
    return measure if own is None else replace(measure, perturbation=replace(own, **settings))


# --- As the papers are written -----------------------------------------------------------------------------------

WRITTEN_METHODS = ["cat", "attcat"]  # those whose score of [CLS] the slow ones leave as it is


@pytest.mark.parametrize("method", WRITTEN_METHODS)
@pytest.mark.parametrize("paper", ["attcat", "mask_lrp"])
def test_protocols_as_they_are_written(paper, method):
    """Through the benchmark, on texts and pairs of three classes; labels play no part."""
    explainer = three_classes()
    cases = [*CASES[:3], *PAIRS[:2]]
    texts, labels = data(cases)
    expected = literal.written_protocol(slow(explainer), explainer.tokenizer, texts, method, paper)
    for answers in (labels, [2 - label for label in labels]):
        examples = [Example(str(i), text, label=a) for i, (text, a) in enumerate(zip(texts, answers, strict=True))]
        found = table_means(explainer, examples, f"{paper}_written", method)
        assert found == pytest.approx(expected, abs=CLOSE)
    released = table_means(explainer, examples, paper, method)
    assert released.keys() == found.keys()
    assert all(abs(released[name] - found[name]) > 1e-3 for name in found)


def test_qqp_as_written_keeps_duplicates_alone():
    texts, labels = data(PAIRS)
    examples = [Example(str(i), text, label=a) for i, (text, a) in enumerate(zip(texts, labels, strict=True))]
    table = bench(three_classes(), examples, ["cat"], protocol="mask_lrp_qqp_written", erasure=False, progress=False)
    assert table.run.examples == labels.count(1) > 0
    assert table.run.set_aside == {"gold label is not 1": len(labels) - labels.count(1)}


@pytest.mark.parametrize("method", ["raw_attention", "attcat"])
def test_alti_as_it_is_written(method):
    explainer = three_classes()
    texts = [text for text, _ in CASES if isinstance(text, str)]
    texts.append("so " * 110 + "good")  # 223 tokens: the paper leaves no text out
    model, tokenizer, found = slow(explainer), explainer.tokenizer, []
    for text in texts:
        ids = literal.tokens_of(tokenizer, text)
        with torch.no_grad():
            predicted = int(model(torch.tensor([ids])).logits[0].argmax())

        def measure(kept: list[int], ids: list[int] = ids, predicted: int = predicted) -> float:
            return literal.probability(model, [ids[i] for i in kept], predicted)

        scores = literal.predicted_scores(model, tokenizer, text, method)
        found.append(literal.alti_written(measure, ids, scores))
    expected = literal.means(found)
    cases = [(text, 0) for text in texts]
    assert judge(protocol("alti_written"), explainer, cases, method) == pytest.approx(expected, abs=CLOSE)
    assert judge(protocol("alti"), explainer, cases, method) != pytest.approx(expected, abs=1e-3)


# --- AttCAT and Mask-LRP, questions ------------------------------------------------------------------------------

CONTEXT = "the book was written by a young author in Paris and the key to the cabinet is here on the table"
QUESTIONS = [
    (("who wrote the book ?", CONTEXT), "a young author in Paris and the key to the cabinet"),
    (("is it good ?", "it is a good movie and they are not bad at all"), "not bad"),
    (("is the key here ?", " and ".join([CONTEXT] * 25) + " and it is ok"), "ok"),  # behind token 384
    (("is it naive ?", " and ".join([CONTEXT] * 3)), CONTEXT),  # 21 tokens
    (("are the films bad ?", "unbelievable films are rarely believable"), "unbelievable"),  # three tokens
    *(((f"{word} ?", " and ".join([CONTEXT] * 2)), CONTEXT) for word in ("who", "is", "good")),
]


def answer_places() -> list[tuple[int, int]]:
    return [(context.rindex(answer), context.rindex(answer) + len(answer)) for (_, context), answer in QUESTIONS]


@cache
def reader() -> tl.Explainer:
    """A BERT of random weights that answers questions; it reads up to 600 tokens."""
    return explainer_in_double(explainer_for("bert", "question-answering", max_position_embeddings=600))


@pytest.mark.parametrize("method", ["attcat", "cat"])
@pytest.mark.parametrize("paper", ["attcat", "mask_lrp"])
def test_answers(paper, method):
    preset, explainer = protocol(f"{paper}_squad"), reader()
    questions = [question for question, _ in QUESTIONS]
    answers = answer_places()
    expected = literal.squad_protocol(slow(explainer), explainer.tokenizer, questions, answers, method, paper)
    fitted = preset.fit(explainer)
    tokenized_texts = fitted.encode(questions)
    assert max(map(len, tokenized_texts)) == 384
    targets = preset.targets(fitted, tokenized_texts)
    own = explained(preset, fitted, questions, method, targets)
    for e, tokenized_text in zip(own, tokenized_texts, strict=True):
        scores = literal.explain_answer(slow(explainer), explainer.tokenizer, tokenized_text.input_ids, method, paper)
        np.testing.assert_allclose(e.scores.numpy(), scores, rtol=1e-9, atol=CLOSE)
    marks = [
        preset.answer_marks(tokenized_text, answer)
        for tokenized_text, answer in zip(tokenized_texts, answers, strict=True)
    ]
    assert [m.sum() for m in marks if m is not None] == [11, 2, 1, 21, 3, 21, 21, 21]
    assert marks[2] is not None
    assert marks[2][0]  # an answer that was cut off is said to be at [CLS]
    found = evaluate(fitted, own, preset.measures, marks=[m for m in marks if m is not None])
    values = [one["precision_at_k" if paper == "attcat" else "recall_at_k"] for one in found]
    mean = np.mean(values) if paper == "attcat" else micro_average(values, [m for m in marks if m is not None])
    assert mean == pytest.approx(expected, abs=CLOSE)
    assert explainer.encode(questions[2:3])[0].truncated == 0  # the caller's tokenizer is as it was


def test_start_and_end_are_each_the_highest():
    """Also where the end comes first, which no answer does."""
    explainer = ATTCAT_SQUAD.fit(reader())
    contexts = (CONTEXT, "it is a good movie", "they are not bad at all")
    tokenized_texts = explainer.encode([(word, context) for word in ("who", "is", "a") for context in contexts])
    targets = [target.indices for target in cast(Any, ATTCAT_SQUAD.targets(explainer, tokenized_texts))]
    assert any(start > end for start, end in targets)
    assert any(start < end for start, end in targets)
    hidden = explainer.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    for tokenized_text, (start, end) in zip(tokenized_texts, targets, strict=True):
        mask = torch.tensor([[int(token not in hidden) for token in tokenized_text.input_ids]])
        with torch.no_grad():
            said = explainer.model(torch.tensor([tokenized_text.input_ids]), mask, token_type_ids=mask * 0)
        assert (start, end) == (int(said.start_logits[0].argmax()), int(said.end_logits[0].argmax()))


def test_start_and_end_are_compared_with_a_foil():
    example = Example("0", QUESTIONS[1][0], answer=(26, 33), foil="a good movie")
    explainer = ATTCAT_SQUAD.fit(reader())
    (case,), records = select_cases(explainer, ATTCAT_SQUAD, [(0, example)])
    assert records == []
    (explanation,) = explainer.explain_tokenized(
        [case.draft.tokenized_text], {"attcat": MethodConfig(METHODS["attcat"], {})}, target=case.target
    )["attcat"]
    assert explanation.foil == "a good movie"


def test_a_protocol_with_a_window_keeps_the_task():
    @dataclass(frozen=True)
    class OwnReader(ExtractiveAnswers):
        """A reader with a task of its own."""

    explainer = tl.Explainer(reader().model, reader().tokenizer, OwnReader)
    assert type(MASK_LRP_SQUAD.fit(explainer).task) is OwnReader


def test_an_answer_that_was_cut_off_is_set_aside_otherwise():
    (tokenized_text,) = MASK_LRP_SQUAD.fit(reader()).encode([QUESTIONS[2][0]])
    text = QUESTIONS[2][0][1]
    end = tokenized_text.spans[-2][1]  # of what fits
    for place in (len(text) - 2, len(text)), (end - 2, end + 2):
        assert clean(["recall_at_k"]).answer_marks(tokenized_text, place) is None
        marks = MASK_LRP_SQUAD.answer_marks(tokenized_text, place)
        assert marks is not None
        assert marks.nonzero().tolist() == [[0]]
    marks = clean(["recall_at_k"]).answer_marks(tokenized_text, (end - 2, end))
    assert marks is not None
    assert marks.nonzero().tolist() == [[len(tokenized_text) - 2]]


# --- ALTI --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["raw_attention", "attcat"])
def test_alti(method):
    explainer = three_classes()
    texts = [text for text, _ in CASES if isinstance(text, str)]
    too_long = "so " * 230 + "good"
    model, tokenizer = slow(explainer), explainer.tokenizer
    scored = [literal.predicted_scores(model, tokenizer, text, method) for text in texts]
    expected = literal.alti_classification(model, tokenizer, [*texts, too_long], [*scored, np.zeros(233)])
    cases = [(text, 0) for text in [*texts, too_long]]
    found = judge(protocol("alti"), explainer, cases, method)
    assert found == pytest.approx(expected, abs=CLOSE)
    plain = replace(ALTI, measures=tuple(replace(m, options={}) for m in ALTI.measures))
    assert judge(plain, explainer, cases, method) != found
    assert ALTI.keep(explainer.encode([too_long])[0]) == "more than 200 tokens"


def test_alti_between_seeds():
    """Over all tokens, the top quarter rounded up; Spearman's formula on dense ranks, or as written on ranks."""
    one = tl.load().explain("What a lovely little film.", "raw_attention")
    two = replace(one, scores=torch.tensor([0.0, 0.3, 0.1, 0.1, 0.2, 0.0, 0.9, 0.0]))
    one = replace(one, scores=torch.tensor([0.9, 0.0, 0.1, 0.1, 0.2, 0.3, 0.0, 0.4]))
    jaccard, spearman = (evaluate_scores(measure, one, two) for measure in ALTI_ROBUSTNESS)
    assert jaccard == 0  # [CLS] and [SEP] against the first and the sixth word
    dense_one, dense_two = np.array([5, 0, 1, 1, 2, 3, 0, 4]), np.array([0, 3, 1, 1, 2, 0, 4, 0])
    assert spearman == pytest.approx(1 - 6 * ((dense_one - dense_two) ** 2).sum() / (8 * 63))
    written = [evaluate_scores(measure, one, two) for measure in ALTI_ROBUSTNESS_WRITTEN]
    assert written == pytest.approx([0, spearmanr(one.scores, two.scores)[0]])


# --- Arras et al. ------------------------------------------------------------------------------------------------

AGREEMENT = [  # text, right, wrong, the subject
    ("the keys to the cabinet {} on the table", "are", "is", "keys"),
    ("the author in Paris {} young", "is", "are", "author"),
    ("rarely believable films {} not bad", "are", "is", "films"),
    ("the key {} here", "is", "are", "key"),
    ("the book by the author {} good", "are", "is", "book"),
    ("they {} not bad at all", "are", "is", "they"),
]


def agreement(family: str, task: str) -> tuple[tl.Explainer, list[tuple[Any, ...]]]:
    """Text, target and foil as the library takes them, and ids, position, right, wrong, truth for the slow one."""
    explainer = explainer_in_double(explainer_for(family, task))
    cases = []
    for text, right, wrong, subject in AGREEMENT:
        masked = task == "fill-mask"
        text = text.replace("{}", "[MASK]") if masked else text.partition(" {}")[0]
        forms = (right, wrong) if masked else (f" {right}", f" {wrong}")
        (tokenized_text,) = explainer.encode([text])
        begin = text.index(subject)
        truth = [i for i, (a, b) in enumerate(tokenized_text.spans) if a < begin + len(subject) and b > begin]
        position = tokenized_text.tokens.index("[MASK]") if masked else len(tokenized_text) - 1
        ids = [explainer.task.index(form) for form in forms]
        cases.append((text, *forms, tokenized_text, (tokenized_text.input_ids, position, *ids, truth)))
    return explainer, cases


@pytest.mark.parametrize("method", ["gradient_l1", "gradient_x_input"])
@pytest.mark.parametrize(("family", "task"), [("bert", "fill-mask"), ("llama", "text-generation")])
def test_arras(family, task, method):
    explainer, cases = agreement(family, task)
    preset = protocol("arras")
    expected = literal.arras_protocol(slow(explainer), [case[-1] for case in cases], method)
    fitted = preset.fit(explainer)
    texts, rights, wrongs, rows, _ = (list(column) for column in zip(*cases, strict=True))
    differences = [e.score for e in fitted.explain(texts, "random", target=rights, foil=wrongs)]
    kept = [i for i, row in enumerate(rows) if preset.keep(row, right=differences[i] > 0) is None]
    assert 0 < len(kept) < len(cases)  # some are predicted wrongly
    texts, rights, wrongs = ([column[i] for i in kept] for column in (texts, rights, wrongs))
    own = explained(preset, fitted, texts, method, rights, wrongs)
    marks = [torch.tensor([i in cases[k][-1][-1] for i in range(len(rows[k]))]) for k in kept]
    found = evaluate(fitted, own, preset.measures, marks=marks)
    means = {name: np.mean([one[name] for one in found]) for name in found[0]}
    assert means == pytest.approx(expected, abs=CASTING if family == "llama" else CLOSE)


# --- The whole way, through the benchmark ------------------------------------------------------------------------


def table_means(explainer: tl.Explainer, examples: list[Example], preset: str, method: str) -> dict[str, float]:
    table = bench(explainer, examples, [method], protocol=preset, erasure=False, progress=False)
    return {column.label: table.cell(method, column.label).mean for column in table.columns}


@pytest.mark.parametrize(("preset", "notebook"), [("attcat", ""), ("attcat_mnli", "mnli"), ("mask_lrp_qqp", "qqp")])
def test_the_benchmark_gives_the_same_means_for_classes(preset, notebook):
    explainer = three_classes()
    transcribed = literal.attcat_protocol if "attcat" in preset else literal.mask_lrp_protocol
    expected = transcribed(slow(explainer), explainer.tokenizer, *data(PAIRS), "attcat", notebook)
    examples = [Example(str(i), text, label=label) for i, (text, label) in enumerate(PAIRS)]
    assert table_means(explainer, examples, preset, "attcat") == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("paper", ["attcat", "mask_lrp"])
def test_answers_as_the_papers_write_them(paper):
    """The model's own answer is explained as it is; answers that were cut off are set aside."""
    explainer = reader()
    places = answer_places()
    pairs = zip([question for question, _ in QUESTIONS], places, strict=True)
    examples = [Example(str(i), question, answer=place) for i, (question, place) in enumerate(pairs)]
    table = bench(explainer, examples, ["attcat"], protocol=f"{paper}_squad_written", erasure=False, progress=False)
    tokenized_texts = explainer.encode([example.text for example in examples])
    found, sizes = [], []
    for e, tokenized_text, place in zip(
        explainer.explain([x.text for x in examples], "attcat"), tokenized_texts, places, strict=True
    ):
        marks = clean(["recall_at_k"]).answer_marks(tokenized_text, place)
        assert marks is not None
        top = sorted(range(len(tokenized_text)), key=lambda i: (-float(e.scores[i]), i))[:20]
        found.append(sum(bool(marks[i]) for i in top))
        sizes.append(int(marks.sum()))
    expected = np.mean(found) if paper == "attcat" else 100 * sum(found) / sum(sizes)
    assert table.lines[0].cells[0].mean == pytest.approx(expected)


@pytest.mark.parametrize("paper", ["attcat", "mask_lrp"])
def test_the_benchmark_gives_the_same_means_for_answers(paper):
    explainer = reader()
    questions, answers = [question for question, _ in QUESTIONS], answer_places()
    expected = literal.squad_protocol(slow(explainer), explainer.tokenizer, questions, answers, "attcat", paper)
    pairs = zip(questions, answers, strict=True)
    examples = [Example(str(i), question, answer=answer) for i, (question, answer) in enumerate(pairs)]
    (found,) = table_means(explainer, examples, f"{paper}_squad", "attcat").values()
    assert found == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize(("family", "task"), [("bert", "fill-mask"), ("llama", "text-generation")])
def test_the_benchmark_gives_the_same_means_for_evidence(family, task):
    explainer, cases = agreement(family, task)
    expected = literal.arras_protocol(slow(explainer), [case[-1] for case in cases], "gradient_l1")
    examples = []
    for (text, right, wrong, *_), (_, _, _, subject) in zip(cases, AGREEMENT, strict=True):
        place = (text.index(subject), text.index(subject) + len(subject))
        examples.append(Example(text, text, target=right, foil=wrong, evidence=(place,)))
    table = bench(explainer, examples, ["gradient_l1"], protocol="arras", erasure=False, progress=False)
    found = {column.label: table.cell("gradient_l1", column.label).mean for column in table.columns}
    assert found == pytest.approx(expected, abs=CASTING if family == "llama" else CLOSE)
    check_random_runs(
        table, explainer, [case for case, right in zip(cases, predicted_right(explainer, cases), strict=True) if right]
    )


def predicted_right(explainer: tl.Explainer, cases: list[tuple[Any, ...]]) -> list[bool]:
    texts, rights, wrongs = ([case[i] for case in cases] for i in range(3))
    return [e.score > 0 for e in explainer.explain(texts, "random", target=rights, foil=wrongs)]


def check_random_runs(table: Table, explainer: tl.Explainer, cases: list[tuple[Any, ...]]) -> None:
    """Table 2: the mean of ten runs, each with its own mean over the examples, and their standard deviation."""
    runs = []
    for seed in range(10):
        scored = explainer.explain([case[0] for case in cases], "random", seed=seed)
        pairs = zip(scored, cases, strict=True)
        runs.append(literal.means([literal.arras_metrics(e.scores.numpy(), case[-1][-1]) for e, case in pairs]))
    (line,) = (line for line in table.lines if line.label == "random")
    for column, cell, spread in zip(table.columns, line.cells, line.spreads, strict=True):
        values = [run[column.label] for run in runs if run is not None]
        assert cell.mean == pytest.approx(np.mean(values))
        assert spread == pytest.approx(np.std(values, ddof=1))
    assert [line.label for line in table.lines] == ["gradient_l1", "random", "inverse of gradient_l1"]
    assert "Random: the mean of several runs with standard deviations PG-2 " in table.to_markdown()


# --- Protocols themselves ----------------------------------------------------------------------------------------


def test_every_preset_is_there_under_its_name():
    assert {"attcat", "mask_lrp", "alti", "arras"} <= set(PROTOCOLS)
    for name, one in PROTOCOLS.items():
        assert protocol(name) is one
        assert one.name == name
        assert one.tasks
        assert one.zero_first | one.absolute <= set(METHODS)
        changes = [m.resolved_perturbation for m in one.measures if m.entry.kind == "perturbation"]
        assert all(change.zero_types is one.zero_types for change in changes)
    with pytest.raises(ValueError, match=r"no protocol 'atcat'. Protocols: attcat, .*arras"):
        protocol("atcat")


def test_the_clean_protocol_changes_nothing():
    perturbation = Perturbation(removal="delete")
    measure = Measure("aopc", options={"absolute": True}, name="absolute")
    plain = clean(["AOPC", "pointing_game", measure], perturbation)
    assert plain.measures == (Measure("aopc", perturbation), Measure("pointing_game"), measure)
    explainer = tl.load()
    assert plain.fit(explainer) is explainer
    assert plain.prepare(explainer.tokenizer) is None
    (tokenized_text,) = explainer.encode(["fine"])
    assert plain.keep(tokenized_text) is None
    batch = explainer.collate([tokenized_text])
    assert plain.measured(batch) is batch
    e = explainer.explain("fine", "raw_attention")
    assert plain.adjust(e) is e
    assert plain.needs_marks
    assert not clean(["aopc"]).needs_marks
    with pytest.raises(ValueError, match="requested twice"):
        clean(["aopc", "aopc"])


def test_hiding_is_not_padding():
    """Hidden tokens keep their place, their own attention and their scores."""
    explainer = tl.load()
    batch = explainer.collate(explainer.encode([("fine", "very fine"), "fine"]))
    prepare = ATTCAT.prepare(explainer.tokenizer)
    assert prepare is not None
    changed = prepare(batch)
    assert isinstance(changed, HidingBatch)
    assert changed.inputs()["attention_mask"].tolist() == [[0, 1, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0]]
    assert changed.attention_mask.tolist() == batch.attention_mask.tolist()
    assert not changed.inputs()["token_type_ids"].any()
    assert isinstance(changed.map(torch.clone), HidingBatch)
    decoder = explainer_for("gpt2")  # has neither [CLS] nor [SEP]
    prepare = ATTCAT.prepare(decoder.tokenizer)
    assert prepare is not None
    batch = decoder.collate(decoder.encode(["fine"]))
    assert prepare(batch) is batch


def test_reasons_are_given():
    (tokenized_text,) = tl.load().encode(["A rather short text."])
    assert MASK_LRP.keep(tokenized_text, label=1) == "fewer than 20 tokens"
    short = replace(protocol("mask_lrp_qqp"), shortest=0)
    assert short.keep(tokenized_text) == "no gold label"
    assert short.keep(tokenized_text, label=0, probability=0.9) == "gold label is not 1"
    assert short.keep(tokenized_text, label=1, probability=0.29) == "probability of the gold label below 0.3"
    assert short.keep(tokenized_text, label=1, probability=0.3) is None
    other = replace(protocol("mask_lrp_mnli"), shortest=0)
    assert other.keep(tokenized_text, label=2, probability=0.339) == "probability of the gold label below 0.34"
    assert other.keep(tokenized_text, label=2, probability=0.34) is None
    assert ARRAS.keep(tokenized_text, right=False) == ARRAS.keep(tokenized_text) == "predicted wrongly"
    assert ARRAS.keep(tokenized_text, right=True) is None
    assert ALTI.keep(replace(tokenized_text, truncated=200)) == "more than 200 tokens"


def test_a_protocol_is_for_its_task():
    with pytest.raises(
        ValueError, match="'arras' is for fill-mask and text-generation, but this model does text-class"
    ):
        ARRAS.fit(tl.load())
    with pytest.raises(
        ValueError, match=r"does question-answering; protocols for that: attcat_squad, mask_lrp_squad, "
    ):
        MASK_LRP.fit(reader())


def test_other_classes():
    assert [other_class(label) for label in (0, 1, 2)] == [1, 0, 1]
