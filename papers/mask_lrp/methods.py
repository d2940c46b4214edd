"""The methods of the paper's tables under their names there, and the protocols that evaluate them."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from papers.facts import Published
from papers.mask_lrp.facts import BASELINES
from papers.mask_lrp.masks import VARIANTS, Masks
from tokenlight.heads.mask import HeadMask
from tokenlight.rules.head_gates import EMPTY
from tokenlight.runs.method_specs import MethodSpec

NAMES = {"paper": "as written", "released": "as released"}  # of the two variants
# Equations 9 to 11 do not normalize rows; the release does.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"variant": "paper", "normalize": False},
    "released": {"variant": "released", "normalize": True},
}
WRITTEN = {"qqp": "mask_lrp_qqp_written"}
RELEASED = {"qqp": "mask_lrp_qqp", "mnli": "mask_lrp_mnli"}
TRANS_ATT = "transformer_attribution"


def add_method_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="of the method; default: both")
    return add_empty_option(parser)


def add_empty_option(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--empty",
        choices=EMPTY,
        default="all",
        help="what passes relevance where no head is lit; default: all heads",
    )
    return parser


def choose_protocol(name: str, released: bool) -> str:
    if name.startswith("squad"):
        return "mask_lrp_squad" if released else "mask_lrp_squad_written"
    return RELEASED.get(name, "mask_lrp") if released else WRITTEN.get(name, "mask_lrp_written")


def masked(label: str, heads: HeadMask, variant: str, empty: str = "all", run_of: str = "") -> MethodSpec:
    """Mask-LRP through these heads."""
    return MethodSpec(label, "mask_lrp", {"heads": heads, "empty": empty, **OPTIONS[variant]}, run_of)


def ours(variant: str) -> str:
    """Label of the method with its own mask."""
    return f"Ours ({NAMES[variant]})"


def random_line(variant: str) -> str:
    """Label of the line for all random masks of a variant."""
    return f"Random mask ({NAMES[variant]})"


def random_masks(masks: Masks, variant: str, runs: int, empty: str = "all") -> list[MethodSpec]:
    """As many heads as the mask has, anywhere; one line of the table for all runs."""
    line, mask = random_line(variant), masks.of[variant]
    return [masked(f"{line}, run {seed + 1}", mask.random(seed), variant, empty, line) for seed in range(runs)]


def every_head(mask: HeadMask) -> HeadMask:
    return HeadMask.by_hand(mask.lit * 0 + 1)


def baselines() -> list[str | MethodSpec]:
    """The eight baselines, and what the release computes under the name GAE."""
    return [*BASELINES.values(), TRANS_ATT]


def own_methods(masks: Masks, variants: Sequence[str], runs: int, empty: str) -> list[str | MethodSpec]:
    """For each variant the method with its mask and with random masks; and the released one with every head."""
    methods: list[str | MethodSpec] = []
    for variant in variants:
        methods += [
            masked(ours(variant), masks.of[variant], variant, empty),
            *random_masks(masks, variant, runs, empty),
        ]
    if "released" in variants:
        methods.append(masked("Every head (as released)", every_head(masks.of["released"]), "released", empty))
    return methods


def titles() -> dict[str, str]:
    """The paper's names of methods by our labels."""
    return {label: theirs for theirs, label in BASELINES.items()} | {TRANS_ATT: "GAE (as released: TransAtt)"}


def by_label(published: Mapping[str, Sequence[Published]]) -> dict[str, Sequence[Published]]:
    """Published numbers by our labels: both readings of a row stand beside the row's numbers."""
    labels = {"Ours": [ours(variant) for variant in VARIANTS], "Random": [random_line(variant) for variant in VARIANTS]}
    labels |= {theirs: [label] for theirs, label in BASELINES.items()}
    labels["GAE"] = [BASELINES["GAE"], TRANS_ATT]
    return {label: numbers for theirs, numbers in published.items() for label in labels.get(theirs, [])}
