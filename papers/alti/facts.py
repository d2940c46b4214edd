"""ALTI: what the paper contains, its numbers, and its checkpoints and data."""

from papers.facts import Checkpoint, Item, Paper, PublishedTable, as_printed

MODELS = {"bert": "BERT", "roberta": "RoBERTa", "distilbert": "DistilBERT"}
DATASETS = {"sst2": "SST-2", "imdb": "IMDB", "yelp": "Yelp", "sva": "SVA"}
METRICS = ("Comp.", "Suff.")
METHODS = ("Grad_ℓ2", "IG_ℓ2", "IG_μ", "G×I_ℓ2", "G×I_μ", "Rollout", "Globenc", "ALTI")
# Names of runs (`--dataset`), in the order of the tables' columns.
IN_TABLE_2 = ("bert-sst2", "bert-yelp", "bert-imdb", "bert-sva", "roberta-sst2", "distilbert-sst2")
IN_TABLE_6 = ("distilbert-imdb", "distilbert-yelp", "distilbert-sva")
IN_TABLE_7 = ("roberta-imdb", "roberta-yelp", "roberta-sva")
IN_ABLATIONS = tuple(f"{model}-{data}" for data in DATASETS for model in MODELS)
SEEDS = tuple(f"multiberts-{seed}" for seed in range(10))
# Not on the Hub under a name that the paper or its code gives; finetune.py trains them.
TRAINED = ("bert-sva", "roberta-sva", "distilbert-sva", "distilbert-yelp", *SEEDS)


def columns_of(runs: tuple[str, ...]) -> tuple[str, ...]:
    names = [run.split("-") for run in runs]
    return tuple(f"{MODELS[model]} {DATASETS[data]} {metric}" for model, data in names for metric in METRICS)


TABLE_2 = PublishedTable(
    columns_of(IN_TABLE_2),
    {
        "Grad_ℓ2": as_printed("0.204 0.076 0.083 0.101 0.192 0.052 0.284 0.145 0.190 0.075 0.230 0.066"),
        "IG_ℓ2": as_printed("0.223 0.084 0.111 0.024 0.214 0.06 0.315 0.171 0.223 0.074 0.295 0.048"),
        "IG_μ": as_printed("0.211 0.112 0.106 0.022 0.179 0.063 0.317 0.174 0.231 0.067 0.279 0.064"),
        "G×I_ℓ2": as_printed("0.199 0.080 0.081 0.104 0.197 0.056 0.279 0.149 0.187 0.081 0.235 0.065"),
        "G×I_μ": as_printed("0.207 0.073 0.087 0.098 0.213 0.054 0.285 0.145 0.191 0.078 0.237 0.065"),
        "Rollout": as_printed("0.074 0.270 0.076 0.102 0.09 0.185 0.108 0.292 0.076 0.179 0.152 0.147"),
        "Globenc": as_printed("0.174 0.125 0.118 0.053 0.207 0.117 0.251 0.178 0.161 0.119 0.24 0.072"),
        "ALTI": as_printed("0.317 0.044 0.255 0.022 0.308 0.031 0.372 0.088 0.269 0.057 0.332 0.034"),
    },
)
TABLE_4 = PublishedTable(
    tuple(f"{model} {method}" for model in MODELS.values() for method in ("ALTI ℓ2", "Norms")),
    {
        "SST-2 Comp.": as_printed("0.3 0.134 0.23 0.168 0.292 0.157"),
        "SST-2 Suff.": as_printed("0.045 0.18 0.075 0.135 0.051 0.152"),
        "IMDB Comp.": as_printed("0.286 0.148 0.203 0.133 0.254 0.175"),
        "IMDB Suff.": as_printed("0.031 0.115 0.086 0.162 0.053 0.104"),
        "Yelp Comp.": as_printed("0.212 0.082 0.108 0.064 0.2 0.093"),
        "Yelp Suff.": as_printed("0.02 0.057 0.104 0.18 0.031 0.114"),
        "SVA Comp.": as_printed("0.374 0.273 0.379 0.275 0.357 0.315"),
        "SVA Suff.": as_printed("0.088 0.152 0.114 0.178 0.096 0.117"),
    },
)
TABLE_5 = PublishedTable(
    tuple(f"{model} {method}" for model in MODELS.values() for method in ("ALTI ℓ1", "ALTI ℓ2")),
    {
        "SST-2 Comp.": as_printed("0.317 0.3 0.269 0.23 0.332 0.292"),
        "SST-2 Suff.": as_printed("0.044 0.045 0.057 0.075 0.034 0.051"),
        "IMDB Comp.": as_printed("0.308 0.286 0.266 0.203 0.304 0.254"),
        "IMDB Suff.": as_printed("0.031 0.031 0.05 0.086 0.039 0.053"),
        "Yelp Comp.": as_printed("0.221 0.212 0.138 0.108 0.237 0.2"),
        "Yelp Suff.": as_printed("0.02 0.02 0.07 0.104 0.017 0.031"),
        "SVA Comp.": as_printed("0.372 0.374 0.39 0.379 0.382 0.357"),
        "SVA Suff.": as_printed("0.088 0.088 0.109 0.114 0.084 0.096"),
    },
)
TABLE_6 = PublishedTable(
    columns_of(IN_TABLE_6),
    {
        "Grad_ℓ2": as_printed("0.266 0.054 0.111 0.073 0.338 0.107"),
        "IG_ℓ2": as_printed("0.275 0.055 0.128 0.054 0.372 0.108"),
        "IG_μ": as_printed("0.244 0.059 0.108 0.056 0.365 0.118"),
        "G×I_ℓ2": as_printed("0.281 0.053 0.115 0.075 0.333 0.111"),
        "G×I_μ": as_printed("0.282 0.053 0.117 0.074 0.335 0.11"),
        "Rollout": as_printed("0.183 0.089 0.092 0.114 0.241 0.179"),
        "Globenc": as_printed("0.252 0.066 0.124 0.066 0.341 0.108"),
        "ALTI": as_printed("0.304 0.039 0.237 0.017 0.382 0.084"),
    },
)
TABLE_7 = PublishedTable(
    columns_of(IN_TABLE_7),
    {
        "Grad_ℓ2": as_printed("0.216 0.083 0.075 0.122 0.273 0.165"),
        "IG_ℓ2": as_printed("0.2 0.084 0.087 0.11 0.363 0.163"),
        "IG_μ": as_printed("0.215 0.083 0.102 0.094 0.351 0.161"),
        "G×I_ℓ2": as_printed("0.183 0.109 0.066 0.149 0.28 0.169"),
        "G×I_μ": as_printed("0.225 0.08 0.083 0.12 0.27 0.167"),
        "Rollout": as_printed("0.077 0.197 0.031 0.208 0.223 0.183"),
        "Globenc": as_printed("0.154 0.086 0.065 0.12 0.305 0.17"),
        "ALTI": as_printed("0.266 0.05 0.138 0.07 0.39 0.109"),
    },
)

LGD = "https://github.com/yoavg/bert-syntax/blob/master/lgd_dataset.tsv"
SST2, IMDB, YELP = (
    ("hf:nyu-mll/glue:sst2", "test"),
    ("hf:stanfordnlp/imdb", "test"),
    ("hf:fancyzhx/yelp_polarity", "test"),
)
HEAD = "the base model; `papers.alti.finetune` gives it two outputs per token and trains them at [MASK]"
PAPERS_WAY = (
    "Gradients are those of the logit; the paper writes f for the model's output there and for the probability in "
    "equations 12 and 13, and its code differentiates the probability (for agreement: a softmax of the head's output "
    "over all positions). Its code also applies position embeddings and the first norm twice in the gradient methods, "
    "so they explain a different function from the one that is measured."
)
AS_TABLE_2 = " Gradients: as in table 2."
ON_TEXTS = (
    "The review is looked up in Yelp's test set by a few words of it; `--small` has a review of our own for each of "
    "these tables, of the same kind. The paper names TextAttack's models; its code "
    "loads a BERT for Yelp that the authors trained and did not publish." + AS_TABLE_2
)
ON_SST2 = "According to the authors' notebook, BERT on SST-2 is MultiBERTs seed 0: see table 2."
MAPS_OVER_LAYERS = (
    "The sentence of the figure is not in the paper's text. The default is the one that a picture in the authors' "
    "repository shows for ALTI, looked up in SST-2's test set. The picture here is made with `--small`: the model in "
    "the package and a sentence of our own."
)

TABLES = (
    Item(
        "table",
        "1",
        "Saliency maps of Grad_ℓ2, IG_ℓ2 and ALTI for BERT on a Yelp review that is predicted negative.",
        "`gradient_l2`, `integrated_gradients` with the options of equation 16 and `reduce=l2`, `alti`; an HTML page, "
        "a LaTeX file and the top words",
        "table1",
        differs=ON_TEXTS,
    ),
    Item(
        "table",
        "2",
        "Comprehensiveness (higher is better) and sufficiency (lower is better) of eight methods: BERT on SST-2, Yelp, "
        "IMDB and agreement (SVA), RoBERTa and DistilBERT on SST-2. The text puts ALTI ahead of IG_ℓ2 by 58 % on "
        "average in comprehensiveness and by 38 % in sufficiency; the means of the relative differences on BERT's four "
        "data sets give these numbers.",
        "`tl.benchmark` with the protocol `alti_written` (`--released`: `alti`) and the eight methods of "
        "[ALTI's tables](../methods.md#the-methods-of-altis-tables)",
        "table2",
        differs=PAPERS_WAY
        + " According to the authors' notebook, BERT on SST-2 is MultiBERTs seed 0, which they fine-tuned "
        "(`--dataset multiberts-0` of `papers.alti.finetune` trains it; give its folder as `--model`). ALTI for BERT "
        "on Yelp is 0.255 and 0.022 here, and 0.221 and 0.02 in table 5. The paper does not say how many texts were "
        "used; the authors' shell script takes the first 1,000: `--limit 1000`.",
        published=TABLE_2,
    ),
    Item(
        "table",
        "3",
        "As table 1, for another Yelp review that is predicted negative.",
        "as table 1",
        "table3",
        differs=ON_TEXTS,
    ),
    Item(
        "table",
        "4",
        "ALTI with ℓ2 distances against Norms (eq. 7, with rollout): three models, four data sets.",
        "`alti:norm=l2`, `value_norms`",
        "table4",
        differs=ON_SST2,
        published=TABLE_4,
    ),
    Item(
        "table",
        "5",
        "ALTI with ℓ1 against ℓ2 distances: three models, four data sets.",
        "`alti:norm=l1` (the default), `alti:norm=l2`",
        "table5",
        differs=ON_SST2,
        published=TABLE_5,
    ),
    Item(
        "table",
        "6",
        "As table 2, for DistilBERT on IMDB, Yelp and SVA.",
        "as table 2",
        "table6",
        differs=PAPERS_WAY,
        published=TABLE_6,
    ),
    Item(
        "table",
        "7",
        "As table 2, for RoBERTa on IMDB, Yelp and SVA.",
        "as table 2",
        "table7",
        differs=PAPERS_WAY,
        published=TABLE_7,
    ),
    Item(
        "table",
        "8",
        "Saliency maps of Grad_ℓ2, G×I_ℓ2, IG_ℓ2 and ALTI for BERT on a Yelp review that is predicted negative.",
        "as table 1, and `gradient_x_input:reduce=l2`",
        "table8",
        differs=ON_TEXTS,
    ),
    Item(
        "table",
        "9",
        "As table 8, for a long IMDB review that is predicted positive.",
        "as table 8",
        "table9",
        differs="The review is looked up in IMDB's test set by a few words of it; `--small` has a long positive one of "
        "our own." + AS_TABLE_2,
    ),
)
FIGURES = (
    Item("figure", "1", "A drawing: a Transformer layer, and which of its modules ALTI covers.", "nothing to compute"),
    Item(
        "figure",
        "2",
        "A drawing: the paths of an attention graph over two layers; their sum is a product of matrices.",
        "`rollout`; `tests/methods/test_alti_equations.py` checks the product",
    ),
    Item(
        "figure",
        "3",
        "Mean cosine similarity of attention-block outputs (solid) and of transformed vectors (dashed) by layer, for "
        "BERT, RoBERTa and DistilBERT on 500 randomly drawn SST-2 sentences.",
        "the vectors of `tokenlight.methods.contributions`; the similarity is the mean over all pairs of a sentence's "
        "tokens",
        "figure3",
        differs="The names of the models are from the authors' notebook; the paper's text has no legend. The authors' "
        "code takes the first 500 test sentences, and for the solid line the states between layers, not the outputs "
        "of attention blocks: `--released`. In each layer and sentence it compares one random pair of tokens; the "
        "mean over all pairs, which is used here with `--released` too, is what a random pair gives on average.",
    ),
    Item(
        "figure",
        "4",
        "A drawing: transformed vectors, their distances to the output, and the matrix of contributions.",
        "nothing to compute; the matrix is `alti(layers=True)`'s map `contributions`",
    ),
    Item(
        "figure",
        "5",
        "The matrix R^L of ALTI for a short SST-2 sentence and BERT, and its [CLS] row.",
        "`alti(layers=True)`'s map `mixing`, the last layer of it",
        "figure5",
        differs="The paper does not say where the sentence is from; it is looked up in SST-2's test set. The picture "
        "here is made with `--small`: the model in the package and a sentence of our own.",
    ),
    Item(
        "figure",
        "6",
        "The fall of BERT's probability while tokens are removed one at a time, on three data sets: IMDB and Yelp in "
        "(a) and (b), agreement in (c).",
        "the curve of `comprehensiveness` with one point per removed token, up to 60 on IMDB and Yelp and 30 on SVA",
        "figure6",
        differs="The legend is not in the paper's text; the lines are those of table 2. The caption speaks of the "
        "probability's drop: this script draws the fall p − p_k at each point with its 95 % interval, and a text with "
        "fewer tokens keeps its last value. The authors' code draws probabilities and begins with the whole text; a "
        "point is the lowest probability so far, as a mean over the texts that have so many tokens to remove; it stops "
        "one token earlier (59 and 29), and for agreement before the last word goes: `--released` does the same. How "
        "many of these points the notebook shows is set by hand there. Texts of more than 200 tokens are left out, as "
        "in their code. The text that refers to (c) names SST-2 and SVA together; it is read as SVA here." + AS_TABLE_2,
    ),
    Item(
        "figure",
        "7",
        "Jaccard similarity of the top 25 % of tokens between ten BERTs that differ in their seed, for each method; "
        "the distribution over all pairs.",
        "`tokenlight.bench.robustness.robustness` with `tokenlight.bench.presets.ALTI_ROBUSTNESS_WRITTEN`",
        "figure7",
        differs="The paper's models are ten MultiBERTs, fine-tuned on SST-2 and not published: `papers.alti.finetune` "
        "trains them. The six methods are those of the authors' notebook; the paper's text does not list them. For "
        "each pair of models, only the texts count for which both predict the same class, as in the notebook, which "
        "takes the first 1,000: `--limit 1000`." + AS_TABLE_2,
    ),
    Item(
        "figure",
        "8",
        "As figure 7, with Spearman's rank correlation.",
        "as figure 7",
        "figure8",
        differs="As figure 7. The authors' code computes Spearman's formula on dense ranks, which is not a "
        "correlation where scores are tied: `--released`.",
    ),
    Item(
        "figure",
        "9",
        "As figure 6 on SST-2, mean and standard deviation over ten seeds: ALTI with and without the second norm.",
        "`alti`, `alti:second_norm=True`, `globenc`",
        "figure9",
        differs="The models are those of figure 7, the curves as in figure 6, also with `--released`. The third line, "
        "Globenc, and the 18 removed tokens are from the authors' notebook.",
    ),
    Item(
        "figure",
        "10",
        "The matrices R^l of Attention Rollout for all layers of BERT.",
        "`rollout(layers=True)`, map `mixing`",
        "figure10",
        differs=MAPS_OVER_LAYERS,
    ),
    Item(
        "figure",
        "11",
        "The same for Globenc.",
        "`globenc(layers=True)`, map `mixing`",
        "figure11",
        differs=MAPS_OVER_LAYERS + " Globenc's rows do not sum to 1; each panel has its own scale.",
    ),
    Item(
        "figure", "12", "The same for ALTI.", "`alti(layers=True)`, map `mixing`", "figure12", differs=MAPS_OVER_LAYERS
    ),
)
TEST = "`tests/methods/test_alti_equations.py`"
EQUATIONS = (
    Item(
        "equation",
        "1–5",
        "The attention block's output: the layer norm of the residual plus a sum over heads and tokens.",
        f"`tokenlight.methods.contributions.Layer`; checked by {TEST}",
        differs="Biases of the values are part of each token's vector, as in the authors' code; the paper does not "
        "write them (footnote 4).",
    ),
    Item(
        "equation",
        "6",
        "The output as a sum of transformed vectors T_i(x_j) and constants.",
        f"the same; {TEST} checks that the sum is the block's real output",
    ),
    Item(
        "equation",
        "7",
        "Contribution of a token: the ℓ2 norm of its transformed vector (Kobayashi et al. 2021).",
        "`value_norms`",
        differs="Rows are divided by their sum before they are multiplied over layers, as in the authors' code.",
    ),
    Item(
        "equation",
        "8",
        "Attention rollout: the product of ½A + ½I over layers.",
        "`rollout`; R^l by `layers=True`, map `mixing`",
        differs="The paper does not say how A comes from the heads; it is their mean, as in the authors' code.",
    ),
    Item(
        "equation",
        "9–10",
        "Contribution by closeness: the ℓ1 distance of T_i(x_j) to the output, subtracted from the output's ℓ1 norm, "
        "not below 0, rows divided by their sum.",
        "`alti`; the matrices by `layers=True`, map `contributions`",
        differs="The equation divides by 0 in a row where every contribution is 0; here, such a position keeps itself.",
    ),
    Item("equation", "11", "R^l: the product of contribution matrices up to layer l.", "`alti`, map `mixing`"),
    Item(
        "equation",
        "12",
        "Comprehensiveness: the fall of the predicted class's probability without the top k % of tokens, summed over "
        "B = {0, 5, 10, 20, 50} and divided by one more than the number of these bins, 6.",
        "the metric `comprehensiveness` with `plus_one=True` and the bins `ALTI_BINS`: protocol `alti_written`",
        differs="The authors' code has bins of 1, 5, 10, 20 and 50 % and takes the lowest probability so far: protocol "
        "`alti`.",
    ),
    Item(
        "equation",
        "13",
        "Sufficiency: the same with the top k % of tokens alone.",
        "the metric `sufficiency`, otherwise as equation 12",
        differs="As equation 12, with the highest probability so far, that of the input without any words included.",
    ),
    Item("equation", "14", "Grad_ℓ2: the ℓ2 norm of the gradient at a token's embedding.", "`gradient_l2`"),
    Item(
        "equation",
        "15",
        "G×I_μ: the mean of the absolute products of gradient and embedding.",
        "`gradient_x_input:reduce=mean_abs`; G×I_ℓ2: `reduce=l2`",
        differs="The paper divides by N and sums to d; here both are the width, which changes no ranking.",
    ),
    Item(
        "equation",
        "16",
        "Integrated gradients: a right Riemann sum of 100 steps from a baseline that has [MASK] at every token but "
        "[CLS] and [SEP].",
        "`integrated_gradients:steps=100,quadrature=riemann,baseline=mask`, `reduce=l2` or `reduce=mean_abs`",
        differs="The authors' code uses Gauss–Legendre points, Captum's default: `quadrature=gauss-legendre` "
        "(`--released`).",
    ),
)
PROTOCOLS = (
    Item(
        "protocol",
        "section 4.1",
        "Models: BERT, DistilBERT and RoBERTa, for classification as fine-tuned by TextAttack; ten BERTs fine-tuned on "
        "SST-2 for robustness, with hyperparameters from Devlin et al. (2019); BERT fine-tuned on 60 % of the "
        "agreement data, with 20 % for validation and 20 % for the test. Scores are read in the [CLS] row, for "
        "agreement in the [MASK] row.",
        "[checkpoints](#checkpoints-and-data); agreement: the task `papers.alti.agreement.MaskedNumber`",
        "finetune",
        differs="In the authors' code, DistilBERT on SST-2 and all three models on Yelp are not TextAttack's. The "
        "agreement file is Goldberg's (2019), made from the data of Linzen et al. (2016). By default all its verbs are "
        "kept and it is split 60/20/20 at random, as written. In the code, is, are and verbs that are no entry of the "
        "model's vocabulary are left out, and RoBERTa's vocabulary is asked for the verb without the blank that begins "
        "its words, which leaves out more; the split is 70/15/15, with equal shares of singular verbs; each model is "
        "trained on its own part, and all three are measured on BERT's test part, some sentences of which RoBERTa was "
        "trained on. `--released` does the same, except that scikit-learn draws other sentences for the parts there. "
        "The code's agreement head is one output with a sigmoid behind the language model's transform; here it is two "
        "outputs on the last state. Tables 4 to 7 have RoBERTa and DistilBERT on agreement too, of whose training the "
        "text says nothing: they are trained like BERT, as in the code. Epochs, batch size and learning rate are the "
        "code's. For classifiers they are 3, 16 and 2e-5, which Devlin et al. (2019) recommend among others; the rate "
        "falls linearly to 0, and the last epoch is used, as the names of the checkpoints in the code say (12,630 "
        "updates on SST-2, 105,000 on Yelp). For agreement they are 4, 32 and 1e-5, with a constant rate; the best of "
        "the validated states is used, which are those after each epoch here, and after every 100 updates too in the "
        "code.",
    ),
    Item(
        "protocol",
        "section 4.2",
        "Faithfulness: tokens are deleted, and the probability of the predicted class is read.",
        "the protocols [`alti_written` and `alti`](../presets.md#alti)",
        differs="The paper names no split for classification, and does not say that special tokens stay: test sets are "
        "used and [CLS], [SEP] and [MASK] stay, as in the authors' code. The code leaves out texts of more than 200 "
        "tokens, and so does `alti`.",
    ),
    Item(
        "protocol",
        "section 4.3",
        "Scores of the gradient methods are normalized so that they sum to 1.",
        "not done",
        differs="It changes no ranking of tokens, and so none of the paper's numbers.",
    ),
    Item(
        "protocol",
        "section 5.2",
        "Robustness: explanations of the same texts by models that differ in their initialization alone.",
        "`tokenlight.bench.robustness.robustness`; `tokenlight bench --seed-model`",
    ),
    Item(
        "protocol",
        "section 5.4",
        "Globenc (Modarressi et al. 2022): the lengths of equation 7 with the layer's second norm (LN2) added, with "
        "rollout; and ALTI with LN2 added.",
        f"`globenc`, `alti:second_norm=True`; checked by {TEST}",
        differs="The paper gives no equations. As in the authors' code, LN2 is taken as linear at its real scale, "
        "distances are to the layer's output, and Globenc's rows are not divided by their sum.",
    ),
    Item(
        "protocol",
        "claims (sections 5.1 and 5.3)",
        "ALTI is ahead of every other method in every configuration; among the gradient methods, IG_ℓ2 is the best on "
        "average; with ℓ1 distances, ALTI is better than with ℓ2 in almost every setting.",
        "tables 2, 5, 6 and 7",
        differs="In the published numbers there is one tie: in sufficiency on BERT and Yelp, IG_μ has 0.022 too. "
        "IG_ℓ2 is the best gradient method in the mean over all 12 configurations, by both metrics. ℓ2 is better than "
        "ℓ1 once, in comprehensiveness on BERT and SVA, and equal three times, all in BERT's sufficiency.",
    ),
    Item(
        "protocol",
        "Limitations",
        "ALTI explains the last layer's representation: it does not consider the classifier, and so gives no separate "
        "explanation for each class.",
        "`alti` gives the same scores for every target; `alti_logit` (Ferrando et al. 2023) explains a logit",
    ),
)
APPENDICES = (
    Item(
        "appendix",
        "A",
        "Layer normalization as a linear map divided by the standard deviation, plus a bias.",
        f"`tokenlight.model.block_structure.Norm`; checked by {TEST}",
    ),
    Item("appendix", "B", "Tables 6 and 7.", "[table 6](#table-6), [table 7](#table-7)"),
    Item("appendix", "C", "Tables 8 and 9, figures 10 to 12.", "see there"),
)
PAPER = Paper(
    folder="alti",
    short="ALTI",
    citation="Ferrando, Gállego and Costa-jussà: Measuring the Mixing of Contextual Information in the Transformer "
    "(EMNLP 2022).",
    link="https://arxiv.org/abs/2203.04212",
    release="https://github.com/mt-upc/transformer-contributions",
    items=(*TABLES, *FIGURES, *EQUATIONS, *PROTOCOLS, *APPENDICES),
    checkpoints={
        "bert-sst2": Checkpoint(
            "textattack/bert-base-uncased-SST-2",
            *SST2,
            note="in the authors' notebook, tables 2, 4 and 5 have MultiBERTs seed 0 instead",
        ),
        "bert-imdb": Checkpoint("textattack/bert-base-uncased-imdb", *IMDB),
        "bert-yelp": Checkpoint(
            "textattack/bert-base-uncased-yelp-polarity",
            *YELP,
            note="in the authors' code, a BERT that they fine-tuned and did not publish",
        ),
        "bert-sva": Checkpoint("google-bert/bert-base-uncased", "lgd_dataset.tsv", note=HEAD, fetch=LGD),
        "roberta-sst2": Checkpoint("textattack/roberta-base-SST-2", *SST2),
        "roberta-imdb": Checkpoint("textattack/roberta-base-imdb", *IMDB),
        "roberta-yelp": Checkpoint(
            "VictorSanh/roberta-base-finetuned-yelp-polarity",
            *YELP,
            note="as in the authors' code; TextAttack lists none",
        ),
        "roberta-sva": Checkpoint("FacebookAI/roberta-base", "lgd_dataset.tsv", note=HEAD, fetch=LGD),
        "distilbert-sst2": Checkpoint(
            "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
            *SST2,
            note="as in the authors' code; TextAttack lists a cased one only",
        ),
        "distilbert-imdb": Checkpoint("textattack/distilbert-base-uncased-imdb", *IMDB),
        "distilbert-yelp": Checkpoint(
            "distilbert/distilbert-base-uncased",
            *YELP,
            train_split="train",
            note="the base model; the authors' own is not published, and `papers.alti.finetune` trains one",
        ),
        "distilbert-sva": Checkpoint("distilbert/distilbert-base-uncased", "lgd_dataset.tsv", note=HEAD, fetch=LGD),
        **{
            name: Checkpoint(
                f"google/multiberts-seed_{seed}",
                *SST2,
                train_split="train",
                note="pre-trained; `papers.alti.finetune` fine-tunes it on SST-2",
            )
            for seed, name in enumerate(SEEDS)
        },
    },
)
