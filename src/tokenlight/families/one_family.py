"""One family with one head: a tiny model of it, every method tried, what they rest on checked."""

from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.explain.checking import check_model, try_method
from tokenlight.explain.plain_model import PlainModel
from tokenlight.families.small_sizes import IDS, VOCABULARY
from tokenlight.families.tiny_models import NotBuilt, is_text, tiny_model
from tokenlight.foundation.blame import located, one_line
from tokenlight.results.model_check import ModelCheck
from tokenlight.text.batches import Batch

LENGTHS = (12, 9)
FIRST_WORD = 5  # ids below mean something special


def check_family(kind: str, task: str) -> ModelCheck:
    """In double precision, where rounding hides nothing; and in single precision, in which people have their models."""
    return replace(checked(kind, task), kind=kind, task=task, text=is_text(kind))


def checked(kind: str, task: str) -> ModelCheck:
    rows = texts()
    try:
        single = tiny_model(kind, task)
    except Exception as error:
        return ModelCheck(kind, problem=f"not built: {reason(error)}")
    try:
        run(single, rows[0])
    except Exception as error:
        return ModelCheck(kind, problem=f"does not run on token ids alone: {reason(error)}")
    double = tiny_model(kind, task).double()
    try:
        run(double, rows[0])
    except Exception:
        return check_model(single, rows)
    found = check_model(double, rows)
    outcomes = tuple(one.or_worse(try_method(single, rows, one.method)) for one in found.outcomes)
    return replace(found, outcomes=outcomes)


def texts() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    words = [torch.randint(FIRST_WORD, VOCABULARY - 1, (length,), generator=generator) for length in LENGTHS]
    for row in words:
        row[-1] = IDS["eos_token_id"]  # some heads read there
    return tuple(words)


def run(model: PreTrainedModel, row: Tensor) -> None:
    """Its own answer, which must be finite and depend on what it reads."""
    plain = PlainModel.of(model)
    answers = [plain.answers(Batch(ids[None], torch.ones_like(ids[None]))) for ids in (row, row.roll(1))]
    if not answers[0]:
        raise NotBuilt("its output has no logits")
    for name, logits in answers[0].items():
        if not torch.isfinite(logits).all():
            raise NotBuilt(f"its {name} are not finite")
        if torch.equal(logits, answers[1][name]):
            raise NotBuilt(f"its {name} do not depend on the tokens")


def reason(error: Exception) -> str:
    return one_line(error) if isinstance(error, NotBuilt | ImportError) else located(error)
