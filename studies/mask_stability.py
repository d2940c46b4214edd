"""Do Mask-LRP's masks depend on the texts that heads are counted on? One model, several data sets.

python -m studies.mask_stability --small
python -m studies.mask_stability --model default --texts SST-2/train.tsv --texts en_ewt-ud-dev.conllu --limit 2000

For each pair of data sets: how many heads are in both masks and in either, by the paper's thresholds and among the
quarter of heads that are strongest; and the correlation over heads of what decides, accuracy above max λ (the best
relation's) and the share of the most frequent offset. Texts are parsed by spaCy; treebanks hold their parses.
"""

import argparse
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

import tokenlight as tl
from papers.mask_lrp.small_parses import MAKERS, small_parses
from papers.small_models import small_model
from papers.tables import Comparison
from tokenlight.cli.load import load_model
from tokenlight.data.read import parse_source
from tokenlight.heads.count import count_heads
from tokenlight.heads.statistics import HeadStatistics

QUARTER = 4
HEAD = [
    "data sets",
    "heads in both / in either",
    "strongest quarter, syntactic",
    "strongest quarter, positional",
    "correlation, syntactic",
    "correlation, positional",
]


def syntactic_strength(counts: HeadStatistics) -> Tensor:
    """[layer, head] accuracy above max λ, of the relation where that is highest."""
    above = counts.accuracy - counts.usual_share[:, None, None]
    return above[counts.pairs > 0].amax(0).flatten()


def positional_strength(counts: HeadStatistics) -> Tensor:
    return counts.position_shares()[1].flatten()


def shared(first: Tensor, second: Tensor) -> str:
    """Of two boolean tensors: true in both / in either."""
    return f"{int((first & second).sum())} / {int((first | second).sum())}"


def strongest(strength: Tensor) -> Tensor:
    chosen = torch.zeros_like(strength, dtype=torch.bool)
    chosen[strength.topk(len(strength) // QUARTER).indices] = True
    return chosen


def correlation(first: Tensor, second: Tensor) -> str:
    value = float(torch.corrcoef(torch.stack([first, second]).double())[0, 1])
    return f"{value:.3f}"


def compare_counts(first: HeadStatistics, second: HeadStatistics) -> list[str]:
    cells = [shared(first.mask().lit > 0, second.mask().lit > 0)]
    strengths = [(of(first), of(second)) for of in (syntactic_strength, positional_strength)]
    cells += [shared(strongest(a), strongest(b)) for a, b in strengths]
    return cells + [correlation(a, b) for a, b in strengths]


def count_all(options: argparse.Namespace) -> dict[str, HeadStatistics]:
    """The counts of one model by data set."""
    if options.small:
        explainer = load_model(small_model("questions"), None, device=options.device)
        names = ("squad1", "qqp", "mnli")
        texts = {f"templates of {name}": small_parses(name, options.limit or 500) for name in names if name in MAKERS}
        return {name: count_heads(explainer, parses, source=name) for name, parses in texts.items()}
    explainer = load_model(options.model, None, device=options.device)
    counts = {}
    for data in options.texts:
        source = tl.DataSource(data, split=options.split, limit=options.limit, sample=options.sample, seed=options.seed)
        parses = parse_source(source)
        counts[Path(data).name] = count_heads(explainer, parses.parses_after, source=parses.name, total=parses.count)
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default", help="checkpoint; default: the one in the package")
    parser.add_argument("--texts", action="append", help="texts or parses: a file or hf:NAME; repeat")
    parser.add_argument("--split", help="of data sets on the Hub")
    parser.add_argument("--limit", type=int, help="use at most the first N texts of each")
    parser.add_argument("--sample", type=int, help="use N random texts of each instead")
    parser.add_argument("--seed", type=int, default=0, help="seed of --sample")
    parser.add_argument("--small", action="store_true", help="a small model and templated texts")
    parser.add_argument("--output", type=Path, default=Path("results") / "studies" / "mask_stability.md")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
    options = parser.parse_args(arguments)
    if options.limit is not None and options.sample is not None:
        parser.error("choose --limit (the first texts) or --sample (random ones)")
    if not options.small and len(options.texts or ()) < 2:
        parser.error("name at least two data sets with --texts")
    counts = count_all(options)
    rows = [[f"{a}, {b}", *compare_counts(counts[a], counts[b])] for a, b in combinations(counts, 2)]
    remarks = [
        f"{name}: {counts_of_data.texts:,} texts, {counts_of_data.mask()}" for name, counts_of_data in counts.items()
    ]
    comparison = Comparison("Head masks counted on several data sets", HEAD, rows, remarks)
    comparison.show()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(f"# {comparison.heading}\n\n{comparison.to_markdown()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
