"""Mask-LRP (Song et al. 2024): its models, data and numbers, and its methods by our names."""

from dataclasses import dataclass
from pathlib import Path

from tokenlight.explain.explainer import Explainer
from tokenlight.masks.choosing import OWN, choose_heads
from tokenlight.masks.head_mask import HeadMask
from tokenlight.runs.method_specs import MethodSpec

METRICS = ("aopc", "log_odds")


@dataclass(frozen=True)
class Dataset:
    """What one column of a table was made from."""

    model: str
    data: str
    split: str
    protocol: str
    numbers: dict[str, list[float | None]]  # method's label -> AOPC, LOdds; or Precision@20


# Table 1. The rows go by the labels of `table_1_methods`; ALTI is the paper's "ALTC".
ROWS = (
    *("raw_attention", "rollout", "zplus_lrp", "partial_lrp", "transformer_attribution", "attention_cam"),
    *("attention_grad_cam", "attcat", "random mask", "released", "alti"),
)
TABLE_1 = {
    "sst2": (
        *(0.374, -0.992, 0.337, -0.911, 0.336, -0.888, 0.396, -1.052, 0.423, -1.171, 0.399, -1.086),
        *(0.341, -0.855, 0.405, -1.110, 0.432, -1.205, 0.438, -1.208, 0.369, -0.866),
    ),
    "imdb": (
        *(0.354, -1.593, 0.334, -1.456, 0.288, -1.271, 0.370, -1.726, 0.384, -1.853, 0.365, -1.883),
        *(0.236, -0.974, 0.340, -1.697, 0.387, -1.898, 0.392, -1.906, 0.342, -0.748),
    ),
    "yelp": (
        *(0.376, -1.513, 0.244, -0.770, 0.163, -0.464, 0.401, -1.688, 0.404, -1.682, 0.298, -1.473),
        *(0.104, -0.229, 0.397, -2.034, 0.426, -1.886, 0.434, -1.898, 0.363, -1.428),
    ),
    "mnli": (
        *(0.135, -0.399, 0.137, -0.396, 0.131, -0.395, 0.136, -0.401, 0.144, -0.421, 0.132, -0.386),
        *(0.126, -0.369, 0.138, -0.419, 0.142, -0.415, 0.148, -0.445, None, None),
    ),
    "qqp": (
        *(0.447, -5.828, 0.437, -5.489, 0.438, -5.745, 0.445, -5.718, 0.447, -5.923, 0.450, -5.988),
        *(0.449, -5.953, 0.447, -5.897, 0.448, -5.998, 0.451, -6.001, None, None),
    ),
}


def numbers(dataset: str) -> dict[str, list[float | None]]:
    flat = TABLE_1[dataset]
    return {row: [flat[2 * i], flat[2 * i + 1]] for i, row in enumerate(ROWS)}


BERT = "textattack/bert-base-uncased-"
DATASETS = {
    "sst2": Dataset(f"{BERT}SST-2", "hf:nyu-mll/glue:sst2", "validation", "mask_lrp", numbers("sst2")),
    "imdb": Dataset(f"{BERT}imdb", "hf:stanfordnlp/imdb", "test", "mask_lrp", numbers("imdb")),
    "yelp": Dataset(
        "fabriceyhc/bert-base-uncased-yelp_polarity",
        "hf:fancyzhx/yelp_polarity",
        "test",
        "mask_lrp",
        numbers("yelp"),
    ),
    "mnli": Dataset(f"{BERT}MNLI", "hf:nyu-mll/glue:mnli", "validation_matched", "mask_lrp_mnli", numbers("mnli")),
    "qqp": Dataset(
        "modeltc/bert-base-uncased-qqp", "hf:nyu-mll/glue:qqp", "validation", "mask_lrp_qqp", numbers("qqp")
    ),
}
REMARKS = {
    "mnli": "this checkpoint's labels are in another order than the data's (its 0, 1, 2 are the data's 2, 0, 1); as in "
    "the release they are not put right, so the filter keeps mostly what the model gets wrong",
    "qqp": "the release took the labels of other rows in all but the first of its processes",
}

# Table 2: Precision@20 in %, which is recall. Rollout, RawAtt, AttCAT, Ours.
QUESTION_ROWS = ("rollout", "raw_attention", "attcat", "transformer_attribution")
V1, V2 = ("hf:rajpurkar/squad", "validation"), ("hf:rajpurkar/squad_v2", "validation")


def question_set(model: str, data: tuple[str, str], values: tuple[float, ...]) -> Dataset:
    return Dataset(model, *data, "mask_lrp_squad", {row: [x] for row, x in zip(QUESTION_ROWS, values, strict=True)})


QUESTIONS = {
    "squad1-bert": question_set("csarron/bert-base-uncased-squad-v1", V1, (4.62, 36.33, 31.44, 52.97)),
    "squad1-gpt2": question_set("anas-awadalla/gpt2-span-head-finetuned-squad", V1, (5.86, 28.97, 17.53, 51.62)),
    "squad1-roberta": question_set("thatdramebaazguy/roberta-base-squad", V1, (8.04, 45.61, 47.32, 67.31)),
    "squad2-bert": question_set(
        "ericRosello/bert-base-uncased-finetuned-squad-frozen-v2", V2, (6.15, 4.69, 18.81, 27.03)
    ),
    "squad2-gpt2": question_set("anas-awadalla/gpt2-span-head-finetuned-squad", V2, (5.54, 27.85, 16.99, 49.63)),
    "squad2-roberta": question_set("21iridescent/roberta-base-finetuned-squad2-lwt", V2, (5.87, 18.09, 23.39, 56.41)),
}

TITLES = {
    "zplus_lrp": "LRP",
    "transformer_attribution": "GAE in the paper (= TransAtt)",
    "released": "Ours, as released",
    "paper": "Ours, as the paper says",
    "all heads": "Ours as released, every head",
    "random mask": "Random mask, mean of seeds",
}
BASELINES = [row for row in ROWS if row not in ("random mask", "released")]


def masked(label: str, heads: HeadMask, variant: str = "released") -> MethodSpec:
    """Mask-LRP through these heads."""
    return MethodSpec(label, "mask_lrp", {"heads": heads, "variant": variant})


def random_masks(mask: HeadMask, seeds: int) -> list[MethodSpec]:
    """As many heads, anywhere: the paper's control, five runs."""
    return [masked(f"random mask, seed {seed}", mask.random(seed)) for seed in range(seeds)]


def every_head(mask: HeadMask) -> HeadMask:
    return HeadMask.by_hand(mask.lit * 0 + 1)


def table_1_methods(mask: HeadMask, seeds: int) -> list[str | MethodSpec]:
    """The baselines, Mask-LRP in both variants, random masks, and what is fair to compare with: every head."""
    own = [masked("released", mask), masked("paper", mask, "paper"), masked("all heads", every_head(mask))]
    return [*BASELINES, *own, *random_masks(mask, seeds)]


def find_mask(path: Path | None, explainer: Explainer) -> HeadMask:
    """The mask in a file, or the model's own; without either the error names the command that makes one."""
    mask = choose_heads(OWN if path is None else path, explainer.inner)
    assert mask is not None
    return mask
