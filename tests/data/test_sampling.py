"""Random samples of rows: seeded, in data order, the same for every kind of source and every chunk size."""

import json
from collections.abc import Callable, Iterator

import pyarrow
import pyarrow.parquet
import pytest

from tests.cli.test_explain import fail, succeed
from tests.cli.test_heads import TREE
from tests.hub import Hub
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import BadRow, Example, split_into_chunks
from tokenlight.data.read import EXAMPLE_COLUMNS, parse_source, read_examples, read_texts
from tokenlight.runs.run_folder import check_settings
from tokenlight.views.benchmark_table import short_source

ROWS = [{"text": f"text {i}", "label": i % 2} for i in range(50)]


def number_in(row: Example | BadRow) -> int:
    assert isinstance(row, Example)
    return int(str(row.text).split()[1])


def numbers_of(
    source: DataSource, read: Callable[[DataSource], Iterator[Example | BadRow]] = read_examples
) -> list[int]:
    """The numbers in the texts that are read."""
    return [number_in(row) for row in read(source)]


def test_a_sample_is_seeded_in_data_order_and_without_replacement():
    first, again, other = (numbers_of(DataSource(ROWS, sample=10, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 10
    assert first == sorted(first)
    assert numbers_of(DataSource(ROWS, sample=50)) == numbers_of(DataSource(ROWS, sample=80)) == [*range(50)]
    seen = {number for seed in range(40) for number in numbers_of(DataSource(ROWS, sample=10, seed=seed))}
    assert seen == {*range(50)}  # every row can be drawn: each seed misses one with probability 0.8


def test_a_seed_is_an_integer_whose_sign_matters():
    assert numbers_of(DataSource(ROWS, sample=10, seed=-1)) != numbers_of(DataSource(ROWS, sample=10, seed=1))
    with pytest.raises(ValueError, match="seed must be a whole number, found None"):
        DataSource(ROWS, sample=10, seed=None)  # pyright: ignore[reportArgumentType]
    for size in (2.5, True, "3"):
        with pytest.raises(ValueError, match="sample is a positive number of rows, found"):
            DataSource(ROWS, sample=size)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json", "parquet", "hub", "hub of unknown size"])
def test_the_same_rows_are_drawn_from_every_kind_of_source(kind, tmp_path, monkeypatch):
    path, split = tmp_path / f"data.{kind}", None
    if kind in ("tsv", "csv"):
        mark = "\t" if kind == "tsv" else ","
        path.write_text(f"text{mark}label\n" + "".join(f"{row['text']}{mark}{row['label']}\n" for row in ROWS))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "json":
        path.write_text(json.dumps(ROWS))
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    else:
        Hub({("org/set", None): {"train": ROWS}}, sizes=kind == "hub").install(monkeypatch)
        path, split = "hf:org/set", "train"
    source = DataSource(path, split=split, sample=7, seed=3)
    assert numbers_of(source) == numbers_of(DataSource(ROWS, sample=7, seed=3))
    assert numbers_of(source, read_texts) == numbers_of(source)
    assert source.count() == 7


@pytest.mark.parametrize("size", [1, 3, 100])
def test_rows_keep_their_numbers_in_the_data_for_every_chunk_size(size):
    source = DataSource(ROWS, sample=7)
    chunks = split_into_chunks(lambda: read_examples(source), size, row_numbers=source.row_numbers)
    rows = [row for chunk in chunks for row in chunk.rows]
    assert [number for number, _ in rows] == [number_in(example) for _, example in rows]
    assert [number for number, _ in rows] == numbers_of(source)


def test_the_size_of_the_data_is_requested_once(monkeypatch):
    hub = Hub({("org/set", None): {"train": ROWS}}).install(monkeypatch)
    source = DataSource("hf:org/set", split="train", sample=2)
    for _ in range(2):
        numbers_of(source)
    assert len(hub.opened) == 3  # once for its size


def test_limit_and_sample_are_positive_and_mutually_exclusive(tmp_path):
    with pytest.raises(ValueError, match="limit=3 and sample=4: leave one of them out"):
        DataSource(ROWS, limit=3, sample=4)
    with pytest.raises(ValueError, match="sample is a positive number of rows, found 0"):
        DataSource(ROWS, sample=0)
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    for data in ([], empty):
        with pytest.raises(ValueError, match="expected rows of data, found none"):
            list(read_examples(DataSource(data, sample=3)))


def test_data_that_became_shorter_is_refused(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"text {i}\n" for i in range(9)))
    source = DataSource(path, sample=9)
    assert source.count() == 9
    path.write_text("text 0\n")
    with pytest.raises(ValueError, match=r"texts.txt ended before its row 2, .*was it changed meanwhile"):
        list(read_examples(source))


def test_a_run_with_another_sample_does_not_continue(tmp_path):
    def settings(**rows):
        return {"data": DataSource(ROWS, **rows).describe(EXAMPLE_COLUMNS)}

    check_settings(tmp_path, settings(sample=7, seed=1))
    check_settings(tmp_path, settings(sample=7, seed=1))
    for rows, reason in (
        ({"sample": 7, "seed": 2}, r"data.seed is 1 there and 2 here"),
        ({"sample": 8, "seed": 1}, r"data.sample is 7 there and 8 here"),
        ({"limit": 7}, r"data.sample is only there"),
    ):
        with pytest.raises(ValueError, match=reason):
            check_settings(tmp_path, settings(**rows))
    assert "sample" not in settings()["data"]  # settings of runs without a sample are unchanged
    assert short_source(settings(sample=7, seed=1)) == "50 texts in memory (random sample of 7 rows, seed 1)"


def test_parses_of_a_treebank_are_sampled(tmp_path):
    path = tmp_path / "trees.conllu"
    path.write_text("".join(TREE.replace("Dogs", f"Dogs{i}") for i in range(20)))
    source = parse_source(DataSource(path, sample=5, seed=1))
    texts = [parse.text for parse in source.parses_after(0)]
    assert len(texts) == source.count == 5
    assert texts == sorted(texts, key=lambda text: int(str(text).split()[0][4:]))
    assert [parse.text for parse in source.parses_after(3)] == texts[3:]
    assert "conllu, sample of 5 by seed 1; sha256" in source.name
    assert [parse.text for parse in parse_source(DataSource(path, sample=5, seed=2)).parses_after(0)] != texts


def test_commands_take_a_sample(checkpoint, tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("text\n" + "".join(f"it is good {i}\n" for i in range(30)))
    out = tmp_path / "out"
    command = ["explain-file", str(path), "-o", str(out), "-m", checkpoint, "--method", "random"]
    assert "3 texts explained" in succeed(*command, "--sample", "3", "--seed", "5")
    read = pyarrow.parquet.read_table(out / "parts", columns=["row", "id"]).to_pylist()
    assert [row["row"] for row in read] == list(DataSource(path, sample=3, seed=5).sampled_rows)
    assert [int(row["id"]) for row in read] == [row["row"] + 2 for row in read]  # line numbers from 1, after the header
    assert "data.seed is 5 there and 6 here" in fail(*command, "--sample", "3", "--seed", "6")
    both = ["--sample", "3", "--limit", "2"]
    assert "leave one of them out" in fail(*command, *both)
    assert "leave one of them out" in fail("bench", checkpoint, str(path), "-o", str(tmp_path / "b"), *both)
    mask = str(tmp_path / "mask.json")
    assert "leave one of them out" in fail("heads", checkpoint, str(path), "-o", mask, *both)
    assert "leave one of them out" in fail("calibrate", checkpoint, str(path), "-o", mask, *both)
