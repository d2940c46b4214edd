"""What the columns of a table mean: text, pair, label or question; and a row read by it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenlight.data.examples import BadRow, Example, TableRow
from tokenlight.text.rows import Chat, check_text, parts

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
        raise ValueError(f"expected the column of a text or those of a pair, found text={text!r} and pair={pair!r}")
    for name in (*(pair or ()), text, label):
        if name is not None and name not in found:
            raise ValueError(f"{source} has no column {name!r}; it has {', '.join(found)}")
    chosen = label if label is not None else one_of(LABELS, found, "label", source)
    if text is not None or pair is not None:
        return Columns(pair or (text or "",), chosen)
    question = all_of(QUESTION, found)
    if question:
        return Columns(question[:2], answers=question[2])
    pairs = [names for names in (all_of(names, found) for names in PAIRS) if names]
    if len(pairs) > 1:
        raise ValueError(f"{source} has the pairs {pairs}: choose one with pair=")
    guessed = pairs[0] if pairs else (one_of(TEXTS, found, "text", source),)
    if guessed[0] is None:
        raise ValueError(
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
        raise ValueError(f"{source}: any of the columns {', '.join(fitting)} may be the {what}: choose with {what}=")
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
