"""Arras et al. (2025), A Close Look at Decomposition-based XAI-Methods for Transformer Language Models: its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import tokenlight as tl
from tokenlight.bench.tabulate import STAGES
from tokenlight.runs.journal import Journal

NO_DATA = (
    "give --data: the LGD file (lgd_dataset.tsv, Goldberg 2019), a CoNLL-U treebank, or a CSV of minimal pairs with "
    "evidence"
)
LLAMA_1B, LLAMA_3B = "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B"
GRADIENTS = ("gradient_l1", "gradient_l2:squared=True")  # the paper reports the better of the two

# Table 2: PG-2, MRR, RMA, PTA on subject-verb agreement. The gradient's stand under "gradient".
TABLE_2: Mapping[str, Mapping[str, Sequence[float]]] = {
    "bert-base-uncased": {
        "lrp": (0.688, 0.637, 0.208, 0.339),
        "attn_lrp": (0.775, 0.705, 0.260, 0.376),
        "gradient": (0.775, 0.718, 0.245, 0.041),
        "gradient_x_input": (0.292, 0.316, 0.095, 0.497),
        "random": (0.080, 0.149, 0.040, 0.500),
    },
    "bert-large-uncased": {
        "lrp": (0.560, 0.521, 0.187, 0.408),
        "attn_lrp": (0.641, 0.580, 0.224, 0.383),
        "gradient": (0.555, 0.551, 0.177, 0.041),
        "gradient_x_input": (0.212, 0.249, 0.077, 0.513),
        "random": (0.080, 0.149, 0.040, 0.500),
    },
    "gpt2": {
        "alti_logit": (0.867, 0.808, 0.342, 0.330),
        "lrp": (0.738, 0.706, 0.367, 0.445),
        "attn_lrp": (0.705, 0.634, 0.318, 0.408),
        "gradient": (0.592, 0.551, 0.255, 0.153),
        "gradient_x_input": (0.262, 0.353, 0.152, 0.565),
        "random": (0.277, 0.360, 0.151, 0.501),
    },
    "gpt2-xl": {
        "alti_logit": (0.885, 0.852, 0.402, 0.320),
        "lrp": (0.823, 0.754, 0.407, 0.392),
        "attn_lrp": (0.779, 0.658, 0.351, 0.384),
        "gradient": (0.579, 0.546, 0.265, 0.153),
        "gradient_x_input": (0.321, 0.408, 0.198, 0.608),
        "random": (0.277, 0.360, 0.151, 0.501),
    },
    LLAMA_1B: {
        "alti_logit": (0.690, 0.623, 0.288, 0.359),
        "lrp": (0.690, 0.533, 0.221, 0.244),
        "attn_lrp": (0.884, 0.814, 0.387, 0.382),
        "gradient": (0.283, 0.366, 0.151, 0.127),
        "gradient_x_input": (0.365, 0.407, 0.183, 0.512),
        "random": (0.241, 0.326, 0.127, 0.501),
    },
    LLAMA_3B: {
        "alti_logit": (0.614, 0.557, 0.266, 0.297),
        "lrp": (0.747, 0.622, 0.241, 0.231),
        "attn_lrp": (0.885, 0.764, 0.364, 0.326),
        "gradient": (0.275, 0.311, 0.143, 0.127),
        "gradient_x_input": (0.377, 0.413, 0.192, 0.514),
        "random": (0.241, 0.326, 0.127, 0.501),
    },
}


@dataclass(frozen=True)
class Size:
    """A row of table 3: the dataset as a model's tokenizer sees it; lengths count special tokens."""

    examples: int
    shortest: int
    longest: int
    mean: float
    median: float
    accuracy: float


TABLE_3 = {
    "bert-base-uncased": Size(28_472, 9, 170, 30, 28, 0.969),
    "bert-large-uncased": Size(28_472, 9, 170, 30, 28, 0.974),
    "gpt2": Size(28_602, 2, 60, 11, 8, 0.919),
    "gpt2-xl": Size(28_602, 2, 60, 11, 8, 0.941),
    LLAMA_1B: Size(28_629, 3, 60, 11, 9, 0.954),
    LLAMA_3B: Size(28_629, 3, 60, 11, 9, 0.956),
}


def load(model: str, double: bool = False) -> tl.Explainer:
    """In double precision as in the paper (Llama-3.2-3B apart), or as the checkpoint says."""
    explainer = tl.load(model, dtype=torch.float64) if double else tl.load(model)
    if explainer.task.gap is None:
        raise ValueError(
            f"{model} does {explainer.task.name}: this benchmark asks language models for the next or masked word"
        )
    return explainer


def measured_records(folder: Path) -> list[dict[str, Any]]:
    """Everything that a run has stored about the examples that it measured."""
    return [record for record in Journal(folder / STAGES[0]) if "methods" in record]


def accuracy(folder: Path) -> tuple[float, int]:
    """Share of examples whose right word the model prefers to the wrong one, and how many were asked."""
    said = [record["right"] for record in Journal(folder / STAGES[0]) if record.get("right") is not None]
    return sum(said) / len(said), len(said)
