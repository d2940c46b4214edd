"""A sample of the table of models; and that each of its checks can fail."""

import json
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight._compat.transformers_internals import config_class
from tokenlight.cli import app
from tokenlight.common.error_location import is_refusal
from tokenlight.diagnostics import checks
from tokenlight.diagnostics.checks import SWEPT, ModelChecker, check_model, try_method
from tokenlight.diagnostics.doctor import examine
from tokenlight.diagnostics.sweep import Worker, check_family, texts
from tokenlight.diagnostics.tiny_models import all_types, small_settings, tiny_config, tiny_model
from tokenlight.methods import METHODS, Attribution
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.model_report import Outcome, from_json, to_json
from tokenlight.tasks import TASKS
from tokenlight.views.model_report import families_page

CLASSIFIER, WRITER = "text-classification", "text-generation"
SAMPLE = [("bert", CLASSIFIER), ("gpt2", WRITER), ("modernbert", CLASSIFIER), ("llama", "question-answering")]


@pytest.mark.parametrize(("kind", "task"), SAMPLE)
def test_a_sample_of_the_table(kind, task):
    check = check_family(kind, task)
    assert check.problem == ""
    assert check.precision == "float64"
    assert [outcome.method for outcome in check.outcomes] == list(SWEPT)
    assert not [outcome for outcome in check.outcomes if outcome.verdict in ("crashed", "wrong")]
    assert check.count("works") >= 6
    passed = {entry.name for entry in check.checks if entry.passed}
    assert {"logits", "gradient", "attention", "rows read", "ids past the embedding"} <= passed
    assert {f"batch = single of {outcome.method}" for outcome in check.outcomes if outcome.verdict == "works"} <= passed
    assert {"conservation of attn_lrp", "conservation of lrp"} <= passed


def test_an_encoder_decoder_is_refused_with_its_reason():
    check = check_family("t5", "question-answering")
    assert {outcome.verdict for outcome in check.outcomes} == {"refused"}
    assert "encoder-decoder" in check.outcomes[0].reason


def test_a_family_that_reads_more_than_text_is_not_tried():
    assert "bbox" in check_family("bros", "token-classification").problem


def test_every_text_type_has_small_settings():
    kinds = all_types()
    assert len(kinds) > 180  # 189 in transformers 5.0
    for kind in ("mixtral", "deepseek_v3", "gemma3_text", "mamba2", "falcon[alibi]"):
        config = tiny_config(kind, WRITER)
        assert config.get_text_config().hidden_size <= 48


def test_layers_of_every_kind_are_kept():
    config = config_class("gemma3_text")()
    assert set(small_settings(config)["layer_types"]) == set(config.layer_types)


def test_every_task_has_a_trial_target():
    assert {task for tasks in all_types().values() for task in tasks} == set(TASKS)


# --- every check can fail -------------------------------------------------------------------------------------------


def verdicts(model, rows=None) -> dict[str, Outcome]:
    return {outcome.method: outcome for outcome in check_model(model, rows or texts()).outcomes}


@pytest.fixture
def bert():
    return models.model("bert", CLASSIFIER, torch.float64)


def change_attributions(monkeypatch, change):
    """Apply `change` to the attribution of every method."""
    true = checks.attribute_ids
    monkeypatch.setattr(checks, "attribute_ids", lambda *args: change(true(*args), *args))


def test_wrong_logits_are_noticed(bert, monkeypatch):
    true = InstrumentedModel.run

    def run(self, *args, **kwargs):
        output = true(self, *args, **kwargs)
        output["logits"] = output["logits"] * (1 + 1e-9)
        return output

    monkeypatch.setattr(InstrumentedModel, "run", run)
    outcomes = verdicts(bert)
    assert {outcome.verdict for outcome in outcomes.values()} == {"wrong"}
    assert "logits" in outcomes["raw_attention"].reason


def test_a_wrong_gradient_is_noticed(bert, monkeypatch):
    change_attributions(
        monkeypatch, lambda attribution, *_: Attribution(attribution.scores * (1 + 1e-9), attribution.extras)
    )
    assert "gradient off" in verdicts(bert)["gradient_x_input"].reason


def test_other_attention_is_noticed(bert, monkeypatch):
    true = checks.PlainModel.attention
    monkeypatch.setattr(checks.PlainModel, "attention", lambda *call: [map_ + 1e-9 for map_ in true(*call)])
    wrong = {name for name, outcome in verdicts(bert).items() if outcome.verdict == "wrong"}
    assert wrong == {"raw_attention", "attcat", "transformer_attribution", "alti", "alti_logit"}


def test_attention_that_is_reported_without_its_sinks_is_the_same(monkeypatch):
    model = tiny_model("gpt_oss", WRITER)
    assert attention_passes(model)
    true = checks.PlainModel.attention
    monkeypatch.setattr(
        checks.PlainModel, "attention", lambda *call: [map_ / map_.sum(-1, keepdim=True) for map_ in true(*call)]
    )
    assert attention_passes(model)
    monkeypatch.setattr(checks.PlainModel, "attention", lambda *call: [map_ / 2 for map_ in true(*call)])
    assert not attention_passes(model)


def attention_passes(model) -> bool:
    check = ModelChecker(model, texts(), SWEPT).attention(SWEPT)
    assert check is not None
    return check.passed is True


def test_lost_relevance_is_noticed(bert, monkeypatch):
    def lose(attribution, *_):
        share = {"residual": attribution.scores.abs().sum(1) * 1e-9} if "residual" in attribution.extras else {}
        return Attribution(attribution.scores, {**attribution.extras, **share})

    change_attributions(monkeypatch, lose)
    outcomes = verdicts(bert)
    assert {name for name, outcome in outcomes.items() if outcome.verdict == "wrong"} == {
        "attn_lrp",
        "lrp",
        "alti_logit",
    }
    assert "conservation" in outcomes["lrp"].reason


def test_padding_that_changes_outputs_is_noticed(bert, monkeypatch):
    change_attributions(
        monkeypatch,
        lambda attribution, model, ids, *_: Attribution(attribution.scores * (1 + 1e-9 * len(ids)), attribution.extras),
    )
    outcomes = verdicts(bert)
    assert all("batch = single" in outcomes[name].reason for name in ("alti", "transformer_attribution"))


def test_scores_that_change_fast_may_be_rounded_further(bert, monkeypatch):
    def steep(attribution, *_):
        return Attribution(torch.sin(attribution.scores / attribution.scores.abs().max() * 1e5), attribution.extras)

    smooth = ModelChecker(bert, texts(), ("gradient_x_input",))
    assert 0 < smooth.growth("gradient_x_input") < 100
    assert smooth.tolerance_at(1e-11, "gradient_x_input") < 1e-10
    change_attributions(monkeypatch, steep)
    checking = ModelChecker(bert, texts(), ("gradient_x_input",))
    assert checking.growth("gradient_x_input") > 1e4
    assert checking.tolerance_at(1e-16, "gradient_x_input") == checking.tolerance < 1e-11
    assert 1e-9 < checking.tolerance_at(1e-11, "gradient_x_input") < 1e-4


def test_a_wrong_query_position_is_noticed(bert, monkeypatch):
    monkeypatch.setattr(checks.PlainModel, "query_weights", lambda self, batch, target: batch.attention_mask.double())
    outcomes = verdicts(bert)
    assert {name for name, outcome in outcomes.items() if outcome.verdict == "wrong"} == {
        name for name in SWEPT if METHODS[name].reads_query_position
    }


def test_ids_that_go_past_the_embedding_are_noticed():
    model: Any = tiny_model("bert", CLASSIFIER).double()
    seen: list[torch.Tensor] = []
    assert passes_embedding(model)
    model.register_forward_pre_hook(lambda *call: seen.append(call[2]["input_ids"]), with_kwargs=True)
    model.classifier.register_forward_hook(lambda *call: call[2] + seen[-1][:, 3:4] * 1e-2)
    assert not passes_embedding(model)


def passes_embedding(model) -> bool:
    check = ModelChecker(model, texts(), SWEPT).ids_past_embedding(SWEPT)
    assert check is not None
    return check.passed is True


def test_a_crash_is_not_a_refusal(bert, monkeypatch):
    def crash(*args):
        raise KeyError("oh")

    monkeypatch.setattr(checks, "attribute_ids", crash)
    outcome = try_method(bert, texts(), "lrp")
    assert outcome.verdict == "crashed"
    assert outcome.reason.startswith("KeyError")
    assert "test_sweep.py" in outcome.reason


def test_errors_raised_on_purpose_are_refusals_and_errors_of_python_are_not():
    with pytest.raises(ValueError, match="empty") as refusal:
        tl.attribute(models.model("bert", CLASSIFIER), torch.zeros(0, 0, dtype=torch.long), method="lrp")
    assert is_refusal(refusal.value)
    with pytest.raises(ValueError, match="invalid literal") as mistake:
        int("x")
    assert not is_refusal(mistake.value)


# --- doctor, pages and the command ----------------------------------------------------------------------------------


def test_doctor_prints_the_estimates_of_the_table():
    explainer = explainer_for("bert")
    check = examine(explainer).check
    assert [outcome.method for outcome in check.outcomes] == list(SWEPT)
    assert {outcome.verdict for outcome in check.outcomes} == {"works"}


def test_the_table_is_equal_after_saving_and_renders_as_a_page():
    checks_ = [check_family("bert", CLASSIFIER), check_family("bros", "token-classification")]
    assert from_json(to_json(checks_)) == checks_
    page = families_page(checks_, "Made by hand.")
    assert "| `bert` | 1 | yes | yes | yes | yes | yes | yes | yes | yes |" in page
    assert "None: nothing crashed" in page
    assert "bbox" in page
    assert "1 with every head and all 8 methods, 1 with all that are defined" in page


def test_methods_that_are_undefined_for_a_model_do_not_count_as_missing():
    mamba = check_family("mamba", "text-generation")
    assert {outcome.method for outcome in mamba.outcomes if not outcome.defined} >= {"raw_attention", "attcat", "alti"}
    page = families_page([mamba], "Made by hand.")
    assert "0 with every head and all 8 methods, 1 with all that are defined" in page


def test_the_command_checks_in_a_process_of_its_own(tmp_path):
    path = tmp_path / "families.json"
    ran = CliRunner().invoke(app, ["families", "vaultgemma", "-o", str(path)])
    assert ran.exit_code == 0, ran.output
    assert {check["task"] for check in json.loads(path.read_text())} == set(all_types()["vaultgemma"])


def test_a_type_that_does_not_exist_is_one_line():
    ran = CliRunner().invoke(app, ["families", "brt"])
    assert ran.exit_code == 2
    assert "Did you mean 'bert'?" in ran.stderr


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_tried(tmp_path):
    ran = CliRunner().invoke(app, ["families", "bert", "-o", str(tmp_path / "nowhere" / "families.json")])
    assert ran.exit_code == 2
    (line,) = ran.stderr.splitlines()  # without a line for each head that was tried
    assert "there is no folder" in line


def test_a_crashed_process_does_not_affect_others(monkeypatch):
    worker = Worker(60.0)
    worker.start()
    worker.process.kill()
    assert "died" in worker.check("bert", CLASSIFIER).problem
    worker.stop()
