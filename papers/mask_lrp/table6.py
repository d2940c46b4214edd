"""Mask-LRP, table 6: the checkpoint that explains each data set.

python -m papers.mask_lrp.table6
python -m papers.mask_lrp.table6 --small

Loads each checkpoint and prints its class, its layers and heads, its parameters and its labels.
"""

from collections.abc import Sequence
from pathlib import Path

from papers.mask_lrp.facts import DATASETS, PAPER, QUESTIONS
from papers.mask_lrp.small_runs import SMALL
from papers.options import Run, choose_runs, make_parser
from papers.tables import Comparison, finish
from tokenlight.model.config import layers_and_heads

SCRIPT = "table6"
NAMES = DATASETS | QUESTIONS


def describe(run: Run) -> list[list[str]]:
    """What the checkpoint is, a row per property."""
    explainer = run.load("question-answering" if run.name in QUESTIONS else None)
    model = explainer.inner
    layers, heads = layers_and_heads(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    labels = "–" if run.name in QUESTIONS else ", ".join(explainer.task.labels.values())
    return [
        ["checkpoint", Path(run.model).name if run.small else run.model],
        ["class", type(model).__name__],
        ["layers × heads", f"{layers} × {heads}"],
        ["parameters", f"{parameters:,}"],
        ["positions", f"{model.config.max_position_embeddings:,}"],
        ["classes", labels],
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser(__doc__, PAPER, list(NAMES)).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        remarks = [f"published: {run.paper.model}", *([run.paper.note] if run.paper.note else [])]
        comparison = Comparison(f"Mask-LRP, table 6, {NAMES[run.name]}", ["", ""], describe(run), remarks)
        finish(comparison, PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
