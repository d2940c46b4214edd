"""What the columns of a table mean: texts, pairs, questions, answers, and minimal pairs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenlight.common.errors import RefusedValue
from tokenlight.data.examples import MASK_MARK, BadRow, Example, TableRow
from tokenlight.text.documents import Prompt
from tokenlight.text.segmentation import occurrences
from tokenlight.text.tokenize import ASSISTANT
from tokenlight.text.tokenized_text import Chat, Gap, check_text, parts

# Names in the common datasets; upper and lower case are the same.
TEXTS = ("sentence", "text", "text_a", "comment", "review", "content")
PAIRS = (
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("sentence1", "sentence2"),
    ("question", "sentence"),
    ("text_a", "text_b"),
)
LABELS = ("label", "sentiment", "target", "gold_label", "class")
QUESTION = ("question", "context", "answers")


@dataclass(frozen=True)
class Columns:
    """Which columns hold what. Two texts and answers: question answering."""

    texts: tuple[str, ...]
    label: str | None = None
    answers: str | None = None


def resolve_columns(
    found: Sequence[str], text: str | None, pair: tuple[str, str] | None, label: str | None, source: str
) -> Columns:
    """The columns that the caller named; common names for the rest."""
    if text is not None and pair is not None:
        raise RefusedValue(f"expected the column of a text or those of a pair, found text={text!r} and pair={pair!r}")
    for name in (*(pair or ()), text, label):
        if name is not None and name not in found:
            raise RefusedValue(f"{source} has no column {name!r}; it has {', '.join(found)}")
    chosen = label if label is not None else one_of(LABELS, found, "label", source)
    if text is not None or pair is not None:
        return Columns(pair or (text or "",), chosen)
    question = all_of(QUESTION, found)
    if question:
        return Columns(question[:2], answers=question[2])
    pairs = [names for names in (all_of(names, found) for names in PAIRS) if names]
    if len(pairs) > 1:
        raise RefusedValue(f"{source} has the pairs {pairs}: choose one with pair=")
    guessed = pairs[0] if pairs else (one_of(TEXTS, found, "text", source),)
    if guessed[0] is None:
        raise RefusedValue(
            f"{source} has no column that is known to hold a text; it has {', '.join(found)}. "
            "Name it with text=, or two with pair=; tables need a header"
        )
    return Columns(tuple(name for name in guessed if name is not None), chosen)


def all_of(names: Iterable[str], found: Sequence[str]) -> tuple[str, ...]:
    """The columns with all of these names, or none."""
    lower = {name.lower(): name for name in found}
    return tuple(lower[name] for name in names) if all(name in lower for name in names) else ()


def one_of(names: Iterable[str], found: Sequence[str], what: str, source: str) -> str | None:
    """The one column with any of these names."""
    fitting = [name for name in found if name.lower() in names]
    if len(fitting) > 1:
        raise RefusedValue(f"{source}: any of the columns {', '.join(fitting)} may be the {what}: choose with {what}=")
    return fitting[0] if fitting else None


def read_row(row: TableRow, columns: Columns) -> Example | BadRow:
    """A row as an example; what is missing or no text is a reason."""
    wanted = [*columns.texts, *(name for name in (columns.label, columns.answers) if name is not None)]
    for name in wanted:
        if row.values.get(name) is None:
            return BadRow(row.where, f"no value under {name!r}")
    values = [row.values[name] for name in columns.texts]
    for name, part in zip(columns.texts, values, strict=True):
        if reason := text_problem(part):
            return BadRow(row.where, f"{name}: {reason}")
    strings = [part for part in values if isinstance(part, str)]
    text = strings[0] if len(strings) == 1 else (strings[0], strings[1])
    if columns.answers is not None:
        return read_question(row, columns.answers, strings)
    if columns.label is None:
        return Example(row.id, text)
    label = row.values[columns.label]
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # a column of whole numbers with gaps is stored as floats
    if isinstance(label, str):
        label = label.strip()
    if not isinstance(label, str | int) or isinstance(label, bool) or label == "":
        return BadRow(row.where, f"expected a label as a name or an index, found {label!r}")
    return Example(row.id, text, label=label)


def read_question(row: TableRow, column: str, texts: list[str]) -> Example | BadRow:
    """A question with its first gold answer, which must stand where the data says."""
    question, context = texts
    answers = row.values[column]
    if isinstance(answers, dict):  # as Hugging Face stores them: lists side by side
        sides = answers.get("text"), answers.get("answer_start")
        if not all(isinstance(side, list) for side in sides):
            return BadRow(row.where, "expected answers with text and answer_start")
        answers = [{"text": t, "answer_start": s} for t, s in zip(*sides, strict=False)]  # pyright: ignore
    if row.values.get("is_impossible") is True or not answers:
        return BadRow(row.where, "unanswerable question")
    first = answers[0] if isinstance(answers, list) else None
    if not isinstance(first, dict) or not isinstance(first.get("text"), str):
        return BadRow(row.where, "expected answers with text and answer_start")
    start, answer = first.get("answer_start"), first["text"]
    if not isinstance(start, int) or start < 0 or not answer.strip():
        return BadRow(row.where, "expected answers with text and answer_start")
    if not context.startswith(answer, start):
        return BadRow(row.where, "the answer is not in the context where answer_start says")
    return Example(row.id, (question, context), answer=(start, start + len(answer)))


def text_problem(text: object) -> str | None:
    """Why this cannot be explained."""
    for part in parts(text) if isinstance(text, str | Chat) else ():
        if any("\udc80" <= character <= "\udcff" for character in part):
            return "holds bytes that are not UTF-8"
        if "\0" in part:
            return "holds a NUL character, as no text does"
    try:
        check_text(text)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


# Common names; upper and lower case are the same.
PROMPT, MESSAGES = "prompt", "messages"
ANSWERS = ("answer", "response", "completion")
DOCUMENTS = ("documents", "passages", "contexts")
EVIDENCE = "evidence"


def answer_columns(
    found: Sequence[str], text: str | None, answer: str | None, where: str
) -> tuple[str, str | None] | None:
    """Those of the prompt and of the answer: as the caller named them, or common names. None: there are no answers.

    Messages may end with the answer, and need no other column.
    """
    for name in (text, answer):
        if name is not None and name not in found:
            raise RefusedValue(f"{where} has no column {name!r}; it has {', '.join(found)}")
    if text is not None:  # beside a text of any name, a column may be called answer and be something else
        return None if answer is None else (text, answer)
    prompt = one_of((PROMPT, MESSAGES), found, "text", where)
    if answer is None and prompt is not None:
        answer = one_of(ANSWERS, found, "answer", where)
    if prompt is None and answer is not None:
        known = ", ".join(found)
        raise RefusedValue(f"{where} has no column that is known to hold a prompt; it has {known}. Name it with text=")
    if prompt is None or (answer is None and prompt.lower() == PROMPT):
        return None
    return prompt, answer


def documents_of(values: Mapping[str, Any], column: str | None, where: str) -> dict[str, str]:
    """The documents of a row, where it has any: in the named column, or in one with a common name."""
    name = column if column is not None else one_of(DOCUMENTS, list(values), "documents", where)
    try:
        return {} if name is None else read_documents(values.get(name))
    except ValueError as error:
        raise RefusedValue(f"{name}: {error}") from error


def split_reply(text: Prompt) -> tuple[Prompt, str | None]:
    """A chat that ends with a message of the assistant, as what came before and this answer; others as they are."""
    if not isinstance(text, Chat) or len(text.roles) < 2 or text.roles[-1] != ASSISTANT:
        return text, None
    return Chat(text.roles[:-1], text.contents[:-1]), text.contents[-1]


def read_documents(value: Any) -> dict[str, str]:
    """By name, from a list of texts or an object with names and texts. Nothing is no document."""
    if value is None:
        return {}
    if isinstance(value, Mapping):  # in a column of Parquet, every row has all names
        named = {str(name): text for name, text in value.items() if text is not None}
    elif isinstance(value, list | tuple):
        named = {f"document {i}": text for i, text in enumerate(value, 1)}
    else:
        raise RefusedValue(f"expected a list of texts or an object with names and texts, found {value!r}")
    for name, text in named.items():
        if not isinstance(text, str) or not text.strip():
            raise RefusedValue(f"{name}: expected a text, found {text!r}")
    return named


def read_evidence(value: Any) -> dict[str, str]:
    """By name, from a text or a list of texts that stand in the prompt. Nothing is no evidence."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise RefusedValue(
            f"{EVIDENCE}: expected a text that occurs in the prompt, or a list of such texts; found {value!r}"
        )
    return {f"{EVIDENCE} {i}": text for i, text in enumerate(texts, 1)}


@dataclass(frozen=True)
class PairColumns:
    """The names of the columns in one family of files."""

    prefix: str
    right: str
    wrong: str
    evidence: str
    sentence: str  # whole, with the right word; only masked examples need it
    group: str


SCHEMES = (
    PairColumns(
        "one_prefix_prefix", "one_prefix_word_good", "one_prefix_word_bad", "target", "sentence_good", "UID"
    ),  # BLiMP and IOI of mt-upc/logit-explanations
    PairColumns("prefix", "target", "foil", "evidence", "sentence", "group"),
)
NOT_MARKED = ("", "NA")


def pair_columns(found: Sequence[str]) -> PairColumns | None:
    """The scheme of a file with these columns, if it holds minimal pairs."""
    fitting = (s for s in SCHEMES if {s.prefix, s.right, s.wrong, s.evidence} <= set(found))
    return next(fitting, None)


def whole_words(text: str, part: str) -> list[tuple[int, int]]:
    """Spans in which `part` stands with no letter or digit directly before or behind it; none overlap."""
    found: list[tuple[int, int]] = []
    for start in occurrences(text, part):
        end = start + len(part)
        apart = not is_word(text[max(0, start - 1) : start]) and not is_word(text[end : end + 1])
        if apart and (not found or start >= found[-1][1]):
            found.append((start, end))
    return found


def is_word(character: str) -> bool:
    """As \\w in a regular expression; the end of a text is none."""
    return character.isalnum() or character == "_"


def read_pair(row: TableRow, columns: PairColumns, gap: Gap) -> Example | BadRow:
    """The prefix for causal models, the sentence with the mask mark in place of the word for masked ones."""
    lower = {name.lower(): value for name, value in row.values.items()}  # IOI writes Sentence_good
    values = {name: str(lower.get(column.lower()) or "").strip() for name, column in vars(columns).items()}
    prefix, right, wrong = values["prefix"], values["right"], values["wrong"]
    if not (prefix and right and wrong):
        return BadRow(row.where, "expected a prefix, a right and a wrong word")
    if right == wrong:
        return BadRow(row.where, "the right and the wrong word are the same")
    if values["evidence"] in NOT_MARKED:
        return BadRow(row.where, "no evidence is marked")
    places = whole_words(prefix, values["evidence"])
    if len(places) != 1:
        many = "more than once" if places else "nowhere"
        return BadRow(row.where, f"the evidence stands {many} in the prefix")
    text = prefix
    if gap == "inside":
        start = f"{prefix} {right}"
        if not values["sentence"].startswith(start):
            return BadRow(row.where, "the sentence does not begin with the prefix and the right word")
        text = f"{prefix} {MASK_MARK}{values['sentence'][len(start) :]}"
    return Example(
        row.id,
        text,
        target=f" {right}",
        foil=f" {wrong}",
        evidence=(places[0],),
        group=values["group"] or None,
    )
