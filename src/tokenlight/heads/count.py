"""Counts, over parsed texts, the words and positions that each head attends to most; words are aligned to tokens."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokenlight.common.error_location import reason_to_skip
from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.common.formatting import describe_count
from tokenlight.common.progress import count_progress
from tokenlight.explain.explainer import Explainer
from tokenlight.heads.mask import model_name
from tokenlight.heads.parses import Parse
from tokenlight.heads.statistics import RELATIONS, HeadStatistics
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.config import layers_and_heads
from tokenlight.model.fingerprint import fingerprint
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.runs.model_hash import hash_model
from tokenlight.text.batch import length_batches
from tokenlight.text.tokenize import encode_each
from tokenlight.text.tokenized_text import TokenizedText


class Pair(NamedTuple):
    """A dependent and its syntactic head, as tokens of one text."""

    relation: int
    query: int  # the first sub-word of the attending word
    start: int  # first token of the attended word
    end: int  # the token after its last one
    distance: int  # in words of the parse: dependent minus head


def align(
    parse: Parse, tokenized_text: TokenizedText, numbers: Mapping[str, int], direction: str
) -> tuple[list[Pair], int]:
    """The pairs whose relation has a number, and the number of pairs without tokens, for example after truncation."""
    if parse.text != tokenized_text.text:
        raise RefusedValue(f"the parse is of another text: {parse.text!r} instead of {tokenized_text.text!r}")
    segments = [tokenized_text.segment_index(segment) for segment in (0, 1)]
    pairs, not_found = [], 0
    for i, word in enumerate(parse.words):
        if word.head is None or word.relation not in numbers:
            continue
        head = parse.words[word.head]
        words = (word, head) if direction == "dependent-head" else (head, word)
        attending, attended = (segments[end.segment].find(end.span) for end in words)
        if attending is None or attended is None:
            not_found += 1
        else:
            pairs.append(Pair(numbers[word.relation], attending[0], *attended, i - word.head))
    return pairs, not_found


CHUNK = 1024  # texts that are sorted by length and counted together
TOKEN_BUDGET = 2048  # tokens of a batch, padding included
DIRECTIONS = ("dependent-head", "head-dependent")


@dataclass
class StrongestCapture(Capture):
    """Keeps, instead of attention maps, the key with the largest weight: [batch, head, query] for every layer."""

    strongest: list[Tensor] = field(default_factory=list)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"attention"})

    def add(self, name: str, tensor: Tensor) -> Tensor:
        if name == "attention":
            self.strongest.append(tensor.argmax(-1))
        return super().add(name, tensor)


def count_heads(
    explainer: Explainer,
    parses: Iterable[Parse] | Callable[[int], Iterable[Parse]],
    *,
    relations: Mapping[str, Sequence[str]] = RELATIONS,
    direction: str = "dependent-head",
    source: str = "",
    checkpoint: str | Path | None = None,
    total: int | None = None,
    progress: bool = True,
) -> HeadStatistics:
    """Head statistics over parsed texts, which are read once, as a stream.

    With a `checkpoint` file, counts are stored there after every chunk. A second call with the same texts continues
    after those that are already counted; `parses` may be a function that returns the parses after the first n.
    `total` is the number of texts, for the progress bar.
    """
    if direction not in DIRECTIONS:
        raise RefusedValue(f"direction must be one of {', '.join(DIRECTIONS)}; found {direction!r}")
    if not relations:
        raise RefusedValue("expected at least one relation, found none")
    labels = number_labels(relations)
    counts = empty = empty_statistics(explainer, tuple(relations), direction, source)
    metadata = {} if checkpoint is None else {"labels": as_lists(relations), "sha256": hash_model(explainer)}
    if checkpoint is not None and Path(checkpoint).exists():
        counts = resume(Path(checkpoint), empty, metadata)
    instrumented = InstrumentedModel(explainer.model)
    with count_progress("counting heads", total, counts.texts, progress) as advance:
        for chunk in chunks(parses(counts.texts) if callable(parses) else islice(parses, counts.texts, None)):
            counts = counts + count_chunk(explainer, instrumented, chunk, labels, empty)
            if checkpoint is not None:
                write_atomically(Path(checkpoint), json.dumps({**counts.to_dict(rare=0), **metadata}))
            advance(len(chunk))
    if not counts.texts:
        raise RefusedValue("there are no texts to count heads on")
    if not counts.tokens:
        raise RefusedValue(f"none of the {counts.texts} texts can be read: there is nothing to count heads on")
    return counts


def number_labels(relations: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """{label of the parser: index of the relation that counts it}"""
    names = list(relations)
    labels: dict[str, int] = {}
    for i, name in enumerate(names):
        for label in relations[name]:
            first = labels.setdefault(label, i)
            if first != i:
                raise RefusedValue(
                    f"the relations {names[first]!r} and {name!r} both count the label {label!r}, but a pair of "
                    "words is counted once: leave one of them out"
                )
    return labels


def as_lists(relations: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Relations with sorted labels, as stored in a checkpoint."""
    return {name: sorted(labels) for name, labels in relations.items()}


def chunks(parses: Iterable[Parse]) -> Iterator[list[Parse]]:
    stream = iter(parses)
    while chunk := list(islice(stream, CHUNK)):
        yield chunk


def empty_statistics(explainer: Explainer, relations: tuple[str, ...], direction: str, source: str) -> HeadStatistics:
    """Statistics over no texts."""
    model = explainer.inner
    return HeadStatistics(
        relations=relations,
        pairs=torch.zeros(len(relations), dtype=torch.long),
        hits=torch.zeros(len(relations), *layers_and_heads(model), dtype=torch.long),
        distances=tuple(Counter() for _ in relations),
        offsets={},
        tokens=0,
        texts=0,
        cut_off=0,
        direction=direction,
        source=source,
        model=model_name(model),
        fingerprint=fingerprint(model),
    )


def count_chunk(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    chunk: list[Parse],
    labels: Mapping[str, int],
    empty: HeadStatistics,
) -> HeadStatistics:
    """The counts of one chunk."""
    read = encode_each(explainer.encode, [parse.text for parse in chunk])
    readable = [
        (parse, tokenized_text)
        for parse, tokenized_text in zip(chunk, read, strict=True)
        if isinstance(tokenized_text, TokenizedText)
    ]
    warn_of_unread(read)
    if not readable:
        return replace(empty, texts=len(chunk))
    tokenized_texts = [tokenized_text for _, tokenized_text in readable]
    aligned = [align(parse, tokenized_text, labels, empty.direction) for parse, tokenized_text in readable]
    pairs = [text_pairs for text_pairs, _ in aligned]
    longest = max(map(len, tokenized_texts))
    hits = torch.zeros_like(empty.hits)
    offsets = torch.zeros(
        *hits.shape[1:], 2 * longest - 1, dtype=torch.long
    )  # [layer, head, key - query + longest - 1]
    exact = behavior_of(explainer.inner).equal_lengths  # such a model attends differently in a batch with longer texts
    for indices in length_batches(list(map(len, tokenized_texts)), TOKEN_BUDGET, exact):
        batch, capture = (
            explainer.collate([tokenized_texts[i] for i in indices], instrumented.device),
            StrongestCapture(CaptureSpec(fused=False)),
        )
        instrumented.run(batch, capture)
        strongest = torch.stack(capture.strongest).transpose(1, 2).cpu()  # [layer, head, batch, query]
        add_offsets(offsets, strongest, batch.attention_mask.bool().cpu())
        add_hits(hits, strongest, [pairs[i] for i in indices])
    distances = tuple(
        Counter(pair.distance for text_pairs in pairs for pair in text_pairs if pair.relation == i)
        for i in range(len(hits))
    )
    return replace(
        empty,
        pairs=torch.tensor([counter.total() for counter in distances]),
        hits=hits,
        distances=distances,
        offsets={int(i) - longest + 1: offsets[..., i] for i in offsets.sum((0, 1)).nonzero()[:, 0]},
        tokens=sum(map(len, tokenized_texts)),
        texts=len(chunk),  # including unreadable ones, so that counting continues after them
        cut_off=sum(missed for _, missed in aligned),
    )


def warn_of_unread(read: Sequence[TokenizedText | Exception]) -> None:
    """Warn of texts that the tokenizer or the model cannot read; they are not counted."""
    reasons = [reason_to_skip(error, strict=True) for error in read if isinstance(error, Exception)]
    if reasons:
        skipped = describe_count(len(reasons), "text")
        warnings.warn(f"{skipped} skipped. The first: {reasons[0]}", RuntimeWarning, stacklevel=4)


def add_offsets(offsets: Tensor, strongest: Tensor, real: Tensor) -> None:
    """Count key minus query for every real query token."""
    layers, heads, _, queries = strongest.shape
    bins = offsets.shape[-1]
    distance = strongest - torch.arange(queries) + bins // 2  # [layer, head, batch, query]
    first_bin = torch.arange(layers * heads).view(layers, heads, 1) * bins
    bin_indices = distance[:, :, real] + first_bin  # [layer, head, real query]
    offsets += torch.bincount(bin_indices.flatten(), minlength=offsets.numel()).view_as(offsets)


def add_hits(hits: Tensor, strongest: Tensor, pairs: Sequence[Sequence[Pair]]) -> None:
    """Count the pairs whose strongest attention goes to the related word."""
    entries = [(i, *pair) for i, text_pairs in enumerate(pairs) for pair in text_pairs]
    if not entries:
        return
    text, relation, query, start, end, _ = torch.tensor(entries).T
    strongest_key = strongest[:, :, text, query]  # [layer, head, pair]
    hit = (strongest_key >= start) & (strongest_key < end)
    hits.index_add_(0, relation, hit.permute(2, 0, 1).long())


def check_shapes(counts: HeadStatistics, empty: HeadStatistics) -> None:
    """Refuse stored tensors of other shapes, which broadcasting would add without an error."""
    if counts.relations != empty.relations or counts.fingerprint != empty.fingerprint:
        return  # another model or other relations: `resume` refuses these with a better message
    offsets = {f"offset {offset}": (heads, empty.hits[0]) for offset, heads in counts.offsets.items()}
    for name, (stored, expected) in {"hits": (counts.hits, empty.hits), **offsets}.items():
        if stored.shape != expected.shape:
            raise RefusedValue(f"{name}: expected the shape {list(expected.shape)}, found {list(stored.shape)}")


def resume(path: Path, empty: HeadStatistics, metadata: Mapping[str, Any]) -> HeadStatistics:
    """The stored counts; refused unless relations, labels and model are the same; `metadata`: labels and hash."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        counts = HeadStatistics.from_dict(stored)
        check_shapes(counts, empty)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RefusedValue(
            f"{path} is not a checkpoint of head statistics ({error}): delete it to start again"
        ) from error
    for name in ("relations", "direction", "source", "fingerprint"):
        before, now = getattr(counts, name), getattr(empty, name)
        if before != now:
            raise RefusedValue(
                f"{path} holds counts with another {name} ({before!r}, now {now!r}): delete it to start again"
            )
    before, now = stored.get("labels"), metadata["labels"]
    if before != now:
        raise RefusedValue(f"{path} holds counts with other labels ({before!r}, now {now!r}): delete it to start again")
    if stored.get("sha256") != metadata["sha256"]:
        raise RefusedValue(
            f"{path} holds counts with other weights, another configuration or another tokenizer than this model's: "
            "delete it to start again"
        )
    return counts
