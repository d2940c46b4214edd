"""AttCAT: what the paper contains, its numbers, and its checkpoints and data."""

from papers.facts import Checkpoint, Item, Paper, PublishedTable

DATASETS = ("SST2", "QQP", "MNLI", "Amazon", "Yelp", "IMDB")
METRICS = ("AOPC", "LOdds")
# The paper's names of methods -> ours.
METHODS = {
    "RawAtt": "raw_attention",
    "Rollout": "rollout",
    "Grads": "attention_gradient",
    "AttGrads": "attention_x_gradient",
    "PartialLRP": "partial_lrp",
    "TransAtt": "transformer_attribution",
    "CAT": "cat",
    "AttCAT": "attcat",
}
TABLE_1 = PublishedTable(
    tuple(f"{dataset} {metric}" for dataset in DATASETS for metric in METRICS),
    {
        "RawAtt": (0.331, -0.885, 0.143, 0.149, 0.138, 0.235, 0.384, -1.729, 0.394, -2.017, 0.298, -1.245),
        "Rollout": (0.286, -0.641, 0.139, 0.262, 0.151, 0.321, 0.324, -1.303, 0.277, -1.055, 0.331, -1.323),
        "Grads": (0.335, -0.252, 0.141, 0.184, 0.156, 0.139, 0.316, -1.820, 0.414, -1.994, 0.304, -1.227),
        "AttGrads": (0.351, -0.603, 0.143, 0.113, 0.159, 0.114, 0.346, -1.941, 0.439, -2.054, 0.310, -1.267),
        "PartialLRP": (0.341, -0.922, 0.142, 0.137, 0.138, 0.231, 0.418, -2.019, 0.424, -2.199, 0.312, -1.321),
        "TransAtt": (0.354, -1.038, 0.145, 0.114, 0.130, 0.214, 0.415, -1.889, 0.434, -2.508, 0.421, -2.137),
        "CAT": (0.352, -1.115, 0.134, 0.121, 0.157, 0.121, 0.409, -2.157, 0.421, -2.587, 0.406, -3.052),
        "AttCAT": (0.371, -1.319, 0.139, 0.073, 0.164, 0.008, 0.457, -2.332, 0.473, -3.169, 0.528, -3.671),
    },
)
PAPER = Paper(
    folder="attcat",
    short="AttCAT",
    citation="Qiang, Pan, Li, Li, Jang and Zhu: AttCAT: Explaining Transformers via Attentive Class Activation Tokens "
    "(NeurIPS 2022).",
    link="https://openreview.net/forum?id=cA8Zor8wFr5",
    release="https://github.com/qiangyao1988/AttCAT",
    items=(
        Item(
            "table",
            "1",
            "AOPC and LOdds of eight methods on six data sets, explaining BERT.",
            "the protocols `attcat`, `attcat_qqp` and `attcat_mnli`",
            "table1",
            published=TABLE_1,
        ),
    ),
    checkpoints={
        "sst2": Checkpoint("textattack/bert-base-uncased-SST-2", "hf:nyu-mll/glue:sst2", "validation"),
    },
)
