"""Mask-LRP, table 5: how many training, validation and test examples the data sets have.

python -m papers.mask_lrp.table5
python -m papers.mask_lrp.table5 --small

Counts the splits on the Hub. With --small or --data it counts the one file that stands in for a data set.
"""

from collections.abc import Sequence

from papers.mask_lrp.facts import PAPER, TABLE_5
from papers.mask_lrp.small_runs import SMALL
from papers.options import Run, choose_runs, make_parser
from papers.tables import Comparison, finish, format_published
from tokenlight.common.errors import from_extra
from tokenlight.data.readers import count_hub_rows

SCRIPT = "table5"
NAMES = {  # our name of a data set -> the paper's
    "sst2": "SST-2", "imdb": "IMDB", "yelp": "Yelp Polarity", "qqp": "QQP", "mnli": "MNLI",
    "squad1-bert": "SQuADv1", "squad2-bert": "SQuADv2",
}  # fmt: skip
SPLITS = {  # a column of the table -> splits of the Hub that belong to it, where the data set has them
    "Train": ("train",),
    "Valid": ("validation", "validation_matched", "validation_mismatched"),
    "Test": ("test", "test_matched", "test_mismatched"),
}


def count_splits(run: Run) -> dict[str, int | None]:
    """Examples by column of the table."""
    if not run.source.on_hub:
        return {column: run.source.count() if column == "Test" else None for column in SPLITS}
    name, _, config = str(run.source.data).removeprefix("hf:").partition(":")
    with from_extra("bench", "reading from the Hugging Face Hub"):
        import datasets  # pyright: ignore[reportMissingImports]
    known = datasets.get_dataset_split_names(name, config or None)
    counts: dict[str, int | None] = {}
    for column, splits in SPLITS.items():
        own = [split for split in splits if split in known]
        counts[column] = sum(count_hub_rows(str(run.source.data), split) for split in own) if own else None
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser(__doc__, PAPER, list(NAMES)).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        counts, published = count_splits(run), TABLE_5.rows[NAMES[run.name]]
        rows = [
            [column, format_published(counts[column]), format_published(number)]
            for column, number in zip(TABLE_5.columns, published, strict=True)
        ]
        heading = f"Mask-LRP, table 5, {NAMES[run.name]}"
        comparison = Comparison(heading, ["split", "examples", "published"], rows, run.differences)
        finish(comparison, PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
