"""Fine-tune the models of ALTI that are not on the Hub: ten MultiBERTs on SST-2, DistilBERT on Yelp, and agreement.

python -m papers.alti.finetune --dataset bert-sva --data PATH/TO/lgd_dataset.tsv --device cuda
python -m papers.alti.finetune --dataset multiberts-0 --device cuda
python -m papers.alti.finetune --small

The scripts of tables and figures call this by themselves where a model is missing. Models are kept in OUTPUT/models.
Epochs, batch size and learning rate are those of the authors' code; the paper gives none for agreement, and for
MultiBERTs names the recommendations of Devlin et al. (2019). As in that code, a classifier's learning rate falls to 0
and the last epoch is kept; the rate of agreement is constant, and the epoch with the lowest validation loss is kept.
"""

import hashlib
import inspect
import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

import tokenlight as tl
from papers.alti.agreement import NUMBERS, read_part
from papers.alti.facts import PAPER, TRAINED
from papers.alti.small import SMALL
from papers.options import Run, choose_runs, make_parser
from tokenlight.common.progress import track
from tokenlight.data.examples import MASK_MARK
from tokenlight.data.read import read_examples

SCRIPT = "finetune"
LONGEST = 256  # tokens
Examples = Sequence[tuple[str, int]]  # text, label


@dataclass(frozen=True)
class Training:
    """How long and how fast a model learns."""

    epochs: int
    batch: int
    learning_rate: float
    decay: bool = False  # the learning rate falls linearly from update to update, to 0 behind the last one


CLASSIFIER = Training(3, 16, 2e-5, decay=True)
AGREEMENT, SMALL_AGREEMENT = Training(4, 32, 1e-5), Training(6, 16, 1e-3)


def fine_tuned(run: Run, released: bool = False) -> Path:
    """The folder of the run's model, which is trained if it is not there."""
    folder = run.folder.parent.parent / "models" / name_model(run, released)
    if not folder.is_dir():
        torch.manual_seed(0)  # the head is initialized at random when the model is loaded
        model, tokenizer = train_agreement(run, released) if run.name.endswith("sva") else train_classifier(run)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def name_model(run: Run, released: bool) -> str:
    """Another name for each split, model and data that a model is trained with."""
    if not run.name.endswith("sva"):
        return f"{run.name}-small" if run.small else run.name
    name = f"{run.name}{'-small' if run.small else ''}{'-released' if released else ''}"
    if run.small or (run.model, str(run.source.data)) == (run.paper.model, run.paper.data):
        return name
    return f"{name}-{hashlib.sha256(f'{run.model}|{run.source.data}'.encode()).hexdigest()[:8]}"


def train_agreement(run: Run, released: bool) -> tuple[Any, Any]:
    """A model with two outputs per token, trained at [MASK]."""
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    names = dict(enumerate(NUMBERS))
    model = AutoModelForTokenClassification.from_pretrained(
        run.model, id2label=names, label2id={name: index for index, name in names.items()}
    )
    parts = []
    for part in ("train", "validation"):
        part_examples = read_part(Path(str(run.source.data)), part, released, tokenizer)
        parts.append(
            [
                (str(example.text).replace(MASK_MARK, tokenizer.mask_token), NUMBERS.index(str(example.label)))
                for example in part_examples
            ]
        )
    return train(model, tokenizer, parts[0], parts[1], SMALL_AGREEMENT if run.small else AGREEMENT, run), tokenizer


def train_classifier(run: Run) -> tuple[Any, Any]:
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    model = AutoModelForSequenceClassification.from_pretrained(run.model, num_labels=2)
    rows = read_examples(tl.DataSource(run.paper.data, split=run.paper.train_split), None)
    examples = [
        (str(row.text), int(row.label)) for row in rows if isinstance(row, tl.Example) and row.label is not None
    ]
    return train(model, tokenizer, examples, (), CLASSIFIER, run), tokenizer


def train(model: Any, tokenizer: Any, examples: Examples, validation: Examples, training: Training, run: Run) -> Any:
    """Adam. With validation examples, the epoch with the lowest loss on them is kept, else the last one."""
    torch.manual_seed(0)
    draw, best, kept = random.Random(0), float("inf"), None
    model.to(run.device or "cpu")
    optimizer = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    updates = training.epochs * -(-len(examples) // training.batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0 if training.decay else 1.0, updates)
    for epoch in range(training.epochs):
        model.train()
        mixed = draw.sample(examples, len(examples))
        batches = [mixed[i : i + training.batch] for i in range(0, len(mixed), training.batch)]
        for batch in track(batches, f"{run.name}, epoch {epoch + 1} of {training.epochs}"):
            loss = loss_of(model, tokenizer, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if validation and (loss := mean_loss(model.eval(), tokenizer, validation)) < best:
            best, kept = loss, deepcopy(model.state_dict())
    if kept is not None:
        model.load_state_dict(kept)
    return model.cpu().eval()


@torch.inference_mode()
def mean_loss(model: Any, tokenizer: Any, examples: Examples, together: int = 32) -> float:
    starts = range(0, len(examples), together)
    return sum(float(loss_of(model, tokenizer, examples[i : i + together])) for i in starts) / len(starts)


def loss_of(model: Any, tokenizer: Any, examples: Examples) -> Tensor:
    texts, labels = zip(*examples, strict=True)
    batch = tokenizer(list(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
    known = inspect.signature(model.forward).parameters  # DistilBERT takes no token types
    inputs = {name: value.to(model.device) for name, value in batch.items() if name in known}
    logits = model(**inputs).logits
    if logits.ndim == 3:  # an answer for every token: the one at [MASK] counts
        logits = logits[inputs["input_ids"] == tokenizer.mask_token_id]
    return cross_entropy(logits, torch.tensor(labels, device=logits.device))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, PAPER, list(TRAINED))
    parser.add_argument("--released", action="store_true", help="agreement: the release's data, split 70/15/15")
    options = parser.parse_args(arguments)
    for run in choose_runs(options, SCRIPT, {name: SMALL[name] for name in TRAINED if name.endswith("sva")}):
        print(f"{run.name}: {fine_tuned(run, options.released)}")


if __name__ == "__main__":
    main()
