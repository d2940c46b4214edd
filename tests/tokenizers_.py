"""Small real tokenizers of the three kinds that the families use, and models that fit them."""

import string
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers import models as kinds
from transformers import BertTokenizer, PreTrainedTokenizerFast

import tokenlight as tl
from tests import models

SENTENCES = [
    "The keys to the cabinet are on the table and the key is here",
    "it is a good movie and they are not bad at all",
    "who wrote the book ? the book was written by a young author in Paris",
    "unbelievable films are rarely believable",
] * 4
WORDS = sorted({word.lower() for sentence in SENTENCES for word in sentence.split()} - {"unbelievable", "believable"})
PIECES = ["un", "believ", "##believ", "##able", "film", "##s", "isn", "naive", "東", "京", "–", "'", "ok"]


@cache
def wordpiece() -> Any:
    """As BERT: lower case, accents stripped, [UNK] for what it does not know."""
    characters = string.ascii_lowercase + string.digits
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters)]
    entries += [*string.punctuation, *WORDS, *PIECES]
    return BertTokenizer(vocab={entry: i for i, entry in enumerate(dict.fromkeys(entries))})


@cache
def byte_bpe() -> Any:
    """As GPT-2: bytes with merges, a blank belongs to the word behind it, nothing is added around a text."""
    tokenizer = Tokenizer(kinds.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=380, initial_alphabet=alphabet, special_tokens=special, show_progress=False, min_frequency=2
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>", mask_token="<mask>"
    )


def metaspace(model: Any, **special: str) -> Any:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", **special
    )


@cache
def unigram() -> Any:
    """As XLM-R: SentencePiece writes the blank as ▁ and puts one before the text."""
    words = [f"▁{word}" for sentence in SENTENCES for word in sentence.split()]
    characters = ["▁", *string.ascii_letters, *string.digits, *string.punctuation, "東", "京", "ï", "–", "▁un", "able"]
    pieces = ["<unk>", "<pad>", "<s>", "</s>", *dict.fromkeys([*words, *characters, "<mask>"])]
    scores = [0.0 if i < 4 else -1.0 - 9.0 * (len(piece) == 1) for i, piece in enumerate(pieces)]
    return metaspace(kinds.Unigram(list(zip(pieces, scores, strict=True)), unk_id=0), mask_token="<mask>")


@cache
def metaspace_bpe() -> Any:
    """As Llama 2: merges over ▁, bytes for what is not in the vocabulary."""
    entries = ["<unk>", "<pad>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = ["▁", *string.ascii_letters, *string.punctuation]
    merges = [("a", "r"), ("ar", "e"), ("▁", "are"), ("i", "s"), ("▁", "is"), ("t", "h"), ("th", "e"), ("▁", "the")]
    entries += [*letters, *("".join(merge) for merge in merges)]
    vocabulary = {entry: i for i, entry in enumerate(dict.fromkeys(entries))}
    tokenizer = metaspace(kinds.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


TOKENIZERS = {"wordpiece": wordpiece, "byte_bpe": byte_bpe, "unigram": unigram, "metaspace_bpe": metaspace_bpe}
FITTING = {"roberta": byte_bpe, "gpt2": byte_bpe, "opt": byte_bpe, "xlm_roberta": unigram, "llama": metaspace_bpe}
LABELS = {0: "negative", 1: "neutral", 2: "positive"}


def tokenizer_for(family: str) -> Any:
    return FITTING.get(family, wordpiece)()


@cache
def model_for(family: str, task: str = "text-classification", **settings: Any) -> Any:
    """A tiny model whose vocabulary is that of `tokenizer_for(family)`."""
    kind, common = models.CONFIGS[family]
    tokenizer = tokenizer_for(family)
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": None, "eos_token_id": None}
    room = {"n_positions": 300} if family == "gpt2" else {"max_position_embeddings": 300}
    head = {"num_labels": 2} if task == "question-answering" else {"num_labels": 3, "id2label": LABELS}
    if "num_labels" in settings:
        head = {}
    config = kind(**{**common, **room, **ids, **head, "vocab_size": len(tokenizer), **settings})
    torch.manual_seed(7)
    model = models.HEADS[task].from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def explainer_for(family: str, task: str = "text-classification", **settings: Any) -> tl.Explainer:
    return tl.Explainer(model_for(family, task, **settings), tokenizer_for(family))
