"""The numbers of the authors' own releases, on small random models, in double precision; all rows in one batch."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel

import tokenlight as tl
from tests import models
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

GOLDEN = Path(__file__).parents[1] / "golden"
CLASSIFIERS = ("bert", "roberta", "distilbert")


# The mask in the release's file.
RELEASED_HEADS = [[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]]
DECOMPOSITIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("alti", "alti", {}),
    ("alti_l2", "alti", {"norm": "l2"}),
    ("alti_ln2", "alti", {"second_norm": True}),
    ("norms", "value_norms", {}),
    ("globenc", "globenc", {}),
]
# In this row the release's 1e-6 decides one row of C, which sums to 3e-8 of its norm.
UNDEFINED = {("bert", "alti_ln2"): 1}


class Case(NamedTuple):
    """A method with its options against one key of one file; tolerance is relative to the row's largest entry."""

    method: str
    key: str
    family: str = "bert"
    file: str = "mask_lrp_release"
    tolerance: float = 1e-6
    first: int = 1  # the Mask-LRP release overwrites position 0 with 0
    target: int = 1
    foil: int | None = None
    options: dict[str, Any] = {}  # noqa: RUF012


CASES = [
    Case("raw_attention", "raw_attention"),
    Case("rollout", "rollout"),
    Case("attcat", "attcat", first=0),
    Case("attention_cam", "cam"),
    Case("attention_grad_cam", "grad_cam"),
    # The release adds 1e-9 to every denominator, which is what these tolerances allow for.
    Case("transformer_attribution", "transatt", tolerance=3e-4),
    Case("partial_lrp", "partial_lrp", tolerance=3e-4),
    Case("zplus_lrp", "lrp_zplus", tolerance=3e-4),
    *(
        Case("mask_lrp", key, tolerance=3e-4, options={"variant": "released", "heads": heads})
        for key, heads in (("mask_lrp_released", RELEASED_HEADS), ("mask_lrp_released_ones", [[1] * 4] * 4))
    ),
    Case("attn_lrp", "scores", "bert", "attnLRP.lxt", 1e-4, first=0),
    *(Case("attn_lrp", "scores", f, "attnLRP.lxt", 1e-4, 0, target=7, foil=8) for f in ("gpt2", "llama", "qwen2")),
    *(Case("lrp", "scores", f, "cp_LRP.lxt", 1e-4, 0, target=7, foil=8) for f in ("gpt2", "llama")),
    *(
        Case(method, key, family, "alti", 1e-4, first=0, options=options)
        for family in CLASSIFIERS
        for key, method, options in DECOMPOSITIONS
    ),
    Case("alti_logit", "alti_logit", "gpt2", "alti_logit", 1e-4, 0, target=7, foil=8),
]


@cache
def golden_model(family: str) -> PreTrainedModel:
    auto = AutoModelForSequenceClassification if family in CLASSIFIERS else AutoModelForCausalLM
    return auto.from_pretrained(GOLDEN / family).double().eval()


@cache
def golden_file(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def golden_ids() -> Tensor:
    return torch.tensor(golden_file("inputs.json")["input_ids"])


def golden_rows(case: Case) -> Tensor:
    rows = golden_file(f"{case.family}.{case.file}.json")["rows"]
    return torch.tensor([row[case.key] for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.family}-{case.method}-{case.key}")
def test_equals_the_release(case):
    ours = tl.attribute(
        golden_model(case.family),
        golden_ids(),
        method=case.method,
        target=case.target,
        foil=case.foil,
        **case.options,
    )[:, case.first :]
    theirs = golden_rows(case)[:, case.first :]
    assert ours.shape == theirs.shape == (3, 11 - case.first)
    for row, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if UNDEFINED.get((case.family, case.key)) == row:
            continue
        largest = float(their.abs().max()) or 1.0  # CAM of the last row is all zeros
        torch.testing.assert_close(our, their, rtol=0, atol=case.tolerance * largest)


def test_logits_equal_the_release():
    with torch.no_grad():
        ours = golden_model("bert")(golden_ids()).logits
    theirs = golden_rows(Case("", "logits"))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6 * float(theirs.abs().max()))


def test_the_explained_number_is_the_release_logit():
    seen = []

    def class_one(output):
        seen.append(output.logits[:, 1])
        return seen[-1]

    tl.attribute(golden_model("bert"), golden_ids(), method="raw_attention", target=class_one)
    torch.testing.assert_close(seen[0], golden_rows(Case("", "logits"))[:, 1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_the_first_layers_whole_matrix_equals_the_release(family):
    model, ids = golden_model(family), golden_ids()
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 3)
    method_config = MethodConfig(METHODS["alti"], {"layers": True})
    _, (result,) = execute_plan(
        InstrumentedModel(model), Batch(ids, torch.ones_like(ids)), plan_passes(target, [method_config])
    )
    theirs = golden_rows(Case("alti", "alti_layer0", family, "alti"))
    torch.testing.assert_close(result.maps["contributions"][:, 0], theirs, rtol=0, atol=1e-4)


def test_mlp_contributions_equal_the_release():
    model, ids = golden_model("gpt2"), golden_ids()
    target = BatchTarget(models.task("text-generation"), (ResolvedTarget((7,), (8,)),) * 3)
    answer, (result,) = execute_plan(
        InstrumentedModel(model),
        Batch(ids, torch.ones_like(ids)),
        plan_passes(target, [MethodConfig(METHODS["alti_logit"], {})]),
    )
    case = Case("alti_logit", "mlp", "gpt2", "alti_logit")
    torch.testing.assert_close(result.maps["mlp"], golden_rows(case), rtol=0, atol=1e-6)
    torch.testing.assert_close(answer.score, golden_rows(case._replace(key="score")), rtol=0, atol=1e-6)
