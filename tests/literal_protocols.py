"""The papers' protocols written down slowly: one text at a time, one changed input at a time, nothing shared.

From the description of each release, with transformers and numpy alone: neither the library's metrics nor its passes
take part, so agreement means something. Scores are arrays [token], special tokens included.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau

CLS, SEP = "[CLS]", "[SEP]"
Scores = np.ndarray


def slow_copy(model: Any) -> Any:
    """A copy that returns its attention, with weights that require gradients."""
    slow = copy.deepcopy(model).eval()
    slow.set_attn_implementation("eager")
    return slow.requires_grad_(True)


# --- The explained pass ------------------------------------------------------------------------------------------


class Explained:
    """One pass with everything that the methods below read: A, X and the gradients of one output number."""

    def __init__(self, model: Any, ids: Sequence[int], types: Sequence[int], hidden: Sequence[int], read: Any):
        mask = [0 if token in hidden else 1 for token in ids]
        inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.tensor([mask])}
        inputs["token_type_ids"] = torch.tensor([types])
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
        tensors = [*output.attentions, *output.hidden_states]
        gradients = torch.autograd.grad(read(output), tensors, materialize_grads=True)
        layers = len(output.attentions)
        self.attention = [a[0].detach().numpy() for a in output.attentions]  # layer: [head, query, key]
        self.states = [x[0].detach().numpy() for x in output.hidden_states]  # layer + 1: [token, dim]
        self.attention_gradients = [g[0].numpy() for g in gradients[:layers]]
        self.state_gradients = [g[0].numpy() for g in gradients[layers:]]


def raw_attention(seen: Explained) -> Scores:
    scores = seen.attention[-1].mean(0)[0].copy()
    scores[0] = 0
    return scores


def rollout(seen: Explained) -> Scores:
    tokens = len(seen.states[0])
    joint = np.eye(tokens)
    for layer in seen.attention:
        mixed = layer.mean(0) + np.eye(tokens)
        joint = (mixed / mixed.sum(1, keepdims=True)) @ joint
    scores = joint[0].copy()
    scores[0] = 0
    return scores


def attention_cam(seen: Explained) -> Scores:
    scores = np.maximum(seen.attention_gradients[-1].mean((0, 1)), 0)
    scores[0] = 0
    return scores


def cat(seen: Explained) -> Scores:
    scores = np.zeros(len(seen.states[0]))
    for layer in range(len(seen.attention)):
        scores += (seen.states[layer] * seen.state_gradients[layer]).sum(1)
    return scores


def attcat(seen: Explained) -> Scores:
    scores = np.zeros(len(seen.states[0]))
    for layer, attention in enumerate(seen.attention):
        received = attention.mean(0).mean(0)  # over heads, then over all queries
        scores += received * (seen.states[layer] * seen.state_gradients[layer]).sum(1)
    return scores


METHODS: dict[str, Callable[[Explained], Scores]] = {
    one.__name__: one for one in (raw_attention, rollout, attention_cam, cat, attcat)
}


def explain_class(
    model: Any, tokenizer: Any, ids: list[int], label: int, hidden: tuple[str, ...], method: str
) -> Scores:
    hidden_ids = tokenizer.convert_tokens_to_ids(list(hidden))
    seen = Explained(model, ids, [0] * len(ids), hidden_ids, lambda output: output.logits[0, label])
    return METHODS[method](seen)


# --- AttCAT and Mask-LRP, classification -------------------------------------------------------------------------


def tokens_of(tokenizer: Any, text: Any) -> list[int]:
    return tokenizer(*text)["input_ids"] if isinstance(text, tuple) else tokenizer(text)["input_ids"]


def probability(model: Any, ids: Sequence[int], label: int, types: Sequence[int] | None = None) -> float:
    """Nothing is masked, and by default every segment id is 0."""
    with torch.no_grad():
        inputs = {"input_ids": torch.tensor([list(ids)]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        inputs["token_type_ids"] = torch.tensor([list(types) if types is not None else [0] * len(ids)])
        return float(model(**inputs).logits[0].softmax(-1)[label])


def numbers_to_take(tokens: int) -> list[int]:
    numbers = []
    for fraction in np.linspace(0, 1, 10):
        number = int(np.round(fraction * tokens))
        if number != 0 and number not in numbers:
            numbers.append(number)
    return numbers


def choose_tokens(scores: Scores, strings: list[str], number: int, never: tuple[str, ...]) -> list[int]:
    """Down the ranking until enough are chosen; the pointer stops before the last rank."""
    ranking = np.argsort(-scores, kind="stable")
    chosen: list[int] = []
    pointer = 0
    while len(chosen) < number and pointer < len(ranking) - 1:
        token = int(ranking[pointer])
        if strings[token] not in never:
            chosen.append(token)
        pointer += 1
    return chosen


def without(ids: list[int], chosen: list[int]) -> list[int]:
    return [token for place, token in enumerate(ids) if place not in chosen]


def padded(ids: list[int], chosen: list[int]) -> list[int]:
    return [0 if place in chosen else token for place, token in enumerate(ids)]


def perturbed_probabilities(
    model: Any, tokenizer: Any, ids: list[int], scores: Scores, label: int, change: Any, never: tuple[str, ...]
) -> tuple[float, list[float]]:
    strings = tokenizer.convert_ids_to_tokens(ids)
    whole = probability(model, ids, label)
    changed = [change(ids, choose_tokens(scores, strings, number, never)) for number in numbers_to_take(len(ids))]
    return whole, [probability(model, some, label) for some in changed]


def attcat_protocol(
    model: Any, tokenizer: Any, texts: list[Any], labels: list[int], method: str, notebook: str = ""
) -> dict[str, float] | None:
    """AOPC by deletion with absolute differences, LOdds by padding, Kendall's τ; means over the texts.

    In the notebooks "mnli" and "qqp" special tokens can go too; in "qqp" AttCAT's own score is an absolute value.
    """
    never = () if notebook in ("mnli", "qqp") else (CLS, SEP)
    found = []
    for text, label in zip(texts, labels, strict=True):
        ids = tokens_of(tokenizer, text)
        if len(ids) < 10:
            continue
        other = 1 if label == 0 else label - 1
        pair = [explain_class(model, tokenizer, ids, c, (CLS, SEP), method) for c in (label, other)]
        if notebook == "qqp" and method == "attcat":
            pair = [np.abs(scores) for scores in pair]
        whole, deleted = perturbed_probabilities(model, tokenizer, ids, pair[0], label, without, never)
        whole, replaced = perturbed_probabilities(model, tokenizer, ids, pair[0], label, padded, never)
        found.append(
            {
                "aopc": np.mean([abs(whole - p) for p in deleted]),
                "log_odds": np.mean([math.log(p / whole) for p in replaced]),
                "kendall_confidence": kendalltau(*(np.argsort(-s, kind="stable") for s in pair))[0],
            }
        )
    return means(found)


def mask_lrp_protocol(
    model: Any, tokenizer: Any, texts: list[Any], labels: list[int], method: str, data: str = ""
) -> dict[str, float] | None:
    """AOPC and LOdds, both by padding, of texts of 20 tokens or more; QQP and MNLI are filtered."""
    found = []
    for text, label in zip(texts, labels, strict=True):
        ids = tokens_of(tokenizer, text)
        whole = probability(model, ids, label)
        if len(ids) < 20 or (data == "qqp" and (label != 1 or whole < 0.3)) or (data == "mnli" and whole < 0.34):
            continue
        scores = explain_class(model, tokenizer, ids, label, (SEP,), method)
        whole, points = perturbed_probabilities(model, tokenizer, ids, scores, label, padded, (CLS, SEP))
        found.append(
            {
                "aopc": np.mean([whole - p for p in points]),
                "log_odds": np.mean([math.log(p / whole) for p in points]),
            }
        )
    return means(found)


def means(found: list[dict[str, Any]]) -> dict[str, float] | None:
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]} if found else None


# --- The same papers as they are written -------------------------------------------------------------------------


def written_curve(
    model: Any, tokenizer: Any, text: Any, scores: Scores, label: int, change: Any
) -> tuple[float, list[float]]:
    """p and p_k for k = 0, 10, 20, ..., 100 % of the tokens; special tokens stay, and segment ids are the model's."""
    encoded = tokenizer(*text) if isinstance(text, tuple) else tokenizer(text)
    ids, types = encoded["input_ids"], encoded["token_type_ids"]
    words = [i for i, token in enumerate(tokenizer.convert_ids_to_tokens(ids)) if token not in (CLS, SEP)]
    ranking = sorted(words, key=lambda i: (-scores[i], i))
    points = []
    for k in range(0, 101, 10):
        chosen = ranking[: -(-k * len(words) // 100)]  # rounded up
        left = change(ids, chosen)
        kept = [i for i in range(len(ids)) if i not in chosen] if len(left) < len(ids) else list(range(len(ids)))
        points.append(probability(model, left, label, [types[i] for i in kept]))
    return probability(model, ids, label, types), points


def written_protocol(model: Any, tokenizer: Any, texts: list[Any], method: str, paper: str) -> dict[str, float] | None:
    """AttCAT's eq. 13 to 15, or Mask-LRP's appendix D: the predicted class, nothing hidden, signed differences."""
    found = []
    for text in texts:
        encoded = tokenizer(*text) if isinstance(text, tuple) else tokenizer(text)
        ids, types = encoded["input_ids"], encoded["token_type_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]
        predicted = int(logits.argmax())
        other = 1 if predicted == 0 else predicted - 1

        def scores_for(label: int, ids: list[int] = ids, types: list[int] = types) -> Scores:
            return METHODS[method](Explained(model, ids, types, [], lambda output: output.logits[0, label]))

        scores = scores_for(predicted)
        whole, padded_points = written_curve(model, tokenizer, text, scores, predicted, padded)
        points = written_curve(model, tokenizer, text, scores, predicted, without)[1]
        one = {
            "aopc": sum(whole - p for p in (points if paper == "attcat" else padded_points)) / 11,
            "log_odds": sum(math.log(p / whole) for p in padded_points) / 11,
        }
        if paper == "attcat":
            arrays = [np.argsort(-s, kind="stable") for s in (scores, scores_for(other))]
            one["kendall_confidence"] = float(kendalltau(*arrays)[0])  # type: ignore[arg-type]
        found.append(one)
    return means(found)


def alti_written(measure: Callable[[list[int]], float], ids: list[int], scores: Scores) -> dict[str, float]:
    """Eq. 12 and 13 of one text between [CLS] and [SEP], with B = {0, 5, 10, 20, 50}."""
    words = list(range(1, len(ids) - 1))
    ranking = sorted(words, key=lambda i: (-scores[i], i))
    f_x, B = measure(list(range(len(ids)))), (0, 5, 10, 20, 50)
    comprehensiveness = sufficiency = 0.0
    for k in B:
        top = ranking[: math.ceil(len(words) * k / 100)]
        comprehensiveness += f_x - measure([i for i in range(len(ids)) if i not in top])
        sufficiency += f_x - measure(sorted([0, *top, len(ids) - 1]))
    return {"comprehensiveness": comprehensiveness / (len(B) + 1), "sufficiency": sufficiency / (len(B) + 1)}


# --- AttCAT and Mask-LRP, questions ------------------------------------------------------------------------------


def explain_answer(model: Any, tokenizer: Any, ids: list[int], method: str, paper: str) -> Scores:
    """Start and end explained apart, each where its logit is highest of all tokens; the scores are added."""
    hidden = tokenizer.convert_tokens_to_ids([CLS, SEP]) if paper == "attcat" else []
    scores = np.zeros(len(ids))
    for side in ("start_logits", "end_logits"):
        read = lambda output, side=side: output[side][0].max()  # noqa: E731
        scores += METHODS[method](Explained(model, ids, [0] * len(ids), hidden, read))
    return scores


def squad_protocol(
    model: Any, tokenizer: Any, questions: list[Any], answers: list[tuple[int, int]], method: str, paper: str
) -> float:
    """Answer tokens among the 20 highest of start + end: their mean number (AttCAT), or the share of all in %."""
    found, sizes = [], []
    for (question, context), (begin, end) in zip(questions, answers, strict=True):
        encoded = tokenizer(question, context, max_length=384, truncation="only_second", return_offsets_mapping=True)
        ids, offsets, parts = encoded["input_ids"], encoded["offset_mapping"], encoded.sequence_ids()
        inside = [i for i, part in enumerate(parts) if part == 1]
        first = last = 0
        if offsets[inside[-1]][1] >= end:
            first = max(i for i in inside if offsets[i][0] <= begin)
            last = min(i for i in inside if offsets[i][1] >= end)
        scores = explain_answer(model, tokenizer, ids, method, paper)
        top = np.argsort(-scores, kind="stable")[:20]
        found.append(sum(first <= token <= last for token in top))
        sizes.append(last - first + 1)
    return float(np.mean(found)) if paper == "attcat" else 100 * sum(found) / sum(sizes)


# --- ALTI --------------------------------------------------------------------------------------------------------


def alti_protocol(
    measure: Callable[[list[int]], float], ids: list[int], scores: Scores, never: list[int]
) -> dict[str, float]:
    """Comprehensiveness and sufficiency of one text; `measure` gives the probability of these tokens of it.

    Bins of 1, 5, 10, 20 and 50 % of the ordinary tokens, envelopes, and a sum of five divided by six.
    """
    ordinary = [i for i in range(len(ids)) if i not in never]
    ranking = sorted(ordinary, key=lambda i: (-scores[i], i))
    everything = list(range(len(ids)))
    whole = measure(everything)
    lowest, highest = whole, measure(sorted(never))
    comprehensiveness = sufficiency = 0.0
    for share in (0.01, 0.05, 0.1, 0.2, 0.5):
        top = ranking[: math.ceil(len(ordinary) * share)]
        lowest = min(lowest, measure([i for i in everything if i not in top]))
        highest = max(highest, measure(sorted([*never, *top])))
        comprehensiveness += whole - lowest
        sufficiency += whole - highest
    return {"comprehensiveness": comprehensiveness / 6, "sufficiency": sufficiency / 6}


def alti_classification(model: Any, tokenizer: Any, texts: list[str], scored: list[Scores]) -> Any:
    """Means over the texts of at most 200 tokens."""
    found = []
    for text, scores in zip(texts, scored, strict=True):
        ids = tokens_of(tokenizer, text)
        if len(ids) > 200:
            continue
        with torch.no_grad():
            predicted = int(model(torch.tensor([ids])).logits[0].argmax())

        def measure(kept: list[int], ids: list[int] = ids, predicted: int = predicted) -> float:
            return probability(model, [ids[i] for i in kept], predicted)

        found.append(alti_protocol(measure, ids, scores, [0, len(ids) - 1]))
    return means(found)


def predicted_scores(model: Any, tokenizer: Any, text: str, method: str) -> Scores:
    """The predicted class explained, and nothing hidden or overwritten; [CLS] counts for nothing in ALTI's metrics."""
    ids = tokens_of(tokenizer, text)
    read = lambda output: output.logits[0].max()  # noqa: E731
    return METHODS[method](Explained(model, ids, [0] * len(ids), [], read))


# --- Arras et al. ------------------------------------------------------------------------------------------------


def word_gradients(
    model: Any, ids: list[int], position: int, right: int, wrong: int
) -> tuple[float, dict[str, Scores]]:
    """The logit difference, and two methods at the word embeddings."""
    embeddings = model.get_input_embeddings()(torch.tensor([ids])).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, position]
    difference = logits[right] - logits[wrong]
    (gradient,) = torch.autograd.grad(difference, embeddings)
    gradient, values = gradient[0].numpy(), embeddings.detach()[0].numpy()
    return float(difference.detach()), {
        "gradient_l1": np.abs(gradient).sum(1),
        "gradient_x_input": (gradient * values).sum(1),
    }


def arras_metrics(scores: Scores, truth: list[int]) -> dict[str, float]:
    """All tokens count, also special ones; rank 1 is the highest relevance."""
    ranking = [int(i) for i in np.argsort(-scores, kind="stable")]
    positive = np.maximum(scores, 0)
    right = [(scores[i] > 0) == (i in truth) for i in range(len(scores))]
    return {
        "pointing_game": float(any(i in truth for i in ranking[:2])),
        "mean_reciprocal_rank": 1 / min(ranking.index(i) + 1 for i in truth),
        "relevance_mass": float(positive[truth].sum() / positive.sum()) if positive.sum() else 0.0,
        "per_token_accuracy": float(np.mean(right)),
    }


def arras_protocol(model: Any, cases: list[tuple[list[int], int, int, int, list[int]]], method: str) -> Any:
    """Means over the cases (ids, position, right, wrong, ground truth) that the model gets right."""
    found = []
    for ids, position, right, wrong, truth in cases:
        difference, scored = word_gradients(model, ids, position, right, wrong)
        if difference > 0:
            found.append(arras_metrics(scored[method], truth))
    return means(found)
