"""What head statistics and head gates cost, as ratios in one run.

    python benchmarks/heads.py                      # made-up sentences
    python benchmarks/heads.py --texts FILE         # one text a line, tsv, csv ...: the first 1,000

Statistics against the bare forward passes over the same texts, parsing apart; mask_lrp against transformer_attribution,
methods through heads against the same with all of them.
"""

import argparse
import random
from collections.abc import Callable
from typing import Any

import torch
from cost import measure

import tokenlight as tl
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples
from tokenlight.heads.count import count_heads
from tokenlight.heads.mask import HeadMask
from tokenlight.heads.parses import spacy_parses

WORDS = ("the", "a", "film", "actor", "story", "charming", "dull", "never", "loves", "bores", "its", "audience", "with")


def made_up(count: int) -> list[str]:
    random.seed(0)
    return [" ".join(random.choices(WORDS, k=random.randint(5, 35))) + " ." for _ in range(count)]


def bare_forward(explainer: tl.Explainer, texts: list[str]) -> None:
    """Forward passes by hand: tokenize, sort by length, run the model with its own attention."""
    rows = explainer.tokenizer(texts)["input_ids"]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            batch_rows = [rows[i] for i in order[start : start + 64]]
            explainer.model(**explainer.tokenizer.pad({"input_ids": batch_rows}, return_tensors="pt"))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--texts")
parser.add_argument("--repeats", type=int, default=3)
args = parser.parse_args()
explainer = tl.load()
read = (
    [e.text for e in read_examples(DataSource(args.texts, limit=1000)) if isinstance(e, Example)]
    if args.texts
    else made_up(1000)
)
texts = [text for text in read if isinstance(text, str)]
parses = list(spacy_parses(texts))
some = texts[:64]
half = HeadMask.by_hand(torch.arange(72).view(6, 12) % 2)


def explain(method: str, **options: Any) -> Callable[[], object]:
    return lambda: explainer.explain(some, method, progress=False, **options)


seconds = measure(
    {
        "bare forward": lambda: bare_forward(explainer, texts),
        "statistics": lambda: count_heads(explainer, parses, progress=False),
        "transformer_attribution": explain("transformer_attribution"),
        "mask_lrp": explain("mask_lrp", heads=half),
        "mask_lrp, released": explain("mask_lrp", heads=half, variant="released"),
        "attn_lrp": explain("attn_lrp"),
        "attn_lrp with heads": explain("attn_lrp", heads=half),
        "calibrated_lrp": explain("calibrated_lrp"),
    },
    args.repeats,
)
for name, other, goal in (
    ("statistics", "bare forward", 2.0),
    ("mask_lrp", "transformer_attribution", 1.1),
    ("mask_lrp, released", "transformer_attribution", 1.1),
    ("attn_lrp with heads", "attn_lrp", 1.1),
    ("calibrated_lrp", "attn_lrp", 1.2),
):
    print(f"{name}: {seconds[name] / seconds[other]:.2f} x {other} (goal {goal})")
