"""The user's object: texts in, explanations out, batched by length, with passes shared between methods."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from tokenlight import anatomy
from tokenlight.batch import Batch, Row, Text, collate, encode
from tokenlight.explanation import Explanation, keep_precision, library_versions, trim_map
from tokenlight.methods import METHODS, Attribution, find_method
from tokenlight.naming import Names, TargetLike
from tokenlight.progress import track
from tokenlight.record import Recording
from tokenlight.rules import RuleTable
from tokenlight.run import Job, run_jobs
from tokenlight.targets import Target, Wanted
from tokenlight.twin import Twin, unwrap

DEFAULT_METHOD = "attn_lrp"
AUTO_CLASSES = {
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM",
}


class Explainer:
    """Explains what a model says about texts. The model itself is never changed."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any):
        inner = unwrap(model)
        self.model = model
        self.tokenizer = tokenizer
        self.task = anatomy.task_of_class(type(inner).__name__)
        self._names = Names(self.task, inner, tokenizer)

    def explain(
        self,
        texts: Text | Sequence[Text],
        method: str = DEFAULT_METHOD,
        *,
        target: TargetLike | Sequence[TargetLike] = None,
        foil: TargetLike | Sequence[TargetLike] = None,
        rules: RuleTable | None = None,
        batch_size: int = 32,
        progress: bool = True,
        **options: Any,
    ) -> Any:
        """Explain a text, or a list of texts; a list in gives a list out, in the same order.

        A text is a string, or a pair of strings as a tuple. `target` defaults to what the model predicts; it is a
        label, a token, an index, a function of the model output, or a list with one of these for each text. With a
        `foil`, the explained number is target minus foil. `rules` is a table in place of a relevance method's own.
        Further keywords are the method's options.
        """
        chosen = find_method(method)
        return self._run(texts, [Job(chosen, options, rules)], target, foil, batch_size, progress)[chosen.name]

    def explain_all(
        self,
        texts: Text | Sequence[Text],
        methods: Sequence[str] | None = None,
        *,
        target: TargetLike | Sequence[TargetLike] = None,
        foil: TargetLike | Sequence[TargetLike] = None,
        batch_size: int = 32,
        progress: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        """Explain with several methods (default: all that read one shared pass); {method: result of explain}.

        An option goes to every method that has it.
        """
        if isinstance(methods, str):
            raise TypeError(f"methods is a list of names; for one method call explain(..., method={methods!r})")
        names = [m.name for m in METHODS.values() if not m.asks_model] if methods is None else list(methods)
        chosen = [find_method(name) for name in names]
        if not chosen:
            raise ValueError("name at least one method")
        for name in options:
            if not any(name in entry.options for entry in chosen):
                raise TypeError(f"none of the methods {', '.join(e.name for e in chosen)} has an option '{name}'")
        jobs = [Job(entry, {n: v for n, v in options.items() if n in entry.options}) for entry in chosen]
        return self._run(texts, jobs, target, foil, batch_size, progress)

    def _run(
        self, texts: Any, jobs: list[Job], target: Any, foil: Any, batch_size: int, progress: bool
    ) -> dict[str, Any]:
        many = not isinstance(texts, str | tuple)
        listed = check_texts(texts)
        rows = self._encode(listed)
        targets, foils = spread(target, len(rows), "target"), spread(foil, len(rows), "foil")
        function = shared_function(targets, foils)
        wanted = [
            self._names.want_any(row) if function else self._names.want(row, t, f)
            for row, t, f in zip(rows, targets, foils, strict=True)
        ]
        twin = Twin(self.model)
        results: dict[str, list[Any]] = {job.method.name: [None] * len(rows) for job in jobs}
        batches = self._batches(rows, batch_size, [foil is not None for foil in foils])
        for indices in track(batches, "explaining", map(len, batches), progress):
            some = [rows[i] for i in indices]
            goal = Target(self.task, tuple(wanted[i] for i in indices), function)
            recording, attributions = run_jobs(twin, self._collate(some, twin.device), goal, jobs)
            for job, attribution in zip(jobs, attributions, strict=True):
                for place, i in enumerate(indices):
                    results[job.method.name][i] = self._explanation(
                        rows[i], wanted[i], job, recording, attribution, place, targets[i] is not None
                    )
        return results if many else {name: result[0] for name, result in results.items()}

    def _encode(self, texts: list[Text]) -> list[Row]:
        limit = anatomy.max_length(self._names.model, self.tokenizer.model_max_length)
        cut = "only_second" if self.task == "question-answering" else "longest_first"
        return encode(self.tokenizer, texts, limit, cut)

    def _collate(self, rows: list[Row], device: torch.device) -> Batch:
        return collate(rows, self.tokenizer, device, self._names.model.config.get_text_config().pad_token_id)

    def _batches(self, rows: list[Row], batch_size: int, foiled: list[bool]) -> list[list[int]]:
        """Row numbers, texts of similar length together; those with a foil and those without are kept apart."""
        if batch_size < 1:
            raise ValueError(f"batch_size is a positive number, found {batch_size}")
        model = self._names.model
        if anatomy.pools_last_token(model) and model.config.get_text_config().pad_token_id is None:
            batch_size = 1  # without a padding id such a head cannot tell where a text ends
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        groups = [[i for i in order if foiled[i] is side] for side in (False, True)]
        return [group[i : i + batch_size] for group in groups for i in range(0, len(group), batch_size)]

    def _explanation(
        self,
        row: Row,
        wanted: Wanted,
        job: Job,
        recording: Recording,
        attribution: Attribution,
        place: int,
        targeted: bool,
    ) -> Explanation:
        target, foil = self._names.describe(row, recording.choices, place)
        prediction, probability = self._names.prediction(row, recording.output, wanted, place)
        notes = []
        if row.truncated:
            notes.append(f"the text was too long: its last {row.truncated} tokens were cut off")
        if targeted and not job.method.class_specific:
            notes.append(f"{job.method.name} does not depend on the target")
        scores = keep_precision(attribution.scores[place, : len(row)])
        if all(c.index is not None and c.foil is not None and c.index[place] == c.foil[place] for c in recording.choices):
            notes.append("the model predicts the foil itself: the explained difference is 0")
        elif not scores.any():
            notes.append(
                f"every score of {job.method.name} is 0 on this text: it found nothing that supports the target"
            )
        return Explanation(
            text=row.text,
            tokens=row.tokens,
            scores=scores,
            special=torch.tensor(row.special),
            segments=row.segments,
            spans=row.spans,
            score=float(recording.score[place]),
            target=target,
            foil=foil,
            prediction=prediction,
            probability=probability,
            method=job.method.name,
            options={**job.method.options, **job.options},
            task=self.task,
            model=self._names.model.config._name_or_path or type(self._names.model).__name__,
            signed=job.method.signed,
            position=wanted.position,
            extras={name: float(value[place]) for name, value in attribution.extras.items()},
            maps={name: trim_map(name, value[place], len(row)) for name, value in attribution.maps.items()},
            notes=tuple(notes),
            versions=library_versions(),
        )


def load(model: str | Path | None = None, *, task: str | None = None, **settings: Any) -> Explainer:
    """An explainer for a checkpoint by name or path; without one, for the sentiment model inside the package.

    `task` is read from the checkpoint's config if not given; `settings` go to `from_pretrained` (dtype, device_map).
    """
    if model is None:
        from tokenlight.embedded import load_embedded

        return Explainer(*load_embedded())
    if task is None:
        architectures = AutoConfig.from_pretrained(model).architectures or ["a model without a head"]
        task = anatomy.task_of_class(architectures[0])
    if task not in AUTO_CLASSES:
        raise ValueError(f"there is no task {task!r}; tasks: {', '.join(AUTO_CLASSES)}")
    auto = getattr(transformers, AUTO_CLASSES[task])
    return Explainer(auto.from_pretrained(model, **settings).eval(), AutoTokenizer.from_pretrained(model))


def attribute(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    token_type_ids: Tensor | None = None,
    *,
    method: str,
    target: Any = None,
    foil: Any = None,
    rules: RuleTable | None = None,
    **options: Any,
) -> Tensor:
    """Scores [batch, token] for those who tokenise themselves.

    `target` and `foil`: an index for all rows, one for each row, or for `target` a function of the model output.
    Heads that answer for every token take (position, index); extractive answers (first token, last token).
    """
    job = Job(find_method(method), options, rules)
    twin = Twin(model)
    batch = raw_batch(input_ids, attention_mask, token_type_ids, twin.model).map(lambda t: t.to(twin.device))
    targets, foils = (spread(plain(x), len(input_ids), n) for x, n in ((target, "target"), (foil, "foil")))
    function = shared_function(targets, foils)
    wanted = [Wanted() if function else raw_wanted(twin.task, t, f) for t, f in zip(targets, foils, strict=True)]
    _, (attribution,) = run_jobs(twin, batch, Target(twin.task, tuple(wanted), function), [job])
    return attribution.scores


def raw_batch(ids: Tensor, mask: Tensor | None, types: Tensor | None, model: PreTrainedModel) -> Batch:
    for name, tensor in {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}.items():
        if tensor is not None and (not isinstance(tensor, Tensor) or tensor.ndim != 2 or tensor.shape != ids.shape):
            found = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{name} must be a tensor [batch, token] like input_ids; found {found}")
    if ids.numel() == 0:
        raise ValueError("input_ids is empty")
    mask = torch.ones_like(ids) if mask is None else mask.to(ids.dtype)
    if not mask.any(1).all():
        raise ValueError("attention_mask hides every token of a row")
    batch = Batch(ids, mask, types, pad_id=model.config.get_text_config().pad_token_id)
    if mask[:, 0].all():
        return batch
    if type(model).__name__.endswith("ForSequenceClassification") and not anatomy.pools_last_token(model):
        raise ValueError(f"{type(model).__name__} reads the first token: pad on the right, not on the left")
    return anatomy.fix_positions(model, batch)  # padding on the left would shift them


def raw_wanted(task: str, target: Any, foil: Any) -> Wanted:
    if task == "question-answering":
        for span in (target, foil):
            if span is not None and not (isinstance(span, tuple) and len(span) == 2):
                raise ValueError(f"an answer is (first token, last token), found {span!r}")
            if span is not None and span[0] > span[1]:
                raise ValueError(f"an answer goes from its first to its last token; found {span}")
        return Wanted(span=target, foil_span=foil)
    if task in ("token-classification", "fill-mask"):
        if not isinstance(target, tuple) or len(target) != 2:
            raise ValueError(f"this {task} model answers for every token: target=(position, index); found {target!r}")
        return Wanted(index=target[1], position=target[0], foil=foil)
    return Wanted(index=target, foil=foil)


def plain(target: Any) -> Any:
    return target.tolist() if isinstance(target, Tensor) else target


def check_texts(texts: Any) -> list[Text]:
    if isinstance(texts, str | tuple):
        return [texts]
    with suppress(TypeError):
        texts = list(texts)
    if not isinstance(texts, list):
        raise TypeError(f"expected a text, a pair as a tuple, or a list of these; found {type(texts).__name__}")
    if not texts:
        raise ValueError("expected at least one text, found an empty list")
    return texts


def spread(value: Any, count: int, name: str) -> list[Any]:
    """One value for each text; a list has them already."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} is a list of {len(value)} for {count} texts")
    return value


def shared_function(targets: Sequence[Any], foils: Sequence[Any]) -> Any:
    """The caller's own target function, which must be the same for all texts."""
    functions = [target for target in targets if callable(target)]
    if not functions:
        return None
    if any(target is not functions[0] for target in targets) or any(foil is not None for foil in foils):
        raise ValueError("a target function is given for all texts at once, and takes the difference to a foil itself")
    return functions[0]


__all__ = ["DEFAULT_METHOD", "Explainer", "attribute", "load"]
