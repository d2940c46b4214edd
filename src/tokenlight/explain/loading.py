"""A checkpoint by its name or path, as an explainer: the model for its task, with the tokenizer that it needs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from tokenlight.explain.explainer import Explainer
from tokenlight.tasks import find_task, task_of_class

# Settings that say which files are read, and how: config and tokenizer are read in the same way as the weights.
ABOUT_FILES = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token", "trust_remote_code")

SHOWN_NAMES = 3  # of weights that are missing


def load(model: str | Path | None = None, *, task: str | None = None, **settings: Any) -> Explainer:
    """An explainer for a checkpoint by name or path; without one, for the sentiment model inside the package.

    `task` is read from the checkpoint's config if not given; `settings` go to `from_pretrained` (dtype, device_map,
    revision).
    """
    if model is None:
        from tokenlight.embedded import load_embedded

        return Explainer(*load_embedded())
    shared = {name: value for name, value in settings.items() if name in ABOUT_FILES}
    if task is None:
        architectures = AutoConfig.from_pretrained(model, **shared).architectures or ["a model without a head"]
        chosen = task_of_class(architectures[0])
    else:
        chosen = find_task(task)
    tokenizer = read_tokenizer(model, shared)
    auto = getattr(transformers, chosen.auto_class)
    found, report = auto.from_pretrained(model, output_loading_info=True, **settings)
    if not hasattr(found, "peft_config"):  # the report of transformers 5.0 does not know of an adapter's own weights
        refuse_random_weights(model, chosen.name, report["missing_keys"])
    return Explainer(found.eval(), tokenizer)


def refuse_random_weights(model: str | Path, task: str, missing: Iterable[str]) -> None:
    """transformers fills what a checkpoint lacks with random numbers, which mean nothing."""
    if names := sorted(missing):
        more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        some = ", ".join(names[:SHOWN_NAMES]) + more
        raise ValueError(
            f"{model} was not trained for {task}: it has no weights for {some}, and random ones would mean nothing. "
            "Name another checkpoint or task; or load the model yourself, and call tl.Explainer(model, tokenizer)"
        )


def read_tokenizer(model: str | Path, settings: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    """Where a checkpoint has none, transformers may make one up that knows nothing but its special tokens."""
    expected = (
        "expected tokenizer.json or a vocabulary beside the weights, as tokenizer.save_pretrained(folder) writes it"
    )
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, **settings)
    except ValueError as error:
        reason = str(error).partition("\n")[0].rstrip(": ")
        raise ValueError(f"the tokenizer of {model} cannot be read ({reason}): {expected}") from error
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ValueError(f"{model} holds no tokenizer: {expected}")
    return tokenizer
