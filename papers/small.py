"""Small models and texts for `--small`: they need no network, and a script with them takes minutes on two cores."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tokenlight as tl
from papers import small_models, small_texts
from tokenlight.common.files import atomic_write

DATA = Path(__file__).parent / "small_data"
WriteTexts = Callable[[Path, int, int], Path]  # path, number of texts, seed


@dataclass(frozen=True)
class SmallRun:
    """A model and its texts. The model is made when it is first needed and kept in the user's cache folder."""

    make_model: Callable[[], str]
    data: Path | Callable[[], Path]  # a file, or a function that writes one
    limit: int | None = None

    @property
    def file(self) -> Path:
        """The texts, which are written if they are not there."""
        return self.data if isinstance(self.data, Path) else self.data()

    def make(self) -> tuple[str, tl.DataSource]:
        return self.make_model(), tl.DataSource(self.file, limit=self.limit)


def trained(model: str, write: WriteTexts, file: str, count: int = 60) -> SmallRun:
    """A model of `small_models` and texts from the templates of its training texts, drawn with another seed.

    There are few templates, so some of the texts are among the training texts.
    """

    def write_texts() -> Path:
        path = small_models.CACHE / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            write(part, count, 1_000)
        return path

    return SmallRun(lambda: small_models.small_model(model), write_texts)


SENTIMENT = SmallRun(lambda: "default", DATA / "sentiment.tsv")
PAIRS = trained("pairs", small_texts.write_pairs, "pairs.tsv")
INFERENCES = trained("inferences", small_texts.write_inferences, "inferences.tsv")
REVIEWS = trained("reviews-bert", small_texts.write_reviews, "reviews.tsv")
QUESTIONS = trained("questions", small_texts.write_questions, "questions.json")
DISTILBERT_QUESTIONS = trained("questions-distilbert", small_texts.write_questions, "questions.json")
ROBERTA_QUESTIONS = trained("questions-roberta", small_texts.write_questions, "questions.json")
