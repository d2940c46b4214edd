"""Mask-LRP: what the paper contains, its numbers, and its checkpoints and data."""

from papers.facts import Checkpoint, Item, Paper, PublishedTable

# Our names of data sets -> the paper's.
DATASETS = {"sst2": "SST-2", "imdb": "IMDB", "yelp": "Yelp", "mnli": "MNLI", "qqp": "QQP"}
QUESTIONS = {
    f"{ours}-{model.lower().replace('-', '')}": f"{theirs} {model}"
    for ours, theirs in (("squad1", "SQuADv1"), ("squad2", "SQuADv2"))
    for model in ("BERT", "GPT-2", "RoBERTa")
}
METRICS = ("AOPC", "LOdds")
# The paper's names of its baselines -> our methods.
BASELINES = {
    "RawAtt": "raw_attention",
    "Rollout": "rollout",
    "LRP": "zplus_lrp",
    "PartialLRP": "partial_lrp",
    "GAE": "generic_attention",
    "CAM": "attention_cam",
    "GradCAM": "attention_grad_cam",
    "AttCAT": "attcat",
}
TABLE_1 = PublishedTable(
    tuple(f"{name} {metric}" for name in DATASETS.values() for metric in METRICS),
    {
        "RawAtt": (0.374, -0.992, 0.354, -1.593, 0.376, -1.513, 0.135, -0.399, 0.447, -5.828),
        "Rollout": (0.337, -0.911, 0.334, -1.456, 0.244, -0.770, 0.137, -0.396, 0.437, -5.489),
        "LRP": (0.336, -0.888, 0.288, -1.271, 0.163, -0.464, 0.131, -0.395, 0.438, -5.745),
        "PartialLRP": (0.396, -1.052, 0.370, -1.726, 0.401, -1.688, 0.136, -0.401, 0.445, -5.718),
        "GAE": (0.423, -1.171, 0.384, -1.853, 0.404, -1.682, 0.144, -0.421, 0.447, -5.923),
        "CAM": (0.399, -1.086, 0.365, -1.883, 0.298, -1.473, 0.132, -0.386, 0.450, -5.988),
        "GradCAM": (0.341, -0.855, 0.236, -0.974, 0.104, -0.229, 0.126, -0.369, 0.449, -5.953),
        "AttCAT": (0.405, -1.110, 0.340, -1.697, 0.397, -2.034, 0.138, -0.419, 0.447, -5.897),
        "Random": (0.432, -1.205, 0.387, -1.898, 0.426, -1.886, 0.142, -0.415, 0.448, -5.998),
        "Random, standard deviation": (0.005, 0.004, 0.004, 0.003, 0.005, 0.007, 0.002, 0.021, 0.001, 0.012),
        "Ours": (0.438, -1.208, 0.392, -1.906, 0.434, -1.898, 0.148, -0.445, 0.451, -6.001),
    },
)
TABLE_2 = PublishedTable(
    tuple(QUESTIONS.values()),
    {
        "Rollout": (4.62, 5.86, 8.04, 6.15, 5.54, 5.87),
        "RawAtt": (36.33, 28.97, 45.61, 4.69, 27.85, 18.09),
        "AttCAT": (31.44, 17.53, 47.32, 18.81, 16.99, 23.39),
        "Ours": (52.97, 51.62, 67.31, 27.03, 49.63, 56.41),
    },
)
TABLE_4 = PublishedTable(
    tuple(f"{name} {metric}" for name in ("SST-2", "IMDB", "Yelp") for metric in METRICS),
    {
        "ALTC": (0.369, -0.866, 0.342, -0.748, 0.363, -1.428),
        "Ours": (0.438, -1.208, 0.392, -1.906, 0.434, -1.898),
    },
)
TABLE_5 = PublishedTable(
    ("Train", "Valid", "Test"),
    {
        "SST-2": (6_920, 872, 1_821),
        "IMDB": (25_000, None, 25_000),
        "Yelp Polarity": (560_000, None, 38_000),
        "QQP": (363_846, 40_430, 390_965),
        "MNLI": (392_702, 20_000, 20_000),
        "SQuADv1": (87_599, 10_570, 9_533),
        "SQuADv2": (130_319, 11_873, 8_862),
    },
)
FIGURES = {  # data set -> gold class in the data -> number of the figure
    "sst2": {1: 6},
    "mnli": {0: 7, 1: 8, 2: 9},
    "imdb": {0: 10, 1: 11},
    "yelp": {0: 12, 1: 13},
}
# Classes of the data -> classes of the checkpoint, where they are not the same.
MODEL_CLASSES = {"textattack/bert-base-uncased-MNLI": {0: 1, 1: 2, 2: 0}}
TABLES = (
    Item(
        "table",
        "1",
        "AOPC and LOdds of the eight baselines, of random masks (mean and standard deviation of five runs) and of the "
        "paper's method, explaining BERT on five data sets.",
        "`mask_lrp_written` and `mask_lrp_qqp_written` (appendix D); with `--released` those of the release, "
        "`mask_lrp`, `mask_lrp_mnli` and `mask_lrp_qqp`. Ours as written is `mask_lrp:variant=paper,normalise=False` "
        "with a mask that counts relations (equations 6 to 11); as released `mask_lrp:variant=released`. Random masks "
        "are `mask.random(seed)`, five of them. The baselines are `raw_attention`, `rollout`, `zplus_lrp`, "
        "`partial_lrp`, `generic_attention`, `attention_cam`, `attention_grad_cam` and `attcat`.",
        "table1",
        "The paper cites Chefer et al. 2021a for GAE (`generic_attention`), and its release computes "
        "`transformer_attribution` under that name; both readings have a row. Ours and Random have a row for each "
        "variant, and *every head* is the released variant with a mask of ones, the fair baseline for it: masked runs "
        "of the release double the stored relevance, its GAE does not. On Yelp, AttCAT has a lower LOdds than Ours. "
        "Blocks without a lit head pass relevance through all their heads; `--empty drop` discards it there.",
        TABLE_1,
    ),
    Item(
        "table",
        "2",
        "Precision@20 in % of four methods in question answering, for BERT, GPT-2 and RoBERTa on SQuAD 1 and 2.",
        "the protocol `mask_lrp_squad_written`; with `--released`, `mask_lrp_squad`. The number is the share of the "
        "answers' tokens that are among the 20 highest (`recall_at_k`). Ours runs with a mask, counted on SQuAD's "
        "training questions.",
        "table2",
        "The release passes no mask in question answering, so the published row Ours is reproduced by "
        "`transformer_attribution` (row *Ours without a mask*). Its RawAtt and Rollout average over all query rows; "
        "here every method reads the rows of the answer's start and end. Its RoBERTa runs with BERT's position ids, "
        "and its GPT-2 loses relevance at each projection; here both run as they were trained. Unanswerable questions "
        "are left out. For SQuAD 2 the paper too takes the GPT-2 that was trained on SQuAD 1. Inputs of `--small` have "
        "about 35 tokens and answers of one token, so most methods reach 100 there: it says nothing about their order.",
        TABLE_2,
    ),
    Item(
        "table",
        "3",
        "The whole mask M against M_pos alone and M_synt alone, on SST-2 and QQP.",
        "`mask.only('positional')` and `mask.only('syntactic')`, in both variants of `mask_lrp`.",
        "table3",
        "The text of the paper that we have holds only the head of this table (method, SST-2, QQP), so no published "
        "numbers stand here. The paper says of them that leaving out one of the masks changes little.",
    ),
    Item(
        "table",
        "4",
        "AOPC and LOdds of ALTI (Ferrando et al. 2022; the paper writes ALTC) and of the paper's method.",
        "`alti` and both variants of `mask_lrp`, judged as in table 1.",
        "table4",
        "Our sweep over thresholds, which had this number before, is a study of our own: `studies/thresholds.py`.",
        TABLE_4,
    ),
    Item(
        "table",
        "5",
        "Numbers of training, validation and test examples of the seven data sets.",
        "counted in the splits of the data that the other scripts read.",
        "table5",
        "The paper's 6,920 training sentences are those of the original SST-2; the Hub's GLUE version has 67,349 "
        "phrases. Its 20,000 validation pairs of MNLI stand for the matched and the mismatched part together; our "
        "scripts read the matched one. SQuAD's test sets are not public.",
        TABLE_5,
    ),
    Item(
        "table",
        "6",
        "Which checkpoint of the Hub explains which data set.",
        "the section *Checkpoints and data* below; the script loads each checkpoint and says what it is.",
        "table6",
        "The paper prints `abriceyhc/...` for Yelp; the account is `fabriceyhc`.",
    ),
)
FIGURE_ITEMS = (
    Item(
        "figure",
        "1",
        "How far words stand from their syntactic heads (λ), for the four relations, on SST-2.",
        "`count_heads(...).distances`, drawn by `distance_figure`.",
        "figure1",
        "The paper gives no numbers. Its parser is not named; the release uses Stanza, tokenlight spaCy, or any parses "
        "with `--train-data` (CoNLL-U or the release's JSON lines).",
    ),
    Item(
        "figure",
        "2",
        "A diagram of the method: gradients and relevance pass down through the blocks, and each block keeps the "
        "relevance of its syntactic and positional heads.",
        "the method `mask_lrp`; nothing to run.",
    ),
    Item(
        "figure",
        "3",
        "The metrics of table 1 as curves over the share k of tokens that are replaced.",
        "the curves of the benchmark, from the same runs as table 1: with the same `--output`, nothing is computed "
        "again.",
        "figure3",
        "The paper's points are only drawn.",
    ),
    Item(
        "figure",
        "4",
        "AOPC and LOdds on SST-2 while 10 % to 100 % of the heads that the mask leaves out are let in: mean and "
        "standard deviation.",
        "`mask.corrupted(share, seed)`, five masks for each share, in both variants.",
        "figure4",
        "The paper's points are only drawn. It says that 100 % is its GAE. With `variant='paper'` a mask of ones is "
        "exactly `transformer_attribution` with the same `normalise` (both are drawn as gray lines); in the released "
        "variant it is close to that but not the same, because stored relevance is doubled.",
    ),
    Item(
        "figure",
        "5",
        "Which heads of BERT are in M_synt and in M_pos, for each data set.",
        "`HeadMask`, drawn by `head_figure`; one mask is counted for each model and data set.",
        "figure5",
        "The paper's masks are only drawn.",
    ),
    Item(
        "figure",
        "6–13",
        "Scores of the paper's method on a text, then its differences from Rollout, RawAtt, LRP, GAE and AttCAT: green "
        "where the method gives a token more, red where it gives less. One text of SST-2 (figure 6), one of each class "
        "of MNLI (7 to 9), IMDB (10, 11) and Yelp (12, 13).",
        "`tokenlight.views.difference`; the texts are drawn at random, one of each class that the model gets right.",
        "figures6to13",
        "The paper's own texts can be given with `--data`. It does not say how two methods are brought to one scale; "
        "here the strongest word of each has 1. Less is also underlined.",
    ),
)
EQUATIONS = (
    Item(
        "equation", "1", "The gradient of the output with respect to a layer, by the chain rule.",
        "autograd: the second pass of `mask_lrp` records the gradient of each attention map",
    ),
    Item(
        "equation", "2", "Relevance of a layer by Deep Taylor Decomposition.",
        "the rules of `zplus_lrp`, `partial_lrp`, `transformer_attribution` and `mask_lrp` ([methods](../methods.md))",
    ),
    Item(
        "equation", "3", "Relevance is conserved from layer to layer.",
        "`zplus_lrp` and `mask_lrp` report what is missing (`residual`, `masked_share`); tests check that it is 0",
        differs="relevance starts from 1 at the explained output, as in the release",
    ),
    Item(
        "equation", "4", "Only positive products x·w carry relevance.",
        "the z⁺ rule, without biases, in the same methods",
        differs="products of two activations (attention times values) follow the signed rule, as in the release",
    ),
    Item(
        "equation", "5", "Important relevance is that of syntactic plus that of positional heads.",
        "`HeadMask.groups`: two groups that share a block's relevance",
    ),
    Item(
        "equation", "6", "M = M_synt + M_pos.",
        "`HeadStatistics.mask(count_relations=True)`; a head of both groups gets a share from each",
        differs="masks hold numbers up to 1, so the counts are divided by the largest; the method depends on "
        "proportions only. As released: 0 or 1",
    ),
    Item(
        "equation", "7", "M_synt: for how many relations k the head's frequency exceeds max(λ_k) + ξ_synt.",
        "`count_heads` and `HeadStatistics.mask(syntax_margin=0.1, count_relations=True)`; direction dependent → head",
        differs="the paper leaves open from which word to which the attention is counted; the release counts from the "
        "dependent to its head, as here",
    ),
    Item(
        "equation", "8", "M_pos: whether one relative position has a frequency above ξ_pos.",
        "`HeadStatistics.mask(position_share=0.8)`; `count_self=True` for the release, which counts position 0 too",
    ),
    Item(
        "equation", "9", "The relevance that enters a block, split into syntactic, positional and other heads; the "
        "mask removes the others, and the two groups are then scaled so that none is lost (by the equations below it).",
        "`mask_lrp:variant=paper`",
        differs="the paper does not say what happens in a block without any important head. To conserve relevance, as "
        "the section asks, `empty=all` passes it through all heads of that block; by the bare equation it is lost "
        "(`empty=drop`), and `empty=residual` leaves it to the residual stream. As released, nothing is scaled, a "
        "block's own map is not masked, "
        "and stored relevance is doubled (`variant=released`; [heads](../heads.md))",
    ),
    Item(
        "equation", "10", "Ā of a block: mean over heads of the positive part of gradient times relevance, plus the "
        "identity.",
        "`mask_lrp:variant=paper,normalise=False`",
        differs="rows are not normalized in the equation; they are in the release and with `normalise=True`",
    ),
    Item(
        "equation", "11", "The product of all Ā, read at the [CLS] token or at the answer's index.",
        "the same; block 1 is the last block, since the paper numbers from the output",
    ),
    Item(
        "equation", "12", "AOPC: mean fall of the probability of the predicted label after the top k % of tokens are "
        "masked.",
        "the metric `aopc`; protocol `mask_lrp_written`",
        differs="the shares k are not given; 0 to 100 % in steps of 10 % are taken, as in the cited paper of AttCAT",
    ),
    Item(
        "equation", "LOdds", "(without a number) Mean logarithm of the ratio of that probability after and before.",
        "the metric `log_odds`; protocol `mask_lrp_written`",
    ),
)  # fmt: skip
PROTOCOLS = (
    Item(
        "protocol", "random mask (section 5.2)", "As many heads as the mask has, at random; five runs.",
        "`mask.random(seed)` with `MethodSpec(run_of=...)`: one line with mean and standard deviation", "table1",
        "the release counts heads that follow several things several times, so its random masks may have more heads",
    ),
    Item(
        "protocol", "corruption (section 5.4)", "A share of the mask's zeros becomes ones, 10 % to 100 %.",
        "`mask.corrupted(share, seed)`", "figure4",
        "in the release 100 % is not every head where a head follows several things",
    ),
    Item(
        "protocol", "classification (section 5.1)", "BERT with at most 512 tokens, explained from [CLS], on validation "
        "sets (test sets of IMDB and Yelp).",
        "what the model reads by default", differs="the release skips texts of fewer than 20 tokens",
    ),
    Item(
        "protocol", "QQP (section 5.1, appendix C)", "Only pairs with the label *duplicate*.",
        "`mask_lrp_qqp_written`; as released `mask_lrp_qqp`, which also asks for a probability of 0.3",
    ),
    Item(
        "protocol", "question answering (section 5.1)", "The start and the end index of the answer are attributed.",
        "`mask_lrp_squad_written`", "table2",
    ),
    Item(
        "protocol", "claims (section 1)", "Gains of over 3.56 % in AOPC and LOdds, and of 33.02 % in Precision@20.",
        "tables 1 and 2",
        differs="33.02 is the difference in points between Ours and AttCAT for RoBERTa on SQuAD 2 (56.41 − 23.39)",
    ),
)  # fmt: skip
APPENDICES = (
    Item(
        "appendix", "A", "Why nsubj, dobj, amod and advmod: frequent relations that make up the core of a sentence.",
        "`RELATIONS` of `tokenlight.masks.statistics`; `tokenlight heads --relation` takes others",
        differs="`obj` (Universal Dependencies) and `dobj` (spaCy) count as one relation",
    ),
    Item("appendix", "B", "Comparison with tensor decomposition.", "table 4", "table4"),
    Item(
        "appendix", "C", "Environment, data sets, models, and the thresholds ξ_synt = 0.1 and ξ_pos = 0.8.",
        "tables 5 and 6; `SYNTAX_MARGIN` and `POSITION_SHARE`; other thresholds: `studies/thresholds.py`", "table6",
    ),
    Item(
        "appendix", "D", "The metrics; tokens are removed by setting their id to 0, so that positions stay.",
        "protocols `mask_lrp_written`, `mask_lrp_qqp_written`, `mask_lrp_squad_written` ([presets](../presets.md))",
        differs="the padding token of the model's own tokenizer takes the place of id 0, which is BERT's",
    ),
    Item("appendix", "E", "More difference maps: figures 7 to 13.", "figures 6–13", "figures6to13"),
)  # fmt: skip
BERT = "textattack/bert-base-uncased"
SQUAD = {"squad1": "hf:rajpurkar/squad", "squad2": "hf:rajpurkar/squad_v2"}
GPT2 = "anas-awadalla/gpt2-span-head-finetuned-squad"
ANSWERING = {
    "squad1-bert": "csarron/bert-base-uncased-squad-v1",
    "squad1-gpt2": GPT2,
    "squad1-roberta": "thatdramebaazguy/roberta-base-squad",
    "squad2-bert": "ericRosello/bert-base-uncased-finetuned-squad-frozen-v2",
    "squad2-gpt2": GPT2,
    "squad2-roberta": "21iridescent/roberta-base-finetuned-squad2-lwt",
}
PAPER = Paper(
    folder="mask_lrp",
    short="Mask-LRP",
    citation="Song, Cui, Luo, Lecue and Li: Better Explain Transformers by Illuminating Important Information "
    "(arXiv 2401.09972, 2024).",
    link="https://arxiv.org/abs/2401.09972",
    release="https://github.com/LinxinS97/Mask-LRP",
    items=(*TABLES, *FIGURE_ITEMS, *EQUATIONS, *PROTOCOLS, *APPENDICES),
    checkpoints={
        "sst2": Checkpoint(f"{BERT}-SST-2", "hf:nyu-mll/glue:sst2", "validation", "train"),
        "imdb": Checkpoint(f"{BERT}-imdb", "hf:stanfordnlp/imdb", "test", "train", "there is no validation set"),
        "yelp": Checkpoint(
            "fabriceyhc/bert-base-uncased-yelp_polarity",
            "hf:fancyzhx/yelp_polarity",
            "test",
            "train",
            "there is no validation set",
        ),
        "mnli": Checkpoint(
            f"{BERT}-MNLI",
            "hf:nyu-mll/glue:mnli",
            "validation_matched",
            "train",
            "the model's classes 0, 1, 2 are the data's 2, 0, 1; that matters where the gold label is explained, with "
            "`--released`, which does not put them right",
        ),
        "qqp": Checkpoint("modeltc/bert-base-uncased-qqp", "hf:nyu-mll/glue:qqp", "validation", "train"),
        **{
            name: Checkpoint(model, SQUAD[name.partition("-")[0]], "validation", "train")
            for name, model in ANSWERING.items()
        },
    },
)
