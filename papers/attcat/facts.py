"""AttCAT: what the paper contains, its numbers, and its checkpoints and data.

The text at hand is the anonymous version of the paper. It ends with the checklist: the appendix is not in it, nor are
the pictures of the figures.
"""

from papers.facts import Checkpoint, Item, Paper, PublishedTable, as_printed

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
# Quoted, since it cannot be looked up: SST-2's validation set does not have it.
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
FIGURE_3 = PublishedTable(("SQuADv1", "SQuADv2"), {"maximum": as_printed("3.72 3.84")})
FIGURE_4 = PublishedTable(("Sum",), {"not": as_printed("0.72"), "like": as_printed("-0.37")})

AS_WRITTEN = "`attcat:states=outputs` and `cat:states=outputs`"
TABLES = (
    Item(
        "table",
        "1",
        "AOPC and LOdds of eight methods that explain BERT on six data sets, as means over the shares k.",
        f"The protocol `attcat_written` with `transformer_attribution:normalize=False`, {AS_WRITTEN}. With "
        "`--released`: the protocols `attcat`, `attcat_qqp` and `attcat_mnli`, and the methods' defaults.",
        "table1",
        "The release, from which the published numbers presumably come, differs from the equations: it explains and "
        "measures the gold label instead of the predicted one, takes absolute differences for AOPC, removes one to "
        "nine ninths instead of zero to ten tenths, leaves out texts of fewer than ten tokens, hides [CLS] and [SEP] "
        "in the explained pass and reads block inputs (see [the protocols](../presets.md#attcat)). `--released` does "
        "the same. The release has no code for Grads, AttGrads and CAT as figure 2 defines them. Its notebooks "
        "define a GradCAM of the last layer's attention (`attention_grad_cam`), and SST-2_Test measures it; nothing "
        "says whether such numbers are in the table. Here Grads and AttGrads follow figure 2, and so does CAT, "
        "except that with `--released` it reads block inputs, as AttCAT does. The paper's MNLI checkpoint has its "
        "classes in another order than the data, and the release does not map them: with `--released`, the class "
        "explained and measured there is never the gold one, as in the release. The small model's classes are in the "
        "data's order. With `--released` it is right on 48.3 % of the MNLI texts, because the release sets all segment "
        "ids to 0: this model learned with both ids, and without them it calls every text neutral, as 29 of 60 are "
        "(with them it is right on all). QQP's stand-in does not need them. The paper has no intervals.",
        TABLE_1,
    ),
    Item(
        "table",
        "2",
        "Kendall's τ between the explanations of the predicted class and of another class, for the six class-specific "
        "methods, with BERT on six data sets. Lower is taken as better. RawAtt and Rollout are left out, since "
        "they do not depend on the class. (The paper's heading for SST2 is misspelled as STT2.)",
        "The metric `kendall_confidence:variant=argsort` in the protocols of table 1.",
        "table2",
        "As in equation 15, τ is taken between two arrays of sorted token indices. That is not the agreement of two "
        'rankings: a ranking and its reverse do not get −1 in general. The column "τ on ranks" has the agreement of '
        "rankings (`variant=ranks`), for which the paper has no numbers. With `--released`, the two classes are the "
        "gold label and another one, and AttCAT's scores on QQP are absolute values, as in the release. Why the small "
        "model is right on 48.3 % of the MNLI texts then: see table 1.",
        TABLE_2,
    ),
)
FIGURES = (
    Item(
        "figure",
        "1",
        "A drawing of a Transformer with three layers, each with self-attention and a skip connection. In its example "
        "the token 'like' has the largest attention-weighted output.",
        "Nothing to compute: it illustrates equations 1 to 3.",
    ),
    Item(
        "figure",
        "2",
        "The eight methods as formulas.",
        "RawAtt `raw_attention`, Rollout `rollout`, Grads `attention_gradient`, AttGrads `attention_x_gradient`, "
        "PartialLRP `partial_lrp`, TransAtt `transformer_attribution`, CAT `cat`, AttCAT `attcat`. As written: "
        f"`transformer_attribution:normalize=False`, {AS_WRITTEN}. All but CAT and AttCAT give a matrix; its row at "
        "[CLS] is read. `tests/methods/test_by_hand.py` compares all but PartialLRP and TransAtt with plain "
        "transcriptions, and `tests/methods/test_golden.py` compares these two with numbers of Mask-LRP's release.",
        differs="The text at hand has the caption and a paragraph about the figure (section 1), but no formulas; those "
        "here are from the picture in the release. RawAtt: section 1 allows one layer or several; the figure has the "
        "last. AttGrads: the paper cites Grad-SAM, which takes the positive part of gradients (`grad_sam`); the figure "
        "does not. TransAtt: section 1 once cites Chefer et al. 2021a for it; the method, LRP times gradients, is that "
        "of 2021b. The figure writes the positive part around the mean over heads; here it is taken for each head, as "
        "in the release. "
        "Rollout: the figure does not normalize rows; rows of attention sum to 1, so that normalizing only "
        "divides by a power of 2 and changes no order. Rollout and TransAtt: the figure writes the product with the "
        "first layer on the left; here, as in the release, later layers stand on the left, which is how information "
        "flows. PartialLRP: the figure has no positive part; here it is taken, as in the release. CAT and AttCAT: "
        "the figure writes a mean over heads around terms that have no heads; only attention is averaged over them.",
    ),
    Item(
        "figure",
        "3",
        "Precision@20, the mean number of answer tokens among the 20 highest scores, by some of the methods for "
        "several Transformer models on SQuADv1 and SQuADv2.",
        "The metric `precision_at_k:k=20` in the protocol `attcat_squad_written`; with `--released` in `attcat_squad`.",
        "figure3",
        "The text at hand has no picture: the figure's numbers are not in it, and we draw bars. The caption gives 3.72 "
        '("ours") and 3.84 as maximum scores. The release also counts the tokens of the answer, which no score can '
        "surpass, so these may be the mean lengths of answers. The text does not name the figure's methods and models. "
        "The release has AttCAT, RawAtt and Rollout (`--methods` takes others) for BERT, DistilBERT and RoBERTa. It "
        "reads RawAtt as a mean over layers at the last token, and Rollout without skip connections as a mean over "
        "layers and rows; here both are read at the answer's rows. It hides the token ids 101 and 102, which are [CLS] "
        "and [SEP] in BERT but ordinary tokens in RoBERTa; with `--released`, RoBERTa's own special tokens are hidden. "
        "On SQuADv2 the release adds the absolute scores of start and end (here: the absolute value of their sum) and "
        "takes 400 random answerable questions (`--sample`); section 6.1 speaks of entire test sets. With `--small`, a "
        "text has about 40 tokens and an answer has one, so that 20 tokens are half of the text. With `--small "
        "--released`, BERT's stand-in finds 48.3 % of the answers, since the release sets all segment ids to 0 and "
        "this model learned with both (with them it finds all); the stand-ins of DistilBERT and RoBERTa have no "
        "segment ids.",
        FIGURE_3,
    ),
    Item(
        "figure",
        "4",
        "A heatmap of normalized AttCAT scores for one negative sentence: a row per layer of BERT (L0 to L11), one for "
        "the rollout of the layers (Rollout) and one for their sum (Sum). The text gives two numbers of the last row.",
        "`attcat:detail=layers`; the sum is the method's score. The script makes the product and the normalization.",
        "figure4",
        "The normalization is the release's, which the text does not name: all rows together are divided by the "
        "square root of the sum of squares. Row Rollout is the product of the layers' scores, token by token, as in "
        "the release, and not a product of matrices. The sentence is in the release, not in the text. As the equations "
        "are written (default), row L11 is the last layer's output, where [CLS] alone has a gradient; with "
        "`--released`, row L0 is the first layer's input.",
        FIGURE_4,
    ),
    Item(
        "figure",
        "5",
        "Texts with shaded tokens, green for positive and red for negative scores: (a) AttCAT for a question of "
        "SQuAD whose answer is two tokens long; (b) AttCAT, TransAtt, RawAtt and Rollout for a negative review.",
        "The methods of figure 2. (a) is the first question of SQuAD's validation split.",
        "figure5",
        "Each text is scaled to its largest absolute score, special tokens left out; how the paper scales is not said. "
        "In (a), the scores for start and end of the answer are added; the release's cell for this question adds "
        "those for the start to themselves. The paper says that text (b) is from SST2; it is not in "
        "its validation set, so that it cannot be looked up, and the script quotes it (`--text` takes another). "
        "`--small` has a text of our own for the model in the package, and a templated question; the pictures here are "
        "made with it. The figure has no numbers.",
    ),
)
EQUATIONS = (
    Item("equation", "1–3", "Attention weights; a layer's output, a projection of attention-weighted values plus the "
         "layer's input; queries, keys and values as linear maps.",
         "The model's own forward pass; attention is recorded as it is computed.",
         differs="The equations leave out biases, norms, the MLP and the split into heads; the model has them. "
         "Equation 2 projects the layer's input too (W^O); in BERT, it is added after the projection."),
    Item("equation", "4–5", "GradCAM of image networks: channels weighted by their mean gradient, positive part.",
         "Not here: tokenlight explains text models. `attention_grad_cam` is the variant for attention heads that "
         "Chefer et al. 2021b compare with.",
         differs="Quoted by the paper as its motivation; it is not one of its methods."),
    Item("equation", "6", "Impact score: its absolute value is the magnitude, its sign the direction.",
         "`e.scores` is signed; `e.scores.abs()` and `e.scores.sign()`.",
         differs="The text does not say clearly which of the two the metrics rank by: remark 1 speaks of sorting for "
         "the magnitude, section 5.3 of decreasing saliency. Here they rank by the signed score, as the release does "
         "except on QQP and SQuADv2, where it takes absolute values of AttCAT (`--released`)."),
    Item("equation", "7", "A token's information at a layer: what it had a layer below, plus its interactions with "
         "all other tokens there.",
         "Nothing to compute: the reason for summing over layers."),
    Item("equation", "8–9", "The class score as a linear function of the last layer's outputs; weights are gradients.",
         "The gradients that `cat` and `attcat` read.",
         differs="For a [CLS] classifier, outputs of the last layer other than at [CLS] have gradient 0, so the last "
         "layer's term is 0 for all words. For lower layers, the text after equation 11 writes y also for a layer's "
         "output; here, as in the release, all gradients are of the class score."),
    Item("equation", "10", "CAT of a layer: gradient times output, without a positive part.",
         "`cat:states=outputs` (as written), `cat` (block inputs, as released).",
         differs="The product is summed over features, which the equation leaves out."),
    Item("equation", "11", "AttCAT of a layer: CAT times the token's attention, mean over heads.",
         "`attcat:states=outputs` (as written), `attcat` (block inputs, as released).",
         differs="The equation does not say whether the attention is what a token gives or receives. As in the "
         "release, it is what the token receives, mean over heads and queries; what a token gives sums to 1 for every "
         "token."),
    Item("equation", "12", "The final score is the sum over layers.",
         "The scores of `cat` and `attcat`; `detail=layers` has the terms.",
         differs="The equation is for AttCAT; CAT is summed in figure 2. As written, the states are the outputs of "
         "layers 1 to L; the release sums over the inputs of layers 1 to L (the embeddings and the outputs of layers "
         "1 to L − 1)."),
    Item("equation", "13", "AOPC: mean fall of the predicted class's probability when the top k % are deleted.",
         "`aopc` in `attcat_written`: deletion, k = 0, 10, … 100 %, `p − p_k`.",
         differs="Not said in the paper, and here as in the clean protocol: special tokens stay, and shares of the "
         "other tokens are rounded up. The paper speaks of words and of tokens in the same paragraph; here they "
         "are tokens."),
    Item("equation", "14", "LOdds: mean of the log of the probability's ratio when the top k % become padding.",
         "`log_odds` in `attcat_written`: [PAD] in place, k as in equation 13.",
         differs="Padding tokens are attended to, as in the release."),
    Item("equation", "15", "Kendall's τ between arrays of token indices, sorted by the scores for two classes.",
         "`kendall_confidence:variant=argsort`.",
         differs="For more than two classes the equation does not say which other class is meant; as in the release, "
         "it is the class before the explained one, and 1 for class 0."),
)  # fmt: skip
PROTOCOLS = (
    Item("protocol", "section 5.1: faithfulness", "Tokens with high scores should matter to the output: AOPC and "
         "LOdds, both from earlier work.", "`aopc` and `log_odds`", "table1"),
    Item("protocol", "section 5.1: confidence", "Tokens with high scores for the predicted class should have low ones "
         "for the others: Kendall's τ.", "`kendall_confidence`", "table2"),
    Item("protocol", "section 5.2: models", "BERT base, DistilBERT and RoBERTa from Hugging Face.",
         "See the checkpoints below.",
         differs="The text names no checkpoint. Those below are in the release."),
    Item("protocol", "section 5.2: data sets", "Sentiment (SST2, Amazon Polarity, Yelp Polarity, IMDB), inference "
         "(MNLI), paraphrases (QQP), question answering (SQuADv1, SQuADv2).", "See the checkpoints below.",
         differs="MNLI is its matched part, as in the release; the text does not say which."),
    Item("protocol", "section 5.2: baselines", "RawAtt, Rollout, Grads, AttGrads, PartialLRP, TransAtt; CAT is the "
         "paper's own ablation.", "See figure 2."),
    Item("protocol", "section 5.3: AOPC and LOdds", "Predicted class, 0 to 100 % in steps of 10 %; a mean over k.",
         "The preset `attcat_written`; what the release does: `attcat`, `attcat_qqp`, `attcat_mnli` "
         "([line by line](../presets.md#attcat))", "table1",
         "The steps are given for AOPC; LOdds takes the same ones here. The mean over k is in section 6.1."),
    Item("protocol", "section 5.3: Precision@K", "Answer tokens among the K highest scores; K = 20 (section 6.1).",
         "The preset `attcat_squad_written`; what the release does: `attcat_squad` "
         "([line by line](../presets.md#questions-and-answers))", "figure3",
         "It is a count, not a share of K."),
    Item("protocol", "section 6.1: samples", "2,000 random samples of Amazon, Yelp and IMDB; else entire test sets.",
         "The scripts draw 2,000 by default there; `--sample N --seed S` changes it.",
         differs="The paper does not say which samples. GLUE's test sets have no labels, and SQuAD's are not public; "
         "the release takes the validation sets, and so do the scripts. On Amazon, Yelp and IMDB the release as "
         "published takes the whole test sets."),
    Item("protocol", "section 6.1: claims", "AttCAT has the highest AOPC and the lowest LOdds in most settings, and "
         "the lowest τ on most data sets; attention-based methods are the worst.", "tables 1 and 2",
         differs="In the published numbers, AttCAT is the best in 11 of the 12 columns of table 1 (on QQP, TransAtt "
         "has the highest AOPC) and in 5 of the 6 columns of table 2 (on QQP, AttGrads has the lowest τ). The worst "
         "number is that of RawAtt or Rollout in 7 columns of table 1, and that of Grads, CAT or TransAtt in the "
         "other 5."),
)  # fmt: skip
APPENDICES = (
    Item("appendix", "models", "Details of the models and how well they predict.", "The scripts of tables 1 and 2, of "
         "figure 3 and of the appendix say how often the model is right.",
         differs="The appendix is not in the text at hand."),
    Item("appendix", "data sets", "Details of the data sets.", "See the checkpoints below.",
         differs="The appendix is not in the text at hand."),
    Item("appendix", "Precision@K for other K", "Figure 3 with other values of K.", "`precision_at_k` with other `k`",
         "appendix_k", "The appendix is not in the text at hand; the values of K here are our own choice (`--k`)."),
    Item("appendix", "more visualizations", "Figure 5 for more texts.", "(a) `--limit N`, (b) `--text TEXT`, repeated",
         "figure5",
         "The appendix is not in the text at hand; the texts are your own choice."),
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
        "fabriceyhc/bert-base-uncased-amazon_polarity",
        "hf:fancyzhx/amazon_polarity",
        "test",
        sample=MORE,
        note="a review's `content` without its title, as in the release",
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
