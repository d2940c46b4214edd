"""What other libraries do not promise: used in one place each, and a word for each about what changed if it goes."""

import ast
import copy
import inspect
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import tokenlight
from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight._compat import accelerate_internals, torch_internals, transformers_internals

PACKAGE = Path(tokenlight.__file__).parent


@contextmanager
def promised(what: str, library: str) -> Iterator[None]:
    """Any failure inside is raised as an error that names the missing internal."""
    try:
        yield
    except Exception as error:
        message = f"{library} no longer {what}: see _compat/{library}_internals.py ({error!r})"
        raise AssertionError(message) from error


# --- torch ------------------------------------------------------------------------------------------------------------


class Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_torch_functions_can_be_hidden_from_modes():
    x = torch.ones(2)
    with promised("lets code hide from a TorchFunctionMode (torch._C.DisableTorchFunction)", "torch"), Watch() as watch:
        with torch_internals.without_torch_functions():
            torch.neg(x)
        assert torch.neg not in watch.seen
        torch.neg(x)
        assert torch.neg in watch.seen


def test_torch_counts_in_place_writes():
    x = torch.ones(2)
    with promised("counts how often a tensor was written (Tensor._version)", "torch"):
        before = torch_internals.changes_of(x)
        x.add_(1)
        assert torch_internals.changes_of(x) > before
        assert torch_internals.changes_of(nn.Parameter(x)) == torch_internals.changes_of(x)


def test_torch_has_the_gradient_of_softmax():
    scores = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    weights, grad = scores.softmax(-1), torch.randn(2, 5, dtype=torch.float64)
    (expected,) = torch.autograd.grad(weights, scores, grad)
    with promised("has its softmax's backward pass as an operation (aten._softmax_backward_data)", "torch"):
        assert torch.equal(torch_internals.softmax_gradient(grad, weights.detach(), -1), expected)


def test_torch_lists_the_hooks_of_a_module():
    module = nn.Linear(2, 2)
    given = [lambda *_: None for _ in range(4)]
    places = (module.register_forward_hook, module.register_forward_pre_hook)
    places += (module.register_full_backward_hook, module.register_full_backward_pre_hook)
    for place, hook in zip(places, given, strict=True):
        place(hook)
    with promised("keeps a module's hooks in dictionaries of it (_forward_hooks, _backward_hooks ...)", "torch"):
        assert {id(hook) for hook in torch_internals.hooks_on(module)} == {id(hook) for hook in given}
        torch_internals.drop_backward_hooks(module)
        assert {id(hook) for hook in torch_internals.hooks_on(module)} == {id(hook) for hook in given[:2]}


@pytest.mark.filterwarnings("ignore")  # torch.compile warns about parts of torch
def test_torch_exposes_the_module_inside_a_compiled_one():
    plain, by_method, forward = (nn.Linear(2, 2) for _ in range(3))
    wrapped: Any = torch.compile(copy.deepcopy(plain))
    by_method.compile()
    forward.forward = torch.compile(forward.forward)
    with promised("marks compiled modules (_orig_mod, _torchdynamo_orig_callable)", "torch"):
        assert isinstance(torch_internals.inside_compiled(wrapped), nn.Linear)
        assert torch_internals.inside_compiled(plain) is None
        assert {torch_internals.uncompiled_name(name) for name in wrapped.state_dict()} == {"weight", "bias"}
        assert torch_internals.compiled_forward(forward) is not None
        assert torch_internals.compiled_forward(plain) is torch_internals.compiled_forward(by_method) is None


# --- transformers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", models.FAMILIES)
def test_transformers_blocks_are_of_one_class(family):
    model: Any = models.model(family, models.default_task(family))
    with promised(f"derives {family}'s blocks from GradientCheckpointingLayer", "transformers"):
        found = [module for module in model.modules() if transformers_internals.is_block(module)]
        assert len(found) == model.config.num_hidden_layers


def test_transformers_makes_additive_masks():
    with promised("makes the mask of eager attention with masking_utils.eager_mask", "transformers"):
        model: Any = models.model("llama", "text-generation")
        ids, mask = models.ids(1), torch.ones(1, 9, dtype=torch.long)
        mask[0, 0] = 0
        takes = inspect.signature(transformers_internals.additive_mask).parameters  # until 5.3 the queries' places
        queries: dict[str, Any] = {"q_length": 9} if "q_length" in takes else {"cache_position": torch.arange(9)}
        full = transformers_internals.additive_mask(
            batch_size=1,
            **queries,
            kv_length=9,
            mask_function=lambda batch, head, query, key: key <= query,
            attention_mask=mask.bool(),
            dtype=model.dtype,
            device=ids.device,
        )
        assert full.shape[-2:] == (9, 9)
        hidden = full[0, 0] < -1e30
        assert torch.equal(hidden, ~torch.ones(9, 9).tril().bool() | (torch.arange(9) == 0))


def test_transformers_exposes_the_attention_implementation_of_a_model():
    model: Any = copy.deepcopy(models.model("bert"))
    with promised("names a model's attention function in its config (_attn_implementation)", "transformers"):
        model.set_attn_implementation("eager")
        assert transformers_internals.attention_of(model.config) == "eager"


def test_transformers_configurations_contain_the_folder_of_the_model():
    config: Any = copy.deepcopy(models.model("bert").config)
    config.name_or_path = "somewhere"
    with promised("writes a model's folder into its config's dictionary (_name_or_path)", "transformers"):
        assert config.to_dict()[transformers_internals.CONFIG_PATH_KEY] == "somewhere"


def test_transformers_tokenizers_can_be_serialized():
    with promised("gives fast tokenizers a backend_tokenizer that writes itself as JSON", "transformers"):
        written = json.loads(transformers_internals.tokenizer_json(explainer_for("bert").tokenizer))
        assert {"model", "normalizer", "pre_tokenizer", "truncation", "padding"} <= written.keys()


# --- accelerate -------------------------------------------------------------------------------------------------------


def test_accelerate_stores_its_hooks_on_modules(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with promised("keeps an object with its settings on every module that it moves (_hf_hook)", "accelerate"):
        accelerate.dispatch_model(model, {"0": "cpu", "1": "disk"}, main_device="cpu", offload_dir=tmp_path)
        assert [accelerate_internals.brings_weights(hook) for hook in accelerate_internals.hooks_of(model[0])] == [
            False
        ]
        (hook,) = [h for h in accelerate_internals.hooks_of(model[1]) if accelerate_internals.brings_weights(h)]
        assert "weight" in accelerate_internals.offloaded_weights(hook)
        assert isinstance(accelerate_internals.tied_weights(hook), dict)
        assert accelerate_internals.reaches_below(hook) in (True, False)
        assert torch.device(accelerate_internals.runs_on(hook)).type == "cpu"
    assert accelerate_internals.hooks_of(nn.Linear(2, 2)) == []


# --- Ray and uvicorn --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_ray_reads_blocks_of_unknown_size():
    data = pytest.importorskip("ray.data")
    from tokenlight._compat import ray_internals

    with promised("takes a ReadTask with a BlockMetadata in which nothing is known", "ray"):
        task = ray_internals.reading_task(lambda: iter([1, 2]))
        assert isinstance(task, data.ReadTask)
        assert list(task()) == [1, 2]


@pytest.mark.filterwarnings("ignore")  # Ray warns about settings of its own
def test_ray_settings_apply_inside_the_context_only():
    data = pytest.importorskip("ray.data")
    from tokenlight._compat import ray_internals

    settings = copy.deepcopy(data.DataContext.get_current())
    settings.target_max_block_size = 123
    with promised("takes other settings inside DataContext.current", "ray"):
        with ray_internals.under(settings):
            assert data.DataContext.get_current().target_max_block_size == 123
        assert data.DataContext.get_current().target_max_block_size != 123


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, as it does unless the tests were started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_uvicorn_calls_the_overridden_methods_of_a_server():
    uvicorn = pytest.importorskip("uvicorn")
    import asyncio

    from tokenlight._compat.uvicorn_internals import WarnedServer

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    calls: list[str] = []
    config = uvicorn.Config(app, port=0, lifespan="off", log_level="critical")
    server = WarnedServer(config, on_signal=lambda: calls.append("signal"), on_end=lambda: calls.append("end"))

    async def serve_until_signal() -> None:
        running = asyncio.ensure_future(server.serve())
        while not server.started and not running.done():
            await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)
        await running

    with promised("calls Server.handle_exit at a signal and Server.shutdown at its end", "uvicorn"):
        with pytest.raises(KeyboardInterrupt):  # handed on by uvicorn once it has ended
            asyncio.run(serve_until_signal())
        assert calls == ["signal", "end"]


# --- nowhere else -----------------------------------------------------------------------------------------------------

MODULES = ("transformers.modeling_layers", "transformers.masking_utils", "ray.data.block", "torch._", "transformers._")
PUBLIC = {"_exit", "_SUCCESS"}  # Python's own os._exit; the name of a file


def underscored(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and len(name) > 1


def own_names(tree: ast.AST) -> set[str]:
    """Private names that a file defines itself."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def foreign_names(path: Path) -> list[str]:
    """Private names of others that a file uses: as an attribute, as the text of one, or by import."""
    tree = ast.parse(path.read_text())
    used: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used.append(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            used.append(node.value)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(MODULES):
            used.append(f"_ of {node.module}")
    return [name for name in used if underscored(name) and name not in own_names(tree) | PUBLIC]


def test_only_compat_modules_use_private_names():
    files = [path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_internals.py")]
    found = {str(path.relative_to(PACKAGE)): names for path in files if (names := foreign_names(path))}
    assert found == {}, "a private name of another library (or of another file): use _compat/*_internals.py"


def test_the_search_for_private_names_finds_some(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "from torch._C import x\nclass A:\n  def _own(self): return self._own, self._not\ny = b._forward_hooks\n"
    )
    assert sorted(foreign_names(file)) == ["_ of torch._C", "_forward_hooks", "_not"]
    assert foreign_names(PACKAGE / "_compat" / "torch_internals.py")
