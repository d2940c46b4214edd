"""Minimal pairs with evidence: a prefix, the right word, the wrong word, and the word that decides between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenlight.data.examples import MASK_MARK, BadRow, Example, TableRow
from tokenlight.text.rows import Gap


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


def occurrences(text: str, part: str) -> list[int]:
    """Where `part` begins in `text`, in time proportional to both lengths (Knuth, Morris and Pratt 1977)."""
    borders = [0]  # for each prefix of `part`: the length of the longest shorter one that it ends with
    for character in part[1:]:
        borders.append(extend(part, borders, borders[-1], character))
    found, matched = list[int](), 0
    for at, character in enumerate(text):
        matched = extend(part, borders, matched, character)
        if matched == len(part):
            found.append(at + 1 - len(part))
    return found


def extend(part: str, borders: Sequence[int], matched: int, character: str) -> int:
    """How many characters of `part` end with this one, if `matched` ended before it."""
    while matched and (matched == len(part) or part[matched] != character):
        matched = borders[matched - 1]
    return matched + (part[matched] == character)


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
