import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import MASK_MARK, BadRow, Example
from tokenlight.data.read import read_examples
from tokenlight.data.subject_verb import (
    AgreementCase,
    lgd_cases,
    other_form,
    treebank_cases,
    verb_forms,
    write_cases,
)

PRESENT = {"VBZ": "Number=Sing|Person=3|Tense=Pres|VerbForm=Fin", "VBP": "Number=Plur|Person=3|Tense=Pres|VerbForm=Fin"}
KEYS = [
    "The the DET DT _ 2 det",
    "keys key NOUN NNS Number=Plur 6 nsubj",
    "to to ADP IN _ 5 case",
    "the the DET DT _ 5 det",
    "cabinet cabinet NOUN NN Number=Sing 2 nmod",
    "are be AUX VBP + 8 cop",
    "on on ADP IN _ 8 case",
    "tables table NOUN NNS Number=Plur 0 root",
]
KEYS[1] = KEYS[1].replace("6 nsubj", "8 nsubj")
WALKS = ["Paris Paris PROPN NNP Number=Sing 2 nsubj", "walks walk VERB VBZ + 0 root"]


def treebank(path: Path, *sentences: list[str], glue: str = "") -> Path:
    """Sentences of words 'form lemma upos xpos features head relation'; + means a present-tense verb's features."""
    blocks = []
    for words in sentences:
        lines = []
        for i, word in enumerate(words, 1):
            form, lemma, upos, xpos, features, head, relation = word.split(" ")
            features = PRESENT[xpos] if features == "+" else features
            space_after = "SpaceAfter=No" if form == glue else "_"
            lines.append("\t".join([str(i), form, lemma, upos, xpos, features, head, relation, "_", space_after]))
        blocks.append("\n".join(lines) + "\n")
    path.write_text("\n".join(blocks))
    return path


def only(path: Path) -> AgreementCase:
    (case,) = treebank_cases(path)
    assert isinstance(case, AgreementCase), case
    return case


def reason(path: Path) -> str:
    (case,) = treebank_cases(path)
    assert isinstance(case, BadRow), case
    return case.reason


def test_a_copula_agrees_with_the_subject_of_its_predicate(tmp_path):
    case = only(treebank(tmp_path / "t.conllu", KEYS))
    assert case.text[slice(*case.verb)] == "are"
    assert case.text[slice(*case.subject)] == "keys"
    assert case.other == "is"
    assert case.attractors == 1
    assert case.id == "1:6"


def test_attractors_are_nouns_of_the_other_number_between_subject_and_verb(tmp_path):
    words = [
        "Lakes lake NOUN NNS Number=Plur 7 obl",
        "man man NOUN NN Number=Sing 7 nsubj",
        "them they PRON PRP Number=Plur|Person=3 2 nmod",
        "dog dog NOUN NN Number=Sing 2 nmod",
        "houses house NOUN NNS Number=Plur 2 nmod",
        "Alps Alps PROPN NNPS Number=Plur 2 nmod",
        "walks walk VERB VBZ + 0 root",
        "hills hill NOUN NNS Number=Plur 7 obj",
    ]
    assert only(treebank(tmp_path / "t.conllu", words)).attractors == 2


def test_masked_and_causal_examples(tmp_path):
    path = treebank(tmp_path / "t.conllu", KEYS)
    (masked,) = read_examples(DataSource(path), gap="inside")
    assert masked == Example(
        "1:6",
        f"The keys to the cabinet {MASK_MARK} on tables",
        target=" are",
        foil=" is",
        evidence=((4, 8),),
        group="1",
    )
    (causal,) = read_examples(DataSource(path))
    assert causal == Example("1:6", "The keys to the cabinet", target=" are", foil=" is", evidence=((4, 8),), group="1")
    with pytest.raises(ValueError, match="words to predict"):
        list(read_examples(DataSource(path), gap=None))


@pytest.mark.parametrize("gap", ["inside", "end"])
def test_annotated_data_gives_the_same_examples(tmp_path, gap):
    path = treebank(tmp_path / "t.conllu", KEYS, WALKS)
    cases = [case for case in treebank_cases(path) if isinstance(case, AgreementCase)]
    write_cases(tmp_path / "annotated.jsonl", cases)
    assert len(cases) == 2
    assert list(read_examples(DataSource(tmp_path / "annotated.jsonl"), gap)) == list(
        read_examples(DataSource(path), gap)
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subject": [4, 99]}, "verb and subject are spans [start, end] of characters in the text"),
        ({"subject": "keys"}, "verb and subject are spans [start, end] of characters in the text"),
        ({"subject": [20, 26]}, "verb and subject overlap"),
        ({"other": None}, "expected a text, the other form of its verb, and a number of attractors"),
    ],
)
def test_annotated_rows_that_cannot_be_used(tmp_path, change, reason):
    row = {"text": "the keys to the cabinet are here", "verb": [24, 27], "subject": [4, 8], "other": "is"}
    rows = [{**row, "attractors": 1}, {**row, "attractors": 1, **change}]
    path = tmp_path / "annotated.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    good, bad = read_examples(DataSource(path))
    assert isinstance(good, Example)
    assert (good.target, good.evidence) == (" are", ((4, 8),))
    assert isinstance(bad, BadRow)
    assert bad.reason == reason


def test_a_subject_after_the_verb_is_evidence_for_masked_models_only(tmp_path):
    words = ["Are be AUX VBP + 4 cop", "the the DET DT _ 3 det", "keys key NOUN NNS Number=Plur 4 nsubj"]
    path = treebank(tmp_path / "t.conllu", [*words, "here here ADV RB _ 0 root"])
    (masked,) = read_examples(DataSource(path), "inside")
    assert isinstance(masked, Example)
    assert isinstance(masked.text, str)
    assert (masked.target, masked.foil) == ("Are", "Is")  # nothing before it: no space
    assert masked.text[slice(*masked.evidence[0])] == "keys"
    (causal,) = read_examples(DataSource(path), "end")
    assert isinstance(causal, BadRow)
    assert causal.reason == "subject behind the verb"


def test_only_finite_present_tense_verbs_are_candidates(tmp_path):
    subject = "Paris Paris PROPN NNP Number=Sing 2 nsubj"
    for verb in (
        "walked walk VERB VBD Tense=Past|VerbForm=Fin 0 root",
        "was be AUX VBD Number=Sing|Tense=Past|VerbForm=Fin 0 root",
        "can can AUX MD Tense=Pres|VerbForm=Fin 0 root",
        "walking walk VERB VBG Tense=Pres|VerbForm=Part 0 root",
        "walks walk NOUN NNS Number=Plur 0 root",
        "walks walk NOUN VBZ Number=Sing 0 root",
    ):
        assert list(treebank_cases(treebank(tmp_path / "t.conllu", [subject, verb]))) == []


@pytest.mark.parametrize(
    "verb", ["walks walk VERB _ Number=Sing|Tense=Pres|VerbForm=Fin 0 root", "walks walk VERB VBZ _ 0 root"]
)
def test_either_tags_or_features_are_sufficient(tmp_path, verb):
    assert only(treebank(tmp_path / "t.conllu", [WALKS[0], verb])).other == "walk"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["walks walk VERB VBZ + 0 root"], "no nsubj"),
        ([WALKS[0].replace("nsubj", "nsubj:pass"), WALKS[1]], "no nsubj"),
        (["Ann Ann PROPN NNP Number=Sing 3 nsubj", WALKS[0].replace("2", "3"), WALKS[1]], "several subjects"),
        (
            ["I I PRON PRP Number=Sing|Person=1 2 nsubj", "walk walk VERB VBP Person=1|Tense=Pres|VerbForm=Fin 0 root"],
            "first or second person",
        ),
        (["You you PRON PRP Number=Plur|Person=2 2 nsubj", "walk walk VERB VBP _ 0 root"], "first or second person"),
        (["that that PRON WDT Number=Sing|PronType=Rel 2 nsubj", WALKS[1]], "relative or interrogative subject"),
        (["Who who PRON WP PronType=Int 2 nsubj", WALKS[1]], "relative or interrogative subject"),
        (
            [WALKS[0].replace("2", "3"), "Rome Rome PROPN NNP Number=Sing 1 conj", "walk walk VERB VBP + 0 root"],
            "coordinated subject",
        ),
        (["Most most ADJ JJS _ 2 nsubj", "walk walk VERB VBP + 0 root"], "subject without number"),
        ([WALKS[0], "walk walk VERB VBP + 0 root"], "subject and verb differ in number"),
        ([WALKS[0], "walk walk VERB _ Tense=Pres|VerbForm=Fin 0 root"], "verb without number"),
        ([WALKS[0], "quizzes quiz VERB VBZ + 0 root"], "other form of the verb uncertain"),
        ([WALKS[0], "walkz walk VERB VBZ + 0 root"], "other form of the verb uncertain"),
    ],
)
def test_uncertain_cases_are_left_out_with_a_reason(tmp_path, words, expected):
    assert reason(treebank(tmp_path / "t.conllu", words)) == expected


def test_an_unreadable_sentence_does_not_affect_others(tmp_path):
    path = treebank(tmp_path / "t.conllu", KEYS)
    path.write_text(f"1\tbroken\n\n{path.read_text()}")
    bad, good = treebank_cases(path)
    assert isinstance(bad, BadRow)
    assert "expected 10 columns" in bad.reason
    assert isinstance(good, AgreementCase)


def test_contractions_are_left_out(tmp_path):
    words = ["Paris Paris PROPN NNP Number=Sing 4 nsubj", "does do AUX VBZ + 4 aux", "n't not PART RB _ 4 advmod"]
    path = treebank(tmp_path / "t.conllu", [*words, "walk walk VERB VB _ 0 root"], glue="does")
    assert reason(path) == "verb written together with another word"
    path = treebank(tmp_path / "t.conllu", [WALKS[0], "'s be AUX VBZ + 0 root"], glue="Paris")
    assert reason(path) == "verb written together with another word"


@pytest.mark.parametrize(
    ("lemma", "forms"),
    [
        ("be", ("is", "are")),
        ("have", ("has", "have")),
        ("do", ("does", "do")),
        ("go", ("goes", "go")),
        ("walk", ("walks", "walk")),
        ("watch", ("watches", "watch")),
        ("fix", ("fixes", "fix")),
        ("pass", ("passes", "pass")),
        ("buzz", ("buzzes", "buzz")),
        ("try", ("tries", "try")),
        ("play", ("plays", "play")),
        ("see", ("sees", "see")),
        ("radio", ("radios", "radio")),
        ("quiz", None),
        ("bus", None),
        ("solo", None),
        ("x", None),
        ("re-do", None),
    ],
)
def test_verb_forms(lemma, forms):
    assert verb_forms(lemma) == forms


def test_the_other_form_has_the_same_capitalization():
    assert other_form("walks", "walk", singular=True) == "walk"
    assert other_form("Walk", "walk", singular=False) == "Walks"
    assert other_form("ARE", "be", singular=False) == "IS"
    assert other_form("ai", "be", singular=False) is None
    assert other_form("walk", "walk", singular=True) is None


def row(number: object, sentence: str, verb: str, other: str) -> str:
    return f"{number}\t{sentence.replace('*', verb)}\t{sentence.replace('*', MASK_MARK)}\t{verb}\t{other}\n"


def test_lgd_finds_the_subject_of_the_masked_verb(tmp_path):
    pytest.importorskip("spacy")
    content = (
        row(1, "the keys to the cabinet * on the table .", "are", "is")
        + row(2, "the woman near the lakes * the dogs .", "sees", "see")
        + row(1, "the sheep in the field * .", "put", "put")
        + row("x", "the man * .", "runs", "run")
        + "1\tthe men run .\tthe man ***mask*** .\trun\truns\n"
        + row(1, "the cabinet was * by the keys .", "opened", "open")
        + row(1, "the woman near the lakes * the dogs .", "saw", "see")
        + row(1, "the men know that the woman near the lakes * the dogs .", "sees", "see")
    )
    path = tmp_path / "lgd.tsv"
    path.write_text(content)
    first, second, *bad, nested = lgd_cases(path)
    assert isinstance(first, AgreementCase)
    assert isinstance(second, AgreementCase)
    assert (first.id, first.text[slice(*first.subject)], first.other, first.attractors) == ("1", "keys", "is", 1)
    assert (second.text[slice(*second.verb)], second.text[slice(*second.subject)]) == ("sees", "woman")
    assert [case.reason for case in bad if isinstance(case, BadRow)] == [
        "both forms of the verb are the same",
        "not five columns: attractors, sentence, masked sentence, verb, other form",
        "sentence and masked sentence differ",
        "no nsubj",
        "verb not tagged as present tense",
    ]
    assert isinstance(nested, AgreementCase)
    assert nested.text[slice(*nested.subject)] == "woman"
    examples = list(read_examples(DataSource(path)))  # the kind is recognized by the content
    assert isinstance(examples[0], Example)
    assert (examples[0].text, examples[0].target, examples[0].group) == ("the keys to the cabinet", " are", "1")
    path.write_text("")
    with pytest.raises(ValueError, match="found none"):
        list(lgd_cases(path))


def test_real_treebank():
    data = Path(os.environ.get("TOKENLIGHT_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = data / "ud" / "en_ewt-ud-dev.conllu"
    if not path.is_file():
        pytest.skip(f"no treebank in {data}: set TOKENLIGHT_DATA")
    rows = list(treebank_cases(path))
    cases = [case for case in rows if isinstance(case, AgreementCase)]
    assert len(cases) == 546
    assert Counter(case.attractors for case in cases) == {0: 521, 1: 20, 2: 4, 3: 1}
    assert all(case.other != case.text[slice(*case.verb)] for case in cases)
