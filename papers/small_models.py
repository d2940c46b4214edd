"""Small Transformers that are trained from scratch within a minute each, for `--small`.

A model is kept in the user's cache folder under a name that depends on how it is made, and reused from there.
"""

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertTokenizer,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2ForQuestionAnswering,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
)

from papers import small_texts
from tokenlight.common.progress import track

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tokenlight" / "papers"
WIDTH, HEADS, LAYERS = 64, 4, 3
INITIAL = 0.08  # standard deviation of initial weights: models this narrow learn slowly from the usual 0.02
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
IGNORED = -100  # label that cross_entropy leaves out


def all_words() -> list[str]:
    """Every word that the templates can write."""
    draw = random.Random(0)
    texts = [small_texts.make_agreement_sentence(draw, opposite=False).text for _ in range(2000)]
    for _ in range(500):
        question = small_texts.make_question(draw)
        pairs = (small_texts.make_pair(draw), small_texts.make_inference(draw))
        texts += [question.passage, question.question, *(text for pair in pairs for text in pair[:2])]
        texts.append(small_texts.make_review(draw)[0])
    return sorted({word for text in texts for word in text.split()})


def word_piece() -> BertTokenizer:
    return BertTokenizer(vocab={word: index for index, word in enumerate([*SPECIAL, *all_words()])})


def whole_words() -> PreTrainedTokenizerFast:
    """For language models: a token per word with the blank before it, and a token that begins every text."""
    vocabulary = ["<pad>", "<s>", "<unk>", *(f"▁{word}" for word in all_words())]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", unk_token="<unk>")


def roberta_words() -> PreTrainedTokenizerFast:
    """As RoBERTa's tokenizer places its special tokens, but with a token per word."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *(f"▁{word}" for word in all_words())]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", **special
    )


@dataclass(frozen=True)
class Recipe:
    """How a small model is made: its class, its training examples, and how often it is updated."""

    name: str
    build: Callable[[Any], Any]  # tokenizer -> model
    tokenizer: Callable[[], Any]
    loss: Callable[[Any, Any, random.Random], torch.Tensor]  # model, tokenizer, draw -> loss of one batch
    steps: int = 600
    learning_rate: float = 2e-3


def bert_config(tokenizer: Any, **settings: Any) -> BertConfig:
    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=INITIAL,
        **settings,
    )


def roberta_config(tokenizer: Any, **settings: Any) -> RobertaConfig:
    """As `bert_config`; RoBERTa counts positions from the padding's id + 1 on."""
    return RobertaConfig(**{**shared_settings(bert_config(tokenizer)), "type_vocab_size": 1, **settings})


def distilbert_config(tokenizer: Any, **settings: Any) -> DistilBertConfig:
    return DistilBertConfig(
        vocab_size=len(tokenizer), dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, hidden_dim=4 * WIDTH,
        max_position_embeddings=64, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0,
        initializer_range=INITIAL, pad_token_id=0, **settings,
    )  # fmt: skip


def shared_settings(config: BertConfig) -> dict[str, Any]:
    """What BERT and RoBERTa have in common."""
    own = {"model_type", "architectures", "transformers_version", "id2label", "label2id"}
    return {name: value for name, value in config.to_diff_dict().items() if name not in own} | {"pad_token_id": 0}


def masked_verb_loss(model: Any, tokenizer: Any, draw: random.Random) -> torch.Tensor:
    """The verb is masked, and one other word with probability 1/2."""
    sentences = [small_texts.make_agreement_sentence(draw, opposite=False) for _ in range(64)]
    batch = tokenizer([sentence.text for sentence in sentences], return_tensors="pt", padding=True)
    labels = torch.full_like(batch.input_ids, IGNORED)
    for index, sentence in enumerate(sentences):
        verb = 1 + len(sentence.before.split())  # behind [CLS]; a token per word
        positions = [verb] + ([draw.randrange(1, verb)] if draw.random() < 0.5 else [])
        labels[index, positions] = batch.input_ids[index, positions]
        batch.input_ids[index, positions] = tokenizer.mask_token_id
    return cross_entropy(model(**batch).logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def next_word_loss(model: Any, tokenizer: Any, draw: random.Random) -> torch.Tensor:
    texts = [small_texts.make_agreement_sentence(draw, opposite=False).text for _ in range(64)]
    batch = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, IGNORED)[:, 1:]
    return cross_entropy(model(**batch).logits[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def answer_loss(model: Any, tokenizer: Any, draw: random.Random) -> torch.Tensor:
    questions = [small_texts.make_question(draw) for _ in range(64)]
    batch = tokenizer(
        [q.question for q in questions],
        [q.passage for q in questions],
        return_tensors="pt",
        padding=True,
        return_token_type_ids=model.config.model_type == "bert",
    )
    answer_positions = torch.tensor(
        [batch.char_to_token(i, q.start, sequence_index=1) for i, q in enumerate(questions)]
    )
    output = model(**batch)
    return cross_entropy(output.start_logits, answer_positions) + cross_entropy(output.end_logits, answer_positions)


def pair_loss(model: Any, tokenizer: Any, draw: random.Random) -> torch.Tensor:
    make = small_texts.make_pair if model.config.num_labels == 2 else small_texts.make_inference
    rows = [make(draw) for _ in range(64)]
    first, second, labels = zip(*rows, strict=True)
    batch = tokenizer(list(first), list(second), return_tensors="pt", padding=True)
    return cross_entropy(model(**batch).logits, torch.tensor(labels))


def review_loss(model: Any, tokenizer: Any, draw: random.Random) -> torch.Tensor:
    texts, labels = zip(*(small_texts.make_review(draw) for _ in range(32)), strict=True)
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    if model.config.model_type == "distilbert":
        del batch["token_type_ids"]
    return cross_entropy(model(**batch).logits, torch.tensor(labels))


def decoder_settings(tokenizer: Any) -> dict[str, Any]:
    return {"bos_token_id": tokenizer.bos_token_id, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": None}


def gpt2_config(tokenizer: Any) -> GPT2Config:
    return GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=INITIAL, **decoder_settings(tokenizer),
    )  # fmt: skip


def build_llama(tokenizer: Any) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=64,
        initializer_range=INITIAL, **decoder_settings(tokenizer),
    )  # fmt: skip
    return LlamaForCausalLM(config)


def build_roberta_questions(tokenizer: Any) -> RobertaForQuestionAnswering:
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=64 + 2, type_vocab_size=1, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=INITIAL, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return RobertaForQuestionAnswering(config)


def build_distilbert_questions(tokenizer: Any) -> DistilBertForQuestionAnswering:
    return DistilBertForQuestionAnswering(distilbert_config(tokenizer, qa_dropout=0.0))


def build_classifier(tokenizer: Any, labels: Sequence[str]) -> BertForSequenceClassification:
    names = dict(enumerate(labels))
    config = bert_config(tokenizer, id2label=names, label2id={name: index for index, name in names.items()})
    return BertForSequenceClassification(config)


def build_pairs(tokenizer: Any) -> BertForSequenceClassification:
    return build_classifier(tokenizer, ("different", "duplicate"))


def build_inferences(tokenizer: Any) -> BertForSequenceClassification:
    return build_classifier(tokenizer, ("entailment", "neutral", "contradiction"))


OPINIONS: dict[str, Any] = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
REVIEWERS: dict[str, Callable[[Any], Any]] = {
    "bert": lambda t: BertForSequenceClassification(bert_config(t, **OPINIONS)),
    "roberta": lambda t: RobertaForSequenceClassification(roberta_config(t, **OPINIONS)),
    "distilbert": lambda t: DistilBertForSequenceClassification(distilbert_config(t, **OPINIONS)),
}
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("agreement-bert", lambda t: BertForMaskedLM(bert_config(t)), word_piece, masked_verb_loss),
        Recipe("agreement-gpt2", lambda t: GPT2LMHeadModel(gpt2_config(t)), whole_words, next_word_loss),
        Recipe("agreement-roberta", lambda t: RobertaForMaskedLM(roberta_config(t)), word_piece, masked_verb_loss),
        Recipe(
            "agreement-distilbert", lambda t: DistilBertForMaskedLM(distilbert_config(t)), word_piece, masked_verb_loss
        ),
        *(Recipe(f"reviews-{name}", build, word_piece, review_loss, 200, 1e-3) for name, build in REVIEWERS.items()),
        Recipe("agreement-llama", build_llama, whole_words, next_word_loss),
        Recipe("questions", lambda t: BertForQuestionAnswering(bert_config(t)), word_piece, answer_loss),
        Recipe("questions-gpt2", lambda t: GPT2ForQuestionAnswering(gpt2_config(t)), whole_words, answer_loss),
        Recipe("questions-distilbert", build_distilbert_questions, word_piece, answer_loss),
        Recipe("questions-roberta", build_roberta_questions, roberta_words, answer_loss),
        Recipe("pairs", build_pairs, word_piece, pair_loss),
        Recipe("inferences", build_inferences, word_piece, pair_loss),
    )
}


def train(recipe: Recipe, seed: int) -> tuple[Any, Any]:
    """The model and its tokenizer after training."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    tokenizer = recipe.tokenizer()
    model = recipe.build(tokenizer).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.learning_rate, total_steps=recipe.steps)
    for _ in track(range(recipe.steps), f"training {recipe.name}, seed {seed}"):
        loss = recipe.loss(model, tokenizer, draw)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval(), tokenizer


def small_model(name: str, seed: int = 0) -> str:
    """The folder of a trained model; it is trained if it is not in the cache."""
    recipe = RECIPES[name]
    documents: Sequence[str] = (__file__, str(small_texts.__file__))
    version = hashlib.sha256(b"".join(Path(source).read_bytes() for source in documents)).hexdigest()[:12]
    folder = CACHE / f"{name}-seed{seed}-{version}"
    if not folder.is_dir():
        model, tokenizer = train(recipe, seed)
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:  # another process has finished first
            shutil.rmtree(unfinished)
    return str(folder)
