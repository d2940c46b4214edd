"""Whatever a row of data holds, it ends no run: good rows are right, and every other one has a reason."""

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch

import tokenlight as tl
from tests.as_ours import as_ours
from tests.rounding import assert_near
from tests.tokenizers_ import model_for, tokenizer_for
from tokenlight.bench import benchmark, measure_chunk
from tokenlight.bench import cases as cases_of
from tokenlight.bench.cases import select_cases
from tokenlight.bench.protocol import Protocol
from tokenlight.common.error_location import UNEXPECTED
from tokenlight.common.errors import RefusedValue
from tokenlight.corpus import explain_dataset
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example
from tokenlight.methods import find_method
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.evaluate import Measure

NEW = "extraordinary"  # a token that was added to the tokenizer: the model has no embedding for it
# What JSON can hold
PLAIN: list[Any] = [
    *(
        "",
        " ",
        "\n\t\r",
        "\x00",
        "a\x00b",
        "\x01\x1f\x7f",
        "\ud800",
        "a\udcffb\udfff",
        "\u200b\ufeff",
        "\u2028\x85\x0b",
    ),
    *("[CLS]", "[SEP] [PAD]", "[MASK]", "[MASK] [MASK]", "***mask***", "<|endoftext|>", "<|endoftext|> <mask>"),
    *("x" * 3000, "a " * 1500, "🎉", "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪", "‮שלום עולם", "مرحبا ‏", "é́́́́" * 40, "\ufffd", f"an {NEW} movie"),
    *(None, True, False, 0, 7, -1, 10**30, 3.5, -0.0, 1e308, "-1", "1e5", "NaN", "null", "Infinity"),
    *([], {}, [[]], [None], ["a", "b"], {"a": {"b": [1, {"c": None}]}}, [[[[[]]]]]),
    *([{"role": "user"}], [{"role": "user", "content": 5}], [{"role": "user", "content": "who ?"}], [{}]),
    *({"text": ["book"], "answer_start": [4]}, {"text": ["x"], "answer_start": [99999]}, {"text": 3}),
    *(
        {"text": ["book"], "answer_start": [-4]},
        {"text": [], "answer_start": []},
        {"text": [None], "answer_start": [0]},
    ),
    *({"text": ["\ud800"], "answer_start": [0]}, {"text": ["book"], "answer_start": ["4"]}, {"text": [""]}),
]
# What only Python can
OBJECTS: list[Any] = [
    float("nan"),
    float("inf"),
    b"bytes",
    object(),
    {1, 2},
    ("a",),
    ("a", "b", "c"),
    1j,
    torch.ones(2),
]
GOOD: dict[str, list[dict[str, Any]]] = {
    "text-classification": [
        {"sentence": "it is a good movie", "label": "positive"},
        {"sentence": "they are not bad", "label": 1},
    ],
    "question-answering": [
        {"question": "who ?", "context": "the book was", "answers": {"text": ["book"], "answer_start": [4]}},
        {"question": "what is it ?", "context": "a good movie", "answers": {"text": ["movie"], "answer_start": [7]}},
    ],
    "fill-mask": [{"sentence": "the [MASK] is here"}, {"sentence": "it is a good [MASK]"}],
    "text-generation": [{"text": "the keys to the cabinet"}, {"text": "it is a good"}],
    "answers": [
        {"prompt": "who wrote the book ?", "answer": " They are here. And bad."},
        {"prompt": "it is", "answer": " a good movie", "documents": ["it is"]},
    ],
}
METHOD = "gradient_x_input"


@cache
def explainer_for(kind: str) -> tl.Explainer:
    task = "text-generation" if kind == "answers" else kind
    family = "gpt2" if task == "text-generation" else "bert"
    tokenizer = copy.deepcopy(tokenizer_for(family))
    tokenizer.add_tokens([NEW])
    return tl.Explainer(model_for(family, task), tokenizer)


def hostile(kind: str, values: list[Any], count: int, seed: int) -> list[Any]:
    """Rows in which one or more values are bad, missing or too many; or no rows at all."""
    chance = random.Random(f"{kind} {seed}")
    found: list[Any] = []
    for i in range(count):
        row: dict[Any, Any] = dict(chance.choice(GOOD[kind]))
        column = chance.choice(list(row))
        for name in row if chance.random() < 0.2 else [column]:
            row[name] = values[i % len(values)] if name == column else chance.choice(values)
        if chance.random() < 0.1:
            del row[chance.choice(list(row))]
        if chance.random() < 0.1:
            row[chance.choice(["", "LABEL", "other", "\ud800", "answer"])] = chance.choice(values)
        found.append(row)
    return found


def mixed(kind: str, bad: list[Any]) -> tuple[list[Any], list[int]]:
    """With a good row before every few bad ones; and where the good ones are."""
    rows, places = list[Any](), list[int]()
    for i, row in enumerate(bad):
        if i % 7 == 0:
            places.append(len(rows))
            rows.append(GOOD[kind][i // 7 % len(GOOD[kind])])
        rows.append(row)
    return rows, places


def check_corpus(kind: str, source: Any, rows: list[Any], places: list[int], folder: Path, **settings: Any) -> None:
    chosen = CorpusSettings(chunk_rows=40, tokens=128, **settings)
    done = tl.explain_dataset(explainer_for(kind), source, folder, [METHOD], settings=chosen, progress=False)
    bad = [json.loads(line) for line in (folder / "bad_rows.jsonl").read_text().splitlines()]
    assert [row["reason"] for row in bad if UNEXPECTED in row["reason"]] == []
    assert (done.rows, done.unexpected) == (len(rows), 0)
    table = pandas.read_parquet(folder / "parts")
    assert sorted([*(row["row"] for row in bad), *table["row"]]) == list(range(len(rows)))
    assert all(isinstance(row["reason"], str) and row["reason"] and row["where"] for row in bad)
    assert set(places) <= set(table["row"])
    for place in places[: len(GOOD[kind])]:
        found, row = table[table["row"] == place].iloc[0], rows[place]
        if kind == "answers":
            expected = explainer_for(kind).explain_answer(row["prompt"], row["answer"], METHOD)
            assert_near(torch.tensor(found["answer_scores"]), expected.matrix.sum(0)[-len(expected.ids) :])
        else:
            text = row.get("sentence", row.get("text", (row.get("question"), row.get("context"))))
            assert_near(torch.tensor(found["scores"]), explainer_for(kind).explain(text, METHOD).scores)


@pytest.mark.parametrize("kind", GOOD)
def test_a_corpus_of_hostile_rows(kind, tmp_path):
    values = [*PLAIN, *OBJECTS]
    rows, places = mixed(kind, [*hostile(kind, values, len(values), 1), {}, {1: "x"}, {None: None}, *OBJECTS, *PLAIN])
    check_corpus(kind, rows, rows, places, tmp_path)


@pytest.mark.parametrize("each", ["answer", "sentence", "token"])
def test_a_corpus_of_hostile_answers(each, tmp_path):
    """An answer of special tokens alone has no characters, and so no sentence."""
    texts = [value for value in PLAIN if isinstance(value, str)]
    rows, places = mixed("answers", [{"prompt": "who wrote the book ?", "answer": text} for text in texts])
    check_corpus("answers", rows, rows, places, tmp_path, each=each)


@pytest.mark.parametrize("kind", GOOD)
def test_a_file_of_hostile_rows(kind, tmp_path):
    rows, places = mixed(kind, hostile(kind, PLAIN, len(PLAIN), 2))
    file = tmp_path / "rows.jsonl"
    lines = [json.dumps(row).encode() for row in rows]
    broken = [b"", b"{", b"[", b'"text"', b"\xff\xfe\x00", b"[" * 5000, b"1" * 5000, b'{"text": "caf\xe9"}', b"nul"]
    file.write_bytes(b"\n".join([*lines, *broken]) + b"\n")
    check_corpus(kind, DataSource(file), [*rows, *broken], places, tmp_path / "out")


def check_bench(kind: str, rows: list[Any], places: list[int], folder: Path) -> None:
    settings: dict[str, Any] = {"output": folder, "progress": False, "erasure": False}
    table = tl.benchmark(explainer_for(kind), rows, [METHOD], ["aopc"], **settings)
    records = [json.loads(line) for line in (folder / "results-00000.jsonl").read_bytes().split(b"\n") if line]
    found = {record["row"]: record for record in records if "row" in record}
    reasons = {number: one.get("bad") or one.get("set_aside") for number, one in found.items() if "methods" not in one}
    assert [reason for reason in reasons.values() if UNEXPECTED in reason] == []
    assert sorted(found) == list(range(len(rows)))
    assert all(isinstance(reason, str) and reason for reason in reasons.values())
    assert not set(places) & set(reasons)
    alone = tl.benchmark(explainer_for(kind), [rows[place] for place in places], [METHOD], ["aopc"], progress=False)
    assert table.run.examples == len(found) - len(reasons)
    values = [found[place]["methods"][METHOD]["values"]["aopc"] for place in places]
    assert_near(torch.tensor(values), torch.tensor(alone.values[:, 0, 0]), size=1.0, precision=torch.float32)


@pytest.mark.parametrize("kind", GOOD)
def test_a_benchmark_of_hostile_rows(kind, tmp_path):
    values = [*PLAIN, *OBJECTS]
    rows, places = mixed(kind, [*hostile(kind, values, len(values), 3), {}, {1: "x"}])
    check_bench(kind, rows, places, tmp_path)


def test_a_benchmark_of_hostile_examples(tmp_path):
    good = [Example("0", "it is a good movie", label=2), Example("1", "they are not bad", label="neutral")]
    values: list[Any] = [*PLAIN, *OBJECTS]
    bad = [
        *(Example("2", value) for value in values),
        *(Example("2", "it is a good movie", label=value) for value in values),
        *(Example("2", "it is a good movie", target=value) for value in values),
        *(
            Example("2", "it is a good movie", evidence=value)
            for value in [((5, 99),), ((-3, 2),), ((4, 2),), ((0, 0),)]
        ),
        *(Example("\ud800", "it is a good movie", answer=value) for value in [(5, 99), (-3, -1), (4, 2)]),
    ]
    rows, places = list[Any](), list[int]()
    for i, row in enumerate(bad):
        if i % 20 == 0:
            places.append(len(rows))
            rows.append(good[i // 20 % 2])
        rows.append(row)
    check_bench("text-classification", rows, places, tmp_path)


# --- bugs of our own ------------------------------------------------------------------------------------------------


def failing(real: Any, error: Exception, words: str) -> Any:
    """Fails on every text with these words."""

    def explain_tokenized(self: Any, rows: Any, *args: Any, **settings: Any) -> Any:
        if any(words in str(row.text) for row in rows):
            raise error.with_traceback(None)  # it is raised more than once
        return real(self, rows, *args, **settings)

    return as_ours(explain_tokenized)


TEXTS = [f"it is a good movie {i}" for i in range(12)]
ERRORS = [RuntimeError("a bug"), IndexError("a bug"), AssertionError("a bug"), KeyError("a bug")]
rows_of_explainer = tl.Explainer.explain_tokenized


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", [0, 5])
def test_a_bug_on_one_row_is_counted_loudly_and_ends_no_run(error, place, tmp_path, monkeypatch):
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", failing(rows_of_explainer, error, f"movie {place}"))
    texts = TEXTS[:10]
    with pytest.warns(RuntimeWarning, match="1 of 10 rows were set aside because of a bug.*a bug"):
        done = tl.explain_dataset(explainer_for("text-classification"), texts, tmp_path / "corpus", progress=False)
    assert (done.explained, done.bad, done.unexpected) == (9, 1, 1)
    (line,) = (tmp_path / "corpus" / "bad_rows.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert (row["row"], row["where"]) == (place, f"text {place + 1}")
    assert row["reason"].startswith(f"{UNEXPECTED}{type(error).__name__}: ")
    settings: dict[str, Any] = {"output": tmp_path / "bench", "progress": False, "erasure": False}
    with pytest.warns(RuntimeWarning, match="1 rows were set aside because of a bug, 9 are measured.*a bug"):
        table = tl.benchmark(explainer_for("text-classification"), texts, [METHOD], ["aopc"], **settings)
    assert [(record["row"], record["bad"][: len(UNEXPECTED)]) for record in table.run.bad] == [(place, UNEXPECTED)]


@pytest.mark.parametrize("error", [*ERRORS, tl.UnsupportedModelError("a bug")], ids=lambda error: type(error).__name__)
def test_a_bug_on_every_row_ends_the_run(error, tmp_path, monkeypatch):
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", failing(rows_of_explainer, error, "movie"))
    with pytest.raises(type(error), match="a bug"):
        tl.explain_dataset(explainer_for("text-classification"), TEXTS, tmp_path / "corpus", progress=False)
    settings: dict[str, Any] = {"progress": False, "erasure": False}
    with pytest.raises(type(error), match="a bug"):
        tl.benchmark(explainer_for("text-classification"), TEXTS, [METHOD], ["aopc"], **settings)
    with pytest.raises(ValueError, match=r"no example was measured: .*a bug"):  # too few to be sure at once
        tl.benchmark(explainer_for("text-classification"), TEXTS[:3], [METHOD], ["aopc"], **settings)


def test_a_bug_that_begins_behind_the_first_rows_ends_a_run_without_results(tmp_path, monkeypatch):
    """As after a restart with a version that has it."""
    monkeypatch.setattr(explain_dataset, "explain_trial_rows", lambda plan, source: None)
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", failing(rows_of_explainer, RuntimeError("a bug"), "movie"))
    with pytest.raises(RuntimeError, match=r"none of 12 rows could be explained: .*a bug"):
        tl.explain_dataset(explainer_for("text-classification"), TEXTS, tmp_path, progress=False)


@pytest.mark.parametrize(
    "error", [OSError("no space left"), ImportError("no such package"), RuntimeError("CUDA error: 7")]
)
def test_what_no_row_is_to_blame_for_ends_the_run(error, tmp_path, monkeypatch):
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", failing(rows_of_explainer, error, "movie 5"))
    with pytest.raises(type(error), match=str(error)):
        tl.explain_dataset(explainer_for("text-classification"), TEXTS, tmp_path / "corpus", progress=False)
    with pytest.raises(type(error), match=str(error)):
        tl.benchmark(explainer_for("text-classification"), TEXTS, [METHOD], ["aopc"], progress=False)


def test_a_row_that_only_one_method_fails_on_is_measured_by_none(tmp_path, monkeypatch):
    """The control of the best method is measured without the others: there, the row is left out as well."""
    real = measure_chunk.explain

    def explain(plan: Any, model: Any, targets: Any) -> Any:
        if "attn_lrp" in model.method_configs and any("movie 2" in row.text for row in model.tokenized_texts):
            raise RefusedValue("attn_lrp fails")
        return real(plan, model, targets)

    monkeypatch.setattr(measure_chunk, "explain", as_ours(explain))
    methods, settings = [METHOD, "attn_lrp"], {"output": tmp_path, "progress": False, "erasure": False}
    monkeypatch.setattr(benchmark, "best_method", lambda folder: METHOD)
    table = tl.benchmark(explainer_for("text-classification"), TEXTS[:4], methods, ["aopc"], **settings)
    assert table.run.examples == 3
    assert f"inverse of {METHOD}" in [line.label for line in table.lines]
    assert [record["bad"] for record in table.run.bad] == ["attn_lrp fails"]


def test_a_number_that_no_journal_can_hold_is_refused_for_its_row_alone(tmp_path, monkeypatch):
    real = measure_chunk.measure_cases

    def measure_cases(plan: Any, model: Any, cases: Any, explained: Any) -> Any:
        found = real(plan, model, cases, explained)
        return [
            one | {"odd": float("nan") if "movie 1" in row.text else 0}
            for one, row in zip(found, model.tokenized_texts, strict=True)
        ]

    monkeypatch.setattr(measure_chunk, "measure_cases", measure_cases)
    settings: dict[str, Any] = {"output": tmp_path, "progress": False, "erasure": False}
    table = tl.benchmark(explainer_for("text-classification"), TEXTS[:3], [METHOD], ["aopc"], **settings)
    assert table.run.examples == 2
    (record,) = table.run.bad
    assert record["row"] == 1
    assert "not finite, or cannot be stored" in record["bad"]


def test_a_row_that_cannot_be_written_is_set_aside(tmp_path):
    rows = [
        {"text": "it is good", "name": "a"},
        {"text": "they are bad", "name": "\ud800"},
        {"text": "ok", "name": "c"},
    ]
    done = tl.explain_dataset(
        explainer_for("text-classification"), DataSource(rows, id="name"), tmp_path, progress=False
    )
    assert (done.explained, done.bad, done.unexpected) == (2, 1, 0)
    row = json.loads((tmp_path / "bad_rows.jsonl").read_text())
    assert row["row"] == 1
    assert "surrogates not allowed" in row["reason"]


def test_sorting_out_sets_aside_rows_that_a_method_cannot_explain(monkeypatch):
    """As `tokenlight calibrate` does before it begins."""
    explainer, rows = explainer_for("text-classification"), [(i, Example(str(i), text)) for i, text in enumerate(TEXTS)]
    method_configs = {METHOD: MethodConfig.for_model(find_method(METHOD), {}, explainer.inner)}
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", failing(rows_of_explainer, RuntimeError("a bug"), "movie 5"))
    cases, rest = select_cases(explainer, Protocol("p", (Measure("aopc"),)), rows, method_configs)
    assert [case.draft.number for case in cases] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert [(record["row"], record["where"], record["bad"][: len(UNEXPECTED)]) for record in rest] == [
        (5, "example 5", UNEXPECTED)
    ]
    monkeypatch.setattr(cases_of, "read_answer", lambda *args: {}["slip"])
    cases, rest = select_cases(explainer, Protocol("p", (Measure("aopc"),)), rows[:2])
    assert (cases, len(rest)) == ([], 2)


# --- labels with numeric names ------------------------------------------------------------------------------------


def numbered_labels() -> tl.Explainer:
    model = copy.deepcopy(model_for("bert"))
    model.config.id2label = {0: "1", 1: "2", 2: "3"}
    return tl.Explainer(model, tokenizer_for("bert"))


def write_labels(path: Path, labels: list[int]) -> Path:
    rows = [{"text": f"it is a good movie {i}", "label": label} for i, label in enumerate(labels)]
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        comma = "," if path.suffix == ".csv" else "\t"
        path.write_text(f"text{comma}label\n" + "".join(f"{row['text']}{comma}{row['label']}\n" for row in rows))
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_a_label_in_data_means_the_same_in_every_format(ending, tmp_path):
    path, explainer = write_labels(tmp_path / f"rows.{ending}", [1, 2, 3]), numbered_labels()
    tl.explain_dataset(explainer, DataSource(path, target="label"), tmp_path / "corpus", [METHOD], progress=False)
    assert pandas.read_parquet(tmp_path / "corpus" / "parts")["target"].tolist() == ["1", "2", "3"]
    tl.benchmark(explainer, path, [METHOD], ["aopc"], output=tmp_path / "bench", progress=False, erasure=False)
    records = [json.loads(line) for line in (tmp_path / "bench" / "results-00000.jsonl").read_text().splitlines()]
    assert [record["label"] for record in records if "row" in record] == ["1", "2", "3"]
