"""Head masks of the page: the presets, the map, and what the browser's lit heads mean."""

from dataclasses import asdict
from typing import Any

import torch

from tokenlight.masks.choosing import CALIBRATED, OWN, calibrated_heads, has_heads
from tokenlight.masks.head_mask import HeadMask, rows
from tokenlight.masks.roles import roles
from tokenlight.methods import Method
from tokenlight.methods.relevance import CALIBRATED_RULES
from tokenlight.serve.checks import Lit, Refused
from tokenlight.serve.session import Session

TITLES = {
    "paper": "the paper's mask",
    "syntactic": "syntactic heads only",
    "positional": "positional heads only",
    "calibrated": "the calibrated mask",
    "all": "all heads",
    "none": "no heads",
}


def presets(session: Session) -> list[dict[str, Any]]:
    """Masks to start from, by name; the first is the model's own, if it has one."""
    mask, calibrated = session.mask, calibrated_heads(session.explainer.inner)
    masks: dict[str, HeadMask] = {}
    titles = dict(TITLES)
    if mask is not None:
        masks = {"paper": mask, "syntactic": mask.only("syntactic"), "positional": mask.only("positional")}
        if mask.calibrated is not None:
            titles["paper"] = "the mask of your file, calibrated"
    if calibrated is not None:
        masks["calibrated"] = calibrated
    masks["all"] = HeadMask.by_hand(torch.ones(session.shape))
    masks["none"] = HeadMask.by_hand(torch.zeros(session.shape))
    return [{"name": name, "title": titles[name], "lit": rows(mask.lit)} for name, mask in masks.items()]


def default_mask(session: Session, method: Method) -> HeadMask | None:
    """What a method takes when the page says nothing: the session's mask, if it is of the kind that it wants."""
    resolved, mask = method.options.get("heads"), session.mask
    if mask is None or resolved not in (OWN, CALIBRATED):
        return None
    made_for_it = mask.calibrated is not None and mask.made.get("method") in CALIBRATED_RULES
    return mask if resolved == OWN or made_for_it else None


def lacks_mask(session: Session, method: Method) -> bool:
    """Whether the method cannot run before somebody lights heads for it."""
    return default_mask(session, method) is None and not has_heads(method.options.get("heads"), session.explainer.inner)


def head_map(session: Session) -> list[list[dict[str, Any]]] | None:
    """[layer][head] what each head does."""
    if session.mask is None:
        return None
    return [[{**asdict(role), "label": role.label} for role in layer] for layer in roles(session.mask)]


def lit_heads(session: Session, lit: Lit) -> HeadMask:
    """The heads that are lit on the page as a mask.

    A head keeps the group that the model's own mask has it in, since Mask-LRP scales each group on its own: so the
    own mask, lit by hand, is the own mask. Heads of no group count as syntactic.
    """
    layers, heads = session.shape
    found = sorted({len(row) for row in lit})
    if len(lit) != layers or found != [heads]:
        counts = " or ".join(map(str, found))
        raise Refused(f"heads has {len(lit)} rows of {counts} numbers; the model has {layers} layers of {heads} heads")
    strength = torch.tensor(lit, dtype=torch.float64)
    own = session.mask
    for known in (own, calibrated_heads(session.explainer.inner)):
        if known is not None and torch.equal(strength, known.lit):
            return known
    if own is None or own.calibrated is not None:  # a calibrated mask is one group
        return HeadMask.by_hand(strength)
    positional = own.positional > 0
    syntactic = (own.syntactic > 0) | ~positional
    return HeadMask(strength * syntactic, strength * positional, {"by": "hand"})
