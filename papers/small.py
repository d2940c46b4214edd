"""Small models and texts for `--small`: they need no network, and a script with them takes minutes on two cores."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tokenlight as tl

DATA = Path(__file__).parent / "small_data"


@dataclass(frozen=True)
class SmallRun:
    """A model and its texts. The model is made when it is first needed and kept in the user's cache folder."""

    make_model: Callable[[], str]
    data: Path
    limit: int | None = None

    def make(self) -> tuple[str, tl.Source]:
        return self.make_model(), tl.Source(self.data, limit=self.limit)


SENTIMENT = SmallRun(lambda: "default", DATA / "sentiment.tsv")
