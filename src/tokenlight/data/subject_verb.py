"""Subject-verb agreement data (Arras et al. 2025), from gold trees or from the LGD file of Goldberg (2019).

Each case is a present-tense verb with its form of the other number, and its subject as evidence. Uncertain cases are
left out as bad rows; equal problems have equal reasons, so that they can be counted.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import numbered_lines, open_text, write_atomically
from tokenlight.data.examples import MASK_MARK, BadRow, Example, Span, TableRow
from tokenlight.heads.parses import SPACY_PIPELINE, TreebankSentence, conllu_blocks, load_spacy, read_sentence
from tokenlight.text.tokenized_text import Gap

IRREGULAR = {  # lemma -> third person singular, other persons
    "be": ("is", "are"),
    "have": ("has", "have"),
    "do": ("does", "do"),
    "go": ("goes", "go"),
    "undergo": ("undergoes", "undergo"),
    "forgo": ("forgoes", "forgo"),
    "echo": ("echoes", "echo"),
    "veto": ("vetoes", "veto"),
    "stomach": ("stomachs", "stomach"),
}
VOWELS = "aeiou"
SIBILANTS = ("ss", "x", "zz", "ch", "sh")


def verb_forms(lemma: str) -> tuple[str, str] | None:
    """Third person singular and plural form of a verb; None if they do not follow from the spelling of the lemma."""
    if lemma in IRREGULAR:
        return IRREGULAR[lemma]
    if len(lemma) < 2 or not (lemma.isascii() and lemma.isalpha() and lemma.islower()):
        return None
    before, last = lemma[-2], lemma[-1]
    if lemma.endswith(SIBILANTS):
        return lemma + "es", lemma
    if last in "sz" or (last == "o" and before not in VOWELS):  # buses or busses, quizzes, solos
        return None
    if last == "y" and before not in VOWELS:
        return lemma[:-1] + "ies", lemma
    return lemma + "s", lemma


def other_form(form: str, lemma: str, singular: bool) -> str | None:
    """The form of the other number, capitalized like `form`; None if `form` does not follow from its lemma."""
    forms = verb_forms(lemma)
    if forms is None or form.lower() != forms[0 if singular else 1]:
        return None
    other = forms[1 if singular else 0]
    if form.isupper():
        return other.upper()
    return other.capitalize() if form[0].isupper() else other


FORM, LEMMA, UPOS, XPOS, FEATURES, HEAD, RELATION = 1, 2, 3, 4, 5, 6, 7  # columns of CoNLL-U
PRESENT_TAGS = ("VBZ", "VBP")
PARSED_TOGETHER = 512  # rows
ANNOTATED = ("text", "verb", "subject", "other", "attractors")  # columns of an annotated data set


@dataclass(frozen=True)
class AgreementCase:
    """A sentence with a verb, its subject, and the verb's form in the other number."""

    id: str
    where: str
    text: str
    verb: Span
    subject: Span
    other: str
    attractors: int  # nouns of the other number between subject and verb


def treebank_cases(path: str | Path) -> Iterator[AgreementCase | BadRow]:
    """An agreement case or a bad row for every present-tense verb of a CoNLL-U treebank."""
    for number, block in enumerate(conllu_blocks(path), 1):
        try:
            sentence = read_sentence(block, str(path), number)
        except ValueError as error:
            yield BadRow(f"{path}, line {block[0][0]}", str(error))
            continue
        for verb, columns in enumerate(sentence.columns):
            if is_present(columns):
                yield treebank_case(sentence, verb)


def is_present(columns: Sequence[str]) -> bool:
    """Whether a word is a finite verb in the present tense; modal verbs are excluded, since they have no number."""
    word_features = features(columns)
    is_finite_present = word_features.get("Tense") == "Pres" and word_features.get("VerbForm") == "Fin"
    return (
        columns[UPOS] in ("VERB", "AUX")
        and columns[XPOS] != "MD"
        and (columns[XPOS] in PRESENT_TAGS or is_finite_present)
    )


def features(columns: Sequence[str]) -> dict[str, str]:
    """Morphological features of a word by name."""
    return dict(feature.split("=", 1) for feature in columns[FEATURES].split("|") if "=" in feature)


def treebank_case(sentence: TreebankSentence, verb: int) -> AgreementCase | BadRow:
    columns, words = sentence.columns, sentence.parse.words
    where = f"{sentence.where}, word {verb + 1}"
    subjects = subjects_of(sentence, verb)
    if len(subjects) != 1:
        return BadRow(where, "several subjects" if subjects else "no nsubj")
    subject = subjects[0]
    reason = reason_to_set_aside(sentence, verb, subject)
    if reason is not None:
        return BadRow(where, reason)
    text = sentence.parse.text
    if not isinstance(text, str) or is_part_of_word(text, words[verb].span):
        return BadRow(where, "verb written together with another word")
    singular = features(columns[subject])["Number"] == "Sing"
    other = other_form(columns[verb][FORM], columns[verb][LEMMA].lower(), singular)
    if other is None:
        return BadRow(where, "other form of the verb uncertain")
    opposite = "Plur" if singular else "Sing"
    between = columns[min(verb, subject) + 1 : max(verb, subject)]
    attractors = [w for w in between if w[UPOS] in ("NOUN", "PROPN") and features(w).get("Number") == opposite]
    return AgreementCase(
        id=f"{sentence.name}:{verb + 1}",
        where=where,
        text=text,
        verb=words[verb].span,
        subject=words[subject].span,
        other=other,
        attractors=len(attractors),
    )


def subjects_of(sentence: TreebankSentence, verb: int) -> list[int]:
    """The nsubj of a verb. In UD, the subject of a copula or auxiliary is attached to the head of that word."""
    words = sentence.parse.words
    parent = verb
    if words[verb].relation.partition(":")[0] in ("cop", "aux"):
        parent = words[verb].head
    return [i for i, word in enumerate(words) if word.head == parent and word.relation == "nsubj"]


def reason_to_set_aside(sentence: TreebankSentence, verb: int, subject: int) -> str | None:
    """Why the subject does not determine the form of the verb; None if it does."""
    verb_features, subject_features = features(sentence.columns[verb]), features(sentence.columns[subject])
    if {verb_features.get("Person", "3"), subject_features.get("Person", "3")} != {"3"}:
        return "first or second person"
    if subject_features.get("PronType") in ("Rel", "Int"):
        return "relative or interrogative subject"
    if any(word.head == subject and word.relation.partition(":")[0] == "conj" for word in sentence.parse.words):
        return "coordinated subject"
    if subject_features.get("Number") not in ("Sing", "Plur"):
        return "subject without number"
    tag = {"VBZ": "Sing", "VBP": "Plur"}.get(sentence.columns[verb][XPOS])
    numbers = {subject_features["Number"], verb_features.get("Number"), tag} - {None}
    if verb_features.get("Number", tag) is None:
        return "verb without number"
    return None if len(numbers) == 1 else "subject and verb differ in number"


def is_part_of_word(text: str, verb: Span) -> bool:
    """Whether the verb is part of a contraction or a compound, so that it cannot be replaced by another form."""
    before, after = text[: verb[0]][-1:], text[verb[1] :][:1]
    return any(c.isalnum() or c in ("'", "’", "-", "_") for c in (before, after) if c)


def lgd_cases(path: str | Path, pipeline: str = SPACY_PIPELINE) -> Iterator[AgreementCase | BadRow]:
    """An agreement case or a bad row for every row of the LGD file; subjects are found by parsing."""
    return find_subjects(lgd_rows(path), pipeline)


def find_subjects(
    rows: Iterator[AgreementCase | BadRow], pipeline: str = SPACY_PIPELINE
) -> Iterator[AgreementCase | BadRow]:
    """Add to rows of the LGD file the subject found by a spaCy pipeline, which is given by name or path."""
    language = load_spacy(pipeline, exclude=("lemmatizer", "ner"))
    while group := list(islice(rows, PARSED_TOGETHER)):
        cases = [row for row in group if isinstance(row, AgreementCase)]
        docs = language.pipe([row.text for row in cases])
        for row in group:
            yield row if isinstance(row, BadRow) else find_subject(row, next(docs))


def lgd_rows(path: str | Path) -> Iterator[AgreementCase | BadRow]:
    """Rows of the LGD file: number of attractors, sentence, masked sentence, verb, other form; without subjects."""
    count = 0
    with open_text(path) as file:
        for count, line in numbered_lines(file):
            where = f"{path}, line {count}"
            fields = line.split("\t")
            if len(fields) != 5 or not fields[0].strip().isdecimal() or fields[2].count(MASK_MARK) != 1:
                yield BadRow(where, "not five columns: attractors, sentence, masked sentence, verb, other form")
                continue
            number, sentence, masked, verb, other = (field.strip() for field in fields)
            start = masked.index(MASK_MARK)
            if masked.replace(MASK_MARK, verb) != sentence:
                yield BadRow(where, "sentence and masked sentence differ")
            elif verb == other:
                yield BadRow(where, "both forms of the verb are the same")
            else:
                span = (start, start + len(verb))
                yield AgreementCase(str(count), where, sentence, span, (0, 0), other, int(number))
    if not count:
        raise RefusedValue(f"{path}: expected rows of the LGD file, found none")


def find_subject(case: AgreementCase, doc: Any) -> AgreementCase | BadRow:
    """The child of the masked verb whose dependency is exactly nsubj."""
    verb = next((token for token in doc if (token.idx, token.idx + len(token)) == case.verb), None)
    if verb is None:
        return BadRow(case.where, "the parser splits the verb otherwise")
    subjects = [token for token in verb.children if token.dep_ == "nsubj"]
    if len(subjects) != 1:
        return BadRow(case.where, "several subjects" if subjects else "no nsubj")
    if verb.tag_ not in PRESENT_TAGS:
        return BadRow(case.where, "verb not tagged as present tense")
    return replace(case, subject=(subjects[0].idx, subjects[0].idx + len(subjects[0])))


def write_cases(path: str | Path, cases: Iterable[AgreementCase]) -> None:
    """Write an annotated data set as JSON lines, which `tokenlight bench` reads without a parser."""
    excluded = ("where",)
    records = ({name: value for name, value in asdict(case).items() if name not in excluded} for case in cases)
    write_atomically(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read_annotated(row: TableRow, gap: Gap) -> Example | BadRow:
    """The example of a row of an annotated data set; spans are [start, end) in characters."""
    text, verb, subject, other, attractors = (row.values[name] for name in ANNOTATED)
    if not (isinstance(text, str) and isinstance(other, str) and isinstance(attractors, int)):
        return BadRow(row.where, "expected a text, the other form of its verb, and a number of attractors")
    spans = [read_span(span, text) for span in (verb, subject)]
    if None in spans:
        return BadRow(row.where, "verb and subject are spans [start, end] of characters in the text")
    (verb_start, verb_end), (start, end) = (span for span in spans if span is not None)
    if start < verb_end and verb_start < end:
        return BadRow(row.where, "verb and subject overlap")
    name = str(row.values.get("id") or row.id)
    return agreement_example(
        AgreementCase(name, row.where, text, (verb_start, verb_end), (start, end), other, attractors), gap
    )


def read_span(value: object, text: str) -> Span | None:
    """A span of characters; None if the value is not a span inside the text."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(position) is int for position in value):
        return None
    start, end = value
    return (start, end) if 0 <= start < end <= len(text) else None


def read_case(row: TableRow, gap: Gap) -> Example | BadRow:
    """The example of a row whose only value is an agreement case."""
    (case,) = row.values.values()
    assert isinstance(case, AgreementCase), f"{row.where} holds {case!r}"
    return agreement_example(case, gap)


def agreement_example(case: AgreementCase, gap: Gap) -> Example | BadRow:
    """The text with MASK_MARK instead of the verb (gap="inside"), or the text before the verb (gap="end")."""
    before, after = case.text[: case.verb[0]], case.text[case.verb[1] :]
    space = " " if before[-1:].isspace() else ""
    if gap == "inside":
        shift = len(MASK_MARK) - (case.verb[1] - case.verb[0])
        subject = case.subject if case.subject < case.verb else (case.subject[0] + shift, case.subject[1] + shift)
        text = f"{before}{MASK_MARK}{after}"
    elif case.subject > case.verb:
        return BadRow(case.where, "subject behind the verb")
    else:
        subject, text = case.subject, before.rstrip()
    return Example(
        case.id,
        text,
        target=space + case.text[slice(*case.verb)],
        foil=space + case.other,
        evidence=(subject,),
        group=str(case.attractors),
    )
