"""The Explainer: texts in, explanations out, by encode → resolve → plan → execute → assemble."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import DEFAULT_QUANTITY, Quantity, check_quantity
from tokenlight.common.progress import track
from tokenlight.explain.assemble import Assemble, assemble_answer, assemble_explanation, subtract_foils
from tokenlight.explain.batches import collate_requests, collate_texts, group_by_length
from tokenlight.explain.describe import describe_in_a_line, describe_in_html
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.generate import AnswerLike, Generated, generate_ids
from tokenlight.explain.memory import refuse_too_large, shape_of
from tokenlight.explain.options import DEFAULT_RUN_OPTIONS, NO_RESOURCES, Resources, RunOptions, split_options
from tokenlight.explain.plan import plan_passes
from tokenlight.explain.resolve import answer_request, resolve_requests
from tokenlight.methods import find_method
from tokenlight.methods.config import MethodConfig, Option, configs_for
from tokenlight.model.private_copy import unwrap
from tokenlight.results.answer_propagation import Form
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation, ExplanationDict, ExplanationList
from tokenlight.rules.mode import RuleTable
from tokenlight.tasks import task_of_class
from tokenlight.tasks.request import Request
from tokenlight.tasks.targets import BatchTarget, TargetSpecs
from tokenlight.tasks.task import Task
from tokenlight.text.batch import Batch
from tokenlight.text.documents import Documents, attach_documents, documents_for
from tokenlight.text.tokenize import Messages, Prompt, Prompts, texts_of
from tokenlight.text.tokenized_text import Text, Texts, TokenizedText

Result = TypeVar("Result")
TEXTS_AT_ONCE, ANSWERS_AT_ONCE = 32, 8  # default batch sizes
DEFAULT_METHOD = "attn_lrp"


class Explainer:
    """Explains the outputs of a model. The model itself is never changed."""

    model: PreTrainedModel  # as it was given
    tokenizer: Any  # the types that transformers declares for tokenizers are incomplete
    task: Task

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: type[Task] | None = None
    ) -> None:
        inner = unwrap(model)
        self.model = model
        self.tokenizer = tokenizer
        self.task = (task or task_of_class(type(inner).__name__))(inner, tokenizer)
        _ = self.task.labels  # refuses label names that do not fit the model

    def __repr__(self) -> str:
        return describe_in_a_line(self.task)

    def _repr_html_(self) -> str:
        return describe_in_html(self.task)

    @property
    def inner(self) -> PreTrainedModel:
        """The model without wrappers, such as an adapter's class."""
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
        **options: Option | None,
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
        **options: Option | None,
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
        **options: Option | None,
    ) -> Explanation | list[Explanation]:
        """Explain a text, or a list of texts; a list in gives a list out, in the same order.

        A text is a string, a pair of strings as a tuple, or a chat: a list of {"role": ..., "content": ...}. `target`
        defaults to the model's prediction; it is a label, a token, an index, a function of the model output, or a list
        with one of these for each text. With a `foil`, the explained number is target minus foil. `rules` replaces the
        rule table of a relevance method. `documents` names documents in the text, as for `explain_answer`.

        Further keywords are the method's options (docs/methods.md), and those of `RunOptions`: `batch_size`,
        `low_memory`, `fused` and `progress`. Methods that read recorded passes all have the option `contexts`: the
        text is explained that many times more, each time without half of its tokens, and the scores are means
        (docs/contexts.md).
        """
        run_options, method_options = split_options(options)
        chosen = find_method(method)
        method_configs = {chosen.name: MethodConfig.for_model(chosen, method_options, self.inner, rules)}
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
        **options: Option | None,
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
        **options: Option | None,
    ) -> dict[str, Explanation]: ...

    def explain_all(
        self,
        texts: Text | Messages | Texts | list[Messages],
        methods: Sequence[str] | None = None,
        *,
        target: TargetSpecs = None,
        foil: TargetSpecs = None,
        documents: Documents | Sequence[Documents] | None = None,
        **options: Option | None,
    ) -> dict[str, Explanation] | dict[str, list[Explanation]]:
        """Explain with several methods; {method: result}. By default, all that fit the model and read the text once.

        An option is passed to every method that has it. The other keywords are those of `explain`.
        """
        run_options, method_options = split_options(options)
        method_configs = configs_for(self.inner, methods, method_options)
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
        resources: Resources = ...,
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
        resources: Resources = ...,
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
        resources: Resources = NO_RESOURCES,
    ) -> dict[str, Explanation] | dict[str, list[Explanation]]:
        """Explain with methods whose options differ, under names of your own; {name: result}."""
        listed, single = texts_of(texts)
        tokenized_texts = attach_documents(self.encode(listed), documents_for(listed, single, documents))
        results = self.explain_tokenized(
            tokenized_texts, method_configs, target=target, foil=foil, run_options=run_options, resources=resources
        )
        if single:
            return ExplanationDict({name: result[0] for name, result in results.items()})
        return ExplanationDict({name: ExplanationList(result) for name, result in results.items()})

    def explain_tokenized(
        self,
        tokenized_texts: Sequence[TokenizedText],
        method_configs: Mapping[str, MethodConfig],
        *,
        target: TargetSpecs = None,
        foil: TargetSpecs = None,
        run_options: RunOptions = DEFAULT_RUN_OPTIONS,
        resources: Resources = NO_RESOURCES,
    ) -> dict[str, list[Explanation]]:
        """As `explain_configs`, for texts that are tokenized already, such as windows of a long text."""
        requests = resolve_requests(self.task, tokenized_texts, target, foil)
        return self.explain_requests(requests, method_configs, run_options, resources)

    def explain_requests(
        self,
        requests: Sequence[Request],
        method_configs: Mapping[str, MethodConfig],
        run_options: RunOptions = DEFAULT_RUN_OPTIONS,
        resources: Resources = NO_RESOURCES,
    ) -> dict[str, list[Explanation]]:
        """The explanations of each method, for texts whose targets are resolved already."""
        split = [request.split_foil(self.task) for request in requests]
        results = self.run_requests(
            [request for parts in split for request in parts],
            method_configs,
            run_options,
            resources,
            assemble_explanation,
        )
        return {
            name: [replace(e, explainer=self) for e in subtract_foils(explanations, map(len, split))]
            for name, explanations in results.items()
        }

    def run_requests(
        self,
        requests: Sequence[Request],
        method_configs: Mapping[str, MethodConfig],
        run_options: RunOptions,
        resources: Resources,
        assemble: Assemble[Result],
    ) -> dict[str, list[Result]]:
        """The results of each method, batch by batch: plan the passes, execute them, assemble the results."""
        results: dict[str, dict[int, Result]] = {name: {} for name in method_configs}
        with resources.instrument(self.model) as instrumented:
            batches = self.batches(
                [request.model_input for request in requests],
                run_options.batch_size or TEXTS_AT_ONCE,
                [request.kind for request in requests],
            )
            for indices in track(batches, "explaining", map(len, batches), run_options.progress):
                group = [requests[i] for i in indices]
                batch = collate_requests(self.task, group, method_configs.values(), instrumented.device)
                if resources.prepare is not None:
                    batch = resources.prepare(batch)
                target = BatchTarget(self.task, tuple(request.target for request in group))
                plan = plan_passes(target, list(method_configs.values()))
                record_options = run_options.record_options
                size = batch.input_ids.shape
                refuse_too_large(shape_of(instrumented), plan, size, record_options, instrumented.device)
                pass_output, attributions = execute_plan(
                    instrumented, batch, plan, pass_cache=resources.pass_cache, record_options=record_options
                )
                for (name, method_config), attribution in zip(method_configs.items(), attributions, strict=True):
                    for row, (i, request) in enumerate(zip(indices, group, strict=True)):
                        results[name][i] = assemble(self.task, request, method_config, pass_output, attribution, row)
        return {name: [of_method[i] for i in range(len(requests))] for name, of_method in results.items()}

    def generate(self, prompt: Prompt, *, seed: int | None = None, **settings: Any) -> Generated:
        """Let the model write an answer to a prompt; call `.explain()` on the result to see why.

        `settings` are those of transformers' `generate`, such as max_new_tokens (60 by default, and never more than
        the model can read) or do_sample. With a `seed`, sampling gives the same answer again.
        """
        texts, single = texts_of(prompt)
        if not single:
            raise RefusedValue(f"one prompt at a time: found a list of {len(texts)}")
        (tokenized_text,) = self.encode(texts)
        ids = generate_ids(self.model, self.task, tokenized_text, seed, settings)
        assert not isinstance(tokenized_text.text, tuple), "a pair is not continued"
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return Generated(tokenized_text.text, text, ids, self)

    @overload
    def explain_answer(
        self,
        prompts: Prompts,
        answers: Sequence[AnswerLike],
        method: str = ...,
        *,
        quantity: Quantity = ...,
        through: bool | Form = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        rules: RuleTable | None = ...,
        **options: Option | None,
    ) -> list[ExplainedAnswer]: ...

    @overload
    def explain_answer(
        self,
        prompts: Prompt,
        answers: AnswerLike,
        method: str = ...,
        *,
        quantity: Quantity = ...,
        through: bool | Form = ...,
        documents: Documents | Sequence[Documents] | None = ...,
        rules: RuleTable | None = ...,
        **options: Option | None,
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
        **options: Option | None,
    ) -> ExplainedAnswer | list[ExplainedAnswer]:
        """Explain every token of an answer by all tokens before it; lists in, a list out.

        An answer is a text, what `generate` returned, or a tuple of token ids. One forward pass reads prompt and
        answer; each token of the answer takes a backward pass. `quantity` says what is explained for each token: its
        "logit", or with "log_probability" its logit minus the mean of all logits, weighted by their probabilities,
        which has the gradient of the log-probability. With `through`, the share of the answer's own tokens is passed
        on to the prompt, as by `ExplainedAnswer.through`; True means its form "exact". `documents` names documents in
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
        run_options, method_options = split_options(options)
        method_config = MethodConfig.for_model(find_method(method), method_options, self.inner, rules)
        requests = [
            answer_request(self.task, tokenized_text, answer, quantity)
            for tokenized_text, answer in zip(tokenized_texts, listed, strict=True)
        ]
        if run_options.batch_size is None:
            run_options = replace(run_options, batch_size=ANSWERS_AT_ONCE)
        results = self.run_requests(requests, {method: method_config}, run_options, NO_RESOURCES, assemble_answer)
        explained = [replace(answer, explainer=self) for answer in results[method]]
        if through:
            explained = [answer.through("exact" if through is True else through) for answer in explained]
        return explained[0] if single else explained

    def encode(self, texts: Sequence[Text]) -> list[TokenizedText]:
        """The tokenized texts, truncated to the model's maximum length."""
        return self.task.encode(texts)

    def collate(self, tokenized_texts: Sequence[TokenizedText], device: torch.device | str = "cpu") -> Batch:
        """Tokenized texts as a padded batch."""
        return collate_texts(self.task, tokenized_texts, device)

    def batches(
        self, tokenized_texts: Sequence[TokenizedText], batch_size: int, kinds: Sequence[Hashable]
    ) -> list[list[int]]:
        """The indices of the texts of each batch: texts of similar length, and of one kind."""
        return group_by_length(self.task, tokenized_texts, batch_size, kinds)
