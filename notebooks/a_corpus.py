# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A whole corpus
#
# Explaining one text gives an impression. To audit a model, explain all the texts you have, and look at which words
# support which label. `tl.explain_dataset` reads a corpus of any size as a stream and writes Parquet files. If it is
# interrupted, the same call resumes where it stopped.

# %%
import tempfile
from pathlib import Path

import pandas
import rich

import tokenlight as tl
from tokenlight.corpus.summary import summarize
from tokenlight.views.corpus_words import summary_table

explainer = tl.load()

# %% [markdown]
# ## Explain everything
#
# The source can be a file (Parquet, JSON lines, CSV, TSV, plain text), a folder of such files, a dataset of the Hugging
# Face Hub (`"hf:NAME"`), or a list as here. The last row is empty: it is reported as a bad row and does not stop the
# rest.

# %%
REVIEWS = [
    {"body": "A charming, often affecting journey with a luminous lead.", "stars": 5},
    {"body": "The plot is a mess, the jokes fall flat, the ending is dull.", "stars": 1},
    {"body": "It isn't a bad film at all, and I never looked at my watch.", "stars": 4},
    {"body": "A charming cast, but the plot is dull.", "stars": 2},
    {"body": "Two hours well spent, with a charming ending.", "stars": 5},
    {"body": "A dull, empty mess.", "stars": 1},
    {"body": "", "stars": 3},
]
folder = Path(tempfile.mkdtemp())  # for your own corpus: a folder that you keep
source = tl.DataSource(REVIEWS, text="body")
done = tl.explain_dataset(explainer, source, folder / "out", methods=["attn_lrp", "gradient_x_input"], progress=False)
print(f"{done.explained} texts explained, {done.bad} bad row")
print((done.folder / "bad_rows.jsonl").read_text(encoding="utf-8"))

# %% [markdown]
# ## Read the results
#
# One row is one text explained by one method. Any tool that reads Parquet reads them.

# %%
table = pandas.read_parquet(done.folder / "parts")
chosen = table.query("method == 'attn_lrp'")
COLUMNS = ["text", "prediction", "probability"]
print(chosen.to_string(columns=COLUMNS, index=False, max_colwidth=40))

# %% [markdown]
# Find the texts that the model gets wrong with confidence: those are worth reading first.

# %%
with_stars = chosen.assign(stars=[REVIEWS[row]["stars"] for row in chosen["row"]])
wrong = with_stars.query("(stars >= 4) != (prediction == 'positive')")
print(wrong.to_string(columns=COLUMNS, index=False) if len(wrong) else "none of these few")

# %% [markdown]
# ## The words of the corpus
#
# Which words support each label, over all texts? *Strength* is a word's score relative to the strongest word of its
# text, averaged over its uses. The most *distinct* words come first: those whose strength is farthest above the mean of
# all words, in standard errors.

# %%
for summary in summarize(done.folder, method="attn_lrp"):
    rich.print(summary_table(summary, top=8))

# %% [markdown]
# The same on the command line: `tokenlight explain-file reviews.csv --text body -o out`, then `tokenlight corpus out`.
# With `--engine ray` it runs on many machines; see `docs/scale.md`.
