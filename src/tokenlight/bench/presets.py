"""The protocols of four papers, as data: what their released code does. Line by line in docs/presets.md."""

from dataclasses import replace

from tokenlight.bench.protocol import PROTOCOLS, Protocol
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import BINS, NINTHS, Perturbation
from tokenlight.tasks.classification import Classification
from tokenlight.tasks.extractive_answers import ExtractiveAnswers
from tokenlight.tasks.masked_token import MaskedToken
from tokenlight.tasks.next_token import NextToken

# AttCAT and Mask-LRP take tokens away alike.
DELETE = Perturbation(
    how="delete",
    grid=NINTHS,
    share_of="all",
    rounding="half_even",
    distinct=True,
    skip_last=True,
    zero_types=True,
)
PAD = replace(DELETE, how="replace", token="pad")
EVERY_DELETE, EVERY_PAD = replace(DELETE, eligible="all"), replace(PAD, eligible="all")

# Their code sets [CLS] to 0 in these, and not in CAT and AttCAT.
FIRST_IS_ZERO = frozenset(
    {
        "raw_attention",
        "rollout",
        "attention_cam",
        "attention_grad_cam",
        "generic_attention",
        "transformer_attribution",
        "partial_lrp",
        "zplus_lrp",
        "mask_lrp",
    }
)
KENDALL = Measure("kendall_confidence", options={"variant": "argsort"}, eligible="all")
TOP_20: dict[str, int | str] = {"k": 20, "ties": "first"}

ATTCAT = Protocol(
    "attcat",
    (Measure("aopc", DELETE, {"absolute": True}), Measure("log_odds", PAD), KENDALL),
    tasks=(Classification.name,),
    target="gold",
    hide=("cls", "sep"),
    zero_types=True,
    zero_first=FIRST_IS_ZERO,
    shortest=10,
)
ATTCAT_MNLI = replace(
    ATTCAT,
    name="attcat_mnli",
    measures=(Measure("aopc", EVERY_DELETE, {"absolute": True}), Measure("log_odds", EVERY_PAD), KENDALL),
)
ATTCAT_QQP = replace(ATTCAT_MNLI, name="attcat_qqp", absolute=frozenset({"attcat"}))
ATTCAT_SQUAD = Protocol(
    "attcat_squad",
    (Measure("precision_at_k", options=TOP_20, eligible="all"),),
    tasks=(ExtractiveAnswers.name,),
    target="argmax",
    hide=("cls", "sep"),
    zero_types=True,
    window=384,
    lost_answer="first token",
)
MASK_LRP = Protocol(
    "mask_lrp",
    (Measure("aopc", PAD), Measure("log_odds", PAD)),
    tasks=(Classification.name,),
    target="gold",
    hide=("sep",),
    zero_types=True,
    zero_first=FIRST_IS_ZERO,
    shortest=20,
)
MASK_LRP_QQP = replace(MASK_LRP, name="mask_lrp_qqp", only_label=1, least_probability=0.3)
MASK_LRP_MNLI = replace(MASK_LRP, name="mask_lrp_mnli", least_probability=0.34)
MASK_LRP_SQUAD = Protocol(
    "mask_lrp_squad",
    (Measure("recall_at_k", options=TOP_20, eligible="all"),),
    tasks=(ExtractiveAnswers.name,),
    target="argmax",
    zero_types=True,
    window=384,
    lost_answer="first token",
)
ENVELOPE = {"envelope": True, "plus_one": True}
ALTI = Protocol(
    "alti",
    (
        Measure("comprehensiveness", Perturbation(how="delete", grid=BINS), ENVELOPE),
        Measure("sufficiency", Perturbation(how="delete", grid=BINS, keep="top", empty=True), ENVELOPE),
    ),
    tasks=(Classification.name, MaskedToken.name),
    longest=200,
)
# Between models that differ in their seed, over the texts on which they agree.
ALTI_ROBUSTNESS = (
    Measure("jaccard_top", options={"share": 0.25}, eligible="all"),
    Measure("spearman", options={"variant": "dense"}, eligible="all"),
)
ARRAS = Protocol(
    "arras",
    (
        Measure("pointing_game", options={"k": 2}, eligible="all"),
        Measure("mean_reciprocal_rank", eligible="all"),
        Measure("relevance_mass", eligible="all"),
        Measure("per_token_accuracy", eligible="all"),
    ),
    tasks=(MaskedToken.name, NextToken.name),
    only_right=True,
)
PAPERS = (
    *(ATTCAT, ATTCAT_QQP, ATTCAT_MNLI, ATTCAT_SQUAD),
    *(MASK_LRP, MASK_LRP_QQP, MASK_LRP_MNLI, MASK_LRP_SQUAD),
    *(ALTI, ARRAS),
)
PROTOCOLS.update({one.name: one for one in PAPERS})
