"""What `--small` takes in place of the paper's checkpoints and data."""

import random
from pathlib import Path

from papers import small_models, small_texts
from papers.small import DATA, INFERENCES, PAIRS, QUESTIONS, SENTIMENT, SmallRun, trained
from tokenlight.common.files import atomic_write


def write_reviews(sentences: int) -> Path:
    """Longer texts for the embedded model: sentences of one label joined, each used once."""
    lines = (DATA / "sentiment.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = []
    for label in ("0", "1"):
        texts = [text for text, own in (line.rsplit("\t", 1) for line in lines) if own == label]
        random.Random(sentences).shuffle(texts)
        whole = range(0, len(texts) - sentences + 1, sentences)
        rows += [(" . ".join(texts[i : i + sentences]) + " .", label) for i in whole]
    path = small_models.CACHE / f"reviews-{sentences}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        small_texts.write_rows(part, ("text", "label"), rows)
    return path


SMALL = {
    "sst2": SENTIMENT,
    "imdb": SmallRun(lambda: "default", lambda: write_reviews(3)),
    "yelp": SmallRun(lambda: "default", lambda: write_reviews(2)),
    "mnli": INFERENCES,
    "qqp": PAIRS,
    "squad1-bert": QUESTIONS,
    "squad1-gpt2": trained("questions-gpt2", small_texts.write_questions, "questions.json"),
    "squad1-roberta": trained("questions-roberta", small_texts.write_questions, "questions.json"),
}
