"""Does masking heads help? Mask-LRP's two variants under many masks, on a classifier. Read it top to bottom.

    tokenlight heads default PATH/TO/SST-2/train.tsv -o masks.json
    python recipes/head_masks.py --masks masks.json --data PATH/TO/SST-2/dev.tsv --output results

Prints, for every mask, AOPC (higher is better) and log-odds (lower is better) with PAD in place of top tokens, in steps
of 10 % of the words, and the paired difference in AOPC to the same method with every head, with a 95 % interval of its
mean over texts. Writes the numbers (study.json) and the corruption curve (corruption.png).
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import tokenlight as tl
from tokenlight.data.examples import Example
from tokenlight.data.reading_examples import read_examples
from tokenlight.data.source import Source
from tokenlight.foundation.intervals import mean_interval
from tokenlight.foundation.progress import track
from tokenlight.masks.head_mask import HeadMask
from tokenlight.metrics.evaluate import evaluate
from tokenlight.metrics.perturbation import Perturbation

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", help="checkpoint; default: the model inside the package")
parser.add_argument("--masks", type=Path, required=True, help="made with `tokenlight heads`; its statistics are used")
parser.add_argument("--data", type=Path, required=True, help="texts")
parser.add_argument("--output", type=Path, required=True, help="folder for study.json and corruption.png")
parser.add_argument("--texts", type=int, default=100)
parser.add_argument("--shortest", type=int, default=20, help="tokens, as in the release of Mask-LRP")
parser.add_argument("--seeds", type=int, default=5)
args = parser.parse_args()

explainer = tl.load(args.model)
paper = HeadMask.load(args.masks)
counts = paper.statistics
assert counts is not None, "this mask was not made from statistics"
texts = [example.text for example in read_examples(Source(args.data)) if isinstance(example, Example)]
texts = [text for text, row in zip(texts, explainer.encode(texts), strict=True) if len(row) >= args.shortest]
texts = texts[: args.texts]
layers, heads = paper.lit.shape
print(f"{len(texts)} texts of {args.shortest} tokens or more; {paper}")

# The masks. Ranks of heads go by how far they are above what distance alone explains, or by their most frequent offset.
ones = HeadMask.by_hand(torch.ones(layers, heads))
above = (counts.accuracy - counts.usual_share[:, None, None]).amax(0).flatten()
best = torch.maximum(counts.accuracy.amax(0).flatten(), counts.position_shares()[1].flatten())


def strongest(strength: torch.Tensor, count: int) -> HeadMask:
    lit = torch.zeros(layers * heads)
    lit[strength.topk(count).indices] = 1
    return HeadMask.by_hand(lit.view(layers, heads))


masks: dict[str, HeadMask] = {"all heads": ones, "paper's thresholds": paper}
masks |= {f"{group} only": paper.only(group) for group in ("syntactic", "positional")}
masks |= {f"random, as many, seed {seed}": paper.random(seed) for seed in range(args.seeds)}
masks |= {f"ξ_synt {margin}": counts.mask(margin) for margin in (0.0, -0.1, -0.2, -0.3, -0.4)}
masks |= {f"ξ_pos {share}": counts.mask(position_share=share) for share in (0.6, 0.4, 0.3, 0.2)}
masks |= {f"ξ_synt -0.3, {relation} only": counts.mask(-0.3, relations=[relation]) for relation in counts.relations}
masks |= {f"{count} best by accuracy or offset": strongest(best, count) for count in (6, 12, 24, 36, 54)}
masks |= {f"{count} best above distance": strongest(above, count) for count in (12, 24, 36)}
masks |= {f"{count} random": strongest(torch.ones(layers * heads), count).random(7) for count in (6, 12, 24, 36, 54)}
masks["dark: the 24 best"] = HeadMask.by_hand(1 - strongest(best, 24).lit)
shares = [i / 10 for i in range(1, 11)]
masks |= {f"corrupted {share:.0%}, seed {s}": paper.corrupted(share, s) for share in shares for s in range(args.seeds)}

settings = {
    "paper": ("mask_lrp", {"variant": "paper", "empty": "drop"}),
    "paper, empty blocks to the residual": ("mask_lrp", {"variant": "paper", "empty": "residual"}),
    "released": ("mask_lrp", {"variant": "released"}),
    "lrp": ("lrp", {}),
    "attn_lrp": ("attn_lrp", {}),
}
pads = Perturbation(how="replace", token="pad")
jobs = [(setting, name) for setting in settings for name in masks]
jobs = [(s, n) for s, n in jobs if not (n.startswith("corrupted") and s in ("lrp", "attn_lrp"))]

# A few texts at a time under every mask: masks that agree on a text share the model's answers.
values: dict[tuple[str, str], list[dict[str, float]]] = {job: [] for job in jobs}
groups = [texts[i : i + 10] for i in range(0, len(texts), 10)]
for group in track(groups, "explaining and deleting"):
    explained = []
    for setting, name in jobs:
        method, options = settings[setting]
        explained += explainer.explain(group, method, heads=masks[name], progress=False, **options)
    results = evaluate(explainer, explained, ("aopc", "log_odds"), perturbation=pads)
    for i, job in enumerate(jobs):
        values[job] += results[i * len(group) : (i + 1) * len(group)]

controls = {}
for method in ("transformer_attribution", "random", "erasure"):
    explained = explainer.explain(texts, method)
    controls[method] = evaluate(explainer, explained, ("aopc", "log_odds"), perturbation=pads)


def mean(results: list[dict[str, float]], metric: str) -> float:
    return sum(result[metric] for result in results) / len(results)


def difference(one: list[dict[str, float]], other: list[dict[str, float]]) -> tuple[float, float, float]:
    """Mean paired difference in AOPC with its 95 % interval over texts."""
    change = np.array([a["aopc"] - b["aopc"] for a, b in zip(one, other, strict=True)])
    return float(change.mean()), *mean_interval(change)


report = []
for name, results in controls.items():
    print(f"{name:60} AOPC {mean(results, 'aopc'):.3f}  log-odds {mean(results, 'log_odds'):.3f}")
    report.append({"setting": name, "aopc": mean(results, "aopc"), "log_odds": mean(results, "log_odds")})
for (setting, name), results in values.items():
    change, low, high = difference(results, values[setting, "all heads"])
    line = f"{setting}; {name} ({masks[name].count} heads)"
    numbers = f"AOPC {mean(results, 'aopc'):.3f}  log-odds {mean(results, 'log_odds'):.3f}"
    print(f"{line:80} {numbers}  {change:+.3f} [{low:+.3f}, {high:+.3f}]")
    report.append(
        {
            "setting": setting,
            "mask": name,
            "heads": masks[name].count,
            "aopc": mean(results, "aopc"),
            "log_odds": mean(results, "log_odds"),
            "difference": [change, low, high],
        }
    )
args.output.mkdir(parents=True, exist_ok=True)
(args.output / "study.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

# The corruption curve: mean over seeds, and the lowest and highest.
from tokenlight.views.figure import new_figure, save  # noqa: E402

figure = new_figure(5, 3)
axes = figure.subplots()
for setting, colour in zip(list(settings)[:3], ("#2166ac", "#762a83", "#cc5500"), strict=True):
    points = [
        [mean(values[setting, f"corrupted {x:.0%}, seed {s}"], "aopc") for s in range(args.seeds)] for x in shares
    ]
    points = [[mean(values[setting, "paper's thresholds"], "aopc")] * args.seeds, *points]
    middle = [sum(point) / len(point) for point in points]
    axes.plot([0, *shares], middle, color=colour, marker="o", markersize=3, label=setting)
    axes.fill_between(
        [0, *shares], list(map(min, points)), list(map(max, points)), color=colour, alpha=0.15, linewidth=0
    )
axes.axhline(mean(controls["random"], "aopc"), color="grey", linestyle=":", label="random tokens")
axes.set(xlabel="share of dark heads that are lit", ylabel="AOPC")
axes.legend(fontsize=7, frameon=False)
save(figure, args.output / "corruption.png")
