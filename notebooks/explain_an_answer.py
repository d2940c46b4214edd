# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Explain a language model's answer
#
# Why did the model write that, and which passage of the prompt did it rest on? An answer is many tokens, and each of
# them has its reasons in the prompt and in what the model wrote before.
#
# This notebook needs a causal language model. Set the environment variable `TOKENLIGHT_NOTEBOOK_MODEL` to a checkpoint
# (a folder, or a name on the Hugging Face Hub such as `Qwen/Qwen2.5-0.5B-Instruct`), and it is used. Without it, a tiny
# model with **random weights** stands in: all calls work and take no time, but neither what it writes nor its
# explanations mean anything.

# %%
import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tokenlight as tl


def tiny_writer() -> tl.Explainer:
    """Two layers of random weights, with the tokenizer of the model inside the package."""
    torch.manual_seed(0)
    tokenizer = tl.load().tokenizer
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
    )
    return tl.Explainer(LlamaForCausalLM(config).eval(), tokenizer)


checkpoint = os.environ.get("TOKENLIGHT_NOTEBOOK_MODEL")
explainer = tl.load(checkpoint) if checkpoint else tiny_writer()

# %% [markdown]
# ## Let the model write, and ask why
#
# `generate` takes the settings of transformers' own `generate`.

# %%
passages = {
    "letter": "Anna has bought a big house by the sea.",
    "advert": "Boats of every size are for sale in the harbour.",
}
prompt = " ".join(passages.values()) + " Where does Anna live?"
written = explainer.generate(prompt, max_new_tokens=8)
print(repr(written.text))
written.explain("attn_lrp").show()

# %% [markdown]
# ## An answer that you have already
#
# The result holds a whole matrix: a row for each token of the answer, a column for each token of the prompt and of the
# answer. What you see is a page to click on: choose a part of the answer, and what made the model write it lights up.

# %%
answer = explainer.explain_answer(prompt, " Anna lives in a house. It is by the sea.", documents=passages)
print(answer.matrix.shape)
answer  # noqa: B018  # pyright: ignore[reportUnusedExpression]  # a notebook shows it

# %% [markdown]
# Any part of the answer is an ordinary explanation of the prompt. `answer_share` is what lies on earlier tokens of the
# answer itself.

# %%
part = answer.of("house")
part.show()
print({name: round(value, 3) for name, value in part.extras.items()})

# %% [markdown]
# ## Which passage?
#
# `documents=` named the passages above. The table adds up the scores of each, sentence by sentence; its columns always
# add up to everything, so nothing is hidden.

# %%
answer.by_document().show()

# %% [markdown]
# ## Is it faithful?
#
# Remove the passages that a method calls important and see how much less likely the answer becomes. `leave_one_out`
# really removes each of them in turn: it is the costly reference.

# %%
for method in ("attn_lrp", "leave_one_out"):
    e = explainer.explain(prompt, method, target=answer.answer, documents=passages)
    print(f"{method:>14}", e.evaluate(["top_k_drop"], units="documents"))
