# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Compare methods, and find out which to trust
#
# Methods disagree, and a heatmap that looks right proves nothing. A fair test is to remove the words that a method
# calls important: if it is right, the model should change its mind quickly. This notebook does that for one sentence,
# then for a dozen, with the sentiment model inside the package.

# %%
import matplotlib.pyplot as plt

import tokenlight as tl
from tokenlight.metrics.evaluate import draw_curves

explainer = tl.load()
METHODS = ["rollout", "attcat", "transformer_attribution", "attn_lrp", "random"]

# %% [markdown]
# ## Where they disagree
#
# `random` is a control: its scores are drawn at random. A method that does no better tells you nothing about the model.

# %%
review = "A charming, often affecting journey with a luminous lead."
results = explainer.explain_all(review, methods=METHODS)
tl.show(results)

# %% [markdown]
# ## One sentence
#
# Replace the most important tokens by the mask token, 10 % of them, then 20 %, and so on, and watch the probability of
# the label. The faster a curve falls, the better the method knew which tokens matter. At the right end every word is
# masked: that is an input of its own, and the model has some opinion about it, too.

# %%
curves = draw_curves(explainer, list(results.values()))
_, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, curve in zip(results, curves, strict=True):
    axes.plot(100 * curve.shares, curve.probabilities, label=name, linestyle="--" if name == "random" else "-")
axes.set(xlabel="tokens masked (%)", ylabel="probability of the label", ylim=(0, 1.02))
legend = axes.legend()

# %% [markdown]
# A metric turns such a curve into a number. AOPC (area over the perturbation curve) is the mean fall of the
# probability; higher is better.

# %%
for name, result in results.items():
    print(f"{name:>24}", {metric: round(value, 3) for metric, value in result.evaluate(["aopc", "log_odds"]).items()})

# %% [markdown]
# ## Many sentences
#
# One sentence says more about the sentence than about the method. The benchmark takes many, and says how sure it is: an
# interval for each mean, and a mark at every method that cannot be distinguished from the best one. Three controls are
# added: `random`, the best method with its order reversed, and `erasure`, which tries every single token and is
# therefore slow. Twelve sentences only show how it works; with a few hundred of your own texts the intervals become
# narrow.

# %%
REVIEWS = [
    review,
    "The plot is a mess, the jokes fall flat, the ending is dull.",
    "It isn't a bad film at all, and I never looked at my watch.",
    "Two hours well spent.",
    "It never quite finds its tone.",
    "A warm and funny film about growing old together.",
    "The script is lazy and the acting is even worse.",
    "I laughed, I cried, and I would happily see it again.",
    "Beautiful pictures cannot save such an empty story.",
    "A smart thriller that keeps its best surprise for the end.",
    "Loud, long and utterly forgettable.",
    "The young cast brings real charm to a familiar tale.",
]
table = tl.benchmark(explainer, REVIEWS, methods=METHODS, metrics=["aopc", "log_odds"], progress=False)
table.show()

# %% [markdown]
# `table.to_latex()`, `to_markdown()` and `to_csv()` give the same for a paper, and with `output="folder"` the benchmark
# keeps every single number and can be resumed if it is interrupted.
