"""The protocols of four papers, as data; docs/presets.md explains them line by line.

A name that ends in `_written` is the protocol that the paper describes; what the paper leaves open is as in the clean
protocol. The others are what the released code does. Arras et al. have released no code.
"""

from dataclasses import replace

from tokenlight.bench.protocol import PROTOCOLS, Protocol
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import ALTI_BINS, BINS, NINTHS, TENTHS_FROM_0, Perturbation
from tokenlight.tasks.classification import Classification
from tokenlight.tasks.masked_token import MaskedToken
from tokenlight.tasks.next_token import NextToken
from tokenlight.tasks.question_answering import ExtractiveAnswers

# AttCAT and Mask-LRP remove tokens in the same way.
DELETE = Perturbation(
    removal="delete",
    grid=NINTHS,
    share_of="all",
    rounding="half_even",
    distinct=True,
    skip_last=True,
    zero_types=True,
)
PAD = replace(DELETE, removal="pad")
EVERY_DELETE, EVERY_PAD = replace(DELETE, eligible="all"), replace(PAD, eligible="all")

# Methods for which their code sets the score of [CLS] to 0; it does not for CAT and AttCAT.
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
# Equations 13 to 15, section 5.3.
DELETE_WRITTEN = Perturbation(removal="delete", grid=TENTHS_FROM_0)
PAD_WRITTEN = Perturbation(removal="pad", grid=TENTHS_FROM_0)
ATTCAT_WRITTEN = Protocol(
    "attcat_written",
    (Measure("aopc", DELETE_WRITTEN), Measure("log_odds", PAD_WRITTEN), KENDALL),
    tasks=(Classification.name,),
)
ATTCAT_SQUAD_WRITTEN = Protocol(
    "attcat_squad_written",
    (Measure("precision_at_k", options={"k": 20}, eligible="all"),),
    tasks=(ExtractiveAnswers.name,),
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
# Appendix D; QQP: section 5.1 and appendix C. The shares of tokens are AttCAT's, which the paper cites.
MASK_LRP_WRITTEN = Protocol(
    "mask_lrp_written",
    (Measure("aopc", PAD_WRITTEN), Measure("log_odds", PAD_WRITTEN)),
    tasks=(Classification.name,),
)
MASK_LRP_QQP_WRITTEN = replace(MASK_LRP_WRITTEN, name="mask_lrp_qqp_written", only_label=1)
MASK_LRP_SQUAD_WRITTEN = Protocol(
    "mask_lrp_squad_written",
    (Measure("recall_at_k", options={"k": 20}, eligible="all"),),
    tasks=(ExtractiveAnswers.name,),
)
ENVELOPE = {"envelope": True, "plus_one": True}
ALTI = Protocol(
    "alti",
    (
        Measure("comprehensiveness", Perturbation(removal="delete", grid=BINS), ENVELOPE),
        Measure("sufficiency", Perturbation(removal="delete", grid=BINS, keep="top", empty=True), ENVELOPE),
    ),
    tasks=(Classification.name, MaskedToken.name),
    longest=200,
)
# Equations 12 and 13.
ALTI_WRITTEN = Protocol(
    "alti_written",
    (
        Measure("comprehensiveness", Perturbation(removal="delete", grid=ALTI_BINS), {"plus_one": True}),
        Measure("sufficiency", Perturbation(removal="delete", grid=ALTI_BINS, keep="top"), {"plus_one": True}),
    ),
    tasks=(Classification.name, MaskedToken.name),
)
# Section 5.2: between models that differ in their seed; as in the release, on texts with the same prediction.
ALTI_ROBUSTNESS_WRITTEN = (
    Measure("jaccard_top", options={"share": 0.25}, eligible="all"),
    Measure("spearman", eligible="all"),
)
ALTI_ROBUSTNESS = (
    Measure("jaccard_top", options={"share": 0.25}, eligible="all"),
    Measure("spearman", options={"variant": "dense"}, eligible="all"),
)
# Sections 3.1 and 3.3, table 2.
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
    random_runs=10,
)
PAPERS = (
    *(ATTCAT, ATTCAT_QQP, ATTCAT_MNLI, ATTCAT_SQUAD),
    *(MASK_LRP, MASK_LRP_QQP, MASK_LRP_MNLI, MASK_LRP_SQUAD),
    *(ALTI, ARRAS),
    *(ATTCAT_WRITTEN, ATTCAT_SQUAD_WRITTEN),
    *(MASK_LRP_WRITTEN, MASK_LRP_QQP_WRITTEN, MASK_LRP_SQUAD_WRITTEN),
    ALTI_WRITTEN,
)
PROTOCOLS.update({protocol.name: protocol for protocol in PAPERS})
