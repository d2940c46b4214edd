# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Attention heads and Mask-LRP
#
# Some attention heads follow syntax: a subject attends to its verb. Some follow position: every token attends to the
# one before it. Mask-LRP (Song et al. 2024) lets relevance flow through such heads only. Here we count what the heads
# of the sentiment model inside the package do, explain a sentence through the heads that follow something, and check
# whether that made the explanation better. Parsing needs spaCy: `pip install "tokenlight[syntax]"`.

# %%
import rich

import tokenlight as tl
from tokenlight.heads.count import count_heads
from tokenlight.heads.mask import calibrated_heads, own_heads
from tokenlight.heads.parses import spacy_parses
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.views.heads import head_map

explainer = tl.load()

# %% [markdown]
# ## What do the heads follow?
#
# For each head, count how often a word's strongest attention goes to its syntactic head, relation by relation. A real
# count needs thousands of sentences; these four only show the calls.

# %%
SENTENCES = [
    "A charming and often affecting journey.",
    "Critics rarely love loud films.",
    "The young director tells a quiet story.",
    "She finally understands the old man.",
]
counts = count_heads(explainer, spacy_parses(SENTENCES), progress=False)
for relation, accuracies in zip(counts.relations, counts.accuracy, strict=True):
    layer, head = divmod(int(accuracies.argmax()), accuracies.shape[1])
    print(f"{relation:>7}: layer {layer}, head {head} follows it in {accuracies.max():.0%} of the cases")

# %% [markdown]
# `counts.mask()` applies the paper's thresholds to such counts. The package already has a mask for its own model,
# counted over 23,552 phrases: 2 of the 72 heads pass the thresholds.

# %%
mask = own_heads(explainer.model)
assert mask is not None  # the embedded model has one; for yours, make it with `tokenlight heads`
rich.print(head_map(mask))

# %% [markdown]
# ## Explain through heads
#
# `heads=` takes a mask, its file, or numbers `[layer, head]`. The forward pass never changes; only the relevance that
# flows back is restricted.

# %%
review = "A charming, often affecting journey with a luminous lead."
everywhere = explainer.explain(review, method="transformer_attribution")  # Mask-LRP with all heads lit is this
masked = explainer.explain(review, method="mask_lrp", heads=mask)
tl.show([everywhere, masked])

# %% [markdown]
# ## Did it help?
#
# Never trust a mask without a control. `mask.random(seed=1)` lights as many heads, chosen at random; a mask that means
# something should do better than that. Six sentences show how it is done, but are far too few to judge, and the table
# says so: with fewer than ten, every method is marked as possibly as good as the best.

# %%
REVIEWS = [
    review,
    "The plot is a mess, the jokes fall flat, the ending is dull.",
    "It isn't a bad film at all, and I never looked at my watch.",
    "Two hours well spent.",
    "It never quite finds its tone.",
    "A warm and funny film about growing old together.",
]
methods = [
    MethodSpec("all heads", "transformer_attribution"),
    MethodSpec("the paper's mask", "mask_lrp", {"heads": mask}),
    MethodSpec("as many at random", "mask_lrp", {"heads": mask.random(seed=1)}),
]
tl.benchmark(explainer, REVIEWS, methods, ["aopc"], erasure=False, progress=False).show()

# %% [markdown]
# On 35 sentences, the paper's mask could not be told from all heads or from random heads of the same layers (see
# `docs/heads.md`). Choosing heads by measured faithfulness is another way. That is calibration: `tl.calibrate` or
# `tokenlight calibrate` makes such a mask for your model, and the embedded model comes with one.

# %%
calibrated = calibrated_heads(explainer.model)
print(calibrated)
explainer.explain(review, method="calibrated_lrp").show()
