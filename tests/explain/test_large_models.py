"""Large models: blocks that run again, logits where they are read, weights elsewhere, memory looked at first."""

import copy
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.cli.test_explain import fail, succeed
from tests.methods.test_relevance import uneven
from tests.model.test_untouched import assert_same, state
from tests.rounding import SHARES, assert_near
from tests.together import together
from tests.tokenizers_ import explainer_for
from tokenlight._compat.accelerate_internals import hooks_of
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.diagnostics import doctor
from tokenlight.diagnostics.tiny_models import tiny_model
from tokenlight.explain import memory
from tokenlight.explain import memory as free
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model import behavior_probes, block_structure
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import RecordOptions, record
from tokenlight.rules.tables import ATTN_LRP
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget

ROOT = Path(__file__).parents[2]
LOW = RecordOptions(by_block=True, last_logits=True)
RECORDED = [name for name, entry in METHODS.items() if entry.passes]
ASKING = [name for name, entry in METHODS.items() if not entry.passes and models.scores_tokens(name)]


def target_of(task: str, foil: Any = None) -> BatchTarget:
    return BatchTarget(
        models.task(task), tuple(models.task(task).resolve_target_ids(models.target(task), foil) for _ in range(3))
    )


def same(ordinary: Any, saved: Any) -> None:
    assert_near(saved.scores, ordinary.scores, growth=SHARES)
    for kind in ("extras", "maps"):
        before, after = getattr(ordinary, kind), getattr(saved, kind)
        assert before.keys() == after.keys()
        for name, value in before.items():
            assert_near(after[name], value, size=torch.cat([value.flatten(), ordinary.scores.flatten()]), growth=SHARES)


# --- low_memory -----------------------------------------------------------------------------------------------------

OTHER_HEADS = [(family, task) for family, task in models.USUAL if task != models.default_task(family)]
ONE_FOR_EACH_TABLE = ("generic_attention", "alti_logit", "lrp", "attn_lrp", "alpha_beta_lrp", "transformer_attribution")
WITH_FOILS = ("attn_lrp", "zplus_lrp", "mask_lrp")  # two have a backward pass for the foil, one needs none


def methods_for(family: str, task: str, model: Any) -> list[str]:
    """All where one encoder and one decoder have their usual heads; elsewhere what is kept of a block is the same."""
    fitting = [name for name in RECORDED if METHODS[name].fits(model)]
    if task != models.default_task(family):  # every third, others for the next head
        return fitting[OTHER_HEADS.index((family, task)) % 3 :: 3]
    return fitting if family in ("bert", "llama") else [name for name in fitting if name in ONE_FOR_EACH_TABLE]


@pytest.mark.parametrize(
    ("family", "task", "has_foil"),
    [
        *((family, task, False) for family, task in models.USUAL),
        *((family, models.default_task(family), True) for family in ("bert", "gpt2", "llama", "mixtral")),
        ("bert", "question-answering", True),
    ],
)
def test_blocks_that_run_again_give_the_same(family, task, has_foil):
    model = models.model(family, task, torch.float64)
    names = WITH_FOILS if has_foil else methods_for(family, task, model)
    method_configs = [MethodConfig.for_model(METHODS[name], models.quick_options(name), model) for name in names]
    target = target_of(task, ((1, 3) if task == "question-answering" else 2) if has_foil else None)
    instrumented = InstrumentedModel(model)
    first, ordinary = execute_plan(instrumented, uneven(), plan_passes(target, method_configs))
    again, saved = execute_plan(instrumented, uneven(), plan_passes(target, method_configs), record_options=LOW)
    assert torch.equal(first.score, again.score)
    for one, other in zip(ordinary, saved, strict=True):
        same(one, other)


@pytest.mark.parametrize("name", ["lrp", "attn_lrp", "calibrated_lrp", "alpha_beta_lrp", "zplus_lrp"])
@pytest.mark.parametrize("read", ["embeddings", "blocks"])
def test_shares_maps_and_gates_are_the_same(name, read):
    model = models.model("llama", "text-generation", torch.float64)
    options = {"read": read, "detail": ("layers", "heads", "neurons"), "layer": 1, "heads": models.SOME_HEADS}
    method_configs = [MethodConfig.for_model(METHODS[name], options, model)]
    instrumented, target = InstrumentedModel(model), target_of("text-generation")
    _, (ordinary,) = execute_plan(instrumented, uneven(), plan_passes(target, method_configs))
    _, (saved,) = execute_plan(instrumented, uneven(), plan_passes(target, method_configs), record_options=LOW)
    assert ordinary.extras["masked_share"].abs().max() > 0 or name == "zplus_lrp"
    assert ordinary.maps.keys() == {"layers", "heads", "neurons"}
    same(ordinary, saved)


@pytest.mark.parametrize("name", ["cat", "attcat"])
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_gradients_at_the_outputs_of_blocks_are_the_same(family, name):
    task = models.default_task(family)
    model = models.model(family, task, torch.float64)
    method_configs = [MethodConfig.for_model(METHODS[name], {"states": "outputs", "detail": "layers"}, model)]
    instrumented, target = InstrumentedModel(model), target_of(task)
    _, (ordinary,) = execute_plan(instrumented, uneven(), plan_passes(target, method_configs))
    _, (saved,) = execute_plan(instrumented, uneven(), plan_passes(target, method_configs), record_options=LOW)
    assert (ordinary.maps["layers"][:, -1] != 0).sum(-1).tolist() == [1] * 3  # the last output is read at one token
    same(ordinary, saved)


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("family", ["bert", "gpt2", "gemma2"])
def test_methods_that_ask_again_give_the_same(family, name):
    model, task = models.model(family, models.default_task(family), torch.float64), models.default_task(family)
    resolved = {"method": name, "target": models.target(task), **models.quick_options(name)}
    ordinary = tl.attribute(model, models.ids(), **resolved)
    assert_near(tl.attribute(model, models.ids(), low_memory=True, **resolved), ordinary)


def test_the_graph_of_one_block_is_held_at_a_time(monkeypatch):
    """Every saved tensor is counted while it lives."""
    import weakref

    model = models.model("bert")
    living: dict[int, int] = {}
    highest = 0

    class Held:
        def __init__(self, tensor: torch.Tensor):
            self.tensor = tensor

    def pack(tensor: torch.Tensor) -> Held:
        nonlocal highest
        held = Held(tensor.detach())  # an output that its own node holds would live as long as itself
        if tensor.ndim == 4:  # attention, queries, keys, values
            living[id(held)] = tensor.nbytes
            weakref.finalize(held, living.pop, id(held))
            highest = max(highest, sum(living.values()))
        return held

    peaks = []
    for low in (False, True):
        highest = 0
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor):
            tl.attribute(model, models.ids(), method="gradient_x_input", target=1, low_memory=low)
        peaks.append(highest)
        assert not living
    assert peaks[1] == peaks[0] / 2 > 0  # one of two blocks


@pytest.mark.parametrize("name", ["attn_lrp", "gradient_x_input"])
def test_hooks_of_the_users_run_again_with_their_block(name):
    model: Any = copy.deepcopy(models.model("bert"))
    block = model.bert.encoder.layer[1]
    block.register_forward_pre_hook(lambda module, args: (args[0] + 1.0, *args[1:]))
    block.register_forward_hook(lambda module, args, output: output * 2.0)
    resolved = {"method": name, "target": 1}
    before = state(model)
    ordinary = tl.attribute(model, models.ids(), **resolved)
    saved = tl.attribute(model, models.ids(), low_memory=True, **resolved)
    assert_near(saved, ordinary)
    assert not torch.allclose(ordinary, tl.attribute(models.model("bert"), models.ids(), **resolved), rtol=1e-3)
    assert_same(before, state(model))


def test_blocks_that_hand_on_more_than_a_tensor_are_refused(monkeypatch):
    model: Any = copy.deepcopy(models.model("bert"))
    monkeypatch.setattr(
        behavior_probes, "probe_behavior", lambda instrumented: behavior_probes.Behavior(0.0, False, False)
    )  # it does not run
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, output: (output, output))
    with pytest.raises(UnsupportedModelError, match="low_memory: BertLayer returns more than one tensor"):
        tl.attribute(model, models.ids(), method="attn_lrp", target=1, low_memory=True)


@pytest.mark.parametrize("kind", ["fuyu", "gemma3"])
def test_a_language_model_inside_a_larger_one_keeps_no_keys_for_its_second_run(kind):
    """Its own configuration asks for a cache: a block that runs again found its keys there, without a gradient."""
    model, ids = tiny_model(kind, "text-generation").double(), torch.arange(5, 15)[None]
    for method in ("gradient_x_input", "attn_lrp"):
        ordinary = tl.attribute(model, ids, method=method, target=7)
        assert_near(tl.attribute(model, ids, method=method, target=7, low_memory=True), ordinary, growth=SHARES)
    assert model.config.get_text_config().use_cache


def test_blocks_that_store_keys_in_a_cache_are_refused():
    model: Any = copy.deepcopy(models.model("llama", "text-generation"))
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, "use_cache": True}), with_kwargs=True
    )
    tl.attribute(model, models.ids(), method="gradient_x_input", target=7)
    with pytest.raises(UnsupportedModelError, match="low_memory: LlamaDecoderLayer stores keys and values in a cache"):
        tl.attribute(model, models.ids(), method="gradient_x_input", target=7, low_memory=True)


def test_blocks_that_read_more_of_the_input_are_refused():
    model: Any = copy.deepcopy(models.model("llama", "text-generation"))
    rotary, embed = model.model.rotary_emb, model.model.embed_tokens
    seen = []
    embed.register_forward_hook(lambda module, args, output: seen.append(output))
    rotary.register_forward_hook(lambda module, args, out: tuple(part + args[0][..., :4] * 0 for part in out))
    with pytest.raises(UnsupportedModelError, match="reads more of the input than the state before it"):
        tl.attribute(model, models.ids(), method="gradient_x_input", target=1, low_memory=True)


@pytest.mark.parametrize(
    "needs", [["attention.grad"], ["context.grad", "attention"], ["hidden.grad"], ["embeddings.grad"]]
)
def test_the_ledger_covers_operations_above_the_lowest_signal(needs):
    model, target = models.model("bert", dtype=torch.float64), target_of("text-classification")
    (ordinary,), (saved,) = (
        record(model, uneven(), target, PassSpec(set(needs), rules=ATTN_LRP), record_options=record_options).traces
        for record_options in (RecordOptions(), LOW)
    )
    assert isinstance(ordinary.bias_share, torch.Tensor)
    assert ordinary.bias_share.abs().min() > 0
    assert_near(saved.bias_share, ordinary.bias_share)
    assert_near(saved.softmax_deficit, ordinary.softmax_deficit, size=ordinary.bias_share)


def test_gradients_of_gradients_need_the_whole_graph():
    with pytest.raises(ValueError, match="leave low_memory off"):
        record(
            models.model("bert"),
            uneven(),
            target_of("text-classification"),
            PassSpec({"hidden.grad"}),
            graph=True,
            record_options=LOW,
        )


def test_explain_and_the_command_line_take_low_memory(tmp_path):
    explainer, text = tl.load(), "A charming and often affecting journey ."
    ordinary = explainer.explain_all([text, "Not bad ."], ["attn_lrp", "attcat"], detail="layers")
    saved = explainer.explain_all([text, "Not bad ."], ["attn_lrp", "attcat"], detail="layers", low_memory=True)
    for name, results in ordinary.items():
        for one, other in zip(results, saved[name], strict=True):
            assert_near(one.scores, other.scores)
    alone = explainer.explain(text, low_memory=True).scores
    assert_near(alone, ordinary["attn_lrp"][0].scores)
    (read,) = json.loads(succeed("explain", text, "--low-memory", "--format", "json"))
    assert_near(torch.tensor(read["scores"]), alone)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_half_precision_stays_close(family, dtype):
    task = models.default_task(family)
    resolved = {"method": "attn_lrp", "target": models.target(task)}
    exact = tl.attribute(models.model(family, task), models.ids(), **resolved)
    half = copy.deepcopy(models.model(family, task)).to(dtype)
    ordinary = tl.attribute(half, models.ids(), **resolved)
    assert torch.equal(tl.attribute(half, models.ids(), low_memory=True, **resolved), ordinary)
    together = torch.stack([exact.flatten().float(), ordinary.flatten().float()])
    assert float(torch.corrcoef(together)[0, 1]) > 0.95


# --- logits -----------------------------------------------------------------------------------------------------------


def watched(family: str) -> tuple[Any, list[tuple[int, ...]]]:
    """A language model, and the shapes of the states that its head reads."""
    model: Any = copy.deepcopy(models.model(family, "text-generation", torch.float64))
    shapes: list[tuple[int, ...]] = []
    model.get_output_embeddings().register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[0].shape)))
    behavior_of(model)  # a new model is looked at first
    shapes.clear()
    return model, shapes


@pytest.mark.parametrize("family", [family for family in models.FAMILIES if family not in models.ENCODERS])
def test_logits_are_computed_where_texts_end(family):
    model, shapes = watched(family)
    batch = uneven()
    scores = tl.attribute(model, batch.input_ids, batch.attention_mask, method="attn_lrp", target=7)
    assert shapes == [(3, 2, 16)]  # of nine tokens, the two that texts end at
    _, (everywhere,) = execute_plan(
        InstrumentedModel(model),
        batch,
        plan_passes(target_of("text-generation"), [MethodConfig(METHODS["attn_lrp"], {})]),
        record_options=RecordOptions(),
    )
    assert shapes[1] == (3, 9, 16)
    assert_near(scores, everywhere.scores)


def test_functions_of_the_output_see_all_logits():
    model, shapes = watched("llama")
    seen = []

    def first_token(output: Any) -> torch.Tensor:
        seen.append(tuple(output.logits.shape))
        return output.logits[:, 0, 3]

    tl.attribute(model, models.ids(), method="attn_lrp", target=first_token)
    assert seen[0] == (3, 9, 60)
    assert {shape[1:] for shape in seen} == {(9, 60)}  # also where texts are left out to see whether it mixes them
    assert shapes == [(3, 9, 16)]


def test_the_next_token_stays_the_same_when_the_last_one_is_hidden():
    """Erasure hides the last token; what is read stays where it was."""
    model = models.model("gpt2", "text-generation", torch.float64)
    method_configs = [MethodConfig(METHODS["erasure"], {})]
    plan = plan_passes(target_of("text-generation"), method_configs)
    _, (ordinary,) = execute_plan(InstrumentedModel(model), uneven(), plan)
    _, (saved,) = execute_plan(InstrumentedModel(model), uneven(), plan, record_options=RecordOptions(last_logits=True))
    assert_near(saved.scores, ordinary.scores)


def test_predictions_are_named_from_the_logits_that_were_kept():
    explainer = explainer_for("llama", "text-generation")
    texts = ["the cat sat", "a dog"]
    alone = [explainer.explain(text, "gradient_x_input") for text in texts]
    for one, other in zip(alone, explainer.explain(texts, "gradient_x_input"), strict=True):
        assert (one.prediction, one.target) == (other.prediction, other.target)
        assert one.prediction == one.target
        assert one.probability == pytest.approx(other.probability, rel=1e-4)


# --- weights elsewhere ------------------------------------------------------------------------------------------------


def spread_out(family: str, folder: Path, where: str = "disk") -> Any:
    """The tiny model with its second block elsewhere."""
    task = models.default_task(family)
    model: Any = models.model(family, task)
    model.save_pretrained(folder)
    second = next(name for name, module in model.named_modules() if module is block_structure.blocks(model)[1])
    parents = [second.rsplit(".", depth)[0] for depth in range(1, second.count(".") + 1)]
    places = {name: "cpu" for name, _ in model.named_modules() if name and name not in parents}
    names = [name for name in places if not any(name.startswith(f"{other}.") for other in places)]
    return models.HEADS[task].from_pretrained(
        folder, device_map={**dict.fromkeys(names, "cpu"), second: where}, offload_folder=folder / "elsewhere"
    )


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_weights_on_disk_come_when_they_are_needed(family, low, tmp_path):
    pytest.importorskip("accelerate")
    task = models.default_task(family)
    model = spread_out(family, tmp_path)
    away = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    assert away
    methods = ("gradient_x_input", "attn_lrp", "zplus_lrp", "attcat", "logit", "integrated_gradients", "erasure")
    target, record_options = models.target(task), RecordOptions(by_block=low, last_logits=True)
    expected = together(models.model(family, task), methods, models.ids(), target=target)
    found = together(model, methods, models.ids(), target=target, record_options=record_options)
    for name in methods:
        assert_near(found[name].scores, expected[name].scores, precision=torch.float32, what=name)
    assert away == [name for name, parameter in model.named_parameters() if parameter.is_meta]


def test_models_with_offloaded_weights_stay_unchanged(tmp_path):
    pytest.importorskip("accelerate")
    model = spread_out("bert", tmp_path)
    hooks = {name: id(module._hf_hook) for name, module in model.named_modules() if hasattr(module, "_hf_hook")}
    with torch.no_grad():
        before = model(models.ids()).logits
    tl.attribute(model, models.ids(), method="attn_lrp", target=1, low_memory=True)
    assert hooks == {name: id(m._hf_hook) for name, m in model.named_modules() if hasattr(m, "_hf_hook")}
    with torch.no_grad():
        assert torch.equal(model(models.ids()).logits, before)


@pytest.mark.parametrize("low", [False, True])
def test_weights_that_wait_in_memory(low):
    accelerate = pytest.importorskip("accelerate")
    model = accelerate.cpu_offload(copy.deepcopy(models.model("llama", "text-generation")), execution_device="cpu")
    assert all(parameter.is_meta for parameter in model.parameters())
    resolved = {"method": "attn_lrp", "target": 7}
    expected = tl.attribute(models.model("llama", "text-generation"), models.ids(), **resolved)
    found = tl.attribute(model, models.ids(), low_memory=low, **resolved)
    assert_near(found, expected)
    with pytest.raises(UnsupportedModelError, match="decompositions read the weights, which"):
        tl.attribute(model, models.ids(), method="alti", target=7, low_memory=low)


def test_an_instrumented_model_shares_offloaded_weights():
    accelerate = pytest.importorskip("accelerate")
    model = accelerate.cpu_offload(copy.deepcopy(models.model("llama", "text-generation")), execution_device="cpu")
    pairs = [
        (a, b) for a, b in zip(model.modules(), InstrumentedModel(model).model.modules(), strict=True) if hooks_of(a)
    ]
    assert len(pairs) > 10
    for one, other in pairs:
        (hook,), (copied,) = hooks_of(one), hooks_of(other)
        assert copied is not hook
        assert copied.weights_map is hook.weights_map
        assert copied.tied_params_map is not hook.tied_params_map or hook.tied_params_map is None


def test_missing_weights_are_refused():
    with torch.device("meta"):
        model = type(models.model("bert"))(models.model("bert").config)
    with pytest.raises(UnsupportedModelError, match="not in memory"):
        tl.attribute(model.eval(), models.ids(), method="attn_lrp", target=1)


# --- memory -----------------------------------------------------------------------------------------------------------

SMALL = {"layers": 6, "width": 128, "heads": 4, "inner": 512, "vocabulary": 500, "texts": 8, "tokens": 128}
LONG = {**SMALL, "family": "llama", "layers": 2, "width": 64, "heads": 2, "inner": 256, "texts": 1}
MAPS = {**LONG, "tokens": 384, "heads": 4, "low_memory": True}  # 2.4 MB a layer, 24 times a state
WORDS = {**SMALL, "family": "llama", "method": "attn_lrp", "vocabulary": 16384, "layers": 2}
CASES = [
    {**SMALL, "method": "attn_lrp"},
    {**SMALL, "method": "attn_lrp", "low_memory": True},
    {**SMALL, "method": "transformer_attribution", "layers": 2},
    {**SMALL, "family": "gpt2", "method": "alti_logit"},
    {**SMALL, "family": "llama", "method": "zplus_lrp", "layers": 2},
    {**SMALL, "family": "llama", "method": "gradient_x_input", "width": 256, "heads": 8, "inner": 768, "texts": 4},
    {**WORDS, "last_logits": False},
    WORDS,
    {**SMALL, "method": "lrp", "layers": 16, "width": 64, "heads": 2, "inner": 256, "tokens": 256, "texts": 2},
    *({**LONG, "tokens": tokens, "method": "attn_lrp"} for tokens in (1024, 2048)),
    *({**LONG, "tokens": tokens, "method": "attn_lrp", "low_memory": True} for tokens in (1024, 2048)),
    *({**MAPS, "layers": layers, "method": "generic_attention"} for layers in (2, 7)),
    *({**MAPS, "layers": layers, "method": "transformer_attribution"} for layers in (2, 7)),
    {**LONG, "tokens": 1024, "method": "alpha_beta_lrp"},
    {**LONG, "tokens": 1024, "method": "integrated_gradients"},
]


@pytest.fixture(scope="module")
def measured() -> list[dict[str, float]]:
    """All cases in one process of its own, where nothing else takes memory."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak of the resident memory cannot be read here")
    program = (
        "import json, sys; from dataclasses import asdict; import torch; torch.set_num_threads(1); "
        "from memory import Case, measure; "
        "print(json.dumps([asdict(measure(Case(**case))) for case in json.loads(sys.argv[1])]))"
    )
    places = os.pathsep.join(str(ROOT / name) for name in ("src", "benchmarks"))
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": places}
    command = [sys.executable, "-c", program, json.dumps(CASES)]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.xdist_group("memory")
@pytest.mark.parametrize("number", range(len(CASES)))
def test_estimates_are_near_the_measured_memory(measured, number):
    found = measured[number]
    assert found["peak"] / 1.5 < found["estimate"] < found["peak"] * free.MARGIN, CASES[number]


@pytest.mark.xdist_group("memory")
def test_saving_memory_saves_memory(measured):
    assert measured[1]["peak"] < 0.5 * measured[0]["peak"]  # one block of six
    assert measured[7]["peak"] < 0.3 * measured[6]["peak"]  # logits at one token of 128


@pytest.mark.xdist_group("memory")
@pytest.mark.parametrize("low", [False, True])
def test_memory_grows_with_the_text_and_not_with_its_square(measured, low):
    peaks = [
        found["peak"]
        for found, case in zip(measured, CASES, strict=True)
        if case["tokens"] > 1000 and case["method"] == "attn_lrp" and case.get("low_memory", False) == low
    ]
    assert len(peaks) == 2
    assert peaks[0] < peaks[1] < 2.3 * peaks[0]  # with maps [query, key], it would be 4


@pytest.mark.xdist_group("memory")
@pytest.mark.parametrize("method", ["generic_attention", "transformer_attribution"])
def test_only_the_maps_of_one_layer_are_in_memory(measured, method):
    few, many = (
        found["peak"] - 4 * case["layers"] * case["tokens"] * case["width"]  # the state before each block stays
        for found, case in zip(measured, CASES, strict=True)
        if case["method"] == method and case.get("low_memory")
    )
    one_map = 4 * MAPS["heads"] * MAPS["tokens"] ** 2
    assert many < few + 3 * one_map  # five more layers; in double precision a map is two


def outlook(
    name: str, rows: int = 32, tokens: int = 40, blocks: int = 2, model: Any = None, **record_options: Any
) -> int:
    shape = memory.Shape.of(models.model("bert") if model is None else model)
    entry = METHODS[name]
    method_config = MethodConfig(entry, {"heads": None} if "heads" in entry.options else {})
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget(),) * rows)
    return memory.need_of_plan(
        replace(shape, blocks=blocks),
        plan_passes(target, [method_config]),
        rows,
        tokens,
        RecordOptions(**record_options),
    )


def test_attention_that_is_written_out_is_foreseen_for_functions_as_well():
    shape, method_config = memory.Shape.of(models.model("bert")), MethodConfig(METHODS["gradient_x_input"], {})
    first_logit = ResolvedTarget(kind="function", function=lambda output: output["logits"][:, 0])
    target = BatchTarget(models.task("text-classification"), (first_logit,) * 8)
    fused, written_out = (
        memory.need_of_plan(shape, plan_passes(target, [method_config]), 8, 80, RecordOptions(fused=way))
        for way in (None, False)
    )
    assert written_out > fused


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_an_estimate_that_grows(name):
    alone, many, longer = outlook(name, rows=100), outlook(name, rows=400), outlook(name, rows=100, tokens=80)
    assert 0 < alone < many
    assert longer > 1.99 * alone  # in proportion, but for the answer
    written_out = [outlook(name, rows=100, tokens=tokens, fused=False) for tokens in (40, 80)]
    assert written_out[1] > 2 * written_out[0] or METHODS[name].runs_model  # maps grow with the square
    deep = outlook(name, rows=100, blocks=12)
    assert outlook(name, rows=100, blocks=12, by_block=True) <= deep
    shallow = METHODS[name].runs_model or all(one.last_block for one in METHODS[name].passes)
    assert (deep < 1.1 * alone) if shallow and METHODS[name].passes else (deep > 2 * alone or shallow)


@pytest.mark.parametrize(("family", "task"), models.COMBINATIONS)
def test_every_family_has_a_shape(family, task):
    model = models.model(family, task)
    shape = memory.Shape.of(model)
    assert (shape.blocks, shape.width, shape.heads) == (2, 16, 4)
    assert shape.inner == (64 if family == "gpt2" else 24)
    assert shape.gated == (
        family in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "olmo2")
    )
    assert shape.vocabulary == {"text-classification": 3, "token-classification": 3, "question-answering": 2}.get(
        task, 60
    )


def little_memory(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(free, "ALWAYS_FITS", 0)
    monkeypatch.setattr(free, "free_memory", lambda device: free_bytes)


def test_runs_that_do_not_fit_in_memory_are_refused_before_anything_runs(monkeypatch):
    need = outlook("attn_lrp", rows=3, tokens=9)
    little_memory(monkeypatch, int(need / 2.1))
    monkeypatch.setattr(InstrumentedModel, "run", lambda *args, **settings: pytest.fail("a pass has begun"))
    with pytest.raises(MemoryError) as raised:
        tl.attribute(models.model("bert"), models.ids(), method="attn_lrp", target=1)
    message = str(raised.value)
    assert re.search(
        r"attn_lrp on 3 texts of 9 tokens needs about [\d.]+ MB in addition to the weights; [\d.]+ MB are free", message
    )
    for way in ("batch_size=1", "low_memory=True (about", "shorter texts", "half precision"):
        assert way in message


def test_runs_that_fit_in_memory_are_not_refused(monkeypatch):
    little_memory(monkeypatch, int(outlook("attn_lrp", rows=3, tokens=9) / 1.9))  # estimates are on the high side
    tl.attribute(models.model("bert"), models.ids(), method="attn_lrp", target=1)
    little_memory(monkeypatch, outlook("attn_lrp", rows=3, tokens=9, by_block=True))
    tl.attribute(models.model("bert"), models.ids(), method="attn_lrp", target=1, low_memory=True)
    monkeypatch.setattr(free, "free_memory", lambda device: None)  # not known
    tl.attribute(models.model("bert"), models.ids(), method="attn_lrp", target=1)


def test_small_batches_do_not_query_free_memory(monkeypatch):
    monkeypatch.setattr(free, "free_memory", lambda device: pytest.fail("looked"))
    tl.load().explain("Not bad .")


def test_the_command_line_prints_the_refusal_in_one_line(monkeypatch):
    little_memory(monkeypatch, 1000)
    assert "needs about" in fail("explain", "Not bad .")


@pytest.mark.parametrize("name", ["attn_lrp", "rollout", "transformer_attribution"])
def test_the_largest_batch_is_the_last_that_fits(name):
    shape, entry = memory.Shape.of(models.model("bert")), METHODS[name]
    target, room = BatchTarget(models.task("text-classification"), (ResolvedTarget(),)), 3_000_000
    method_configs = [MethodConfig(entry, {})]
    count = free.largest_batch(shape, plan_passes(target, method_configs), 40, RecordOptions(), room)
    needs = [
        memory.need_of_plan(shape, plan_passes(target, method_configs), rows, 40, RecordOptions())
        for rows in (count, count + 1)
    ]
    assert count > 0
    assert needs[0] <= room < needs[1]
    assert free.largest_batch(shape, plan_passes(target, method_configs), 40, RecordOptions(), 0) == 0


def test_free_memory_is_read_from_the_system_and_its_limits(tmp_path):
    assert sys.platform != "linux" or (free.free_memory(torch.device("cpu")) or 0) > 0
    assert free.free_memory(torch.device("meta")) is None
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nMemAvailable:  60 kB\n")
    assert free.free_in_system(meminfo) == 60 * 1024
    assert free.free_in_group(tmp_path) is None
    for name, text in {
        "memory.max": "1000\n",
        "memory.current": "700\n",
        "memory.stat": "anon 5\ninactive_file 50\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert free.free_in_group(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max\n")
    assert free.free_in_group(tmp_path) is None


def test_doctor_estimates_the_memory_of_methods(monkeypatch):
    explainer = explainer_for("bert")
    monkeypatch.setattr(doctor, "free_memory", lambda device: 2_000_000_000)
    foreseen = doctor.foresee(explainer)
    assert foreseen.tokens == explainer.task.max_length
    found = {one.method: one for one in foreseen.needs}
    assert list(found) == [name for name, entry in METHODS.items() if entry.fits(explainer.inner)]
    assert found["attn_lrp"].need == outlook(
        "attn_lrp", tokens=foreseen.tokens, model=explainer.model, last_logits=True
    )
    assert 0 < (found["attn_lrp"].fitting or 0) < (found["attn_lrp"].fitting_low or 0)
    assert found["random"].need < found["erasure"].need / 1.9  # the control asks once, about the text as it is
    monkeypatch.setattr(doctor, "free_memory", lambda device: None)
    assert doctor.foresee(explainer).needs[0].fitting is None


def test_doctor_prints_the_outlook(tmp_path):
    explainer = explainer_for("bert")
    explainer.model.save_pretrained(tmp_path)
    explainer.tokenizer.save_pretrained(tmp_path)
    out = succeed("doctor", str(tmp_path), "--tokens", "30")
    message = (
        r"Memory in addition to the weights \(\d+ MB\) for texts of 30 tokens, estimated; free on cpu: [\d.]+ [GM]B"
    )
    assert re.search(message, out)
    limit = explainer.model.config.max_position_embeddings
    assert f"the model reads {limit} tokens at most, found 9999" in fail("doctor", str(tmp_path), "--tokens", "9999")
    assert re.search(r"^\s+\d+ MB\s+\d+ MB\s+>? ?\d+\s+>? ?\d+\s+.*\battn_lrp", out, re.MULTILINE)
