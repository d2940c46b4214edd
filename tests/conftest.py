import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE"  # some virtual machines promise bfloat16 units they do not have

import pytest
import torch

torch.set_num_threads(1)  # tiny models; the tests run side by side instead
gc.disable()  # until all is imported: looking for garbage, Python would walk all that torch and transformers have made


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _same_randomness():
    # torch.manual_seed would also queue a call for CUDA, with the stack as text, before every test.
    torch.default_generator.manual_seed(0)


@pytest.fixture
def fused_ways(monkeypatch) -> list[bool | None]:
    """How attention was asked for in each batch of a run, from now on."""
    from tokenlight.explain.execute import execute_plan

    ways: list[bool | None] = []

    def noting(*args, record_options, **settings):
        ways.append(record_options.fused)
        return execute_plan(*args, record_options=record_options, **settings)

    monkeypatch.setattr("tokenlight.explain.explainer.execute_plan", noting)
    return ways


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    """The folder of a small classifier."""
    from tests.tokenizers_ import model_for, tokenizer_for

    folder = tmp_path_factory.mktemp("checkpoint")
    model_for("bert").save_pretrained(folder)
    tokenizer_for("bert").save_pretrained(folder)
    return str(folder)
