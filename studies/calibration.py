"""Calibrated heads: every number of docs/calibration.md. Read it top to bottom.

    python studies/calibration.py --data PATH/TO/SST-2 --imdb PATH/TO/IMDB --output DIR [--model CHECKPOINT] STAGE ...

A stage calibrates or measures, and stores its masks and numbers in DIR. What is stored is not computed again. Stages:

    sizes      masks calibrated on 50, 100, 200 and 500 training sentences, PAD in place of removed tokens
    others     masks for the mask token and for deletion; for lrp and transformer_attribution
    imdb       a mask for IMDB reviews of 120 words or less
    searches   other ways to find a mask: greedily by AOPC, by layers, by head statistics
    shuffled   calibrations on the values of `sizes`, shuffled among the tokens
    judge      all masks in DIR and the library's other methods on dev sentences
    rest       every other method of the library on dev sentences
    controls   random masks of the same strengths, the complement, and masks of other checkpoints (--foreign)
    long       the best mask and that of IMDB on IMDB reviews
    table      what was judged, as a table with paired intervals

Sentences are 8 words or longer. SST-2's dev part is only ever measured.
"""

import argparse
import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import torch

import tokenlight as tl
from tokenlight.calibration import calibrate
from tokenlight.calibration.effects import Effects
from tokenlight.calibration.search import Checkpoint, agreements, read_effects
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.common.intervals import mean_interval
from tokenlight.heads.mask import HeadMask
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import BINS, Perturbation

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
STAGES = ("sizes", "others", "imdb", "searches", "shuffled", "judge", "rest", "controls", "long", "table")
parser.add_argument("stages", nargs="+", choices=STAGES)
parser.add_argument("--data", type=Path, required=True, help="folder with SST-2's train.tsv and dev.tsv")
parser.add_argument("--imdb", type=Path, help="folder with orig_train.tsv and orig_test.tsv")
parser.add_argument("--output", type=Path, required=True, help="folder for masks and numbers")
parser.add_argument("--model", default=DEFAULT, help="another checkpoint; default: the embedded model")
parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200, 500])
parser.add_argument("--judged", type=int, default=400, help="dev sentences")
parser.add_argument("--masks", nargs="+", help="judge: only these")
parser.add_argument("--pad-only", action="store_true", help="judge: PAD alone, on half of the sentences")
parser.add_argument("--plain", nargs="*", help="judge: only these other methods")
parser.add_argument("--best", default="pad_500", help="the mask that controls belong to")
parser.add_argument("--foreign", type=Path, nargs="*", default=[], help="controls: masks of other checkpoints")
parser.add_argument("--random", type=int, default=20, help="controls: random masks")
parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()
args.output.mkdir(parents=True, exist_ok=True)
explainer = load_model(args.model, None, device=args.device)
PAD, MASK, DELETE = (Perturbation(removal=name) for name in ("pad", "mask", "delete"))


def read(path: Path, column: str, quoted: bool) -> list[str]:
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        return list(dict.fromkeys(row[column].strip() for row in rows))


def sentences(part: str, count: int) -> list[str]:
    long_enough = [text for text in read(args.data / f"{part}.tsv", "text_a", False) if len(text.split()) >= 8]
    return random.Random(0).sample(long_enough, len(long_enough))[:count]


def reviews(part: str, count: int, longest: int = 10**6) -> list[str]:
    texts = read(args.imdb / f"orig_{part}.tsv", "Text", True)
    return [text for text in random.Random(0).sample(texts, len(texts)) if len(text.split()) <= longest][:count]


def make(name: str, texts: list[str], method: str = "attn_lrp", **settings) -> HeadMask:
    """The mask of that name, calibrated now or before."""
    path = args.output / f"{name}.json"
    if not path.exists():
        mask = tl.calibrate(explainer, texts, method, checkpoint=path.with_suffix(".partial"), source=name, **settings)
        mask.save(path)
    mask = HeadMask.load(path)
    print(f"{name}: {mask}; {mask.made['steps']} steps, agreement {mask.made['agreement']}, AOPC {mask.made['aopc']}")
    return mask


if "sizes" in args.stages:
    for size in args.sizes:
        make(f"pad_{size}", sentences("train", size), perturbation=PAD)

if "others" in args.stages:
    for name, perturbation in (("mask", MASK), ("delete", DELETE)):
        make(f"{name}_200", sentences("train", 200), perturbation=perturbation)
    make("lrp_100", sentences("train", 100), "lrp", perturbation=PAD)
    make("transformer_attribution_50", sentences("train", 50), "transformer_attribution", perturbation=PAD)

if "imdb" in args.stages:
    make("imdb_100", reviews("train", 100, longest=120), perturbation=PAD, steps=23)  # a step takes more than a minute

if "shuffled" in args.stages:  # the same values, but not where they were measured
    many = sentences("train", 500)
    plain = json.loads((args.output / "pad_500.partial").read_text())
    known = dict(zip(many, map(read_effects, plain["effects"]), strict=True))
    honest = calibrate.measure_effects

    def shuffled(explainer, instrumented, rows, *settings) -> list[Effects]:
        effects = []
        for number, row in enumerate(rows):
            values, places = known[row.text].values.clone(), known[row.text].measured.nonzero()[:, 0]
            order = torch.randperm(len(places), generator=torch.Generator().manual_seed(number))
            values[places] = values[places[order]]
            effects.append(Effects(values, known[row.text].measured))
        return effects

    calibrate.measure_effects = shuffled
    for seed in range(6):
        make(f"shuffled_{seed}", many[seed * 50 :][:50], perturbation=PAD, seed=seed)
    calibrate.measure_effects = honest

if "searches" in args.stages:
    few = sentences("train", 48)

    def aopc(lit: torch.Tensor) -> float:
        explained = explainer.explain(few, "attn_lrp", heads=lit, progress=False)
        return sum(values["aopc"] for values in tl.evaluate(explainer, explained, [Measure("aopc", PAD)])) / len(few)

    def keep(name: str, lit: torch.Tensor) -> None:
        made = {"by": name, "method": "attn_lrp", "texts": len(few)}
        dark = torch.zeros_like(lit)
        HeadMask(dark, dark, made, calibrated=lit).save(args.output / f"{name}.json")
        print(f"{name}: {int((lit > 0).sum())} heads lit")

    own = HeadMask.load(args.output / f"{args.best}.json")
    ones = torch.ones_like(own.lit)

    # The first two are scored by measured effects on few texts: a candidate needs no run of the model.
    settings = calibrate.CalibrationSettings(PAD.fit(explainer.model, explainer.tokenizer), 6, 30, 4, 0)
    nothing = [None] * len(few)
    few_work = calibrate.Calibration(explainer, tl.METHODS["attn_lrp"], few, nothing, nothing, settings)
    store = Checkpoint.open(
        args.output / "searches.partial", few_work.describe(), list(map(len, few_work.tokenized_texts))
    )
    batches = few_work.batches(few_work.measure(store, True), range(len(few)))

    def agreement(lit: torch.Tensor) -> float:
        return float(agreements(few_work.instrumented, batches, few_work.method, lit).mean())

    # By layers: one strength for all heads of a layer, each layer in turn, twice.
    lit, reached = ones.clone(), agreement(ones)
    for layer in [*range(len(lit))][::-1] * 2:
        for strength in (0.0, 0.25, 0.5, 0.75, 1.0):
            trial = lit.clone()
            trial[layer] = strength
            if (found := agreement(trial)) > reached:
                lit, reached = trial, found
    print(f"layers: {lit[:, 0].tolist()}, agreement {reached:.4f}")
    keep("layers_48", lit)

    # By statistics: the heads that follow a relation or an offset best; as many as agree best.
    counts = own.statistics
    if counts is not None:
        follows = torch.maximum(counts.accuracy.amax(0), counts.position_shares()[1])
        order = follows.flatten().argsort(descending=True)
        trials = []
        for share in range(1, 9):
            trial = torch.zeros_like(lit)
            trial.view(-1)[order[: share * len(order) // 8]] = 1
            trials.append((agreement(trial), trial))
        keep("statistics_48", max(trials, key=lambda one: one[0])[1])

    # Greedily: each head once, from the last layer down; a drop that raises AOPC stays.
    lit, reached = ones.clone(), aopc(ones)
    for place in range(lit.numel() - 1, -1, -1):
        trial = lit.clone()
        trial.view(-1)[place] = 0
        if (found := aopc(trial)) > reached:
            lit, reached = trial, found
            print(f"head {place} goes: {reached:.4f}", flush=True)
    keep("greedy_48", lit)

MEASURES = [
    Measure(metric, replace(perturbation, grid=grid) if grid else perturbation, name=f"{metric} {name}")
    for name, perturbation in (("pad", PAD), ("mask", MASK), ("delete", DELETE))
    for metric, grid in (("aopc", None), ("log_odds", None), ("comprehensiveness", BINS), ("sufficiency", BINS))
]


def judge(label: str, texts: list[str], measures: list[Measure], method: str, folder: str, **options) -> None:
    """Values of every text into DIR/folder/label.json, unless they are there."""
    path = args.output / folder / f"{label}.json"
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        return
    explained = explainer.explain(texts, method, progress=False, **options)
    rows = tl.evaluate(explainer, explained, measures)
    values = {name: [row[name] for row in rows] for name in rows[0]}
    if folder == "judged":  # does the explanation depend on what is explained?
        labels = list(explainer.task.labels.values())
        other = [next(label_name for label_name in labels if label_name != e.prediction) for e in explained]
        against = explainer.explain(texts, method, target=other, progress=False, **options)
        pairs = tl.evaluate(explainer, explained, ["kendall_confidence"], others=against)
        values["kendall"] = [row["kendall_confidence"] for row in pairs]
    path.write_text(json.dumps(values))
    print(label, {name: round(sum(numbers) / len(numbers), 4) for name, numbers in values.items()}, flush=True)


def method_of(mask: HeadMask) -> str:
    return mask.made.get("method", "attn_lrp")


judged = sentences("dev", args.judged)
masks = args.masks or sorted(path.stem for path in args.output.glob("*.json"))
PLAIN = {
    "attn_lrp": ("attn_lrp", {}),
    "lrp": ("lrp", {}),
    "transformer_attribution": ("transformer_attribution", {}),
    "integrated_gradients, mask baseline": ("integrated_gradients", {"steps": 50}),
    "integrated_gradients, pad baseline": ("integrated_gradients", {"steps": 50, "baseline": "pad"}),
}

if "judge" in args.stages:
    folder, measures = ("pad", MEASURES[:4]) if args.pad_only else ("judged", MEASURES)
    texts = judged[: len(judged) // 2] if args.pad_only else judged
    for name in masks:
        mask = HeadMask.load(args.output / f"{name}.json")
        judge(name, texts, measures, method_of(mask), folder, heads=mask)
    for label, (method, options) in PLAIN.items():
        if args.plain is None or label in args.plain:
            judge(label, texts, measures, method, folder, **options)

if "rest" in args.stages:  # every other method once, on the metric of the calibration
    for name, entry in tl.METHODS.items():
        if name not in PLAIN and entry.fits(explainer.model):
            judge(name, judged[: len(judged) // 2], MEASURES[:4], name, "rest")

if "controls" in args.stages:
    best = HeadMask.load(args.output / f"{args.best}.json")
    some = judged[:100]
    judge("all heads", some, MEASURES[:1], "attn_lrp", "controls")
    judge("calibrated", some, MEASURES[:1], "attn_lrp", "controls", heads=best)
    judge("lit or dark", some, MEASURES[:1], "attn_lrp", "controls", heads=(best.lit > 0.5).double())
    judge("complement", some, MEASURES[:1], "attn_lrp", "controls", heads=best.complement())
    for seed in range(args.random):
        judge(f"random {seed}", some, MEASURES[:1], "attn_lrp", "controls", heads=best.random(seed))
    for path in args.foreign:
        foreign = HeadMask.load(path).lit
        judge(f"foreign {path.parent.name}", some, MEASURES[:1], "attn_lrp", "controls", heads=foreign)

if "long" in args.stages:
    texts = reviews("test", 40)
    for name in masks:
        mask = HeadMask.load(args.output / f"{name}.json")
        judge(name, texts, MEASURES[:4], method_of(mask), "long", heads=mask)
    judge("attn_lrp", texts, MEASURES[:4], "attn_lrp", "long")

if "table" in args.stages:
    for folder, base in (
        ("judged", "attn_lrp"),
        ("pad", "attn_lrp"),
        ("rest", None),
        ("controls", "all heads"),
        ("long", "attn_lrp"),
    ):
        found = {path.stem: json.loads(path.read_text()) for path in sorted((args.output / folder).glob("*.json"))}
        for label, values in found.items():
            print(f"\n{folder}: {label}")
            for name, own in values.items():
                mine = torch.tensor(own)
                line = f"  {name:24} {mine.mean():.4f}"
                if base in found and label != base:
                    gain = mine - torch.tensor(found[base][name])
                    low, high = mean_interval(gain.numpy())
                    line += f"   {gain.mean():+.4f} [{low:+.4f}, {high:+.4f}]"
                print(line)
