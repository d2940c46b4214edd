"""Texts made from templates, for small models: agreement, questions about a passage, and pairs of sentences.

The right answer to each text follows from known words of it, so that an explanation can be judged.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenlight.data.subject_verb import AgreementCase, write_cases

NOUNS = {  # singular -> plural
    "author": "authors", "child": "children", "doctor": "doctors", "driver": "drivers", "farmer": "farmers",
    "friend": "friends", "guard": "guards", "lawyer": "lawyers", "pilot": "pilots", "singer": "singers",
    "teacher": "teachers", "writer": "writers", "table": "tables", "house": "houses", "picture": "pictures",
    "letter": "letters",
}  # fmt: skip
PEOPLE = ("author", "child", "doctor", "driver", "farmer", "lawyer", "pilot", "singer", "teacher", "writer")
VERBS = {"is": "are", "has": "have", "likes": "like", "knows": "know", "sees": "see", "wants": "want"}
OBJECTS = ("the garden", "a new car", "the old town", "some bread", "the river", "a quiet room")
STATES = ("tall", "happy", "old", "late", "here")
LINKS = ("near", "behind", "with", "beside")
NAMES = ("anna", "boris", "clara", "david", "elena", "felix", "greta", "henry", "irene", "jonas", "karin", "louis")
CITIES = ("oslo", "rome", "paris", "delhi", "lima", "cairo", "tokyo", "quito", "dakar", "bern")
YEARS = ("1912", "1925", "1931", "1948", "1957", "1969", "1974", "1986")
DEEDS = ("the letter", "the bridge", "the painting", "the song", "the theater", "the journey")
SAME_QUESTIONS = {
    "home": ("where does {} live ?", "in which city is the home of {} ?"),
    "work": ("what does {} do for a living ?", "which job does {} have ?"),
    "age": ("how old is {} ?", "what is the age of {} ?"),
    "food": ("what does {} like to eat ?", "which food does {} prefer ?"),
}
THINGS = ("soup", "coffee", "service", "room", "music", "bread", "view", "staff")
GOOD = ("lovely", "great", "warm", "fresh", "friendly", "perfect")
BAD = ("awful", "cold", "rude", "dirty", "stale", "boring")
ASIDES = (
    "we came with {} in the evening .", "it is near the river .", "{} and {} were there too .",
    "we had read about it before .", "the place has two floors .", "{} took the bus home .",
)  # fmt: skip
MASK = "***mask***"


@dataclass(frozen=True)
class AgreementSentence:
    """A sentence whose verb agrees with its subject across nouns of the other number."""

    before: str
    verb: str
    other_form: str
    after: str
    attractors: int

    @property
    def text(self) -> str:
        return f"{self.before} {self.verb} {self.after}"


def make_agreement_sentence(draw: random.Random, opposite: bool) -> AgreementSentence:
    """`opposite`: all nouns before the verb have the other number than the subject; otherwise either number."""
    plural = draw.random() < 0.5
    person, attractors = draw.choice(PEOPLE), draw.randint(1, 2)
    words = ["the", NOUNS[person] if plural else person]
    for _ in range(attractors):
        noun = draw.choice([noun for noun in NOUNS if noun != person])
        noun_is_plural = not plural if opposite else draw.random() < 0.5
        words += [draw.choice(LINKS), "the", NOUNS[noun] if noun_is_plural else noun]
    singular_form, plural_form = draw.choice(list(VERBS.items()))
    after = draw.choice(STATES) if singular_form == "is" else draw.choice(OBJECTS)
    verb, other = (plural_form, singular_form) if plural else (singular_form, plural_form)
    return AgreementSentence(" ".join(words), verb, other, f"{after} .", attractors)


@dataclass(frozen=True)
class Question:
    """A question about a passage, with the answer's place in it."""

    passage: str
    question: str
    answer: str
    start: int  # character of the passage


def make_question(draw: random.Random) -> Question:
    """Who, where or when: the answer is the one name, city or year of the passage."""
    answers = {"who": draw.choice(NAMES), "where": draw.choice(CITIES), "when": draw.choice(YEARS)}
    deed = draw.choice(DEEDS)
    clauses = [f"the {draw.choice(PEOPLE)} {answers['who']} did it", f"it was in {answers['where']}"]
    clauses += [f"the year was {answers['when']}", f"{draw.choice(DEEDS)} came later"]
    draw.shuffle(clauses)
    passage = " ".join(f"{clause} ." for clause in [f"this is about {deed}", *clauses])
    question_word = draw.choice(list(answers))
    question = {"who": "who did it ?", "where": "where was it ?", "when": "when was it ?"}[question_word]
    return Question(passage, question, answers[question_word], passage.index(answers[question_word]))


def make_pair(draw: random.Random) -> tuple[str, str, int]:
    """Two questions, and 1 if they ask the same thing."""
    topics, name = draw.sample(list(SAME_QUESTIONS), 2), draw.choice(NAMES)
    same = draw.random() < 0.5
    first, second = draw.sample(SAME_QUESTIONS[topics[0]], 2)
    if not same:
        second = draw.choice(SAME_QUESTIONS[topics[1]])
    return first.format(name), second.format(name), int(same)


def make_inference(draw: random.Random) -> tuple[str, str, int]:
    """Premise, hypothesis, and a label: 0 the hypothesis follows, 1 it is open, 2 it is contradicted."""
    name, place = draw.choice(NAMES), draw.choice(CITIES)
    verb, base = draw.choice([("lives", "live"), ("works", "work")])
    label = draw.randrange(3)
    state = draw.choice(STATES)
    hypotheses = (f"{name} {verb} there", f"{name} is {state}", f"{name} does not {base} there")
    return f"{name} {verb} in {place} .", f"{hypotheses[label]} .", label


def make_review(draw: random.Random) -> tuple[str, int]:
    """Several sentences, and 1 if they praise: one or two opinions, a quarter of them negated, among remarks."""
    praise = draw.random() < 0.5
    sentences = [draw.choice(ASIDES).format(*draw.sample(NAMES, 2)) for _ in range(draw.randint(1, 2))]
    for thing in draw.sample(THINGS, draw.randint(1, 2)):
        negated = draw.random() < 0.25
        word = draw.choice(GOOD if praise != negated else BAD)
        sentences.append(f"the {thing} was {'not ' if negated else ''}{word} .")
    draw.shuffle(sentences)
    return " ".join(sentences), int(praise)


def write_reviews(path: Path, count: int, seed: int) -> Path:
    """A text and a label, in the columns of Yelp polarity."""
    draw = random.Random(seed)
    return write_rows(path, ("text", "label"), [make_review(draw) for _ in range(count)])


def write_agreement(path: Path, count: int, seed: int) -> Path:
    """In the columns of the LGD file (Goldberg 2019): attractors, sentence, masked sentence, verb, other form."""
    draw = random.Random(seed)
    lines = []
    for sentence in (make_agreement_sentence(draw, opposite=True) for _ in range(count)):
        masked = f"{sentence.before} {MASK} {sentence.after}"
        lines.append(f"{sentence.attractors}\t{sentence.text}\t{masked}\t{sentence.verb}\t{sentence.other_form}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_annotated_agreement(path: Path, count: int, seed: int) -> Path:
    """The sentences that `write_agreement` writes, with the places of verb and subject: the second word of each."""
    draw = random.Random(seed)
    cases = []
    for number in range(1, count + 1):
        sentence = make_agreement_sentence(draw, opposite=True)
        verb, subject = len(sentence.before) + 1, sentence.before.index(" ") + 1
        spans = (verb, verb + len(sentence.verb)), (subject, subject + len(sentence.before.split()[1]))
        cases.append(AgreementCase(str(number), "", sentence.text, *spans, sentence.other_form, sentence.attractors))
    write_cases(path, cases)
    return path


def write_questions(path: Path, count: int, seed: int) -> Path:
    """In the format of SQuAD 1.1."""
    draw = random.Random(seed)
    paragraphs = []
    for number, question in enumerate(make_question(draw) for _ in range(count)):
        answers = [{"text": question.answer, "answer_start": question.start}]
        record = {"id": str(number), "question": question.question, "answers": answers}
        paragraphs.append({"context": question.passage, "qas": [record]})
    path.write_text(json.dumps({"data": [{"title": "facts", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def write_pairs(path: Path, count: int, seed: int) -> Path:
    """Two questions and a label, in the columns of QQP."""
    draw = random.Random(seed)
    return write_rows(path, ("question1", "question2", "label"), [make_pair(draw) for _ in range(count)])


def write_inferences(path: Path, count: int, seed: int) -> Path:
    """Premise, hypothesis and label, in the columns of MNLI."""
    draw = random.Random(seed)
    return write_rows(path, ("premise", "hypothesis", "label"), [make_inference(draw) for _ in range(count)])


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    lines = ["\t".join(map(str, row)) + "\n" for row in (columns, *rows)]
    path.write_text("".join(lines), encoding="utf-8")
    return path
