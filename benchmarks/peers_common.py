"""Functions shared by all peers: a model from a folder, batches of equal size, the explained logit, peak memory."""

import ctypes
import gc
import json
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

BATCH = 16  # texts that run together, where a library takes several
STEPS = int(os.environ.get("PEERS_STEPS", "50"))  # of integrated gradients
ROWS = 32  # interpolated texts that run together
RESET_PEAK = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Tokens:
    """A padded batch."""

    ids: Tensor  # [text, token]
    mask: Tensor
    baseline: Tensor  # the ids that integrated gradients starts from


@dataclass(frozen=True)
class Subject:
    """The model that all libraries explain: a classifier's logit, or that of a next token."""

    model: Any
    tokenizer: Any
    task: str  # "classes" or "next token"

    @property
    def baseline_id(self) -> int:
        if self.task == "next token" and self.tokenizer.unk_token_id is not None:
            return self.tokenizer.unk_token_id  # inseq has no other
        return self.tokenizer.pad_token_id

    def encode(self, texts: Sequence[str]) -> Tokens:
        made = self.tokenizer(list(texts), padding=True, return_special_tokens_mask=True, return_tensors="pt")
        special = made["special_tokens_mask"].bool() & made["attention_mask"].bool()
        baseline = torch.where(special, made["input_ids"], self.baseline_id)
        return Tokens(made["input_ids"], made["attention_mask"], baseline)

    def embed(self, ids: Tensor) -> Tensor:
        return self.model.get_input_embeddings()(ids).detach()

    def logits(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """[text, class or word]; the last linear layer of a language model runs where texts end, nowhere else."""
        if self.task == "classes":
            return self.model(inputs_embeds=embeddings, attention_mask=mask).logits
        states = self.model.base_model(inputs_embeds=embeddings, attention_mask=mask, use_cache=False)[0]
        last = states[torch.arange(len(states)), mask.sum(1) - 1]
        return self.model.get_output_embeddings()(last)

    @torch.no_grad()
    def plain_logits(self, texts: Sequence[str], targets: Sequence[int]) -> list[float]:
        """Logits, to check that every environment runs the same model."""
        batch = self.encode(texts)
        found = self.logits(self.embed(batch.ids), batch.mask)
        return found[torch.arange(len(texts)), torch.tensor(targets)].tolist()

    @torch.no_grad()
    def choose(self, texts: Sequence[str]) -> list[int]:
        """The predicted classes."""
        batch = self.encode(texts)
        return self.logits(self.embed(batch.ids), batch.mask).argmax(1).tolist()

    def touch(self) -> None:
        """Read all weights, so that they are in memory."""
        for weight in self.model.parameters():
            weight.sum()


def load(folder: Path) -> Subject:
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    classes = architecture.endswith("ForSequenceClassification")
    auto = transformers.AutoModelForSequenceClassification if classes else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(folder).float().eval().requires_grad_(False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "right"
    torch.set_num_threads(1)
    return Subject(model, tokenizer, "classes" if classes else "next token")


def in_batches(
    subject: Subject, texts: Sequence[str], targets: Sequence[int], run: Callable[[Tokens, Tensor], Tensor]
) -> list[list[float]]:
    """Scores of texts in batches of similar length; results are in the order of the texts, without padding."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    scores_by_index: dict[int, list[float]] = {}
    for first in range(0, len(order), BATCH):
        indices = order[first : first + BATCH]
        batch = subject.encode([texts[i] for i in indices])
        scores = run(batch, torch.tensor([targets[i] for i in indices])).detach()
        scores_by_index |= {
            i: row[mask.bool()].tolist() for i, row, mask in zip(indices, scores, batch.mask, strict=True)
        }
    return [scores_by_index[i] for i in range(len(texts))]


def resident(name: str) -> int:
    """A value of the process's status, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def peak_of(prepare: Callable[[], object], task: Callable[[], object]) -> int:
    """How far the task raises the resident memory, in bytes, in a process of its own that begins as a copy of this one.

    Before the first backward pass only: autograd cannot be copied once its engine runs.
    """
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading) as told:
            said = told.read()
        os.waitpid(child, 0)
        if not said.lstrip("-").isdigit():
            raise RuntimeError(said or "the process that measures memory was killed")
        return int(said)
    try:
        give_back_memory()
        prepare()
        gc.collect()
        RESET_PEAK.write_text("5")
        before = resident("VmRSS")
        task()
        said = str(resident("VmHWM") - before)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    os.write(writing, said.encode())
    os._exit(0)


def give_back_memory() -> None:
    """Return freed memory to the system: glibc keeps it, which would distort the resident memory."""
    threshold_of_pieces, size = -3, 65536
    ctypes.CDLL(None).mallopt(threshold_of_pieces, size)


@contextmanager
def stand_in_for_torchvision() -> Iterator[None]:
    """LXT imports torchvision's vision transformer, which has no build for every torch; text models do not use it."""
    vision = types.ModuleType("torchvision.models.vision_transformer")
    vars(vision)["nn"] = torch.nn
    models, whole = types.ModuleType("torchvision.models"), types.ModuleType("torchvision")
    models.vision_transformer, whole.models = vision, models  # type: ignore[attr-defined]
    made = {"torchvision": whole, "torchvision.models": models, vision.__name__: vision}
    sys.modules |= made
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]  # transformers must not find one that has no transforms
