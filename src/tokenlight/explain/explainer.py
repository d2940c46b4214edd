"""The user's object: texts in, explanations out, batched by length, with passes shared between methods."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from tokenlight.explain.footprint import Shape
from tokenlight.explain.free_memory import refuse_too_large
from tokenlight.explain.remarks import input_notes, is_signed, result_notes
from tokenlight.explain.running import Job, run_jobs
from tokenlight.foundation.progress import track
from tokenlight.masks.choosing import choose_heads, has_heads
from tokenlight.methods import METHODS, Attribution, find_method
from tokenlight.model import pooling
from tokenlight.model.copying import unwrap
from tokenlight.model.twin import Twin
from tokenlight.record.pass_memory import PassMemory
from tokenlight.record.recording import Recording, Saving
from tokenlight.results.explanation import Explanation, keep_precision, library_versions, trim_map
from tokenlight.rules.mode import RuleTable
from tokenlight.tasks import find_task, task_of_class
from tokenlight.tasks.targets import Target, TargetLike, Wanted, chosen_indices, shared_function, spread
from tokenlight.tasks.task import Task
from tokenlight.text.batches import Batch, collate
from tokenlight.text.rows import Row, Text

DEFAULT_METHOD = "attn_lrp"


class Explainer:
    """Explains what a model says about texts. The model itself is never changed."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, task: type[Task] | None = None):
        inner = unwrap(model)
        self.model = model
        self.tokenizer = tokenizer
        self.task = (task or task_of_class(type(inner).__name__))(inner, tokenizer)

    def explain(
        self,
        texts: Text | Sequence[Text],
        method: str = DEFAULT_METHOD,
        *,
        target: TargetLike | Sequence[TargetLike] = None,
        foil: TargetLike | Sequence[TargetLike] = None,
        rules: RuleTable | None = None,
        batch_size: int = 32,
        low_memory: bool = False,
        progress: bool = True,
        **options: Any,
    ) -> Any:
        """Explain a text, or a list of texts; a list in gives a list out, in the same order.

        A text is a string, or a pair of strings as a tuple. `target` defaults to what the model predicts; it is a
        label, a token, an index, a function of the model output, or a list with one of these for each text. With a
        `foil`, the explained number is target minus foil. `rules` is a table in place of a relevance method's own.
        With `low_memory`, blocks are computed again in the backward pass: less memory, more time, the same scores.
        Further keywords are the method's options.
        """
        chosen = find_method(method)
        jobs = {chosen.name: Job.for_model(chosen, options, self.task.model, rules)}
        how = {"batch_size": batch_size, "low_memory": low_memory, "progress": progress}
        return self.explain_jobs(texts, jobs, target=target, foil=foil, **how)[chosen.name]

    def explain_all(
        self,
        texts: Text | Sequence[Text],
        methods: Sequence[str] | None = None,
        *,
        target: TargetLike | Sequence[TargetLike] = None,
        foil: TargetLike | Sequence[TargetLike] = None,
        batch_size: int = 32,
        low_memory: bool = False,
        progress: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        """Explain with several methods (default: all that fit the model and read recorded passes); {method: result}.

        An option goes to every method that has it.
        """
        if isinstance(methods, str):
            raise TypeError(f"methods is a list of names; for one method call explain(..., method={methods!r})")
        inner = self.task.model
        known = {name: choose_heads(value, inner) if name == "heads" else value for name, value in options.items()}
        fitting = [entry for entry in METHODS.values() if not entry.asks_model and entry.fits(inner)]
        if "heads" not in options:
            fitting = [entry for entry in fitting if has_heads(entry.options.get("heads"), inner)]
        chosen = fitting if methods is None else [find_method(name) for name in methods]
        if not chosen:
            raise ValueError("name at least one method")
        for name in options:
            if not any(name in entry.options for entry in chosen):
                raise TypeError(f"none of the methods {', '.join(e.name for e in chosen)} has an option '{name}'")
        jobs = {
            entry.name: Job.for_model(entry, {n: v for n, v in known.items() if n in entry.options}, inner)
            for entry in chosen
        }
        how = {"batch_size": batch_size, "low_memory": low_memory, "progress": progress}
        return self.explain_jobs(texts, jobs, target=target, foil=foil, **how)

    def explain_jobs(
        self,
        texts: Text | Sequence[Text],
        jobs: Mapping[str, Job],
        *,
        target: TargetLike | Sequence[TargetLike] = None,
        foil: TargetLike | Sequence[TargetLike] = None,
        batch_size: int = 32,
        low_memory: bool = False,
        progress: bool = True,
        prepare: Callable[[Batch], Batch] | None = None,
        memory: PassMemory | None = None,
    ) -> dict[str, Any]:
        """Explain with methods whose options differ, under names of your own; {name: result}.

        `prepare` changes what the explained passes see, as the protocols of some papers do. `memory` is for those who
        ask about one text again and again: passes that nothing has changed for are not run twice.
        """
        rows = self.encode(check_texts(texts))
        how = {"batch_size": batch_size, "low_memory": low_memory, "progress": progress, "prepare": prepare}
        results = self.explain_rows(rows, jobs, target=target, foil=foil, **how, memory=memory)
        return {name: result[0] for name, result in results.items()} if isinstance(texts, str | tuple) else results

    def explain_rows(
        self,
        rows: Sequence[Row],
        jobs: Mapping[str, Job],
        *,
        target: TargetLike | Sequence[TargetLike] = None,
        foil: TargetLike | Sequence[TargetLike] = None,
        batch_size: int = 32,
        low_memory: bool = False,
        progress: bool = True,
        prepare: Callable[[Batch], Batch] | None = None,
        memory: PassMemory | None = None,
        twin: Twin | None = None,
    ) -> dict[str, list[Explanation]]:
        """The same for token rows, such as windows of a long text; `twin`, if there is one, is of this model."""
        targets, foils = spread(target, len(rows), "target"), spread(foil, len(rows), "foil")
        function = shared_function(targets, foils)
        wanted = [
            self.task.want_any(row) if function else self.task.want(row, t, f)
            for row, t, f in zip(rows, targets, foils, strict=True)
        ]
        twin, saving = twin or Twin(self.model), Saving(by_block=low_memory, last_logits=True)
        shape = Shape.of(twin.model)
        results: dict[str, list[Any]] = {name: [None] * len(rows) for name in jobs}
        batches = self.batches(rows, batch_size, [foil is not None for foil in foils])
        for indices in track(batches, "explaining", map(len, batches), progress):
            goal = Target(self.task, tuple(wanted[i] for i in indices), function)
            batch = self.collate([rows[i] for i in indices], twin.device)
            batch = prepare(batch) if prepare else batch
            refuse_too_large(shape, list(jobs.values()), goal, batch.input_ids.shape, saving, twin.device)
            recording, attributions = run_jobs(twin, batch, goal, list(jobs.values()), memory, saving=saving)
            for (name, job), attribution in zip(jobs.items(), attributions, strict=True):
                for place, i in enumerate(indices):
                    results[name][i] = self._explanation(
                        rows[i], wanted[i], job, recording, attribution, place, (targets[i], foils[i]) != (None, None)
                    )
        return results

    def encode(self, texts: Sequence[Text]) -> list[Row]:
        """The texts as token rows, cut to what the model takes."""
        return self.task.encode(texts)

    def collate(self, rows: Sequence[Row], device: torch.device | str = "cpu") -> Batch:
        """Token rows as a padded batch."""
        return collate(rows, self.tokenizer, device, self.task.model.config.get_text_config().pad_token_id)

    def batches(self, rows: Sequence[Row], batch_size: int, foiled: list[bool]) -> list[list[int]]:
        """Row numbers, texts of similar length together; those with a foil and those without are kept apart."""
        if batch_size < 1:
            raise ValueError(f"batch_size is a positive number, found {batch_size}")
        if pooling.needs_equal_lengths(self.task.model):
            batch_size = 1
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
        target, foil = self.task.describe(row, recording.choices, place)
        prediction, probability = self.task.prediction(row, recording.output, wanted, place)
        scores = keep_precision(attribution.scores[place, : len(row)])
        extras = {name: float(value[place]) for name, value in attribution.extras.items()}
        score = float(recording.score[place])
        notes = [*input_notes(self.task, row, job, targeted), *result_notes(job, score, scores, extras)]
        indices, foil_indices = chosen_indices(recording.choices, place)
        if indices and indices == foil_indices:
            notes.append("the model predicts the foil itself: the explained difference is 0")
        explanation = Explanation(
            text=row.text,
            tokens=row.tokens,
            scores=scores,
            special=torch.tensor(row.special),
            segments=row.segments,
            spans=row.spans,
            score=score,
            target=target,
            foil=foil,
            prediction=prediction,
            probability=probability,
            method=job.method.name,
            options=job.described_options,
            task=self.task.name,
            model=self.task.model.config.name_or_path or type(self.task.model).__name__,
            signed=is_signed(job, self.task, foil),
            position=wanted.position,
            indices=indices,
            foil_indices=foil_indices,
            extras=extras,
            maps={name: trim_map(name, value[place], len(row)) for name, value in attribution.maps.items()},
            notes=tuple(notes),
            versions=library_versions(),
        )
        object.__setattr__(explanation, "explainer", self)  # for evaluate(); not part of the result
        return explanation


def load(model: str | Path | None = None, *, task: str | None = None, **settings: Any) -> Explainer:
    """An explainer for a checkpoint by name or path; without one, for the sentiment model inside the package.

    `task` is read from the checkpoint's config if not given; `settings` go to `from_pretrained` (dtype, device_map).
    """
    if model is None:
        from tokenlight.embedded import load_embedded

        return Explainer(*load_embedded())
    if task is None:
        architectures = AutoConfig.from_pretrained(model).architectures or ["a model without a head"]
        chosen = task_of_class(architectures[0])
    else:
        chosen = find_task(task)
    auto = getattr(transformers, chosen.auto_class)
    return Explainer(auto.from_pretrained(model, **settings).eval(), AutoTokenizer.from_pretrained(model))


def check_texts(texts: Any) -> list[Text]:
    if isinstance(texts, str | tuple):
        return [texts]
    if not isinstance(texts, bytes | Mapping):
        with suppress(TypeError):
            texts = list(texts)
    if not isinstance(texts, list):
        raise TypeError(f"expected a text, a pair as a tuple, or a list of these; found {type(texts).__name__}")
    if not texts:
        raise ValueError("expected at least one text, found an empty list")
    return texts
