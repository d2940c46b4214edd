"""AttCAT: what the paper contains, its numbers, and its checkpoints and data.

The text at hand is the anonymous version of the paper, which ends with the checklist: its appendix is not in it.
"""

from papers.facts import Checkpoint, Item, Paper, PublishedTable

DATASETS = {"sst2": "SST2", "qqp": "QQP", "mnli": "MNLI", "amazon": "Amazon", "yelp": "Yelp", "imdb": "IMDB"}
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
FIGURE_4_TEXT = "I do not like this movie"
FIGURE_5_TEXT = "I really didn't like this movie. Some of the actors were good, but overall the movie was boring."
TABLE_1 = PublishedTable(
    tuple(f"{dataset} {metric}" for dataset in DATASETS.values() for metric in METRICS),
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
TABLE_2 = PublishedTable(
    tuple(DATASETS.values()),
    {
        "Grads": (0.150, 0.236, 0.169, 0.146, 0.174, 0.098),
        "AttGrads": (0.116, 0.198, 0.156, 0.148, 0.132, 0.064),
        "PartialLRP": (0.955, 0.949, 0.935, 0.965, 0.952, 0.858),
        "TransAtt": (0.336, 0.222, 0.339, 0.152, 0.121, 0.043),
        "CAT": (0.101, 0.373, 0.339, 0.095, 0.107, 0.056),
        "AttCAT": (0.018, 0.349, 0.017, 0.015, 0.008, 0.023),
    },
)
FIGURE_3 = PublishedTable(("SQuADv1", "SQuADv2"), {"maximum": (3.72, 3.84)})
FIGURE_4 = PublishedTable(("Sum",), {"not": (0.72,), "like": (-0.37,)})

AS_WRITTEN = "`attcat:states=outputs` and `cat:states=outputs`"
TABLES = (
    Item(
        "table",
        "1",
        "AOPC and LOdds of eight methods on six data sets, explaining BERT; means over the shares k.",
        f"The protocol `attcat_written` with {AS_WRITTEN} and `transformer_attribution:normalise=False`. With "
        "`--released`: the protocols `attcat`, `attcat_qqp` and `attcat_mnli`, and the methods' defaults.",
        "table1",
        "The published numbers come from code that differs from the equations: it explains and measures the gold "
        "label instead of the predicted one, takes absolute differences for AOPC, removes ninths instead of tenths, "
        "hides [CLS] and [SEP] in the explained pass and reads block inputs (see [the protocols](../presets.md#attcat))"
        ". `--released` does the same. There is no released code for Grads, AttGrads and CAT; here they are as figure "
        "2 writes them. On MNLI the checkpoint's classes are in another order than the data's, and the release does "
        "not map them: with `--released`, mostly wrong classes are explained there, as in the release.",
        TABLE_1,
    ),
    Item(
        "table",
        "2",
        "Kendall's τ between the explanations of the predicted class and of another class, for the six class-specific "
        "methods on six data sets, explaining BERT. Lower is taken as better. RawAtt and Rollout are left out, since "
        "they do not depend on the class. (The paper's heading of the first column is misspelled.)",
        "The metric `kendall_confidence:variant=argsort` in the protocols of table 1.",
        "table2",
        "As in equation 15, τ is taken between two arrays of sorted token indices. That is not the agreement of two "
        'rankings: a ranking and its reverse do not get −1. The column "τ on ranks" has the agreement of rankings '
        "(`variant=ranks`), for which the paper has no numbers.",
        TABLE_2,
    ),
)
FIGURES = (
    Item(
        "figure",
        "1",
        "A drawing of a Transformer with three layers: skip connections, and outputs weighted by attention.",
        "Nothing to compute. Equations 1 to 3 are the attention that tokenlight records from the model.",
    ),
    Item(
        "figure",
        "2",
        "The eight methods as formulas.",
        "RawAtt `raw_attention`, Rollout `rollout`, Grads `attention_gradient`, AttGrads `attention_x_gradient`, "
        "PartialLRP `partial_lrp`, TransAtt `transformer_attribution`, CAT `cat`, AttCAT `attcat`. As written: "
        f"`transformer_attribution:normalise=False`, {AS_WRITTEN}. The formulas give a matrix; its row at [CLS] is "
        "read. `tests/methods/test_by_hand.py` compares the methods with plain transcriptions.",
        differs="The text at hand has the caption alone; the formulas are those of the picture in the release. "
        "Rollout: the figure does not normalize rows; rows of attention sum to 1, so that normalizing only "
        "divides by a power of 2 and changes no order. Rollout and TransAtt: the figure writes the product with the "
        "first layer on the left; here, as in the release, later layers stand on the left, which is how information "
        "flows. PartialLRP: the figure has no positive part; here it is taken, as in the release. CAT and AttCAT: "
        "the figure writes a mean over heads around terms that have no heads; only attention is averaged over them.",
    ),
    Item(
        "figure",
        "3",
        "Bars of Precision@20, the mean number of answer tokens among the 20 highest scores, of BERT, DistilBERT and "
        "RoBERTa on SQuADv1 and SQuADv2.",
        "The metric `precision_at_k:k=20` in the protocol `attcat_squad_written`; with `--released` in `attcat_squad`.",
        "figure3",
        'The heights of the bars are not in the text; the caption gives 3.72 ("ours") and 3.84 as maximum scores. '
        "The release counts the answer's tokens as the score that cannot be surpassed, so these may be the mean "
        "lengths of answers. The figure's methods are not named in the text; the release has AttCAT, RawAtt and "
        "Rollout, and `--methods` takes others. The release reads RawAtt as a mean over layers at the last token, and "
        "Rollout without skip connections as a mean over layers and rows; here both are read at the answer's rows. "
        "It hides the token ids 101 and 102, which are [CLS] and [SEP] in BERT but two words in RoBERTa; with "
        "`--released`, RoBERTa's own special tokens are hidden. On SQuADv2 the release adds the absolute scores of "
        "start and end (here: the absolute value of their sum) and takes 400 random answerable questions "
        "(`--sample`), while the paper speaks of entire test sets.",
        FIGURE_3,
    ),
    Item(
        "figure",
        "4",
        "A heatmap of normalized AttCAT scores for one short sentence: a row per layer (L0 to L11), a row for their "
        "product (Rollout) and a row for their sum (Sum).",
        "`attcat:detail=layers`; the sum is the method's score. The script makes the product and the normalization.",
        "figure4",
        "The normalization is the release's, which the text does not name: all rows together are divided by the "
        "square root of the sum of squares. The product is of the layers' scores, token by token, as in the release, "
        "and not a product of matrices. The sentence is in the release, not in the text. As the equations are "
        "written (default), row L11 is the last layer's output, where [CLS] alone has a gradient; with `--released`, "
        "row L0 is the first layer's input.",
        FIGURE_4,
    ),
    Item(
        "figure",
        "5",
        "Texts with shaded tokens, green for positive and red for negative scores: (a) AttCAT for a question of "
        "SQuAD whose answer is two tokens long; (b) AttCAT, TransAtt, RawAtt and Rollout for a negative sentence.",
        "The methods of figure 2. (a) is the first question of SQuAD's validation split.",
        "figure5",
        "Each line is scaled to its largest absolute score. Sentence (b) is said to be from SST2; it is given to the "
        "script as text (`--text` takes another). The figure has no numbers.",
    ),
)
EQUATIONS = (
    Item("equation", "1–3", "Attention weights, and a layer's output as attention-weighted values plus its input.",
         "The model's own forward pass; attention is recorded as it is computed.",
         differs="The paper leaves out biases, norms, the MLP and the split into heads; the model has them."),
    Item("equation", "4–5", "GradCAM of image networks: channels weighted by their mean gradient, positive part.",
         "Not here: tokenlight explains text models. `attention_grad_cam` is the variant for attention heads that "
         "Chefer et al. 2021b compare with.",
         differs="Quoted by the paper as its motivation; it is not one of its methods."),
    Item("equation", "6", "Impact score: its absolute value is the magnitude, its sign the direction.",
         "`e.scores` is signed; `e.scores.abs()` and `e.scores.sign()`.",
         differs="The metrics of the tables rank by the signed score, in the paper and here."),
    Item("equation", "7", "A token's information at a layer is what it had before plus its interactions.",
         "Nothing to compute: the reason for summing over layers."),
    Item("equation", "8–9", "The class score as a linear function of the last layer's outputs; weights are gradients.",
         "The gradients that `cat` and `attcat` read.",
         differs="For a [CLS] classifier, outputs of the last layer other than at [CLS] have gradient 0, so the last "
         "layer's term is 0 for all words."),
    Item("equation", "10", "CAT of a layer: gradient times output.",
         "`cat:states=outputs` (as written), `cat` (block inputs, as released).",
         differs="The product is summed over features, which the equation leaves out."),
    Item("equation", "11", "AttCAT of a layer: CAT times the token's attention, mean over heads.",
         "`attcat:states=outputs` (as written), `attcat` (block inputs, as released).",
         differs="The equation does not say whether the attention is what a token gives or receives. As in the "
         "release, it is what the token receives, mean over heads and queries; what a token gives sums to 1 for every "
         "token."),
    Item("equation", "12", "The final score is the sum over layers.",
         "The scores of `cat` and `attcat`; `detail=layers` has the terms.",
         differs="As written, the states are the outputs of layers 1 to L; the release sums over the inputs of layers "
         "1 to L (the embeddings and the outputs of layers 1 to L − 1)."),
    Item("equation", "13", "AOPC: mean fall of the predicted class's probability when the top k % are deleted.",
         "`aopc` in `attcat_written`: deletion, k = 0, 10, … 100 %, `p − p_k`.",
         differs="Not said, and as in the clean protocol here: special tokens stay, shares of the other tokens are "
         "rounded up. The equation speaks of words, the text below it of tokens; here they are tokens."),
    Item("equation", "14", "LOdds: mean of the log of the probability's ratio when the top k % become padding.",
         "`log_odds` in `attcat_written`: [PAD] in place, k as in equation 13.",
         differs="Padding tokens are attended to, as in the release."),
    Item("equation", "15", "Kendall's τ between arrays of token indices, sorted by the scores for two classes.",
         "`kendall_confidence:variant=argsort`.",
         differs="For more than two classes the equation does not say which other class is meant; as in the release, "
         "it is the class before the explained one, and 1 for class 0."),
)  # fmt: skip
PROTOCOLS = (
    Item("protocol", "section 5.1, confidence", "High scores for a class should be low for the others.",
         "`kendall_confidence`", "table2"),
    Item("protocol", "section 5.3, AOPC and LOdds", "Predicted class, 0 to 100 % in steps of 10 %; a mean over k.",
         "The preset `attcat_written`; what the release does: `attcat`, `attcat_qqp`, `attcat_mnli` "
         "([line by line](../presets.md#attcat)).", "table1"),
    Item("protocol", "section 5.3, Precision@K", "Answer tokens among the K highest scores, K = 20.",
         "The preset `attcat_squad_written`; what the release does: `attcat_squad` "
         "([line by line](../presets.md#questions-and-answers)).", "figure3",
         "It is a count, not a share of K."),
    Item("protocol", "section 6.1, samples", "2,000 random samples of Amazon, Yelp and IMDB; else entire test sets.",
         "The scripts draw 2,000 by default there; `--sample N --seed S` changes it.",
         differs="Which samples is not said. GLUE's test sets have no labels; the release takes the validation sets, "
         "and so do the scripts. On Amazon, Yelp and IMDB the release as published takes the whole test sets."),
    Item("protocol", "section 5.2, models", "BERT base, DistilBERT and RoBERTa from Hugging Face.",
         "See the checkpoints below.",
         differs="The text names no checkpoint. Those below are in the release."),
)  # fmt: skip
APPENDICES = (
    Item("appendix", "models", "Details of the models and how well they predict.", "Every script says how often the "
         "model is right.", differs="The appendix is not in the text at hand."),
    Item("appendix", "data sets", "Details of the data sets.", "See the checkpoints below.",
         differs="The appendix is not in the text at hand."),
    Item("appendix", "Precision@K for other K", "Figure 3 with other values of K.", "`precision_at_k` with other `k`",
         "appendix_k", "The appendix is not in the text at hand; the values of K here are our own choice (`--k`)."),
    Item("appendix", "more visualizations", "Figure 5 for more texts.", "`--text TEXT`, repeated", "figure5",
         "The appendix is not in the text at hand."),
)  # fmt: skip

MORE = 2_000  # random samples, section 6.1
V2_NOTE = "questions without an answer are left out; the release takes this checkpoint for SQuADv2 too"
CHECKPOINTS = {
    "sst2": Checkpoint("textattack/bert-base-uncased-SST-2", "hf:nyu-mll/glue:sst2", "validation"),
    "qqp": Checkpoint("textattack/bert-base-uncased-QQP", "hf:nyu-mll/glue:qqp", "validation"),
    "mnli": Checkpoint(
        "textattack/bert-base-uncased-MNLI",
        "hf:nyu-mll/glue:mnli",
        "validation_matched",
        note="the model's classes 0, 1, 2 are the data's 2, 0, 1",
    ),
    "amazon": Checkpoint(
        "fabriceyhc/bert-base-uncased-amazon_polarity", "hf:fancyzhx/amazon_polarity", "test", sample=MORE
    ),
    "yelp": Checkpoint("fabriceyhc/bert-base-uncased-yelp_polarity", "hf:fancyzhx/yelp_polarity", "test", sample=MORE),
    "imdb": Checkpoint("fabriceyhc/bert-base-uncased-imdb", "hf:stanfordnlp/imdb", "test", sample=MORE),
    "squad1-bert": Checkpoint("csarron/bert-base-uncased-squad-v1", "hf:rajpurkar/squad", "validation"),
    "squad1-distilbert": Checkpoint(
        "distilbert/distilbert-base-uncased-distilled-squad",
        "hf:rajpurkar/squad",
        "validation",
        note="in the release without `distilbert/`, its name at that time",
    ),
    "squad1-roberta": Checkpoint("thatdramebaazguy/roberta-base-squad", "hf:rajpurkar/squad", "validation"),
    "squad2-bert": Checkpoint(
        "deepset/bert-base-uncased-squad2",
        "hf:rajpurkar/squad_v2",
        "validation",
        note="questions without an answer are left out",
    ),
    "squad2-distilbert": Checkpoint(
        "distilbert/distilbert-base-uncased-distilled-squad", "hf:rajpurkar/squad_v2", "validation", note=V2_NOTE
    ),
    "squad2-roberta": Checkpoint(
        "thatdramebaazguy/roberta-base-squad", "hf:rajpurkar/squad_v2", "validation", note=V2_NOTE
    ),
}
PAPER = Paper(
    folder="attcat",
    short="AttCAT",
    citation="Qiang, Pan, Li, Li, Jang and Zhu: AttCAT: Explaining Transformers via Attentive Class Activation Tokens "
    "(NeurIPS 2022).",
    link="https://proceedings.neurips.cc/paper_files/paper/2022/file/20e45668fefa793bd9f2edf19be12c4b-Paper-Conference.pdf",
    release="https://github.com/qiangyao1988/AttCAT",
    items=(*TABLES, *FIGURES, *EQUATIONS, *PROTOCOLS, *APPENDICES),
    checkpoints=CHECKPOINTS,
)
