"""The Explainer: texts in, explanations out; and its summary as a line or a table."""

from collections.abc import Hashable, Mapping, Sequence
from html import escape
from typing import Any, overload

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import DEFAULT_QUANTITY, Quantity, check_quantity
from tokenlight.explain.answers import AnswerLike, Generated, answer_request, assemble_answer, generate
from tokenlight.explain.assemble import explain_requests
from tokenlight.explain.in_batches import explain_in_batches
from tokenlight.explain.inquiry import resolve_requests
from tokenlight.explain.running import RunOptions
from tokenlight.methods import find_method
from tokenlight.methods.config import MethodConfig, Option, configs_for
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import embedding_rows, layers_and_heads, padding_id
from tokenlight.model.private_copy import unwrap
from tokenlight.results.answer_propagation import Form
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation, ExplanationDict, ExplanationList
from tokenlight.rules.mode import RuleTable
from tokenlight.tasks import task_of_class
from tokenlight.tasks.targets import TargetSpecs
from tokenlight.tasks.task import Task
from tokenlight.text.batch import Batch, collate
from tokenlight.text.documents import Documents, attach_documents, documents_for
from tokenlight.text.tokenize import Messages, Prompt, Prompts, texts_of
from tokenlight.text.tokenized_text import Text, Texts, TokenizedText, is_whole

SHOWN_LABELS = 5


def line_about(task: Task) -> str:
    labels = labels_of(task)
    return f"<Explainer of {type(task.model).__name__}, {task.name}{': ' + labels if labels else ''}>"


def table_about(task: Task) -> str:
    """HTML; its colors are those of the notebook, light or dark."""
    rows = "".join(
        f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{escape(fact)}</td></tr>'
        for name, fact in facts_about(task).items()
    )
    call = "<code>.explain(text)</code>, <code>.explain_all(text)</code>"
    if task.reads_on:
        call += ", <code>.generate(prompt)</code>"
    return f"<table><caption>tokenlight.Explainer: {call}</caption>{rows}</table>"


def facts_about(task: Task) -> dict[str, str]:
    layers, heads = layers_and_heads(task.model)
    weights = sum(weight.numel() for weight in task.model.parameters())
    size = f"{weights / 1e6:,.1f} million weights, {layers} layers"
    longest = task.max_length
    return {
        "model": type(task.model).__name__,
        "task": task.name,
        **({"labels": labels_of(task)} if task.labels else {}),
        "size": f"{size} of {heads} heads" if heads else size,
        "longest text": "no limit" if longest is None else f"{longest:,} tokens",
    }


def labels_of(task: Task) -> str:
    labels = list(task.labels.values())
    return ", ".join(labels[:SHOWN_LABELS]) + (" …" if len(labels) > SHOWN_LABELS else "")


DEFAULT_METHOD = "attn_lrp"
DEFAULT_RUN_OPTIONS = RunOptions()


class Explainer:
    """Explains what a model says about texts. The model itself is never changed."""

    model: PreTrainedModel  # as it was given
    tokenizer: Any  # transformers says less about its tokenizers than is known of them
    task: Task

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: type[Task] | None = None
    ) -> None:
        inner = unwrap(model)
        self.model = model
        self.tokenizer = tokenizer
        self.task = (task or task_of_class(type(inner).__name__))(inner, tokenizer)
        _ = self.task.labels  # names that do not fit the model are refused before anything is explained

    def __repr__(self) -> str:
        return line_about(self.task)

    def _repr_html_(self) -> str:
        return table_about(self.task)

    @property
    def inner(self) -> PreTrainedModel:
        """The model without what may be wrapped around it, such as an adapter's class."""
        return self.task.model

    @overload
    def explain(
        self,
        texts: Texts | list[Messages],
        method: str = ...,
        *,
        target: TargetSpecs = ...,
        foil: TargetSpecs = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        rules: RuleTable | None = ...,
        batch_size: int = ...,
        low_memory: bool = ...,
        fused: bool | None = ...,
        progress: bool = ...,
        **options: Option,
    ) -> list[Explanation]: ...

    @overload
    def explain(
        self,
        texts: Text | Messages,
        method: str = ...,
        *,
        target: TargetSpecs = ...,
        foil: TargetSpecs = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        rules: RuleTable | None = ...,
        batch_size: int = ...,
        low_memory: bool = ...,
        fused: bool | None = ...,
        progress: bool = ...,
        **options: Option,
    ) -> Explanation: ...

    def explain(
        self,
        texts: Text | Messages | Texts | list[Messages],
        method: str = DEFAULT_METHOD,
        *,
        target: TargetSpecs = None,
        foil: TargetSpecs = None,
        documents: Documents | Sequence[Documents] | None = None,
        rules: RuleTable | None = None,
        batch_size: int = 32,
        low_memory: bool = False,
        fused: bool | None = None,
        progress: bool = True,
        **options: Option,
    ) -> Explanation | list[Explanation]:
        """Explain a text, or a list of texts; a list in gives a list out, in the same order.

        A text is a string, a pair of strings as a tuple, or a chat: a list of {"role": ..., "content": ...}. `target`
        defaults to what the model predicts; it is a label, a token, an index, a function of the model output, or a list
        with one of these for each text. With a `foil`, the explained number is target minus foil. `rules` replaces the
        rule table of a relevance method. With `low_memory`, blocks are computed again in the backward pass: less
        memory, more time, the same scores. `fused` decides whether attention runs as one operation or step by step; by
        default it is fused unless a method needs the attention weights. `documents` names sources in the text, as for
        `explain_answer`. Further keywords are the method's options. Methods that read recorded passes all have the
        option `contexts`: the text is explained that many times more, each time without half of its tokens, and the
        scores are means (docs/contexts.md).
        """
        chosen = find_method(method)
        method_configs = {chosen.name: MethodConfig.for_model(chosen, options, self.inner, rules)}
        run_options = RunOptions(batch_size, low_memory, progress, fused)
        results = self.explain_configs(
            texts, method_configs, target=target, foil=foil, documents=documents, run_options=run_options
        )
        return results[chosen.name]

    @overload
    def explain_all(
        self,
        texts: Texts | list[Messages],
        methods: Sequence[str] | None = ...,
        *,
        target: TargetSpecs = ...,
        foil: TargetSpecs = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        batch_size: int = ...,
        low_memory: bool = ...,
        fused: bool | None = ...,
        progress: bool = ...,
        **options: Option,
    ) -> dict[str, list[Explanation]]: ...

    @overload
    def explain_all(
        self,
        texts: Text | Messages,
        methods: Sequence[str] | None = ...,
        *,
        target: TargetSpecs = ...,
        foil: TargetSpecs = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        batch_size: int = ...,
        low_memory: bool = ...,
        fused: bool | None = ...,
        progress: bool = ...,
        **options: Option,
    ) -> dict[str, Explanation]: ...

    def explain_all(
        self,
        texts: Text | Messages | Texts | list[Messages],
        methods: Sequence[str] | None = None,
        *,
        target: TargetSpecs = None,
        foil: TargetSpecs = None,
        documents: Documents | Sequence[Documents] | None = None,
        batch_size: int = 32,
        low_memory: bool = False,
        fused: bool | None = None,
        progress: bool = True,
        **options: Option,
    ) -> dict[str, Explanation] | dict[str, list[Explanation]]:
        """Explain with several methods; {method: result}. By default, all that fit the model and read the text once.

        An option is passed to every method that has it. The other keywords are those of `explain`.
        """
        method_configs = configs_for(self.inner, methods, options)
        run_options = RunOptions(batch_size, low_memory, progress, fused)
        return self.explain_configs(
            texts, method_configs, target=target, foil=foil, documents=documents, run_options=run_options
        )

    @overload
    def explain_configs(
        self,
        texts: Texts | list[Messages],
        method_configs: Mapping[str, MethodConfig],
        *,
        target: TargetSpecs = ...,
        foil: TargetSpecs = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        run_options: RunOptions = ...,
    ) -> dict[str, list[Explanation]]: ...

    @overload
    def explain_configs(
        self,
        texts: Text | Messages,
        method_configs: Mapping[str, MethodConfig],
        *,
        target: TargetSpecs = ...,
        foil: TargetSpecs = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        run_options: RunOptions = ...,
    ) -> dict[str, Explanation]: ...

    def explain_configs(
        self,
        texts: Text | Messages | Texts | list[Messages],
        method_configs: Mapping[str, MethodConfig],
        *,
        target: TargetSpecs = None,
        foil: TargetSpecs = None,
        documents: Documents | Sequence[Documents] | None = None,
        run_options: RunOptions = DEFAULT_RUN_OPTIONS,
    ) -> dict[str, Explanation] | dict[str, list[Explanation]]:
        """Explain with methods whose options differ, under names of your own; {name: result}."""
        listed, single = texts_of(texts)
        tokenized_texts = attach_documents(self.encode(listed), documents_for(listed, single, documents))
        results = self.explain_rows(tokenized_texts, method_configs, target=target, foil=foil, run_options=run_options)
        if single:
            return ExplanationDict({name: result[0] for name, result in results.items()})
        return ExplanationDict({name: ExplanationList(result) for name, result in results.items()})

    def explain_rows(
        self,
        tokenized_texts: Sequence[TokenizedText],
        method_configs: Mapping[str, MethodConfig],
        *,
        target: TargetSpecs = None,
        foil: TargetSpecs = None,
        run_options: RunOptions = DEFAULT_RUN_OPTIONS,
    ) -> dict[str, list[Explanation]]:
        """The same for token rows, such as windows of a long text."""
        return explain_requests(
            self, resolve_requests(self.task, tokenized_texts, target, foil), method_configs, run_options
        )

    def generate(self, prompt: Prompt, *, seed: int | None = None, **settings: Any) -> Generated:
        """Let the model write an answer to a prompt; call `.explain()` on the result to see why.

        `settings` are those of transformers' `generate`, such as max_new_tokens (60 by default, and never more than
        the model can read) or do_sample. With a `seed`, sampling gives the same answer again.
        """
        texts, single = texts_of(prompt)
        if not single:
            raise RefusedValue(f"one prompt at a time: found a list of {len(texts)}")
        return generate(self, self.encode(texts)[0], seed, settings)

    @overload
    def explain_answer(
        self, prompts: Prompts, answers: Sequence[AnswerLike], method: str = ..., **settings: Any
    ) -> list[ExplainedAnswer]: ...

    @overload
    def explain_answer(
        self, prompts: Prompt, answers: AnswerLike, method: str = ..., **settings: Any
    ) -> ExplainedAnswer: ...

    def explain_answer(
        self,
        prompts: Prompt | Prompts,
        answers: AnswerLike | Sequence[AnswerLike],
        method: str = DEFAULT_METHOD,
        *,
        quantity: Quantity = DEFAULT_QUANTITY,
        through: bool | Form = False,
        documents: Documents | Sequence[Documents] | None = None,
        rules: RuleTable | None = None,
        batch_size: int = 8,
        low_memory: bool = False,
        fused: bool | None = None,
        progress: bool = True,
        **options: Option,
    ) -> ExplainedAnswer | list[ExplainedAnswer]:
        """Explain every token of an answer by all tokens before it; lists in, a list out.

        An answer is a text, what `generate` returned, or a tuple of token ids. One forward pass reads prompt and
        answer; each token of the answer takes a backward pass. `quantity` says what is explained for each token: its
        "logit", or with "log_probability" its logit minus the mean of all logits, weighted by their probabilities,
        which has the gradient of the log-probability. With `through`, the share of the answer's own tokens is passed
        on to the prompt, as by `ExplainedAnswer.through`; True means its form "exact". `documents` names sources in
        the prompt, for `by_document`: a list of texts that occur in it, a dict that also names them, spans, a function
        that divides a text into spans, or "sentences", "paragraphs" or "turns"; for a list of prompts, a list of
        these. The other keywords are those of `explain`.
        """
        check_quantity(quantity)
        texts, single = texts_of(prompts)
        listed: Any = [answers] if single else list(answers)  # type: ignore[arg-type]
        if len(listed) != len(texts):
            raise RefusedValue(f"{len(listed)} answers for {len(texts)} prompts")
        tokenized_texts = attach_documents(self.encode(texts), documents_for(texts, single, documents))
        chosen = find_method(method)
        method_config = MethodConfig.for_model(chosen, options, self.inner, rules)
        against_all = quantity == "log_probability"
        asked = [
            answer_request(self.task, tokenized_text, one, against_all)
            for tokenized_text, one in zip(tokenized_texts, listed, strict=True)
        ]
        run_options = RunOptions(batch_size, low_memory, progress, fused)
        found = explain_in_batches(self, asked, {chosen.name: method_config}, run_options, assemble_answer)[chosen.name]
        if through:
            found = [one.through("exact" if through is True else through) for one in found]
        return found[0] if single else found

    def encode(self, texts: Sequence[Text]) -> list[TokenizedText]:
        """The texts as token rows, cut to what the model takes."""
        return self.task.encode(texts)

    def collate(self, tokenized_texts: Sequence[TokenizedText], device: torch.device | str = "cpu") -> Batch:
        """Token rows as a padded batch."""
        return collate(tokenized_texts, self.tokenizer, device, padding_id(self.inner), embedding_rows(self.inner))

    def batches(
        self, tokenized_texts: Sequence[TokenizedText], batch_size: int, kinds: Sequence[Hashable]
    ) -> list[list[int]]:
        """Row numbers, texts of similar length together; questions of different kinds are kept apart."""
        if not is_whole(batch_size) or batch_size < 1:
            raise RefusedValue(f"batch_size is a positive whole number, found {batch_size!r}")
        if len(set(map(len, tokenized_texts))) > 1 and behavior_of(self.inner).equal_lengths:
            batch_size = 1
        order = sorted(range(len(tokenized_texts)), key=lambda i: len(tokenized_texts[i]))
        groups = [[i for i in order if kinds[i] == kind] for kind in dict.fromkeys(kinds)]
        return [group[i : i + batch_size] for group in groups for i in range(0, len(group), batch_size)]
