"""Small models and texts in place of ALTI's: reviews for Yelp, templated sentences for agreement."""

from functools import partial

from papers.small import DATA, SENTIMENT, SmallRun
from papers.small_models import small_model

FAMILIES = ("bert", "roberta", "distilbert")
REVIEWS = {
    f"{family}-yelp": SmallRun(partial(small_model, f"reviews-{family}"), DATA / "reviews.tsv", limit=40)
    for family in FAMILIES
}
# A masked language model, which finetune.py gives its two outputs.
AGREEMENT = {
    f"{family}-sva": SmallRun(partial(small_model, f"agreement-{family}"), DATA / "agreement.tsv", limit=40)
    for family in FAMILIES
}
SEEDS = {
    f"multiberts-{seed}": SmallRun(partial(small_model, "reviews-bert", seed), DATA / "reviews.tsv", limit=30)
    for seed in range(10)
}
SMALL = {"bert-sst2": SENTIMENT, **REVIEWS, **AGREEMENT, **SEEDS}
