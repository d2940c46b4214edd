# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # First steps
#
# A Transformer says that a film review is positive. Which words made it say so? This notebook explains a few sentences
# with the small sentiment model that ships inside the package, so nothing is downloaded.

# %%
import tempfile
from pathlib import Path

import tokenlight as tl

explainer = tl.load()  # or tl.load("path/to/checkpoint") for a model of yours

# %% [markdown]
# ## One sentence
#
# Blue words support what the model says, orange words speak against it. Without further arguments, the method is
# AttnLRP and the question is "why this prediction?".

# %%
review = "It isn't a bad film at all, and I never once looked at my watch."
explanation = explainer.explain(review)
explanation.show()

# %% [markdown]
# The picture is made of numbers, and you can have all of them: one score for every token, and the same merged into
# words.

# %%
print(f"{explanation.prediction} with probability {explanation.probability:.3f}")
for word in explanation.top(3):
    print(f"{word.text:>8} {word.score:+.3f}")

# %% [markdown]
# Methods of the LRP family account for the whole logit: the scores of the tokens and the shares in `extras`, which no
# token gets, add up to it. `residual` is what would be missing.

# %%
print(f"logit {explanation.score:.3f}; on the tokens {explanation.scores.sum():.3f}")
print({name: round(value, 3) for name, value in explanation.extras.items()})

# %% [markdown]
# ## Another question
#
# `target=` asks about another label. `foil=` asks for a contrast: why positive *rather than* negative?

# %%
explainer.explain(review, target="negative").show()
explainer.explain(review, target="positive", foil="negative").show()

# %% [markdown]
# ## Several methods at once
#
# Every method answers the question in its own way, and they do not always agree. Methods that need the same pass
# through the model share it. `tl.METHODS` lists all of them.

# %%
results = explainer.explain_all(review, methods=["rollout", "attcat", "lrp", "attn_lrp"])
tl.show(results)
print(f"{len(tl.METHODS)} methods: {', '.join(tl.METHODS)}")

# %% [markdown]
# Which of them can you trust? That is the subject of the next notebook, `compare_and_trust`.
#
# ## Keep a result
#
# A saved explanation knows its text, model, method, options and versions.

# %%
with tempfile.TemporaryDirectory() as folder:
    explanation.save(Path(folder) / "review.json")
    (Path(folder) / "review.html").write_text(explanation.to_html(), encoding="utf-8")  # a page to send to somebody
    again = tl.Explanation.load(Path(folder) / "review.json")
print(again == explanation, again.versions)
