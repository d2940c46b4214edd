"""Arras et al.: what the paper contains, its numbers, and its checkpoints and data."""

from papers.facts import Checkpoint, Item, Paper, PublishedTable

LGD = "lgd_dataset.tsv"
LGD_ADDRESS = "https://github.com/yoavg/bert-syntax/blob/master/lgd_dataset.tsv"
SPACY = "en_core_web_trf"  # the pipeline that finds subjects (appendix B)
SPEED_SAMPLES = 1_000  # sentences that are timed (section 4.3)

# Our name of a checkpoint -> the paper's.
MODELS = {
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "gpt2-small": "GPT2-small",
    "gpt2-xl": "GPT2-XL",
    "llama-1b": "Llama-3.2-1B",
    "llama-3b": "Llama-3.2-3B",
}
FAMILIES = {"bert": "BERT", "gpt2": "GPT2", "llama": "Llama3"}  # begin the names of checkpoints
# Our methods -> the paper's names. It reports the better of two gradients without saying which.
METHODS = {
    "alti_logit": "ALTI-Logit",
    "lrp": "LRP",
    "attn_lrp": "AttnLRP",
    "gradient_l1": "Gradient",
    "gradient_l2:squared=True": "Gradient",
    "gradient_x_input": "Gradient×Input",
}
TITLES = METHODS | {"gradient_l1": "Gradient, ℓ1", "gradient_l2:squared=True": "Gradient, squared ℓ2"}
METRICS = ("PG2", "MRR", "RMA", "PTA")


TABLE_2 = PublishedTable(
    METRICS,
    {
        "bert-base-uncased, LRP": (0.688, 0.637, 0.208, 0.339),
        "bert-base-uncased, AttnLRP": (0.775, 0.705, 0.260, 0.376),
        "bert-base-uncased, Gradient": (0.775, 0.718, 0.245, 0.041),
        "bert-base-uncased, Gradient×Input": (0.292, 0.316, 0.095, 0.497),
        "bert-large-uncased, LRP": (0.560, 0.521, 0.187, 0.408),
        "bert-large-uncased, AttnLRP": (0.641, 0.580, 0.224, 0.383),
        "bert-large-uncased, Gradient": (0.555, 0.551, 0.177, 0.041),
        "bert-large-uncased, Gradient×Input": (0.212, 0.249, 0.077, 0.513),
        "GPT2-small, ALTI-Logit": (0.867, 0.808, 0.342, 0.330),
        "GPT2-small, LRP": (0.738, 0.706, 0.367, 0.445),
        "GPT2-small, AttnLRP": (0.705, 0.634, 0.318, 0.408),
        "GPT2-small, Gradient": (0.592, 0.551, 0.255, 0.153),
        "GPT2-small, Gradient×Input": (0.262, 0.353, 0.152, 0.565),
        "GPT2-XL, ALTI-Logit": (0.885, 0.852, 0.402, 0.320),
        "GPT2-XL, LRP": (0.823, 0.754, 0.407, 0.392),
        "GPT2-XL, AttnLRP": (0.779, 0.658, 0.351, 0.384),
        "GPT2-XL, Gradient": (0.579, 0.546, 0.265, 0.153),
        "GPT2-XL, Gradient×Input": (0.321, 0.408, 0.198, 0.608),
        "Llama-3.2-1B, ALTI-Logit": (0.690, 0.623, 0.288, 0.359),
        "Llama-3.2-1B, LRP": (0.690, 0.533, 0.221, 0.244),
        "Llama-3.2-1B, AttnLRP": (0.884, 0.814, 0.387, 0.382),
        "Llama-3.2-1B, Gradient": (0.283, 0.366, 0.151, 0.127),
        "Llama-3.2-1B, Gradient×Input": (0.365, 0.407, 0.183, 0.512),
        "Llama-3.2-3B, ALTI-Logit": (0.614, 0.557, 0.266, 0.297),
        "Llama-3.2-3B, LRP": (0.747, 0.622, 0.241, 0.231),
        "Llama-3.2-3B, AttnLRP": (0.885, 0.764, 0.364, 0.326),
        "Llama-3.2-3B, Gradient": (0.275, 0.311, 0.143, 0.127),
        "Llama-3.2-3B, Gradient×Input": (0.377, 0.413, 0.192, 0.514),
        # Of random scores, which depend on the tokenizer alone.
        "BERT, Random": (0.080, 0.149, 0.040, 0.500),
        "BERT, Random, deviation": (0.002, 0.001, 0.000, 0.001),
        "GPT2, Random": (0.277, 0.360, 0.151, 0.501),
        "GPT2, Random, deviation": (0.004, 0.002, 0.001, 0.001),
        "Llama3, Random": (0.241, 0.326, 0.127, 0.501),
        "Llama3, Random, deviation": (None, 0.001, 0.001, 0.000),  # the first is missing in our copy of the text
    },
)
TABLE_3 = PublishedTable(
    ("accuracy", "parameters (millions)", "layers", "heads", "hidden size", "vocabulary"),
    {
        "bert-base-uncased": (0.969, 110, 12, 12, 768, 30_522),
        "bert-large-uncased": (0.974, 340, 24, 16, 1024, 30_522),
        "GPT2-small": (0.919, 124, 12, 12, 768, 50_257),
        "GPT2-XL": (0.941, 1500, 48, 25, 1600, 50_257),
        "Llama-3.2-1B": (0.954, 1000, 16, 32, 2048, 128_256),
        "Llama-3.2-3B": (0.956, 3000, 28, 24, 3072, 128_256),
    },
)
TOKENIZERS = {"bert": "WordPiece", "gpt2": "BPE", "llama": "tiktoken BPE"}
# Appendix B: rows of the LGD file that are left out, and why; then what is left.
GENERIC = {
    "rows of the LGD file": 29_985,
    "both forms of the verb are the same": 46,
    "no nominal subject": 1_005,
    "verb not tagged as present tense": 148,
    "sentences with a subject": 28_786,
    "plural verb forms, %": 67,
    "singular verb forms, %": 33,
}
TOKENIZED = PublishedTable(
    (
        "samples", "shortest input", "longest input", "mean", "deviation", "median",
        "shortest subject", "longest subject", "share of subjects of 1 token", "share of subjects of 2 tokens",
    ),
    {
        "BERT": (28_472, 9, 170, 30, 12, 28, 1, 7, 0.967, 0.026),
        "GPT2": (28_602, 2, 60, 11, 7, 8, 1, 7, 0.851, 0.124),
        "Llama3": (28_629, 3, 60, 11, 7, 9, 1, 5, 0.894, 0.088),
    },
)  # fmt: skip
# Section 4.3: speedup of LRPx over LXT with AttnLRP, lowest and highest on two kinds of GPU.
SPEED_UPS = {"bert-base": (1.83, 1.98), "llama-1b": (1.54, 1.61)}
# Table 1 has a row for ALTI-Logit, LRP, AttnLRP, and one for both gradients: granularity, computation, and whether
# normalization is linear, attention is constant, information mixes through MLPs, and the logit is decomposed.
PROPERTIES = ("norms linear", "attention constant", "through MLPs", "decomposes the logit")
TABLE_1 = {
    "ALTI-Logit": ("token, head, layer", "2 × forward", True, True, False, True),
    "LRP": ("neuron, layer", "forward + backward", True, True, True, True),
    "AttnLRP": ("neuron, layer", "forward + backward", True, False, True, True),
    "Gradient": ("neuron, layer", "forward + backward", False, False, True, False),
    "Gradient×Input": ("neuron, layer", "forward + backward", False, False, True, False),
}


def family_of(name: str) -> str:
    """The family in the paper's words of a checkpoint in ours."""
    return next(family for start, family in FAMILIES.items() if name.startswith(start))


GATED = "gated: ask for access on its page"
OUR_READING = "This is our reading; the paper does not say."
PAPER = Paper(
    folder="arras",
    short="Arras et al.",
    citation="Arras, Puri, Kahardipraja, Lapuschkin and Samek: A Close Look at Decomposition-based XAI-Methods for "
    "Transformer Language Models (2025).",
    link="https://arxiv.org/abs/2502.15886",
    release=None,
    items=(
        Item(
            "table",
            "1",
            "Properties of the five methods: what they assign relevance to, what they compute, whether they treat "
            "norms as linear and attention as constant, whether relevance flows through MLPs, and whether the logit "
            "is decomposed.",
            "`alti_logit`, `lrp`, `attn_lrp`, `gradient_l1` and `gradient_l2:squared=True`, `gradient_x_input`. The "
            "script reads their properties from the rule tables (`tokenlight.rules`) and from the options of the "
            "methods, and measures on the agreement sentences how much of the logit difference the scores and the "
            "reported shares account for.",
            "table1",
            "ALTI-Logit takes one forward and one backward pass here; the paper counts two forward passes, as in the "
            "code of Ferrando et al., against which `alti_logit` is tested on GPT-2. The table has a check mark for "
            "the decomposition by LRP and AttnLRP, but their scores alone need not add up to the logit: biases, if "
            'any, take a share (footnote 10; `extras["bias_share"]`), and AttnLRP\'s softmax rule does not conserve '
            'relevance (section 2.3; `extras["softmax_deficit"]`).',
        ),
        Item(
            "table",
            "2",
            "Do the methods find the subject that decides a verb's form? PG2, MRR, RMA and PTA of five methods on six "
            "models, over correctly predicted sentences; random scores as the mean and deviation of ten runs. The "
            "paper finds that AttnLRP does well on BERT and Llama 3, that ALTI-Logit is strongest on GPT-2, followed "
            "by LRP, and that PTA, where the best method is close to random and the others are worse, is not a "
            "suitable metric.",
            "the protocol `arras`; the rows are the methods of table 1. `--method lrp:epsilon=0.01`, "
            "`--method lrp:gamma=0.25` or `--method alpha_beta_lrp:alpha=2,beta=1` add rows for other rules of linear "
            "layers, `--method alti_logit` adds ALTI-Logit on BERT.",
            "table2",
            "The paper reports the better of two gradients and does not say which; both have a row here, next to the "
            "same published numbers. It does not say which tokens count; here all do, special ones included. That "
            "fits its numbers: a gradient's length is positive at every token, so its PTA is the mean share of "
            "subject tokens (the script prints it as a check), and by our rough estimate the lengths in appendix B "
            "give 0.040 for BERT with special tokens and 0.046 without; published is 0.041. It does not say whether "
            "its layer 0 is the word embedding, where relevance is read here, or the first block's input "
            '(`read="blocks"`), where ALTI-Logit always ends. The paper has one line of random scores for each '
            "tokenizer; here they are scored, like the methods, on the sentences that the model gets right. Section "
            "4.1 says that Gradient has the best PTA, close to random; by the numbers of the table that is "
            "Gradient×Input. It calls ALTI-Logit the strongest on GPT-2; in RMA, LRP is higher. ALTI-Logit on BERT is "
            "not in the paper, which does not adapt it to masked models or to norms after attention. The small models "
            "below are always right, so no sentence is left out, and their order of methods is not the paper's: on "
            "the small Llama, `<s>` or the first `the` has the highest score in 144 of 150 sentences with LRP and in "
            "113 with AttnLRP.",
            TABLE_2,
        ),
        Item(
            "table",
            "3",
            "Accuracy of the six models on the agreement sentences, their sizes, and their tokenizers: WordPiece for "
            "BERT, BPE for GPT-2, tiktoken BPE for Llama 3.",
            "`bench.cases.select_cases` asks the model for both forms of the verb, as the protocol does.",
            "table3",
            published=TABLE_3,
        ),
        Item(
            "figure",
            "1",
            "The evaluation in three steps: the model predicts two verb forms, every method explains the difference of "
            "their logits, and the metrics compare the heatmaps with the subject.",
            "`Explainer.explain(text, method, target=..., foil=...)` and `tl.evaluate(..., marks=...)`; the script "
            "draws the first sentence that the model gets right, with the metrics of every method.",
            "figure1",
            "Our copy of the text has the caption but not the drawing, so the sentence is another one.",
        ),
        Item(
            "figure",
            "2",
            "Heatmaps for Llama-3.2-1B on the five correctly predicted sentences with the highest logit difference; "
            "in all five the subject comes right before the verb. Section 4.2, which calls it Fig. D.6, finds AttnLRP "
            "sparser and more focused on the subject than ALTI-Logit, which also highlights `<begin_of_text>`, and "
            "both gradient methods noisy.",
            "the methods of table 1; positive relevance is red and negative relevance blue, the subject is "
            "underlined and the verb is green.",
            "figure2",
            "`--dataset` draws it for the other models too. Our copy of the text has the caption but not the drawing; "
            "we draw every method of table 2, and the text names all but LRP. Each heatmap is divided by its own "
            "largest absolute score. " + OUR_READING,
        ),
        Item(
            "equation",
            "1",
            "LRP-ε at a linear layer (also in section 2.2).",
            "`lrp:epsilon=E` and `attn_lrp:epsilon=E`; `rules.epsilon_rules(E)`. The default is ε = 0, which is what "
            "gradient × input computes (D.1)",
            "appendix_d",
        ),
        Item(
            "equation",
            "2–7",
            "LRP-ε with ε = 0 is gradient × input of the plain linear layer.",
            "`rules.absorbing_linear` in the tables `LRP` and `ATTN_LRP`: the plain gradient; the bias's share "
            "is counted as `bias_share`",
            "appendix_d",
        ),
        Item(
            "equation",
            "8–17",
            "LRP-α1β0 at a linear layer, the positive part of the bias in the denominator, as a modified forward pass.",
            "`alpha_beta_lrp`; the general rule is `alpha_beta_lrp:alpha=A,beta=B`, and LRP-γ, which the paper names "
            "without a formula, `lrp:gamma=G`",
            "appendix_d",
            "Where the paper modifies the forward pass (equation 9), tokenlight has an autograd function with the same "
            "backward pass.",
        ),
        Item(
            "equation",
            "18–22",
            "The identity rule: an activation passes its relevance on unchanged.",
            "`rules.identity`, in all LRP tables but `STREAM` (that of `alti_logit`), which cuts MLPs off",
            "appendix_d",
        ),
        Item(
            "equation",
            "23–32",
            "Signal takes all: in a product of a gate and a signal, all relevance goes to the signal. In attention the "
            "gate is the weight and the signal the value.",
            "`lrp`: attention weights are constants (`rules.constant` at the softmax), and so is the gate of a gated "
            "MLP (`lrp:gate=uniform` gives both factors half)",
            "appendix_d",
            "In Llama's gated MLP the activated factor is taken for the gate, as in LXT's CP-LRP, and `lrp` uses this "
            f"rule there. {OUR_READING}",
        ),
        Item(
            "equation",
            "33–34",
            "LayerNorm with a constant standard deviation is a linear layer; RMSNorm likewise.",
            "`rules.linear_norm` for LayerNorm in the tables `LRP`, `ATTN_LRP`, `ALPHA_BETA` and `STREAM`; the scale "
            "of an RMSNorm is a constant in all LRP tables",
            "appendix_d",
        ),
        Item(
            "equation",
            "35–42",
            "AttnLRP's softmax rule is gradient × input of the plain softmax.",
            '`attn_lrp`: `rules.gradient_softmax`; what it does not propagate is `extras["softmax_deficit"]`',
            "appendix_d",
        ),
        Item(
            "equation",
            "without a number, section 2",
            "The logit of a token: the last layer's state at the last position times the token's output embedding.",
            "what is explained with `target=` a token; with `foil=` too, the difference of two logits",
        ),
        Item(
            "equation",
            "without a number, section 2.1",
            "ALTI-Logit: the tokens' contributions and those of the MLPs add up to the logit, biases aside (footnote "
            "5). The section also extends the method to Llama, with grouped-query attention and RMSNorm.",
            '`alti_logit`, for Llama too: scores, `extras["mlp_share"]` and `extras["bias_share"]` add up to the '
            'explained logit (difference); `extras["residual"]` is by how much they exceed it',
            "table1",
        ),
        Item(
            "equation",
            "without a number, section 2.2",
            "LRP: at every layer, the relevance of all tokens adds up to the logit, biases aside.",
            '`lrp` with `detail="layers"`; `extras["bias_share"]` is what biases absorb (footnotes 8 and 10)',
            "table1",
        ),
        Item(
            "equation",
            "without a number, section 2.4",
            "Gradient (sum of absolute values, or sum of squares) and gradient × input, of the logit.",
            "`gradient_l1`, `gradient_l2:squared=True`, `gradient_x_input`",
        ),
        Item(
            "equation",
            "without a number, sections 2.3 and 2.7",
            "The uniform rule of AttnLRP: each factor of a product takes half of the relevance. As gradient × input: a "
            "product of which one half is detached.",
            "`attn_lrp`: `rules.halved` at both products of attention and at gated MLPs",
            "appendix_d",
        ),
        Item(
            "protocol",
            "2.6 (methods left out)",
            "Named, but not compared: integrated gradients and SmoothGrad, which have hyperparameters; attention "
            "rollout and ALTI, which are not directly related to a prediction; and the LRP variants of Voita et al. "
            "(2021) and Chefer et al. (2021b), which do not conserve relevance in attention.",
            "`integrated_gradients`, `smooth_grad`, `rollout`, `alti` and `transformer_attribution` (Chefer et al. "
            "2021b); table 2 has a row for each that `--method` names",
            differs="Voita et al. (2021) explain encoder-decoders, which tokenlight does not.",
        ),
        Item(
            "protocol",
            "3.1 (task)",
            "Subject-verb agreement: the explained number is the logit of the predicted verb form minus that of the "
            "other. The ground truth is the subject of that very verb; Ferrando et al. (2023) took the first subject "
            "in the sentence, which the authors blame for the MRR of about 0.60 reported there for ALTI-Logit on "
            "GPT2-small, against 0.81 in this paper (footnote 14).",
            "the protocol `arras`: `target=` the right form, `foil=` the other; only right predictions count, so the "
            "right form is the predicted one",
        ),
        Item(
            "protocol",
            "3.2 (models)",
            "Two sizes each of BERT, GPT-2 and Llama 3.2, from Hugging Face.",
            "see the checkpoints below",
        ),
        Item(
            "protocol",
            "3.3 (metrics)",
            "PG-k: whether a subject token is among the k highest (k = 2); MRR: 1 / rank of the best subject token; "
            "RMA: the subject's share of the positive relevance; PTA: share of tokens whose sign is right, which "
            "means above 0 on the subject and not above 0 elsewhere.",
            "`pointing_game`, `mean_reciprocal_rank`, `relevance_mass`, `per_token_accuracy`",
            differs="Tied scores give the expected value over all orders of the tied tokens; RMA is 0 where no score "
            f"is positive. {OUR_READING}",
        ),
        Item(
            "protocol",
            "4.1 (evaluation)",
            "Correctly predicted sentences only; double precision, bfloat16 for Llama-3.2-3B, though precision hardly "
            "changes the metrics (footnote 15); random scores uniform in [−1, 1), ten runs (table 2).",
            '`protocol="arras"` (`only_right=True`, `random_runs=10`); the scripts convert the model, `--precision` '
            "chooses another precision",
            differs="The standard deviation of the ten runs has the divisor 9. " + OUR_READING,
        ),
        Item(
            "protocol",
            "4.3 (speed)",
            "The speedup of AttnLRP as a modified gradient × input (LRPx) over the explicit rules of LXT: the median "
            "over the first 1,000 sentences in single precision, on a V100 and an A100. Published: 1.83 to 1.98 on "
            "bert-base-uncased, 1.54 to 1.61 on Llama-3.2-1B.",
            "`attn_lrp`, which is a modified gradient × input too",
            "speed",
            "Sentences run one at a time, and on a CPU the script counts processor time; the paper does not mention "
            "batches. LXT's explicit rules come with its own copies of the models, made for older versions of "
            "transformers, so it runs in an environment of its own (`--lxt-python`). The script takes LXT 2 "
            "(`lxt.explicit.models`) and earlier versions (`lxt.models`); their rules and copies of BERT and Llama are "
            "the same as in commit 25aa8f3, which the paper links. The package on PyPI (2.1) lacks these folders: "
            "install LXT from its GitHub repository. Both methods give the same scores but for LXT's ε: on a random "
            "BERT of base size they differed by at most 0.0002 of the largest score, and by 3e-8 once LXT's ε was "
            "lowered to 1e-13. Three runs of 8 sentences on a CPU gave ratios of 0.98, 1.10 and 0.88, the last "
            "two beside other programs: we could not measure the speedup, for which the paper used GPUs.",
        ),
        Item(
            "protocol",
            "Limitations",
            "The parser that finds the subjects makes mistakes, and sentences hold misspellings and wrong grammar; the "
            "authors expect no noticeable effect on the comparison of methods.",
            "the exported data set (`papers.arras.dataset`) can be corrected by hand and given back with `--data`",
        ),
        Item(
            "appendix",
            "A",
            "Versions: Python 3.11.9, spaCy 3.7.3, pandas 2.2.1, PyTorch 2.3.0, NumPy 1.26.4, transformers 4.48.1. "
            "Licenses of the models: Apache 2.0 for BERT, MIT for GPT-2, Meta Llama 3 Community License for Llama 3.",
            "the versions of this project are in `pyproject.toml`",
            differs="The versions are newer, and another version of spaCy's pipeline may find other subjects.",
        ),
        Item(
            "appendix",
            "B",
            "The data set, made from the LGD file (Goldberg 2019) of uncased Wikipedia sentences, each with 1 to 4 "
            "nouns of the other number between subject and verb. Rows are left out if both forms of the verb are the "
            "same, if spaCy's `en_core_web_trf` finds no nominal subject (`nsubj`), or if it does not tag the verb as "
            "VBZ or VBP. For each tokenizer, both forms of the verb must be one token, the subject shorter than the "
            "input, and the input longer than one token without special ones. Causal models read the text before the "
            "verb, so the subject must stand there.",
            "`data.subject_verb`, and `reason_unsuitable` of `data.examples`. The script writes the annotated "
            "sentences (`agreement.jsonl`, which `tokenlight bench` reads) and the sentences in tokens for each "
            "model, and counts what was left out",
            "dataset",
            "The paper says that its data and code are public, but its link was to follow on acceptance (footnote 1), "
            "so the data are built anew. A word counts as the verb's subject if it is the only child of the verb with "
            "the relation `nsubj`; rows in which the parser splits the verb differently are left out too and counted "
            "under “no nominal subject”. " + OUR_READING,
            TOKENIZED,
        ),
        Item(
            "appendix",
            "C",
            "Table 3.",
            "see table 3",
        ),
        Item(
            "appendix",
            "D",
            "Proofs that the rules are gradient × input, with some layers modified (equations 1 to 42): products, "
            "norms, activations, and linear layers under LRP-α1β0. Linear layers under LRP-ε and the softmax stay as "
            "they are.",
            "`rules/tables.py` holds the rules as data. The script computes every rule by its formula, unit by unit, "
            "and by the modified backward pass, on random numbers in double precision",
            "appendix_d",
        ),
    ),
    checkpoints={
        "bert-base": Checkpoint("bert-base-uncased", LGD, fetch=LGD_ADDRESS),
        "bert-large": Checkpoint("bert-large-uncased", LGD, fetch=LGD_ADDRESS),
        "gpt2-small": Checkpoint("gpt2", LGD, fetch=LGD_ADDRESS),
        "gpt2-xl": Checkpoint("gpt2-xl", LGD, fetch=LGD_ADDRESS),
        "llama-1b": Checkpoint("meta-llama/Llama-3.2-1B", LGD, note=GATED, fetch=LGD_ADDRESS),
        "llama-3b": Checkpoint("meta-llama/Llama-3.2-3B", LGD, note=f"{GATED}; bfloat16", fetch=LGD_ADDRESS),
    },
)
