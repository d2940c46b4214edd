"""What `heads=` may be, and whether it fits the model."""

from functools import cache
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.masks.head_mask import HeadMask, Strengths
from tokenlight.model.fingerprint import fingerprint, same_model
from tokenlight.model.settings import layers_and_heads

# A mask, a mask file, "own" or "calibrated", numbers [layer, head] by hand, or None: relevance flows through all heads.
HeadsLike = HeadMask | str | Path | Strengths | None
OWN, CALIBRATED = "own", "calibrated"  # heads="own": the mask that comes with the model
FILES = Path(__file__).parent.parent / "embedded" / "files"
PACKAGED = {OWN: FILES / "heads.json", CALIBRATED: FILES / "calibrated.json"}
COMMANDS = {OWN: "heads", CALIBRATED: "calibrate"}  # that make such a mask


def choose_heads(asked: HeadsLike, model: PreTrainedModel) -> HeadMask | None:
    """A mask for this model from a mask, a file, a tensor, "own" or "calibrated"; None stays None: all heads."""
    if asked is None:
        return None
    if isinstance(asked, str) and asked in PACKAGED:
        mask = named_heads(asked, model)
        if mask is None:
            kind = "calibrated head mask" if asked == CALIBRATED else "head mask"
            raise ValueError(
                f"{model_name(model)} comes without a {kind}. Make one: `tokenlight {COMMANDS[asked]} "
                f"{model.config.name_or_path or 'MODEL'} TEXTS -o masks.json`, then heads='masks.json'"
            )
        return mask
    if isinstance(asked, HeadMask):
        mask = asked
    elif isinstance(asked, str | Path):
        mask = HeadMask.load(asked)
    elif isinstance(asked, Tensor | list | tuple) or hasattr(asked, "__array__"):
        mask = HeadMask.by_hand(asked)
    else:
        raise TypeError(f"heads is a HeadMask, a mask file or a tensor [layer, head]; found {type(asked).__name__}")
    check_fit(mask, model)
    return mask


def has_heads(asked: HeadsLike, model: PreTrainedModel) -> bool:
    """False where a mask is asked for by a name that this model has none under."""
    return not (isinstance(asked, str) and asked in PACKAGED) or named_heads(asked, model) is not None


def named_heads(name: str, model: PreTrainedModel) -> HeadMask | None:
    """The mask of that name that ships with the model: the embedded one has them."""
    mask = packaged_heads(name)
    return mask if mask is not None and same_model(mask.fingerprint, fingerprint(model)) else None


def own_heads(model: PreTrainedModel) -> HeadMask | None:
    return named_heads(OWN, model)


def calibrated_heads(model: PreTrainedModel) -> HeadMask | None:
    return named_heads(CALIBRATED, model)


@cache
def packaged_heads(name: str) -> HeadMask | None:
    return HeadMask.load(PACKAGED[name]) if PACKAGED[name].is_file() else None


def check_fit(mask: HeadMask, model: PreTrainedModel) -> None:
    expected, found = layers_and_heads(model), tuple(mask.lit.shape)
    if found != expected:
        raise ValueError(
            f"the head mask has {found[0]} layers of {found[1]} heads; {model_name(model)} has {expected[0]} of "
            f"{expected[1]}: make one for this model with `tokenlight heads`"
        )
    if mask.fingerprint and not same_model(mask.fingerprint, fingerprint(model)):
        raise ValueError(
            f"the head mask was made for {mask.model}, whose weights are not those of {model_name(model)}: make one "
            "for this model with `tokenlight heads`, or pass heads=mask.lit to use it all the same"
        )


def model_name(model: PreTrainedModel) -> str:
    return model.config.name_or_path or type(model).__name__
