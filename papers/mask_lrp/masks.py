"""The head masks of a run: counted on training data when they are first needed, stored and reused."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tokenlight as tl
from papers.mask_lrp.small_parses import small_parses
from papers.options import Run
from tokenlight.cli.heads import checkpoint_of
from tokenlight.data.read import ParsedTextSource, parse_source
from tokenlight.data.readers import count_hub_rows
from tokenlight.heads.count import count_heads
from tokenlight.heads.mask import HeadMask, check_fit, own_heads
from tokenlight.heads.statistics import POSITION_SHARE, SYNTAX_MARGIN, HeadStatistics
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
    parser.add_argument(
        "--train-texts", type=int, default=5_000, help="count on N random texts; 0: on all, which takes long"
    )
    parser.add_argument("--spacy", help="spaCy pipeline that parses the texts; default: the small English one")
    parser.add_argument(
        "--released",
        action="store_true",
        help="as the release: count heads on training and validation texts, evaluate by its protocol",
    )
    return parser


def find_masks(run: Run, explainer: tl.Explainer, options: argparse.Namespace) -> Masks:
    """From --heads, from the model itself, from the folder of stored masks, or counted now and stored there."""
    if options.heads is not None:
        return use_mask(HeadMask.load(options.heads), explainer)
    if (own := own_heads(explainer.inner)) is not None and options.train_data is None:
        return use_mask(own, explainer)
    released = "-released" if reads_validation(run, options) else ""
    path = options.output / "masks" / f"{run.name}-{Path(run.model).name}{released}.json"
    counts = load_counts(path, explainer)
    if counts is None or not was_counted_on(counts, run, options):
        counts = count_on_training_data(run, explainer, options, path)
        counts.mask().save(path)
        for number in range(2):
            numbered_checkpoint(path, number).unlink(missing_ok=True)
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


def find_counts(run: Run, explainer: tl.Explainer, options: argparse.Namespace) -> HeadStatistics:
    """The counts that the masks are made from; a mask that was made by hand has none and is refused."""
    counts = find_masks(run, explainer, options).counts
    if counts is None:
        raise SystemExit("this mask was made by hand and has no counts: name texts with --train-data instead")
    return counts


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
    return counts.source == (small_name(run) if use_small(run, options) else name_texts(training_texts(run, options)))


def use_small(run: Run, options: argparse.Namespace) -> bool:
    return run.small and options.train_data is None


def small_name(run: Run) -> str:
    return f"templated texts for {run.name.partition('-')[0]}"


def training_texts(run: Run, options: argparse.Namespace) -> list[ParsedTextSource]:
    """The texts that heads are counted on, with their parses; as released, those of the validation split as well."""
    data = options.train_data or run.paper.data
    if data != run.paper.data:
        sizes: dict[str | None, int] = {None: options.train_texts}
    else:
        sizes = share_texts(run, options)
    sources = [
        tl.DataSource(data, split=split, sample=size or None, seed=options.seed) for split, size in sizes.items()
    ]
    return [parse_source(source, spacy=options.spacy) for source in sources]


def share_texts(run: Run, options: argparse.Namespace) -> dict[str | None, int]:
    """How many random texts of each split heads are counted on, in proportion to its size; 0: all."""
    train, validation = run.paper.train_split, run.paper.split
    if not reads_validation(run, options):
        return {train: options.train_texts}
    if not options.train_texts:
        return {train: 0, validation: 0}
    rows = [count_hub_rows(run.paper.data, split) for split in (train, validation)]
    of_validation = max(1, round(options.train_texts * rows[1] / sum(rows)))
    return {train: max(1, options.train_texts - of_validation), validation: of_validation}


def reads_validation(run: Run, options: argparse.Namespace) -> bool:
    """Whether heads are counted on the validation split as well, as in the release; IMDB and Yelp have none."""
    own = options.train_data in (None, run.paper.data) and not use_small(run, options)
    return options.released and own and (run.paper.split or "").startswith("validation")


def name_texts(texts: Sequence[ParsedTextSource]) -> str:
    return " and ".join(source.name for source in texts)


def count_on_training_data(
    run: Run, explainer: tl.Explainer, options: argparse.Namespace, path: Path
) -> HeadStatistics:
    """Count with a progress bar; a run that was stopped continues from the files beside `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if use_small(run, options):
        parses = small_parses(run.name.partition("-")[0], SMALL_TEXTS, options.seed)
        return count_heads(explainer, parses, source=small_name(run), total=SMALL_TEXTS)
    texts, counts = training_texts(run, options), []
    try:
        for number, source in enumerate(texts):
            checkpoint = numbered_checkpoint(path, number)
            counts.append(
                count_heads(
                    explainer, source.parses_after, source=source.name, checkpoint=checkpoint, total=source.count
                )
            )
    except ImportError as error:
        raise SystemExit(f"{error}. Or give parses with --train-data, or a mask with --heads") from error
    return replace(sum(counts[1:], counts[0]), source=name_texts(texts))


def numbered_checkpoint(path: Path, number: int) -> Path:
    """Where the counts of the first or second split are kept until the mask is stored."""
    return checkpoint_of(path.with_stem(f"{path.stem}-{number}") if number else path)
