"""Recording: the model's own numbers, the right signals, and every trap that made other tools wrong."""

import copy
from functools import cache
from typing import Any

import peft
import pytest
import torch
import transformers as hf
from torch import nn

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tests.together import together
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.diagnostics.tiny_models import tiny_model
from tokenlight.model import block_structure
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.probe import Probe
from tokenlight.record.recorder import RecordOptions, record
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

DECODERS = [family for family in models.FAMILIES if family not in models.ENCODERS]
# Of a difference of two scores over two steps of this length: the curve errs by its square, and rounding, 2e-13 of a
# score by tests/rounding.py, is divided by it.
STEP = 1e-5
OF_A_STEP: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-13 / STEP}
EVERYTHING = ("embeddings.grad", "hidden.grad", "attention.grad", "values.grad")


@cache
def eager(family: str, task: str, dtype: torch.dtype = torch.float32) -> Any:
    plain = copy.deepcopy(models.model(family, task, dtype))
    plain.set_attn_implementation("eager")
    return plain


def uneven_batch(side: str = "right") -> Batch:
    lengths, width = (9, 4, 6), 9
    ids, mask = torch.ones(3, width, dtype=torch.long), torch.zeros(3, width, dtype=torch.long)
    for i, (length, row) in enumerate(zip(lengths, models.ids(3, width), strict=True)):
        place = slice(0, length) if side == "right" else slice(width - length, width)
        ids[i, place], mask[i, place] = row[:length], 1
    return Batch(ids, mask)


def label(task: str) -> int:
    """A token that is not the padding, whose output is always 0 where weights are tied."""
    return 7 if task in ("text-generation", "fill-mask") else 1


def batch_target(task: str, count: int = 3, position: int = 2) -> BatchTarget:
    resolved = {
        "text-classification": ResolvedTarget((label(task),)),
        "text-generation": ResolvedTarget((label(task),)),
        "question-answering": ResolvedTarget((1, 3), kind="span"),
    }.get(task, ResolvedTarget((label(task),), position=position))
    return BatchTarget(models.task(task), (resolved,) * count)


WRITTEN_OUT = RecordOptions(fused=False)  # the operations of eager attention, one by one


def answers(output: Any) -> dict[str, torch.Tensor]:
    return {name: output[name] for name in ("logits", "start_logits", "end_logits") if name in output}


@pytest.mark.parametrize(
    ("family", "task", "needs"),
    [*((*one, ()) for one in models.USUAL), *((*one, EVERYTHING) for one in models.COMBINATIONS)],
)
def test_logits_are_bit_equal_to_eager_attention(family, task, needs):
    batch = uneven_batch()
    recorded = record(
        models.model(family, task), batch, batch_target(task), PassSpec(set(needs)), record_options=WRITTEN_OUT
    ).output
    with torch.no_grad():
        expected = answers(eager(family, task)(input_ids=batch.input_ids, attention_mask=batch.attention_mask))
    real = batch.attention_mask.bool()
    assert expected
    for name, logits in expected.items():
        keep = real if logits.shape[:2] == real.shape else slice(None)
        assert torch.equal(recorded[name][keep], logits[keep])


@pytest.mark.parametrize(("family", "task"), models.COMBINATIONS)
def test_the_score_is_the_requested_output(family, task):
    batch = uneven_batch()
    recording = record(models.model(family, task), batch, batch_target(task))
    output = recording.output
    expected = {
        "text-classification": lambda: output["logits"][:, 1],
        "token-classification": lambda: output["logits"][:, 2, 1],
        "fill-mask": lambda: output["logits"][:, 2, 7],
        "text-generation": lambda: output["logits"][[0, 1, 2], [8, 3, 5], 7],
        "question-answering": lambda: output["start_logits"][:, 1] + output["end_logits"][:, 3],
    }[task]()
    assert torch.equal(recording.pass_output.score, expected)


@pytest.mark.parametrize("signal", ["embeddings", "hidden", "attention", "values"])
@pytest.mark.parametrize("graded", [False, True])
def test_only_requested_signals_are_kept(signal, graded):
    need = f"{signal}.grad" if graded else signal
    (trace,) = record(
        models.model("bert"), uneven_batch(), batch_target("text-classification"), PassSpec({need})
    ).traces
    kept = {"embeddings": (trace.embeddings,) if trace.embeddings else ()}
    kept |= {name: getattr(trace, name) for name in ("hidden", "attention", "values")}
    assert {name for name, signals in kept.items() if signals} == {signal}
    assert len(kept[signal]) == {"embeddings": 1, "hidden": 3, "attention": 2, "values": 2}[signal]
    assert all((s.grad is not None) == graded for s in kept[signal])
    assert not any(s.value.requires_grad for s in kept[signal])


def test_a_value_beside_a_gradient_has_no_gradient_itself():
    needs = ("hidden.grad", "attention")
    (trace,) = record(
        models.model("bert"), uneven_batch(), batch_target("text-classification"), PassSpec(set(needs))
    ).traces
    assert all(s.grad is not None for s in trace.hidden)
    assert all(s.grad is None for s in trace.attention)


@pytest.mark.parametrize("need", ["logits", "attention.gradient", "atention.grad"])
def test_unknown_need_is_named_and_the_known_are_listed(need):
    with pytest.raises(ValueError, match=rf"{need.removesuffix('.grad')}.*embeddings, hidden, attention, values"):
        record(models.model("bert"), uneven_batch(), batch_target("text-classification"), PassSpec({need}))


@pytest.mark.parametrize("family", models.FAMILIES)
def test_shapes_of_the_signals(family):
    task = models.default_task(family)
    (trace,) = record(models.model(family, task), uneven_batch(), batch_target(task), PassSpec(set(EVERYTHING))).traces
    assert trace.embeddings is not None
    assert trace.embeddings.value.shape[:2] == (3, 9)
    assert [s.value.shape for s in trace.hidden] == [(3, 9, 16)] * 3
    assert [s.value.shape for s in trace.attention] == [(3, 4, 9, 9)] * 2
    assert [s.value.shape for s in trace.values] == [(3, 4, 9, 4)] * 2
    for signal in (trace.embeddings, *trace.hidden, *trace.attention, *trace.values):
        assert signal.grad is not None
        assert signal.grad.shape == signal.value.shape


def plain_pass(family: str, task: str, batch: Batch, score: Any) -> dict[str, list[torch.Tensor]]:
    """Attention, block inputs and last output with gradients, by hooks and retain_grad on an eager model."""
    model = copy.deepcopy(eager(family, task))
    model.train(False).requires_grad_(True)
    states: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> None:
        tensor.retain_grad()
        states.append(tensor)

    blocks = block_structure.blocks(model)
    for block in blocks:
        block.register_forward_pre_hook(
            lambda _, args, kwargs: note(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
        )
    blocks[-1].register_forward_hook(lambda _, args, output: note(output if torch.is_tensor(output) else output[0]))
    output = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_attentions=True)
    for attention in output.attentions:
        attention.retain_grad()
    score(output).sum().backward()
    return {"hidden": states, "attention": list(output.attentions)}


@pytest.mark.parametrize("family", models.FAMILIES)
def test_values_and_gradients_equal_a_plain_autograd_pass(family):
    task = models.default_task(family)
    batch = uneven_batch()
    last = torch.tensor([8, 3, 5])
    pick = {
        "text-classification": lambda output: output.logits[:, 1],
        "text-generation": lambda output: output.logits[torch.arange(3), last, 7],
    }[task]
    expected = plain_pass(family, task, batch, pick)
    (trace,) = record(models.model(family, task), batch, batch_target(task), PassSpec(set(EVERYTHING))).traces
    real = batch.attention_mask.bool()
    for name, tensors in expected.items():
        signals = getattr(trace, name)
        assert len(signals) == len(tensors)
        for signal, tensor in zip(signals, tensors, strict=True):
            keep = real if name == "hidden" else (real[:, None, :, None] & real[:, None, None]).expand_as(tensor)
            assert torch.equal(signal.value[keep], tensor[keep])
            assert tensor.grad is not None
            assert float(tensor.grad.abs().max()) > 0
            assert_near(signal.grad[keep], tensor.grad[keep])


@pytest.mark.parametrize("family", ["bert", "gpt2", "distilbert"])  # eager in double throughout
@pytest.mark.parametrize("layer", [0, 1])
def test_hidden_gradient_equals_finite_differences(family, layer):
    task = models.default_task(family)
    model, batch = eager(family, task, torch.float64), Batch(models.ids(2, 5), torch.ones(2, 5, dtype=torch.long))
    (trace,) = record(
        models.model(family, task, torch.float64), batch, batch_target(task, 2), PassSpec({"hidden.grad"})
    ).traces
    direction, step = torch.randn(2, 5, 16, dtype=torch.float64), STEP

    def score(amount: float) -> torch.Tensor:
        def shift(_, args, kwargs):
            if args:
                return (args[0] + amount * direction, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": kwargs["hidden_states"] + amount * direction}

        handle = block_structure.blocks(model)[layer].register_forward_pre_hook(shift, with_kwargs=True)
        try:
            with torch.no_grad():
                logits = model(input_ids=batch.input_ids).logits
        finally:
            handle.remove()
        return logits[:, 1] if task == "text-classification" else logits[:, -1, 7]

    measured = (score(step) - score(-step)) / (2 * step)
    torch.testing.assert_close((trace.hidden[layer].grad * direction).sum((1, 2)), measured, **OF_A_STEP)


def test_embedding_gradient_equals_finite_differences():
    model, ids = models.model("bert", dtype=torch.float64), models.ids(2, 5)
    batch = Batch(ids, torch.ones_like(ids))
    recording = record(model, batch, batch_target("text-classification", 2), PassSpec({"embeddings.grad"}))
    signal = recording.traces[0].embeddings
    assert signal is not None
    assert signal.grad is not None
    probe = Probe(InstrumentedModel(model), batch, recording.selectors)
    direction, step = torch.randn_like(signal.value), STEP
    with torch.no_grad():
        up, down = (
            eager("bert", "text-classification", torch.float64)(inputs_embeds=signal.value + sign * step * direction)
            for sign in (1, -1)
        )
    measured = (up.logits - down.logits)[:, 1] / (2 * step)
    torch.testing.assert_close((signal.grad * direction).sum((1, 2)), measured, **OF_A_STEP)
    _, again = probe.gradient(signal.value)
    torch.testing.assert_close(again, signal.grad)


@pytest.mark.parametrize("family", models.ENCODERS)
def test_extractive_answers_give_a_trace_for_start_and_one_for_end(family):
    recording = record(
        models.model(family, "question-answering"),
        uneven_batch(),
        batch_target("question-answering"),
        PassSpec({"attention.grad", "row"}),
    )
    start, end = recording.traces
    assert torch.equal(start.score, recording.output["start_logits"][:, 1])
    assert torch.equal(end.score, recording.output["end_logits"][:, 3])
    assert start.rows.argmax(1).tolist() == [1, 1, 1]
    assert end.rows.argmax(1).tolist() == [3, 3, 3]
    last = (start.attention[-1].grad, end.attention[-1].grad)
    for grad, row in zip(last, (1, 3), strict=True):
        assert grad is not None
        others = torch.arange(9) != row
        assert grad[:, :, row].abs().max() > 0
        assert (grad[:, :, others] == 0).all()  # an answer logit depends on the last layer's own row only


@pytest.mark.parametrize("family", models.FAMILIES)
def test_last_hidden_is_the_raw_output_of_the_last_block(family):
    task, batch, seen = models.default_task(family), uneven_batch(), []
    model = copy.deepcopy(eager(family, task))
    block_structure.blocks(model)[-1].register_forward_hook(
        lambda _, args, output: seen.append(output if torch.is_tensor(output) else output[0])
    )
    with torch.no_grad():
        states = model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True
        ).hidden_states
    (trace,) = record(
        models.model(family, task), batch, batch_target(task), PassSpec({"hidden"}), record_options=WRITTEN_OUT
    ).traces
    real = batch.attention_mask.bool()
    assert torch.equal(trace.hidden[-1].value[real], seen[0][real])
    if family not in models.ENCODERS:  # transformers gives the state after the final norm there
        assert not torch.allclose(states[-1][real], seen[0][real])


@pytest.mark.parametrize("family", DECODERS)
def test_decoder_signals_do_not_depend_on_later_tokens(family):
    batch = uneven_batch()
    (trace,) = record(
        models.model(family, "text-generation"), batch, batch_target("text-generation"), PassSpec({"attention"})
    ).traces
    ahead = torch.ones(9, 9).triu(1).bool() & batch.attention_mask[:, None, :, None].bool()
    for signal in trace.attention:
        assert (signal.value.masked_select(ahead) == 0).all()
        torch.testing.assert_close(signal.value.sum(-1), torch.ones(3, 4, 9))


@pytest.mark.parametrize("family", DECODERS)
def test_a_logit_in_the_middle_does_not_depend_on_later_tokens(family):
    ids = models.ids(2, 7)
    scores = tl.attribute(
        models.model(family, "text-generation"), ids, method="gradient_l1", target=lambda output: output.logits[:, 3, 5]
    )
    assert (scores[:, :4] > 0).any(1).all()
    assert (scores[:, 4:] == 0).all()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_padding_is_not_attended_to(family, side):
    task, batch = models.default_task(family), uneven_batch(side)
    if side == "left" and family in models.ENCODERS:
        task = "fill-mask"
    (trace,) = record(
        models.model(family, task),
        batch,
        batch_target(task, position=8 if side == "left" else 2),
        PassSpec({"attention"}),
    ).traces
    real, pad = batch.attention_mask.bool(), ~batch.attention_mask.bool()
    for signal in trace.attention:
        toward = signal.value.transpose(1, 2)[real]  # [real query, head, key]
        which = torch.arange(3)[:, None].expand(3, 9)[real]
        assert (toward.masked_select(pad[which][:, None].expand_as(toward)) == 0).all()


@pytest.mark.parametrize("family", [family for family, task in models.COMBINATIONS if task == "text-classification"])
def test_padded_classifiers_read_the_right_token(family):
    batch = uneven_batch()
    model = models.model(family)
    recording = record(model, batch, batch_target("text-classification"), PassSpec({"attention.grad", "row"}))
    for i, length in enumerate((9, 4, 6)):
        with torch.no_grad():
            alone = eager(family, "text-classification")(input_ids=batch.input_ids[i : i + 1, :length]).logits[0]
        assert_near(recording.output["logits"][i], alone)
    grad = recording.traces[0].attention[-1].grad
    assert grad is not None
    rows = recording.traces[0].rows.argmax(1).tolist()
    assert rows == ([0, 0, 0] if family in models.ENCODERS else [8, 3, 5])
    for i, row in enumerate(rows):  # the head reads this token and no other
        assert grad[i, :, row].abs().max() > 0
        assert (grad[i, :, torch.arange(9) != row] == 0).all()


LEFT = [(family, "fill-mask") for family in models.ENCODERS]
LEFT += [
    (f, task) for f, task in models.COMBINATIONS if f in DECODERS and task in ("text-generation", "text-classification")
]


@pytest.mark.parametrize(("family", "task"), LEFT)
def test_padding_on_the_left_changes_nothing(family, task):
    methods = ("attcat", "gradient_x_input", "rollout", "erasure")
    model, batch = models.model(family, task, torch.float64), uneven_batch("left")
    asks = task == "fill-mask"
    targets = [(9 - length + 2, 7) if asks else label(task) for length in (9, 4, 6)]
    found = together(model, methods, batch.input_ids, batch.attention_mask, target=targets)
    for i, length in enumerate((9, 4, 6)):
        row = batch.input_ids[i : i + 1, 9 - length :]
        alone = together(model, methods, row, target=(2, 7) if asks else label(task))
        for name, one in found.items():
            assert_near(one.scores[i, 9 - length :], alone[name].scores[0], what=name)
            assert (one.scores[i, : 9 - length] == 0).all(), name


@pytest.mark.parametrize("kind", ["bart", "roformer", "rwkv", "recurrent_gemma"])
def test_padding_on_the_left_is_refused_where_it_changes_the_answer(kind):
    """Positions that count from the first column, and recurrences that ignore the mask."""
    model, batch = tiny_model(kind, "text-generation"), uneven_batch("left")
    with pytest.raises(UnsupportedModelError, match="looks at padding on the left"):
        tl.attribute(model, batch.input_ids, batch.attention_mask, method="gradient_x_input", target=7)
    tl.attribute(model, batch.input_ids[:1], method="gradient_x_input", target=7)  # without padding


def test_a_model_that_embeds_no_tokens_is_refused_by_name():
    with pytest.raises(UnsupportedModelError, match="CanineForSequenceClassification does not say which layer embeds"):
        tl.attribute(tiny_model("canine", "text-classification"), models.ids(), method="gradient_x_input", target=1)


@pytest.mark.parametrize("family", models.ENCODERS)
def test_padding_an_encoder_classifier_on_the_left_is_refused(family):
    batch = uneven_batch("left")
    with pytest.raises(ValueError, match="does not read the last token: pad on the right"):
        tl.attribute(models.model(family), batch.input_ids, batch.attention_mask, method="attcat", target=1)


@pytest.mark.parametrize("family", models.FAMILIES)
def test_trainable_parameters_change_nothing(family):
    task, methods = models.default_task(family), ("attcat", "generic_attention", "gradient_x_input")
    trainable = models.model(family, task)
    assert all(parameter.requires_grad for parameter in trainable.parameters())
    frozen = copy.deepcopy(trainable).requires_grad_(False)
    one, two = (together(m, methods, models.ids(), target=models.target(task)) for m in (frozen, trainable))
    for name in methods:
        assert torch.equal(one[name].scores, two[name].scores), name


def test_training_mode_does_not_bring_dropout_into_the_result():
    model = copy.deepcopy(models.model("bert")).train()
    assert model.config.hidden_dropout_prob > 0
    expected = tl.attribute(models.model("bert"), models.ids(), method="attcat", target=1)
    assert torch.equal(tl.attribute(model, models.ids(), method="attcat", target=1), expected)


def explain(model: Any) -> torch.Tensor:
    return tl.attribute(model, models.ids(), method="attcat", target=1)


def bert() -> Any:
    return copy.deepcopy(models.model("bert"))


def test_gradient_checkpointing_is_off_in_the_instrumented_model():
    model = bert().train()
    model.gradient_checkpointing_enable()
    assert torch.equal(explain(model), explain(models.model("bert")))
    assert model.is_gradient_checkpointing
    assert not InstrumentedModel(model).model.is_gradient_checkpointing


def test_checkpointed_models_with_adapters_that_ask_for_gradients():
    model = bert()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()  # as training with adapters does: a hook on the embeddings
    assert torch.equal(explain(model), explain(models.model("bert")))
    low = tl.attribute(model, models.ids(), method="attn_lrp", target=1, low_memory=True)
    assert torch.equal(low, tl.attribute(models.model("bert"), models.ids(), method="attn_lrp", target=1))


def never(*_: Any) -> Any:
    raise AssertionError("the compiler ran")


def compile_in_place(model: Any) -> Any:
    model.compile(backend=never)
    return model


def compile_a_block(model: Any) -> Any:
    model.bert.encoder.layer[1] = torch.compile(model.bert.encoder.layer[1], backend=never)
    return model


def compile_a_forward(model: Any) -> Any:
    model.forward = torch.compile(model.forward, backend=never)
    return model


def compile_all(model: Any) -> Any:
    return torch.compile(model, backend=never)


def compile_inside_wrappers(model: Any) -> Any:
    return compile_all(nn.DataParallel(compile_all(compile_a_block(model))))


COMPILERS = [compile_all, compile_in_place, compile_a_block, compile_a_forward, compile_inside_wrappers]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it imports its compiler
@pytest.mark.parametrize("compiled", COMPILERS)
def test_compiled_models_are_explained_as_they_were_written(compiled):
    model = compiled(bert())
    forward = vars(model).get("forward")
    for _ in range(2):  # the second time perhaps with an instrumented model that waited
        assert torch.equal(explain(model), explain(models.model("bert")))
    assert vars(model).get("forward") is forward
    assert not any(hasattr(module, "_orig_mod") for module in InstrumentedModel(model).model.modules())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_changes_inside_a_compiled_block_are_seen():
    model, plain = compile_a_block(bert()), bert()
    explain(model)
    for one in (model.bert.encoder.layer[1]._orig_mod, plain.bert.encoder.layer[1]):
        one.output.dense.weight.data.mul_(2)
    assert torch.equal(explain(model), explain(plain))
    assert not torch.equal(explain(model), explain(models.model("bert")))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_compiled_but_not_the_models_own_is_refused():
    model = bert()
    model.bert.forward = torch.compile(lambda *args, **kwargs: None, backend=never)
    with pytest.raises(tl.UnsupportedModelError, match="the forward of BertModel was replaced by a compiled function"):
        explain(model)
    whole, part = compile_all(bert()), compile_a_block(bert())
    for model, wrapper in [(whole, whole), (part, part.bert.encoder.layer[1])]:
        wrapper.register_forward_hook(lambda *_: None)
        with pytest.raises(
            tl.UnsupportedModelError, match=r"there are hooks on the module that torch\.compile returned"
        ):
            explain(model)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize:UserWarning")  # works, but will go
def test_dynamically_quantized_models_are_refused():
    quantized = torch.ao.quantization.quantize_dynamic(bert(), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(tl.UnsupportedModelError, match="is quantized: load the model in floating point"):
        explain(quantized)


def test_models_quantized_by_transformers_are_refused():
    model = bert()
    model.is_quantized = True
    with pytest.raises(tl.UnsupportedModelError, match="BertForSequenceClassification is quantized"):
        explain(model)


def test_weights_that_are_not_in_memory_are_refused():
    with torch.device("meta"):
        model = hf.BertForSequenceClassification(models.model("bert").config)
    with pytest.raises(tl.UnsupportedModelError, match="meta"):
        explain(model)


TINY = {"vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
T5 = {"vocab_size": 60, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4}
REFUSED = {
    "T5ForConditionalGeneration": (hf.T5Config, T5, "encoder-decoder"),
    "BartForSequenceClassification": (hf.BartConfig, TINY, "encoder-decoder"),
    "BertModel": (hf.BertConfig, models.ENCODER, "no head that tokenlight can explain"),
    "BertForNextSentencePrediction": (hf.BertConfig, models.ENCODER, "no head that tokenlight can explain"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_models_are_refused_by_name_with_the_reason(name):
    config, settings, why = REFUSED[name]
    model = getattr(hf, name)(config(**settings)).eval()
    with pytest.raises(tl.UnsupportedModelError, match=rf"{name}.*{why}"):
        explain(model)


def test_an_object_that_is_no_model_is_refused():
    with pytest.raises(TypeError, match="expected a transformers model, found Linear"):
        explain(nn.Linear(2, 2))


def test_models_with_unknown_attention_terms_run_their_own_attention():
    model: Any = copy.deepcopy(models.model("bert", dtype=torch.float64))
    own = model.bert.encoder.layer[0].attention.self

    class WithBias(type(own)):
        def forward(self, hidden_states, attention_mask=None, past_key_values=None, **kwargs):
            return super().forward(hidden_states, attention_mask, past_key_values, unknown=torch.zeros(4), **kwargs)

    own.__class__ = WithBias
    assert_near(explain(model), explain(models.model("bert", dtype=torch.float64)))


def test_attention_is_refused_where_a_block_has_none():
    model = bert()
    model.bert.encoder.layer[1].forward = lambda hidden_states, *args, **kwargs: hidden_states
    with pytest.raises(tl.UnsupportedModelError, match="1 of the model's 2 blocks have attention"):
        explain(model)
    assert tl.attribute(model, models.ids(), method="gradient_x_input", target=1).any()


def test_a_run_that_differs_from_the_discovered_layout_is_refused():
    model = bert()
    block = model.bert.encoder.layer[1]

    class SkipsLongTexts(type(block)):
        def forward(self, hidden_states, *args, **kwargs):
            long = hidden_states.shape[1] > 8
            return hidden_states if long else super().forward(hidden_states, *args, **kwargs)

    block.__class__ = SkipsLongTexts
    with pytest.raises(tl.UnsupportedModelError, match="does not run as expected"):
        explain(model)


LORA = {
    "bert": ("SEQ_CLS", ["query", "value", "dense"]),
    "llama": ("CAUSAL_LM", ["q_proj", "v_proj", "down_proj"]),
    "gpt2": ("CAUSAL_LM", ["c_attn", "c_proj"]),
}


def with_lora(family: str) -> Any:
    kind, modules = LORA[family]
    inner = copy.deepcopy(models.model(family, models.default_task(family), torch.float64))
    settings = peft.LoraConfig(
        task_type=kind, target_modules=modules, r=2, init_lora_weights=False, fan_in_fan_out=family == "gpt2"
    )
    return peft.get_peft_model(inner, settings).double()


@pytest.mark.parametrize("family", LORA)
def test_lora_equals_the_merged_model(family):
    wrapped, task = with_lora(family), models.default_task(family)

    def explained(model: Any) -> dict[str, torch.Tensor]:
        found = together(model, ("attcat", "integrated_gradients", "erasure"), models.ids(), target=label(task))
        return {name: one.scores for name, one in found.items()}

    adapted, base = explained(wrapped), explained(wrapped.get_base_model())
    merged, plain = explained(wrapped.merge_and_unload()), explained(models.model(family, task, torch.float64))
    for name, scores in adapted.items():
        assert torch.equal(scores, base[name]), name
        assert_near(scores, merged[name], what=name)
        assert not torch.allclose(scores, plain[name]), name


def test_peft_prompts_are_refused():
    settings = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)  # type: ignore[arg-type]
    with pytest.raises(tl.UnsupportedModelError, match="PEFT prompt adds virtual tokens"):
        explain(peft.get_peft_model(bert(), settings))


def test_data_parallel_is_unwrapped():
    assert torch.equal(explain(nn.DataParallel(bert())), explain(models.model("bert")))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("method", ["attcat", "raw_attention", "integrated_gradients", "erasure"])
def test_weights_that_are_not_numbers_give_a_clear_error(method, bad):
    model = bert()
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.bias.fill_(bad)
    with pytest.raises(ValueError, match="output is not finite"):
        tl.attribute(model, models.ids(), method=method, target=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gemma2"])
def test_half_precision_runs_and_is_close(family, dtype, monkeypatch):
    # Some virtual machines promise bfloat16 units that they do not have; any model dies there in oneDNN.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    task = models.default_task(family)
    rounded = copy.deepcopy(models.model(family, task)).to(dtype)
    exact = copy.deepcopy(rounded).double()
    methods = ("attcat", "generic_attention", "gradient_l2", "integrated_gradients")
    found, resolved = (together(m, methods, models.ids(), target=label(task)) for m in (rounded, exact))
    for name in methods:
        ours, expected = found[name].scores, resolved[name].scores
        assert ours.isfinite().all(), name
        error = (ours.double() - expected).abs().amax(1) / expected.abs().amax(1)
        assert (error < (0.15 if dtype is torch.bfloat16 else 0.05)).all(), name


@pytest.mark.parametrize("family", [family for family in models.FAMILIES if family not in ("gpt2", "opt")])
def test_double_stays_double_in_families_that_cast_inside(family):
    task, ids = models.default_task(family), models.ids(2, 5)
    model, batch = models.model(family, task, torch.float64), Batch(ids, torch.ones_like(ids))
    recording = record(model, batch, batch_target(task, 2), PassSpec({"embeddings.grad"}))
    probe = Probe(InstrumentedModel(model), batch, recording.selectors)
    signal = recording.traces[0].embeddings
    assert signal is not None
    direction, step = torch.randn_like(signal.value), STEP
    up, down = (probe.gradient(signal.value + sign * step * direction)[0] for sign in (1, -1))
    assert signal.grad is not None
    slope = (signal.grad * direction).sum((1, 2))
    torch.testing.assert_close(slope, (up - down) / (2 * step), **OF_A_STEP)  # in float32: 1e-2


def test_a_probe_selects_texts_of_a_batch_in_any_order():
    model, batch = models.model("bert"), uneven_batch()
    recording = record(
        model, batch, BatchTarget(models.task("text-classification"), tuple(ResolvedTarget((i,)) for i in range(3)))
    )
    probe = Probe(InstrumentedModel(model), batch, recording.selectors)
    rows = torch.tensor([2, 0, 2])
    some = probe.rows(rows)
    torch.testing.assert_close(some.score(some.batch), recording.pass_output.score[rows])


def test_embeddings_put_in_place_of_the_layers_own():
    model, batch = models.model("roberta"), uneven_batch()
    instrumented, capture = InstrumentedModel(model), Capture()
    expected = instrumented.run(batch, capture).logits
    other = replaced_ids(batch)
    again = instrumented.run(other, Capture(CaptureSpec(embeddings=instrumented.embed(batch.input_ids)))).logits
    assert torch.equal(expected, again)


def replaced_ids(batch: Batch) -> Batch:
    return batch.map(lambda t: torch.where(t > 1, 7, t))
