"""AttCAT (Qiang et al. 2022): its models, data and numbers, and its methods by our names."""

from dataclasses import dataclass, replace

from tokenlight.bench.presets import ATTCAT_SQUAD
from tokenlight.bench.protocol import Protocol, protocol

ROWS = (
    *("raw_attention", "rollout", "attention_gradient", "attention_x_gradient", "partial_lrp"),
    *("transformer_attribution", "cat", "attcat"),
)
# AOPC and LOdds, row after row.
TABLE_1 = {
    "sst2": (
        *(0.331, -0.885, 0.286, -0.641, 0.335, -0.252, 0.351, -0.603),
        *(0.341, -0.922, 0.354, -1.038, 0.352, -1.115, 0.371, -1.319),
    ),
    "qqp": (
        0.143,
        0.149,
        0.139,
        0.262,
        0.141,
        0.184,
        0.143,
        0.113,
        0.142,
        0.137,
        0.145,
        0.114,
        0.134,
        0.121,
        0.139,
        0.073,
    ),
    "mnli": (
        0.138,
        0.235,
        0.151,
        0.321,
        0.156,
        0.139,
        0.159,
        0.114,
        0.138,
        0.231,
        0.130,
        0.214,
        0.157,
        0.121,
        0.164,
        0.008,
    ),
    "amazon": (
        *(0.384, -1.729, 0.324, -1.303, 0.316, -1.820, 0.346, -1.941),
        *(0.418, -2.019, 0.415, -1.889, 0.409, -2.157, 0.457, -2.332),
    ),
    "yelp": (
        *(0.394, -2.017, 0.277, -1.055, 0.414, -1.994, 0.439, -2.054),
        *(0.424, -2.199, 0.434, -2.508, 0.421, -2.587, 0.473, -3.169),
    ),
    "imdb": (
        *(0.298, -1.245, 0.331, -1.323, 0.304, -1.227, 0.310, -1.267),
        *(0.312, -1.321, 0.421, -2.137, 0.406, -3.052, 0.528, -3.671),
    ),
}
KENDALL = {
    "sst2": {"attcat": 0.018, "cat": 0.101, "transformer_attribution": 0.336, "partial_lrp": 0.955},
    "qqp": {"attcat": 0.349, "cat": 0.373, "transformer_attribution": 0.222, "partial_lrp": 0.949},
    "mnli": {"attcat": 0.017, "cat": 0.339, "transformer_attribution": 0.339, "partial_lrp": 0.935},
    "amazon": {"attcat": 0.015, "cat": 0.095, "transformer_attribution": 0.152, "partial_lrp": 0.965},
    "yelp": {"attcat": 0.008, "cat": 0.107, "transformer_attribution": 0.121, "partial_lrp": 0.952},
    "imdb": {"attcat": 0.023, "cat": 0.056, "transformer_attribution": 0.043, "partial_lrp": 0.858},
}


@dataclass(frozen=True)
class Dataset:
    """What one column of a table was made from."""

    model: str
    data: str
    split: str
    protocol: Protocol
    remark: str = ""


BERT = "textattack/bert-base-uncased-"
DATASETS = {
    "sst2": Dataset(f"{BERT}SST-2", "hf:nyu-mll/glue:sst2", "validation", protocol("attcat")),
    "qqp": Dataset(f"{BERT}QQP", "hf:nyu-mll/glue:qqp", "validation", protocol("attcat_qqp")),
    "mnli": Dataset(
        f"{BERT}MNLI",
        "hf:nyu-mll/glue:mnli",
        "validation_matched",
        protocol("attcat_mnli"),
        "this checkpoint's labels are in another order than the data's (its 0, 1, 2 are the data's 2, 0, 1); as in the "
        "release they are not put right, so mostly wrong classes are explained",
    ),
    "amazon": Dataset(
        "fabriceyhc/bert-base-uncased-amazon_polarity", "hf:fancyzhx/amazon_polarity", "test", protocol("attcat")
    ),
    "yelp": Dataset(
        "fabriceyhc/bert-base-uncased-yelp_polarity", "hf:fancyzhx/yelp_polarity", "test", protocol("attcat")
    ),
    "imdb": Dataset(f"{BERT}imdb", "hf:stanfordnlp/imdb", "test", protocol("attcat")),
}
QUESTIONS = {
    "squad1": Dataset("csarron/bert-base-uncased-squad-v1", "hf:rajpurkar/squad", "validation", ATTCAT_SQUAD),
    "squad2": Dataset(
        "deepset/bert-base-uncased-squad2",
        "hf:rajpurkar/squad_v2",
        "validation",
        replace(ATTCAT_SQUAD, name="attcat_squad2", absolute=frozenset({"attcat"})),
        "the release drops the signs of start and end before it adds them up, here the sign of the sum is dropped; it "
        "takes 400 questions by chance, here the first ones are taken",
    ),
}
QUESTION_ROWS = ("raw_attention", "rollout", "attcat", "cat", "transformer_attribution")
LONGEST_ANSWERS = {"squad1": 3.72, "squad2": 3.84}  # mean tokens of an answer: the most that a mean count can reach


def published(dataset: str) -> dict[str, list[float | None]]:
    """AOPC, LOdds and Kendall's τ of each method."""
    flat, kendall = TABLE_1[dataset], KENDALL[dataset]
    return {row: [flat[2 * i], flat[2 * i + 1], kendall.get(row)] for i, row in enumerate(ROWS)}
