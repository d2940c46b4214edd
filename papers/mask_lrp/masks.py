"""The head masks of a run: counted on training data when they are first needed, stored and reused."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tokenlight as tl
from papers.mask_lrp.small_parses import small_parses
from papers.options import Run
from tokenlight.cli.heads import checkpoint_of
from tokenlight.heads.count import count_heads
from tokenlight.heads.parsed_texts import ParseSource, parse_source
from tokenlight.masks.choosing import check_fit, own_heads
from tokenlight.masks.head_mask import HeadMask
from tokenlight.masks.statistics import POSITION_SHARE, SYNTAX_MARGIN, HeadStatistics
from tokenlight.views.benchmark_table import minus

SMALL_TEXTS = 1_000  # templated texts that heads of small models are counted on
SMALL_HEADS = 3  # of each group, in a small model without a head above the paper's thresholds
VARIANTS = ("paper", "released")


@dataclass(frozen=True)
class Masks:
    """One set of counts, and the mask of each variant of the method that is made from it."""

    counts: HeadStatistics | None  # None: the mask was made by hand
    of: Mapping[str, HeadMask]  # variant -> mask

    @classmethod
    def from_counts(
        cls, counts: HeadStatistics, margin: float = SYNTAX_MARGIN, share: float = POSITION_SHARE
    ) -> "Masks":
        """Equations 6 to 8, where a head counts once for each relation; and as in the release."""
        written = counts.mask(margin, share, count_relations=True)
        return cls(counts, {"paper": written, "released": counts.mask(margin, share, count_self=True)})

    @property
    def remarks(self) -> list[str]:
        """What the masks were counted on, and which heads they have, one sentence each."""
        source = "by hand" if self.counts is None else f"counted on {self.counts.source}, {self.counts.texts:,} texts"
        sentences = [f"the head masks are {source}"]
        for variant, mask in self.of.items():
            groups = [f"{int((mask.only(group).lit > 0).sum())} {group}" for group in ("syntactic", "positional")]
            sentences.append(f"mask, variant {variant}: {mask.count} of {mask.lit.numel()} heads, {', '.join(groups)}")
        made = self.of["paper"].made
        if made.get("syntax_margin", SYNTAX_MARGIN) != SYNTAX_MARGIN:
            thresholds = f"ξ_synt = {made['syntax_margin']:.2f} and ξ_pos = {made['position_share']:.2f}"
            sentences.append(minus(f"no head passes the paper's thresholds, so they are {thresholds} here"))
        if not any(mask.count for mask in self.of.values()):
            sentences.append("no head passes the thresholds, so relevance flows through no head at all")
        return sentences


def add_mask_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--heads", type=Path, help="head mask file; default: counted on training data and stored")
    parser.add_argument("--train-data", help="texts or parses to count heads on; default: the paper's training data")
    parser.add_argument("--train-texts", type=int, default=5_000, help="count on N random texts; 0: on all (days)")
    parser.add_argument("--spacy", help="spaCy pipeline that parses the texts; default: the small English one")
    return parser


def find_masks(run: Run, explainer: tl.Explainer, options: argparse.Namespace) -> Masks:
    """From --heads, from the model itself, from the folder of stored masks, or counted now and stored there."""
    if options.heads is not None:
        return use_mask(HeadMask.load(options.heads), explainer)
    if (own := own_heads(explainer.inner)) is not None and options.train_data is None:
        return use_mask(own, explainer)
    path = options.output / "masks" / f"{run.name}-{Path(run.model).name}.json"
    counts = load_counts(path, explainer)
    if counts is None or not was_counted_on(counts, run, options):
        counts = count_on_training_data(run, explainer, options, path)
        counts.mask().save(path)
        checkpoint_of(path).unlink(missing_ok=True)
        print(f"stored the head mask {path}")
    if use_small(run, options) and not counts.mask().count:
        return Masks.from_counts(counts, *lower_thresholds(counts))
    return Masks.from_counts(counts)


def lower_thresholds(counts: HeadStatistics) -> tuple[float, float]:
    """ξ_synt and ξ_pos that the strongest few heads of each group pass."""
    seen = counts.pairs > 0
    above = (counts.accuracy - counts.usual_share[:, None, None])[seen].amax(0)
    middles = []
    for strength in (above, counts.position_shares()[1]):
        ordered = strength.flatten().sort(descending=True).values
        middles.append(float(ordered[SMALL_HEADS - 1 : SMALL_HEADS + 1].mean()))
    return middles[0], middles[1]


def use_mask(mask: HeadMask, explainer: tl.Explainer) -> Masks:
    check_fit(mask, explainer.inner)
    if mask.statistics is None:
        return Masks(None, dict.fromkeys(VARIANTS, mask))
    return Masks.from_counts(mask.statistics)


def load_counts(path: Path, explainer: tl.Explainer) -> HeadStatistics | None:
    if not path.is_file():
        return None
    mask = HeadMask.load(path)
    check_fit(mask, explainer.inner)
    return mask.statistics


def was_counted_on(counts: HeadStatistics, run: Run, options: argparse.Namespace) -> bool:
    return counts.source == (small_name(run) if use_small(run, options) else training_texts(run, options).name)


def use_small(run: Run, options: argparse.Namespace) -> bool:
    return run.small and options.train_data is None


def small_name(run: Run) -> str:
    return f"templated texts for {run.name.partition('-')[0]}"


def training_texts(run: Run, options: argparse.Namespace) -> ParseSource:
    """The texts that heads are counted on, with their parses."""
    data = options.train_data or run.paper.data
    split = run.paper.train_split if data == run.paper.data else None
    source = tl.Source(data, split=split, sample=options.train_texts or None, seed=options.seed)
    return parse_source(source, spacy=options.spacy)


def count_on_training_data(
    run: Run, explainer: tl.Explainer, options: argparse.Namespace, path: Path
) -> HeadStatistics:
    """Count with a progress bar; a run that was stopped continues from the file beside `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if use_small(run, options):
        parses = small_parses(run.name.partition("-")[0], SMALL_TEXTS, options.seed)
        return count_heads(explainer, parses, source=small_name(run), total=SMALL_TEXTS)
    texts = training_texts(run, options)
    checkpoint = checkpoint_of(path)
    try:
        return count_heads(explainer, texts.behind, source=texts.name, checkpoint=checkpoint, total=texts.count)
    except ImportError as error:
        raise SystemExit(f"{error}. Or give parses with --train-data, or a mask with --heads") from error
