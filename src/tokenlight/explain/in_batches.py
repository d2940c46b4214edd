"""Many texts: similar lengths together, every job on each batch, results in the order of the texts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from tokenlight.common.progress import track
from tokenlight.explain.memory import refuse_too_large, shape_of
from tokenlight.explain.plan import plan_passes
from tokenlight.explain.running import RunOptions, run_configs
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import Answer
from tokenlight.tasks.request import Request
from tokenlight.tasks.targets import Target
from tokenlight.text.batch import with_units

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


Result = TypeVar("Result")
# Makes a result of what was found for one text: its place in the batch comes last.
Assemble = Callable[["Explainer", Request, MethodConfig, Answer, Attribution, int], Result]


def explain_in_batches(
    explainer: "Explainer",
    requests: Sequence[Request],
    method_configs: Mapping[str, MethodConfig],
    run_options: RunOptions,
    assemble: Assemble[Result],
) -> dict[str, list[Result]]:
    """For every job its results for all texts."""
    found: dict[str, dict[int, Result]] = {name: {} for name in method_configs}
    with (
        nullcontext(run_options.instrumented)
        if run_options.instrumented
        else borrowed_model(explainer.model) as instrumented
    ):
        kinds = [one.kind for one in requests]
        batches = explainer.batches([one.read for one in requests], run_options.batch_size, kinds)
        for indices in track(batches, "explaining", map(len, batches), run_options.progress):
            asked = [requests[i] for i in indices]
            answer, attributions = explain_batch(
                instrumented, explainer, asked, list(method_configs.values()), run_options
            )
            for (name, method_config), attribution in zip(method_configs.items(), attributions, strict=True):
                for place, (i, one) in enumerate(zip(indices, asked, strict=True)):
                    found[name][i] = assemble(explainer, one, method_config, answer, attribution, place)
    return {name: [results[i] for i in range(len(requests))] for name, results in found.items()}


def explain_batch(
    instrumented: InstrumentedModel,
    explainer: "Explainer",
    asked: Sequence[Request],
    method_configs: Sequence[MethodConfig],
    run_options: RunOptions,
) -> tuple[Answer, list[Attribution]]:
    """Texts of one kind, together."""
    target = Target(explainer.task, tuple(one.resolved for one in asked), asked[0].function)
    batch = explainer.collate([one.read for one in asked], instrumented.device)
    kinds = {
        method_config.full_options["units"]
        for method_config in method_configs
        if "units" in method_config.method.options
    }
    kinds |= {"tokens" for method_config in method_configs if method_config.contexts}
    batch = with_units(batch, [one.tokenized_text for one in asked], kinds)
    batch = run_options.prepare(batch) if run_options.prepare else batch
    plan = plan_passes(target, method_configs)
    refuse_too_large(
        shape_of(instrumented), plan, batch.input_ids.shape, run_options.record_options, instrumented.device
    )
    each = asked[0].resolved.each
    return run_configs(
        instrumented, batch, plan, memory=run_options.memory, record_options=run_options.record_options, each=each
    )
