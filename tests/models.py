"""Tiny random models of every supported family and head. Sharp enough that attention is not uniform."""

from functools import cache
from typing import Any, cast

import torch
import transformers as hf
from transformers import PreTrainedModel
from transformers.models.mamba import modeling_mamba

from tokenlight.heads.mask import PACKAGED
from tokenlight.methods import METHODS
from tokenlight.tasks import TASKS
from tokenlight.tasks.targets import TargetSpec
from tokenlight.tasks.task import Task

VOCABULARY = 60
SMALL = {"vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "num_labels": 3}
ENCODER = {
    **SMALL,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "initializer_range": 0.4,
}
DECODER = {**ENCODER, "num_key_value_heads": 2, "head_dim": 4, "use_cache": False}
SLIDING = {"sliding_window": 4}  # short enough to matter in the tests' texts
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}

CONFIGS = {
    "bert": (hf.BertConfig, ENCODER),
    "roberta": (hf.RobertaConfig, ENCODER),
    "xlm_roberta": (hf.XLMRobertaConfig, ENCODER),
    "distilbert": (hf.DistilBertConfig, {**SMALL, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24}),
    "electra": (hf.ElectraConfig, {**ENCODER, "embedding_size": 8}),
    "gpt2": (hf.GPT2Config, {**SMALL, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 40}),
    "opt": (hf.OPTConfig, {**ENCODER, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "gpt_neox": (hf.GPTNeoXConfig, {**ENCODER, "use_parallel_residual": True}),
    "llama": (hf.LlamaConfig, DECODER),
    "mistral": (hf.MistralConfig, {**DECODER, **SLIDING}),
    "qwen2": (hf.Qwen2Config, DECODER),
    "qwen3": (hf.Qwen3Config, DECODER),
    "gemma": (hf.GemmaConfig, DECODER),
    "gemma2": (
        hf.Gemma2Config,
        {**DECODER, **SLIDING, "query_pre_attn_scalar": 4, "attn_logit_softcapping": 2.0}
        | {"attn_implementation": "eager"},  # in transformers 5.0, fused attention drops the cap
    ),
    "gemma3": (hf.Gemma3TextConfig, {**DECODER, **SLIDING, "query_pre_attn_scalar": 4}),
    "phi3": (hf.Phi3Config, {**DECODER, "num_key_value_heads": 4}),
    "olmo2": (hf.Olmo2Config, DECODER),
    "mixtral": (hf.MixtralConfig, {**DECODER, **EXPERTS}),
}
# Tokens reach each other by a recurrence or a convolution, in all blocks or in some: methods that read attention are
# not defined there.
RECURRENT = {
    "mamba": (
        hf.MambaConfig,
        {**SMALL, "hidden_size": 16, "num_hidden_layers": 2, "initializer_range": 0.4, "use_cache": False}
        | {"state_size": 4, "time_step_rank": 4},
    ),
    "lfm2": (hf.Lfm2Config, {**DECODER, "layer_types": ["conv", "full_attention"], "block_ff_dim": 24}),
}
if not hasattr(modeling_mamba, "mamba_selective_scan"):  # written out in transformers 5.0, where relevance is refused
    del RECURRENT["mamba"]
SOME_HEADS = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]])  # lit, of the 2 layers of 4 heads
FAMILIES = list(CONFIGS)
ENCODERS = ("bert", "roberta", "xlm_roberta", "distilbert", "electra")
HEADS = {
    "text-classification": hf.AutoModelForSequenceClassification,
    "token-classification": hf.AutoModelForTokenClassification,
    "question-answering": hf.AutoModelForQuestionAnswering,
    "fill-mask": hf.AutoModelForMaskedLM,
    "text-generation": hf.AutoModelForCausalLM,
}


def available(family: str, task: str) -> bool:
    return CONFIGS[family][0] in HEADS[task]._model_mapping and not (family in ENCODERS and task == "text-generation")


COMBINATIONS = [(family, task) for family in FAMILIES for task in HEADS if available(family, task)]


@cache
def model(family: str, task: str = "text-classification", dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same weights every time; tests must leave them as they are (a fixture checks it)."""
    return make(family, task, dtype)


@cache
def relu_model(family: str, task: str = "text-classification", dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same with ReLUs in place of the family's own activation."""
    known = vars((CONFIGS | RECURRENT)[family][0]())
    names = ("hidden_act", "hidden_activation", "activation_function", "activation")
    return make(family, task, dtype, **dict.fromkeys([name for name in names if name in known], "relu"))


def make(family: str, task: str, dtype: torch.dtype, **changed: Any) -> PreTrainedModel:
    kind, settings = (CONFIGS | RECURRENT)[family]
    torch.manual_seed(len(family) + 100 * list(HEADS).index(task))
    if task == "question-answering":
        settings = {**settings, "num_labels": 2}  # start and end
    made = HEADS[task].from_config(kind(**{**settings, **changed})).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:  # norms and biases start as 1 and 0: move them, or nothing tests them
                parameter.add_(torch.randn_like(parameter) * 0.1)
            elif family in ("gpt2", "distilbert"):
                parameter.mul_(20)
    return made.to(dtype)


def task(name: str) -> Task:
    """For targets in indices, which no model has to name."""
    return TASKS[name](cast(Any, None))


def default_task(family: str) -> str:
    return "text-classification" if family in ENCODERS else "text-generation"


# Every family with its usual head; all heads with one encoder and one decoder: for what blocks and heads do apart.
USUAL = [(family, task) for family, task in COMBINATIONS if task == default_task(family) or family in ("bert", "llama")]


def ids(batch: int = 3, length: int = 9, seed: int = 0) -> torch.Tensor:
    """Random rows without special ids; the first token plays [CLS]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCABULARY, (batch, length), generator=generator)


def scores_tokens(name: str) -> bool:
    """Whether a method scores tokens unless it is told otherwise, not sentences of a language model's prompt."""
    return METHODS[name].options.get("units", "tokens") == "tokens"


RELU_ONLY: tuple[str, ...] = (
    "guided_backpropagation",
)  # tested on `relu_model` in methods/test_guided_backpropagation.py


def runs_here(name: str) -> bool:
    """Whether a method scores tokens and is defined for the activations of these models."""
    return scores_tokens(name) and name not in RELU_ONLY


FEW: dict[str, Any] = {"steps": 3, "permutations": 2, "samples": 200}


def quick_options(name: str) -> dict[str, Any]:
    """What a method needs to run on these models, and to run fast."""
    known = METHODS[name].options
    options = {option: few for option, few in FEW.items() if option in known}
    options |= {"contexts": 2} if METHODS[name].averaged else {}
    return {**options, "heads": SOME_HEADS} if known.get("heads") in PACKAGED else options


def target(task: str) -> TargetSpec:
    """A target that `attribute` understands for this head."""
    return {
        "text-classification": 1,
        "token-classification": (3, 1),
        "fill-mask": (3, 7),
        "question-answering": (2, 5),
        "text-generation": 7,
    }[task]
