"""Methods and metrics with options, written as text: "mask_lrp:variant=released"."""

from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.heads.mask import HeadMask, HeadsLike, has_heads
from tokenlight.methods import METHODS, Method, find_method
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics import find_metric
from tokenlight.metrics.evaluate import Measure

DEFAULT_METHODS = (
    "attn_lrp",
    "attcat",
    "mask_lrp",
    "transformer_attribution",
    "generic_attention",
    "alti",
    "gradient_x_input",
    "raw_attention",
)
CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class MethodSpec:
    """A method with its options and a label.

    Methods with the same `run_of` are runs of one method that differ only in their random seed, such as random scores
    or random head masks: a table has one line for them, under that name, with the mean over the runs.
    """

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    run_of: str = ""

    @classmethod
    def parse(cls, spec: "str | MethodSpec") -> "MethodSpec":
        """Parse "attcat" or "mask_lrp:variant=released,empty=residual"; the names that papers use are accepted too."""
        if isinstance(spec, MethodSpec):
            return spec
        name, options = split_options(spec)
        entry = find_method(name)
        entry.check_options(options)
        return cls(label_with(entry.name, options), entry.name, options)

    @property
    def entry(self) -> Method:
        return find_method(self.name)

    @property
    def title(self) -> str:
        """The title in tables, as papers write it; a label that the caller chose is kept."""
        if self.label != label_with(self.name, self.options):
            return self.label
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.entry.title} ({options})" if options else self.entry.title

    @property
    def control(self) -> bool:
        return bool(self.entry.control)

    def method_config(self, model: PreTrainedModel, heads: HeadsLike = None, seed: int = 0) -> MethodConfig:
        """The method with its options for a model.

        `heads` applies if the method takes head masks and its options name none. `seed` applies if the method is random
        and its options name no seed; with different seeds, random scores of two models do not agree.
        """
        options = dict(self.options)
        if "seed" in self.entry.options:
            options.setdefault("seed", seed)
        if heads is not None and "heads" in self.entry.options:
            options.setdefault("heads", heads)
        return MethodConfig.for_model(self.entry, options, model)


def choose_methods(
    written: Sequence[str | MethodSpec] | None,
    model: PreTrainedModel,
    heads: HeadsLike = None,
    erasure: bool = True,
    random_runs: int = 1,
) -> list[MethodSpec]:
    """The methods that the caller named, or default methods that suit the model; controls come last.

    The control that draws random scores runs `random_runs` times, with the seeds 0, 1 ...
    """
    if isinstance(written, str):
        raise RefusedType(f"methods is a list of names, found {written!r}")
    names: Iterable[str | MethodSpec] = written or (n for n in DEFAULT_METHODS if is_ready(METHODS[n], model, heads))
    specs = [MethodSpec.parse(method) for method in names]
    if not [spec for spec in specs if not spec.control]:
        raise RefusedValue("name at least one method in addition to the controls")
    chosen = {spec.name for spec in specs}
    for name in controls(costly=erasure):
        if name not in chosen:
            has_runs = "seed" in METHODS[name].options and random_runs > 1
            specs += runs_of(name, random_runs) if has_runs else [MethodSpec(name, name)]
    labels = [spec.label for spec in specs] + sorted({spec.run_of for spec in specs if spec.run_of})
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise RefusedValue(f"{', '.join(repeated)} is named twice: give each MethodSpec a label of its own")
    return sorted(specs, key=lambda spec: spec.control)


def runs_of(name: str, runs: int) -> list[MethodSpec]:
    """Runs of one method with the seeds 0, 1 ..."""
    return [MethodSpec(f"{name}, run {seed + 1}", name, {"seed": seed}, run_of=name) for seed in range(runs)]


def controls(costly: bool) -> list[str]:
    """The names of the controls, which are never marked as best; with `costly`, also those that run the model often."""
    entries = [entry for entry in METHODS.values() if entry.control and (costly or not entry.runs_on_changed_texts)]
    return [entry.name for entry in sorted(entries, key=lambda entry: entry.runs_on_changed_texts)]


def is_ready(entry: Method, model: PreTrainedModel, heads: HeadsLike) -> bool:
    """Whether a method suits the model and has the head masks that it needs."""
    return entry.fits(model) and (heads is not None or has_heads(entry.options.get("heads"), model))


def parse_measure(measure: "str | Measure") -> Measure:
    """Parse "aopc", "pointing_game:k=1" or "aopc:units=sentences"."""
    if isinstance(measure, Measure):
        return measure
    name, options = split_options(measure)
    entry = find_metric(name)
    label, units = label_with(entry.name, options), options.pop("units", None)
    return Measure(entry.name, options=options, units=units, name=label)


def split_options(spec: str) -> tuple[str, dict[str, Any]]:
    """Split "name:option=value,option=value" into the name and the options."""
    name, _, listed = spec.partition(":")
    options = {}
    for option in listed.split(",") if listed else ():
        key, equals, value = option.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise RefusedValue(f"options are written name:option=value,option=value; found {spec!r}")
        options[key.strip()] = read_value(value.strip())
    return name.strip(), options


def read_value(text: str) -> Any:
    """A number, True, False or None if the text spells one, otherwise the text itself."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, int | float | str) else text


def label_with(name: str, options: Mapping[str, Any]) -> str:
    """ "name:option=value,option=value"; the inverse of `split_options`."""
    return name + (":" + ",".join(f"{key}={value}" for key, value in options.items()) if options else "")


def describe_config(method_config: MethodConfig) -> dict[str, Any]:
    """All options of a method as JSON values, head masks as lists of heads; stored runs are compared by them."""
    contexts = {} if method_config.contexts is None else method_config.contexts.described
    plain = {name: plain_value(value) for name, value in {**method_config.full_options, **contexts}.items()}
    return {"name": method_config.method.name, "options": plain}


def plain_value(value: Any) -> Any:
    if isinstance(value, HeadMask):
        return [group.tolist() for group in value.groups]
    if isinstance(value, tuple):
        return [plain_value(element) for element in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
