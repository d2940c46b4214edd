"""Which options and which heads make Mask-LRP faithful? AOPC of mask_lrp under many masks, on one model.

python -m studies.mask_lrp_defaults --small
python -m studies.mask_lrp_defaults --data PATH/TO/SST-2/dev.tsv
python -m studies.mask_lrp_defaults --model PATH --data PATH/TO/SST-2/dev.tsv --count PATH/TO/SST-2/train.tsv
python -m studies.mask_lrp_defaults --data PATH/TO/IMDB/test.tsv --other-count PATH/TO/IMDB/train.tsv --longest 110 \
    --setting "all heads" --setting "paper's thresholds, empty" --setting "other data"

Heads are counted on the texts of `--count` (parsed by spaCy); without it, the counts that come with the model are used.
`--other-count` adds masks from another data set. `--calibrate N` adds a mask calibrated on N texts of `--count`.
`--setting` measures only lines whose name contains it, and the lines that they are compared with.
AOPC replaces top tokens by PAD in steps of 10 % of the words; higher is better. Where a classifier finds the end of a
text by its padding, and in language models, whose predicted next token is explained, it deletes them. Differences are
paired over texts, with 95 % intervals. A line for random masks is the mean over `--seeds` masks that have as many lit
heads in each layer as the line above it; it also says between which numbers the masks lie. An interrupted run resumes
where it stopped.
"""

import argparse
import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import tokenlight as tl
from papers.small import SENTIMENT
from studies.layer_masks import random_in_each_layer, strongest_in_each_layer
from tokenlight.cli.load import load_model
from tokenlight.common.intervals import mean_interval
from tokenlight.common.progress import track
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples
from tokenlight.heads.count import count_heads
from tokenlight.heads.mask import calibrated_heads, own_heads
from tokenlight.heads.parses import spacy_parses
from tokenlight.heads.statistics import HeadStatistics
from tokenlight.metrics.evaluate import evaluate
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.model.fingerprint import fingerprint
from tokenlight.text.tokenized_text import Text, parts

PADS = Perturbation(removal="pad")
DELETES = Perturbation(removal="delete")
ALL = "all heads (TransAtt)"
GROUP = 5  # texts that are explained under every setting before their changed texts are run together


@dataclass(frozen=True)
class Setting:
    """One line of the table: options of mask_lrp, and one mask or several random ones."""

    name: str
    masks: Sequence[tl.HeadMask]
    options: Mapping[str, Any] = field(default_factory=dict)
    against: str = ALL  # the line that it is compared with


@dataclass(frozen=True)
class Line:
    """What was measured: means over texts."""

    name: str
    heads: int
    aopc: float
    interval: tuple[float, float]
    difference: tuple[float, float, float]  # to the line `against`, with its interval
    against: str
    masks: tuple[float, float]  # lowest and highest AOPC of its masks
    dropped: float  # the share of relevance that the masks drop

    def __str__(self) -> str:
        change, low, high = self.difference
        among = f" {self.masks[0]:.3f} to {self.masks[1]:.3f}" if self.masks[0] < self.masks[1] else ""
        own = f"{self.aopc:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"
        limits = "on every text" if np.isnan(low) else f"[{low:+.3f}, {high:+.3f}]"
        compared = f"{change:+.3f} {limits} to {self.against}"
        return f"{self.name:45} {self.heads:3} heads  {own}  drops {self.dropped:4.0%}{among}  {compared}"


def settings_of(counts: HeadStatistics, other: HeadStatistics | None, seeds: int) -> Iterator[Setting]:
    """Options with the paper's mask, then other masks with the default options."""
    paper, every = counts.mask(), tl.HeadMask.by_hand(torch.ones(counts.hits.shape[1:]))
    yield Setting(ALL, [every])
    yield Setting("all heads, rows not normalized", [every], {"normalize": False})
    for empty in ("all", "drop", "residual"):
        yield Setting(f"paper's thresholds, empty={empty}", [paper], {"empty": empty})
    yield Setting("paper's thresholds, rows not normalized", [paper], {"empty": "all", "normalize": False})
    yield Setting("all heads, released", [every], {"variant": "released"})
    yield Setting("paper's thresholds, released", [paper], {"variant": "released"}, "all heads, released")
    yield from with_controls("paper's thresholds", paper, seeds, first="paper's thresholds, empty=all")
    yield from with_controls("lower thresholds (-0.2, 0.4)", counts.mask(-0.2, 0.4), seeds)
    for number in (1, max(2, every.lit.shape[1] // 4)):
        name = f"best {number} + {number} of each layer"
        yield from with_controls(name, strongest_in_each_layer(counts, number), seeds)
        weakest = strongest_in_each_layer(counts, number, weakest=True)
        yield Setting(f"weakest {number} + {number} of each layer", [weakest], against=f"{name}, random heads")
    if other is not None:
        yield Setting("paper's thresholds, other data", [other.mask()], against="paper's thresholds, empty=all")
        mask, name = strongest_in_each_layer(other, 1), "best 1 + 1 of each layer"
        yield Setting(f"{name}, other data", [mask], against=name)


def corruption_of(paper: tl.HeadMask, seeds: int) -> Iterator[Setting]:
    """The paper's figure 4: a growing share of the dark heads is lit as well."""
    ways = {"empty=all": {"empty": "all"}, "empty=drop": {"empty": "drop"}, "released": {"variant": "released"}}
    for share in (0.1, 0.3, 0.6):
        masks = [paper.corrupted(share, seed) for seed in range(seeds)]
        for name, options in ways.items():
            yield Setting(f"{share:.0%} of dark heads lit, {name}", masks, options)


def with_controls(name: str, mask: tl.HeadMask, seeds: int, first: str | None = None) -> Iterator[Setting]:
    """The mask, unless it has a line already, and random masks with as many heads in each layer."""
    randoms = [random_in_each_layer(mask, seed) for seed in range(seeds)]
    if first is None:
        yield Setting(name, [mask])
    yield Setting(f"{name}, random heads", randoms, against=first or name)


def select_settings(settings: Sequence[Setting], names: Sequence[str]) -> list[Setting]:
    """Those whose name contains one of `names`, and those that they are compared with; all of them without names."""
    against = {setting.name: setting.against for setting in settings}
    chosen = {name for name in against if not names or any(part in name for part in names)}
    if not chosen:
        raise SystemExit(f"no setting has a name with {' or '.join(map(repr, names))}; there are: {', '.join(against)}")
    while missing := {against[name] for name in chosen} - chosen:
        chosen |= missing
    return [setting for setting in settings if setting.name in chosen]


def measure(
    explainer: tl.Explainer, texts: Sequence[Text], settings: Sequence[Setting], path: Path
) -> dict[str, NDArray[Any]]:
    """By setting: [mask, text, 2], AOPC and the dropped share. What `path` already has is not run again."""
    setup = identify(explainer, settings)
    stored = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
    known = {as_text(record["text"]): record["values"] for record in stored if record["setup"] == setup}
    missing = [text for text in texts if text not in known]
    for start in track(range(0, len(missing), GROUP), "explaining and replacing"):
        group = missing[start : start + GROUP]
        measured = measure_group(explainer, group, settings)
        known |= dict(zip(group, measured, strict=True))
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"setup": setup, "text": text, "values": known[text]}) + "\n" for text in group)
    names = [setting.name for setting in settings]
    return {name: np.array([known[text][name] for text in texts]).swapaxes(0, 1) for name in names}


def as_text(stored: str | list[str]) -> Text:
    """A text, or a pair, which JSON stores as a list."""
    return stored if isinstance(stored, str) else (stored[0], stored[1])


def perturbation_for(explainer: tl.Explainer) -> Perturbation:
    """PAD in place of a token, as in the paper; deletion where metrics delete by default."""
    default = Perturbation().fit(explainer.inner, explainer.tokenizer)
    return DELETES if default.removal == "delete" else PADS


def identify(explainer: tl.Explainer, settings: Sequence[Setting]) -> str:
    """Equal for equal models and settings."""
    masks_by_setting = [
        (setting.name, dict(setting.options), [mask.groups.tolist() for mask in setting.masks]) for setting in settings
    ]
    return hashlib.sha256(repr((fingerprint(explainer.model), masks_by_setting)).encode()).hexdigest()[:12]


def measure_group(
    explainer: tl.Explainer, texts: list[Text], settings: Sequence[Setting]
) -> list[dict[str, list[tuple[float, float]]]]:
    """For each text by setting: AOPC and the dropped share under each mask."""
    method_configs = [(setting, mask) for setting in settings for mask in setting.masks]
    explained = []
    for setting, mask in method_configs:
        explained += explainer.explain(texts, "mask_lrp", heads=mask, progress=False, **setting.options)
    results = evaluate(explainer, explained, ("aopc",), perturbation=perturbation_for(explainer))
    values = [(result["aopc"], e.extras["masked_share"]) for result, e in zip(results, explained, strict=True)]
    values_by_setting: list[dict[str, list[tuple[float, float]]]] = [
        {setting.name: [] for setting in settings} for _ in texts
    ]
    for method_config, (setting, _) in enumerate(method_configs):
        for text in range(len(texts)):
            values_by_setting[text][setting.name].append(values[method_config * len(texts) + text])
    return values_by_setting


def make_lines(settings: Sequence[Setting], values: Mapping[str, NDArray[Any]]) -> Iterator[Line]:
    for setting in settings:
        own, other = (values[name][..., 0].mean(0) for name in (setting.name, setting.against))  # [text]
        by_mask = values[setting.name][..., 0].mean(1)
        yield Line(
            name=setting.name,
            heads=setting.masks[0].count,
            aopc=float(own.mean()),
            interval=mean_interval(own),
            difference=(float((own - other).mean()), *mean_interval(own - other)),
            against=setting.against,
            masks=(float(by_mask.min()), float(by_mask.max())),
            dropped=float(values[setting.name][..., 1].mean()),
        )


def read_texts(data: str | Path, limit: int | None = None) -> list[Text]:
    return [row.text for row in read_examples(tl.DataSource(data, limit=limit)) if isinstance(row, Example)]


def count_on(explainer: tl.Explainer, data: Path, limit: int) -> HeadStatistics:
    texts = [text for text in read_texts(data) if len(" ".join(parts(text)).split()) >= 5]  # SST-2 has single words
    texts = texts[:limit]
    return count_heads(explainer, spacy_parses(texts), source=str(data.name))


def choose_texts(explainer: tl.Explainer, options: argparse.Namespace) -> list[Text]:
    texts = read_texts(options.data or SENTIMENT.file)
    lengths = map(len, explainer.encode(texts))
    fitting = [text for text, n in zip(texts, lengths, strict=True) if options.shortest <= n <= options.longest]
    if options.sample is not None:
        return random.Random(options.seed).sample(fitting, min(options.sample, len(fitting)))
    return fitting[: options.limit]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the model and texts that come with the repository")
    parser.add_argument(
        "--model", default="default", help="a classifier or language model; default: the one in the package"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
    parser.add_argument("--data", type=Path, help="texts to explain")
    parser.add_argument("--count", type=Path, help="texts to count heads on; default: the counts inside the package")
    parser.add_argument("--other-count", type=Path, help="texts of another data set to count heads on")
    parser.add_argument("--count-limit", type=int, default=2000, help="how many texts heads are counted on")
    parser.add_argument("--calibrate", type=int, default=0, metavar="N", help="calibrate a mask on N texts of --count")
    parser.add_argument("--corruption", action="store_true", help="the paper's mask with more and more heads lit")
    parser.add_argument("--limit", type=int, default=100, help="explain the first N texts of fitting length")
    parser.add_argument("--sample", type=int, help="explain N random ones instead")
    parser.add_argument("--seed", type=int, default=0, help="seed of --sample")
    parser.add_argument("--setting", action="append", default=[], help="part of a line's name; repeat; default: all")
    parser.add_argument("--shortest", type=int, default=20, help="tokens, as in the release of Mask-LRP")
    parser.add_argument("--longest", type=int, default=512, help="tokens")
    parser.add_argument("--seeds", type=int, default=5, help="random masks of each kind")
    parser.add_argument("--output", type=Path, default=Path("results/mask_lrp_defaults"), help="folder for lines.json")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if not (options.small or options.data):
        parser.error("give --data, or --small")
    if options.calibrate and options.count is None:
        parser.error("a mask is calibrated on texts of --count")
    explainer = load_model(options.model, None, device=options.device)
    own = own_heads(explainer.model)
    if options.count is not None:
        counts = count_on(explainer, options.count, options.count_limit)
    elif own is not None and own.statistics is not None:
        counts = own.statistics
    else:
        parser.error("this model comes without counts: give --count")
    other = options.other_count and count_on(explainer, options.other_count, options.count_limit)
    settings = list(settings_of(counts, other, options.seeds))
    settings += corruption_of(counts.mask(), options.seeds) if options.corruption else []
    if (calibrated := calibrated_heads(explainer.model)) is not None:
        settings.append(Setting("calibrated for attn_lrp", [calibrated]))
    if options.calibrate and options.count is not None:
        texts = read_texts(options.count, options.calibrate)
        settings.append(Setting("calibrated for mask_lrp", [tl.calibrate(explainer, texts, method="mask_lrp")]))
    settings = select_settings(settings, options.setting)
    texts = choose_texts(explainer, options)
    by_layer = counts.mask().lit.sum(1).int().tolist()
    print(f"{len(texts)} texts; paper's thresholds: {counts.mask()}, by layer {by_layer}")
    options.output.mkdir(parents=True, exist_ok=True)
    lines = list(make_lines(settings, measure(explainer, texts, settings, options.output / "texts.jsonl")))
    print(*lines, sep="\n")
    for method in ("random", "attn_lrp"):
        explanations = explainer.explain(texts, method, progress=False)
        results = evaluate(explainer, explanations, ("aopc",), perturbation=perturbation_for(explainer))
        print(f"{method:52} {np.mean([result['aopc'] for result in results]):.3f}")
    (options.output / "lines.json").write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")


if __name__ == "__main__":
    main()
