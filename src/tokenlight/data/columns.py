"""Which column of a table has which role, and how a row becomes an example: texts, pairs, questions, minimal pairs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenlight.common.errors import RefusedValue
from tokenlight.data.examples import MASK_MARK, BadRow, Example, TableRow
from tokenlight.text.documents import Prompt
from tokenlight.text.segmentation import occurrences
from tokenlight.text.tokenize import ASSISTANT
from tokenlight.text.tokenized_text import Chat, Gap, check_text, is_whole, parts

# Column names of common data sets, compared without case and without blanks around them.
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
    """Column names by role. Two texts and answers: question answering."""

    texts: tuple[str, ...]
    label: str | None = None
    answers: str | None = None


def resolve_columns(
    available: Sequence[str], text: str | None, pair: tuple[str, str] | None, label: str | None, source: str
) -> Columns:
    """The columns that the caller named; for the others, columns with common names."""
    if text is not None and pair is not None:
        raise RefusedValue(f"expected the column of a text or those of a pair, found text={text!r} and pair={pair!r}")
    for name in (*(pair or ()), text, label):
        if name is not None and name not in available:
            raise RefusedValue(f"{source} has no column {name!r}; it has {', '.join(available)}")
    label_column = label if label is not None else find_one_column(LABELS, available, "label", source)
    if text is not None or pair is not None:
        return Columns(pair or (text or "",), label_column)
    question = find_all_columns(QUESTION, available)
    if question:
        return Columns(question[:2], answers=question[2])
    pairs = [columns for columns in (find_all_columns(names, available) for names in PAIRS) if columns]
    if len(pairs) > 1:
        raise RefusedValue(f"{source} has the pairs {pairs}: choose one with pair=")
    text_columns = pairs[0] if pairs else (find_one_column(TEXTS, available, "text", source),)
    if text_columns[0] is None:
        raise RefusedValue(
            f"{source} has no column that is known to hold a text; it has {', '.join(available)}. "
            "Name it with text=, or two with pair=; tables need a header"
        )
    return Columns(tuple(name for name in text_columns if name is not None), label_column)


def find_all_columns(names: Iterable[str], available: Sequence[str]) -> tuple[str, ...]:
    """The columns with these common names; empty unless all exist."""
    by_plain_name = {plain_name(name): name for name in available}
    return tuple(by_plain_name[name] for name in names) if all(name in by_plain_name for name in names) else ()


def find_one_column(names: Iterable[str], available: Sequence[str], role: str, source: str) -> str | None:
    """The only column with any of these names, or None; refused if there are several."""
    matches = [name for name in available if plain_name(name) in names]
    if len(matches) > 1:
        raise RefusedValue(f"{source}: any of the columns {', '.join(matches)} may be the {role}: choose with {role}=")
    return matches[0] if matches else None


def plain_name(name: str) -> str:
    """The name of a column as it is compared with common names: `" Label"` is `"label"`."""
    return name.strip().lower()


def read_row(row: TableRow, columns: Columns) -> Example | BadRow:
    """The example of a row, or a bad row if a value is missing or is not a text."""
    required = [*columns.texts, *(name for name in (columns.label, columns.answers) if name is not None)]
    for name in required:
        if row.values.get(name) is None:
            return BadRow(row.where, f"no value under {name!r}")
    values = [row.values[name] for name in columns.texts]
    for name, value in zip(columns.texts, values, strict=True):
        if reason := text_problem(value):
            return BadRow(row.where, f"{name}: {reason}")
    texts = [value for value in values if isinstance(value, str)]
    text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
    if columns.answers is not None:
        return read_question(row, columns.answers, texts)
    if columns.label is None:
        return Example(row.id, text)
    label = row.values[columns.label]
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # a column of integers with missing values is stored as floats
    if isinstance(label, str):
        label = label.strip()
    if is_whole(label):
        label = int(label)  # also numpy's integers
    if not isinstance(label, str | int) or isinstance(label, bool) or label == "":
        return BadRow(row.where, f"expected a label as a name or an index, found {label!r}")
    return Example(row.id, text, label=label)


def read_question(row: TableRow, column: str, texts: list[str]) -> Example | BadRow:
    """A question with its first gold answer; a bad row unless the answer is found at `answer_start`."""
    question, passage = texts
    answers = row.values[column]
    if isinstance(answers, dict):  # a dict of parallel lists, as Hugging Face stores them
        lists = answers.get("text"), answers.get("answer_start")
        if not all(isinstance(values, list) for values in lists):
            return BadRow(row.where, "expected answers with text and answer_start")
        answers = [{"text": t, "answer_start": s} for t, s in zip(*lists, strict=False)]  # pyright: ignore
    if row.values.get("is_impossible") is True or not answers:
        return BadRow(row.where, "unanswerable question")
    first = answers[0] if isinstance(answers, list) else None
    if not isinstance(first, dict) or not isinstance(first.get("text"), str):
        return BadRow(row.where, "expected answers with text and answer_start")
    start, answer = first.get("answer_start"), first["text"]
    if not isinstance(start, int) or start < 0 or not answer.strip():
        return BadRow(row.where, "expected answers with text and answer_start")
    if not passage.startswith(answer, start):
        return BadRow(row.where, "the answer is not in the context where answer_start says")
    return Example(row.id, (question, passage), answer=(start, start + len(answer)))


def text_problem(text: object) -> str | None:
    """Why this cannot be explained; None if it can."""
    for string in parts(text) if isinstance(text, str | Chat) else ():
        if any("\udc80" <= character <= "\udcff" for character in string):
            return "holds bytes that are not UTF-8"
        if "\0" in string:
            return "holds a NUL character, as no text does"
    try:
        check_text(text)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


# Common names, compared as those above.
PROMPT, MESSAGES = "prompt", "messages"
ANSWERS = ("answer", "response", "completion")
DOCUMENTS = ("documents", "passages", "contexts")
EVIDENCE = "evidence"


def answer_columns(
    available: Sequence[str], text: str | None, answer: str | None, where: str
) -> tuple[str, str | None] | None:
    """The columns of prompt and answer, as the caller named them or with common names. None: there are no answers.

    A chat may end with the answer, and needs no other column.
    """
    for name in (text, answer):
        if name is not None and name not in available:
            raise RefusedValue(f"{where} has no column {name!r}; it has {', '.join(available)}")
    if text is not None:  # if the text column has an uncommon name, a column called answer may have another meaning
        return None if answer is None else (text, answer)
    prompt = find_one_column((PROMPT, MESSAGES), available, "text", where)
    if answer is None and prompt is not None:
        answer = find_one_column(ANSWERS, available, "answer", where)
    if prompt is None and answer is not None:
        listed = ", ".join(available)
        raise RefusedValue(f"{where} has no column that is known to hold a prompt; it has {listed}. Name it with text=")
    if prompt is None or (answer is None and plain_name(prompt) == PROMPT):
        return None
    return prompt, answer


def documents_of(values: Mapping[str, Any], column: str | None, where: str) -> dict[str, str]:
    """The documents of a row, by name, from the named column or from one with a common name; empty if it has none."""
    name = column if column is not None else find_one_column(DOCUMENTS, list(values), "documents", where)
    try:
        return {} if name is None else read_documents(values.get(name))
    except ValueError as error:
        raise RefusedValue(f"{name}: {error}") from error


def split_reply(text: Prompt) -> tuple[Prompt, str | None]:
    """Split the last message off a chat if it is the assistant's: (prompt, answer); other prompts have no answer."""
    if not isinstance(text, Chat) or len(text.roles) < 2 or text.roles[-1] != ASSISTANT:
        return text, None
    return Chat(text.roles[:-1], text.contents[:-1]), text.contents[-1]


def read_documents(value: Any) -> dict[str, str]:
    """Documents by name, from a list of texts or an object with names and texts; empty for None."""
    if value is None:
        return {}
    if isinstance(value, Mapping):  # in a Parquet column, every row has all names; missing documents are None
        named = {str(name): text for name, text in value.items() if text is not None}
    elif isinstance(value, list | tuple):
        named = {f"document {i}": text for i, text in enumerate(value, 1)}
    else:
        raise RefusedValue(f"expected a list of texts or an object with names and texts, found {value!r}")
    for name, text in named.items():
        if not isinstance(text, str) or not text.strip():
            raise RefusedValue(f"{name}: expected a text, found {text!r}")
    return named


def evidence_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The evidence of a row by name; empty if it has none."""
    columns = [name for name in values if plain_name(name) == EVIDENCE]
    if len(columns) > 1:
        raise RefusedValue(f"expected one column with evidence, found {', '.join(map(repr, columns))}")
    return read_evidence(values[columns[0]]) if columns else {}


def read_evidence(value: Any) -> dict[str, str]:
    """Evidence by name, from a text or a list of texts that occur in the prompt; empty for None."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise RefusedValue(
            f"{EVIDENCE}: expected a text that occurs in the prompt, or a list of such texts; found {value!r}"
        )
    return {f"{EVIDENCE} {i}": text for i, text in enumerate(texts, 1)}


@dataclass(frozen=True)
class PairColumns:
    """The column names of one file format with minimal pairs."""

    prefix: str
    right: str
    wrong: str
    evidence: str
    sentence: str  # the complete sentence with the right word; only masked examples need it
    group: str


SCHEMES = (
    PairColumns(
        "one_prefix_prefix", "one_prefix_word_good", "one_prefix_word_bad", "target", "sentence_good", "UID"
    ),  # BLiMP and IOI of mt-upc/logit-explanations
    PairColumns("prefix", "target", "foil", "evidence", "sentence", "group"),
)
NOT_MARKED = ("", "NA")


def pair_columns(available: Sequence[str]) -> PairColumns | None:
    """The format of a file with these columns; None if it has no minimal pairs."""
    matching = (
        scheme for scheme in SCHEMES if {scheme.prefix, scheme.right, scheme.wrong, scheme.evidence} <= set(available)
    )
    return next(matching, None)


def find_whole_words(text: str, phrase: str) -> list[tuple[int, int]]:
    """Non-overlapping spans of `phrase` with no letter, digit or underscore directly before or after them."""
    spans: list[tuple[int, int]] = []
    for start in occurrences(text, phrase):
        end = start + len(phrase)
        is_whole = not is_word_character(text[max(0, start - 1) : start]) and not is_word_character(text[end : end + 1])
        if is_whole and (not spans or start >= spans[-1][1]):
            spans.append((start, end))
    return spans


def is_word_character(character: str) -> bool:
    """Whether a character matches \\w of a regular expression; an empty string does not."""
    return character.isalnum() or character == "_"


def read_pair(row: TableRow, columns: PairColumns, gap: Gap) -> Example | BadRow:
    """The prefix for causal models; for masked ones, the sentence with MASK_MARK instead of the right word."""
    lower = {name.lower(): value for name, value in row.values.items()}  # IOI writes Sentence_good
    values = {name: str(lower.get(column.lower()) or "").strip() for name, column in vars(columns).items()}
    prefix, right, wrong = values["prefix"], values["right"], values["wrong"]
    if not (prefix and right and wrong):
        return BadRow(row.where, "expected a prefix, a right and a wrong word")
    if right == wrong:
        return BadRow(row.where, "the right and the wrong word are the same")
    if values["evidence"] in NOT_MARKED:
        return BadRow(row.where, "no evidence is marked")
    spans = find_whole_words(prefix, values["evidence"])
    if len(spans) != 1:
        frequency = "more than once" if spans else "nowhere"
        return BadRow(row.where, f"the evidence occurs {frequency} in the prefix")
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
        evidence=(spans[0],),
        group=values["group"] or None,
    )
