"""Reading a corpus from every kind of file; rows that cannot be read do not affect others."""

import csv
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest

from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import BadRow, Example, split_into_chunks
from tokenlight.data.read import check_corpus, read_texts
from tokenlight.data.readers import LARGE_FIELDS
from tokenlight.text.tokenized_text import Chat

TEXTS = ["it is a good movie", 'the "key", is here', "naïve – 東京"]


def write_as(kind: str, folder: Path, texts: list[str]) -> Path:
    """A file of this kind with texts, and with a second column if the format has columns."""
    path = folder / f"texts.{kind}"
    rows = [{"name": f"n{i}", "review": text} for i, text in enumerate(texts)]
    if kind == "txt":
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    elif kind == "tsv":
        path.write_text("name\treview\n" + "".join(f"{r['name']}\t{r['review']}\n" for r in rows), encoding="utf-8")
    elif kind == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["name", "review"])
            writer.writeheader()
            writer.writerows(rows)
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif kind == "json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts_of(source: DataSource) -> list[object]:
    return [row.text for row in read_texts(source) if isinstance(row, Example)]


def reasons(source: DataSource) -> dict[int, str]:
    return {number: row.reason for number, row in enumerate(read_texts(source)) if isinstance(row, BadRow)}


@pytest.mark.parametrize("kind", ["txt", "tsv", "csv", "parquet", "json", "jsonl"])
def test_every_kind_of_file(kind, tmp_path):
    path = write_as(kind, tmp_path, TEXTS)
    source = DataSource(path)
    assert texts_of(source) == TEXTS
    assert source.count() == len(list(read_texts(source))) == 3
    assert texts_of(DataSource(path, limit=2)) == TEXTS[:2]
    assert DataSource(path, limit=2).count() == 2
    if kind != "txt":
        named = [row for row in read_texts(DataSource(path, id="name")) if isinstance(row, Example)]
        assert [row.id for row in named] == ["n0", "n1", "n2"]


def test_questions_and_pairs_are_read_as_pairs(tmp_path):
    qas = [{"id": "q1", "question": "who ?", "answers": [], "is_impossible": True}]
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a young author", "qas": qas}]}]}))
    assert texts_of(DataSource(squad)) == [("who ?", "a young author")]
    assert DataSource(squad).count() == 1
    assert texts_of(DataSource([("a film", "a book")])) == [("a film", "a book")]
    rows = [{"left": "a film", "right": "a book"}]
    assert texts_of(DataSource(rows, pair=("left", "right"))) == [("a film", "a book")]


def test_several_possible_label_columns_are_accepted():
    assert texts_of(DataSource([{"text": "a film", "label": None, "class": 3}])) == ["a film"]


def test_the_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "b.txt").write_text("two\n")
    (folder / "a.txt").write_text("one\n")
    (folder / ".hidden").write_text("x")
    source = DataSource(folder)
    assert texts_of(source) == ["one", "two"]
    assert source.count() == 2
    before = source.hash()
    (folder / "b.txt").write_text("three\n")
    assert source.hash() != before
    (folder / "notes.md").write_text("x")
    with pytest.raises(ValueError, match=r"files of one kind .* found \.md, \.txt"):
        DataSource(folder)


def test_texts_in_memory_and_rows_with_columns():
    rows = [{"t": "a film", "gold": 1.0, "n": "x"}, {"t": "a book", "gold": "neutral", "n": 7}]
    source = DataSource(rows, text="t", target="gold", id="n")
    examples = list(read_texts(source))
    assert examples == [Example("x", "a film", target=1), Example("7", "a book", target="neutral")]
    assert [row.where for row in examples] == ["text 1", "text 2"]
    assert source.count() == 2
    assert source.hash() != DataSource(rows[::-1], text="t").hash()


def test_bad_rows_have_a_reason(tmp_path):
    path = tmp_path / "texts.jsonl"
    lines = [
        b'{"text": "good"}',
        b"{broken",
        b'{"text": ""}',
        b'{"text": 5}',
        b'{"other": "x"}',
        b'{"text": "caf\xe9"}',
        b'{"text": "a\\u0000b"}',
        b'{"text": "\\ud800"}',
        b"[" * 100_000,
        b'{"text": "also good"}',
    ]
    path.write_bytes(b"\n".join(lines))
    source = DataSource(path)
    assert texts_of(source) == ["good", "also good"]
    reason_by_row = reasons(source)
    assert [*reason_by_row] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert reason_by_row[1] == reason_by_row[8] == "not a JSON object"
    assert "empty" in reason_by_row[2]
    assert "found int: 5" in reason_by_row[3]
    assert reason_by_row[4] == "no value under 'text'; the row has other"
    assert "not UTF-8" in reason_by_row[5]
    assert "NUL" in reason_by_row[6]
    assert "surrogate" in reason_by_row[7]
    assert source.count() == 10


def test_a_record_without_the_column_does_not_affect_others(tmp_path):
    """JSON records often omit empty fields; the first record may, too."""
    path = tmp_path / "texts.jsonl"
    path.write_text('{"stars": 3}\n{"stars": 4, "body": "good"}\n{"stars": 1}\n')
    source = DataSource(path, text="body")
    assert texts_of(source) == ["good"]
    assert [*reasons(source)] == [0, 2]
    assert "body" in reasons(source)[0]


@pytest.mark.parametrize("kind", ["txt", "tsv", "csv"])
def test_invalid_bytes_affect_only_their_row(kind, tmp_path):
    path = write_as(kind, tmp_path, TEXTS)
    path.write_bytes(path.read_bytes().replace(b"good", b"g\xff\xfed"))
    assert texts_of(DataSource(path)) == TEXTS[1:]
    assert "not UTF-8" in reasons(DataSource(path))[0]


def test_columns_of_targets(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,gold,wrong\na film,1,0\na book,,0\n")
    source = DataSource(path, target="gold", foil="wrong")
    (row,) = (row for row in read_texts(source) if isinstance(row, Example))
    assert (row.target, row.foil) == ("1", "0")
    assert reasons(source) == {1: "gold: no value"}
    whole = DataSource([{"text": "a film", "gold": 0.5}], target="gold")
    assert "whole number" in reasons(whole)[0]


def test_unreadable_sources_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="hf:NAME"):
        DataSource(tmp_path / "none.txt")
    utf16 = tmp_path / "utf16.txt"
    utf16.write_text("a film", encoding="utf-16")
    with pytest.raises(ValueError, match="UTF-16"):
        DataSource(utf16)
    path = write_as("csv", tmp_path, TEXTS)
    with pytest.raises(ValueError, match="line 2 has no column 'gold'; it has name, review"):
        list(read_texts(DataSource(path, target="gold")))
    with pytest.raises(ValueError, match="limit"):
        DataSource(path, limit=0)
    with pytest.raises(ValueError, match="split"):
        DataSource(path, split="train")
    with pytest.raises(ValueError, match="kind 'conllu'"):
        check_corpus(DataSource(path, kind="conllu"))
    with pytest.raises(ValueError, match="no column label='name'"):
        check_corpus(DataSource(path, label="name"))


def test_texts_in_csv_may_be_long_and_the_field_size_limit_is_restored(tmp_path):
    path = write_as("csv", tmp_path, ["word " * 50_000])
    before = csv.field_size_limit()
    assert len(str(texts_of(DataSource(path))[0])) == 250_000
    assert csv.field_size_limit() == before


def test_the_field_size_limit_stays_raised_while_another_file_is_read():
    before = csv.field_size_limit()
    with LARGE_FIELDS:
        with LARGE_FIELDS:
            pass
        assert csv.field_size_limit() > before
    assert csv.field_size_limit() == before


def test_a_dataset_of_the_hub_is_a_stream(monkeypatch):
    calls = []

    def load_dataset(name, config, split, streaming):
        calls.append((name, config, split, streaming))
        return iter([{"sentence": "good"}, {"sentence": None}])

    monkeypatch.setitem(__import__("sys").modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    source = DataSource("hf:org/glue:sst2", split="test")
    assert texts_of(source) == ["good"]
    assert source.count() is None
    assert calls == [("org/glue", "sst2", "test", True)]
    assert source.describe([])["hub"] == "hf:org/glue:sst2"


def test_chunks_are_the_same_each_time_they_are_read(tmp_path):
    path = write_as("txt", tmp_path, [f"text {i}" for i in range(25)])
    read = partial(read_texts, DataSource(path))
    chunks = list(split_into_chunks(read, 10))
    assert [chunk.number for chunk in chunks] == [0, 1, 2]
    assert [[number for number, _ in chunk.rows] for chunk in chunks] == [
        [*range(10)],
        [*range(10, 20)],
        [*range(20, 25)],
    ]
    assert chunks == list(split_into_chunks(read, 10))
    assert list(split_into_chunks(read, 10, {0, 2})) == [chunks[1]]


def test_a_log_may_contain_prompts_and_chats():
    reply = {"role": "assistant", "content": "a good movie"}
    rows = [
        {"prompt": "it is", "response": " here"},
        {"messages": [{"role": "user", "content": "who ?"}, reply]},
        {"messages": [{"role": "user", "content": "who ?"}], "response": "they"},
        {"messages": [{"role": "user", "content": "who ?"}]},
    ]
    examples = [row for row in read_texts(DataSource(rows)) if isinstance(row, Example)]
    prompt = Chat(("user",), ("who ?",))
    expected = [("it is", " here"), (prompt, "a good movie"), (prompt, "they"), (prompt, None)]
    assert [(row.text, row.reply) for row in examples] == expected


def test_a_kind_may_be_given_as_a_file_name_ending(tmp_path):
    path = tmp_path / "texts.dat"
    path.write_text("a good film\nno\n")
    named = DataSource(path, kind="txt")
    assert list(read_texts(named)) == list(read_texts(DataSource(path, kind="text")))
    assert named.count() == 2


BREAKS = [
    "\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
]  # line ends of str.splitlines, except \n


@pytest.mark.parametrize("kind", ["txt", "tsv", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_row_ends_at_a_line_feed_alone(kind, newline, tmp_path):
    texts = [f"a good{sign}film" for sign in BREAKS]
    path = write_as(kind, tmp_path, texts)
    if kind in ("txt", "tsv"):
        path.write_bytes(path.read_bytes().replace(b"\n", newline.encode()))
    assert texts_of(DataSource(path)) == texts
    assert reasons(DataSource(path)) == {}
    assert DataSource(path).count() == len(texts)


def test_an_unreadable_csv_row_does_not_affect_others(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text('text,name\na film,1\n"a" book,2\na song,3\n')
    source = DataSource(path)
    assert texts_of(source) == ["a film", "a song"]
    assert "comma-separated" in reasons(source)[1]


@pytest.mark.parametrize(
    "end",
    [
        '"quoted, with comma",0\n',  # its first mark closes the other one
        'a "quoted" word,0\n',
        'ends in a mark",0\n',  # closed there: all lines are one record with too few columns or a wrong mark
        '"ends in a mark"\n',
        "no mark,0\n",  # not closed at all
        "no mark,0",
    ],
)
def test_an_unclosed_quotation_mark_in_csv_affects_only_its_own_line(end, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text(
        "text,label,other\n" + "fine film,1,\n" * 3 + '"an unclosed mark,1,\n' + "good film,1,\n" * 20 + end
    )
    rows = list(read_texts(DataSource(path)))
    assert [row.text for row in rows if isinstance(row, Example)][:23] == ["fine film"] * 3 + ["good film"] * 20
    assert [row.id for row in rows if isinstance(row, Example)][:5] == ["2", "3", "4", "6", "7"]
    assert isinstance(rows[3], BadRow)
    assert rows[3].where == f"{path}, line 5"
    assert len(rows) == 25


def test_several_unclosed_quotation_marks_in_csv(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text('text,label\n"one,1\na,1\n"two,1\nb,1\n"c\nd",0\n"three,1\ne,0\n')
    assert texts_of(DataSource(path)) == ["a", "b", "c\nd", "e"]
    assert [row.where[-1] for row in read_texts(DataSource(path)) if isinstance(row, BadRow)] == ["2", "4", "8"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["text", "10%\r20%", "a film"], ["a film"]),
        (["label,text", "0,one\rtwo", "1,a film"], ["a film"]),
        (["text,label", "one\rtwo,0", '"a\rfilm",1', "a book,0\r"], ["a\rfilm", "a book"]),
    ],
)
def test_a_lone_carriage_return_in_csv_makes_its_row_bad_without_splitting_it(lines, expected, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_bytes("\n".join([*lines, ""]).encode())
    rows = list(read_texts(DataSource(path)))
    assert [row.text for row in rows if isinstance(row, Example)] == expected
    assert [row for row in rows if isinstance(row, BadRow)] == [
        BadRow(f"{path}, line 2", "expected comma-separated values: a carriage return outside quotation marks")
    ]


@pytest.mark.parametrize("kind", ["txt", "tsv", "jsonl", "json", "conllu"])
def test_files_with_carriage_returns_as_line_ends_are_refused(kind, tmp_path):
    path = tmp_path / f"texts.{kind}"
    good = '{"text": "it is good"}' if "json" in kind else "name\ttext"
    path.write_bytes(f"{good}\r{good}\r".encode())
    with pytest.raises(ValueError, match=r"found 2 carriage returns and no line feed, .* one row: convert it first"):
        DataSource(path)
    path.write_bytes(f"{good}\r\n{good}\r".encode())
    DataSource(path)


def test_carriage_returns_between_values_of_json_or_rows_of_csv_are_accepted(tmp_path):
    (tmp_path / "texts.json").write_bytes(b'[{"text": "it is good"},\r{"text": "it is bad"}]\r')
    assert texts_of(DataSource(tmp_path / "texts.json")) == ["it is good", "it is bad"]
    (tmp_path / "texts.csv").write_bytes(b"text\rit is good\rit is bad\r")
    assert texts_of(DataSource(tmp_path / "texts.csv")) == ["it is good", "it is bad"]


def test_a_folder_named_like_a_data_file_is_refused(tmp_path):
    write_as("parquet", tmp_path, TEXTS)
    (tmp_path / "more").mkdir()
    assert texts_of(DataSource(tmp_path)) == TEXTS
    (tmp_path / "more.parquet").mkdir()
    with pytest.raises(ValueError, match=r"more\.parquet is a folder, though it is named like a file of data"):
        DataSource(tmp_path)


def test_a_pair_among_single_texts_is_a_bad_row():
    rows = [{"text_a": "it is a good movie"}, {"text_a": "who wrote the book", "text_b": "a young author"}]
    single, pair = read_texts(DataSource(rows))
    assert isinstance(single, Example)
    assert isinstance(pair, BadRow)
    assert "has two texts (text_a, text_b), where the rows before it have one text" in pair.reason
    first, second = read_texts(DataSource(rows[::-1]))
    assert isinstance(first, Example)
    assert first.text == ("who wrote the book", "a young author")
    assert isinstance(second, BadRow)


def test_rows_may_have_different_names_for_the_text_column():
    assert texts_of(DataSource([{"text": "it is"}, {"sentence": "a good"}, {"text": "movie"}])) == [
        "it is",
        "a good",
        "movie",
    ]


@pytest.mark.parametrize("rest", ['[{"text": "a song"}]', "garbage", "]"])
def test_content_after_a_json_array_is_refused(rest, tmp_path):
    path = tmp_path / "texts.json"
    path.write_text(f'[{{"text": "a film"}}, {{"text": "a book"}}]\n{rest}')
    with pytest.raises(ValueError, match=r"texts\.json: expected nothing behind the end of the JSON array, found "):
        list(read_texts(DataSource(path)))


def undecoded(*values: bytes) -> pyarrow.Array:
    """A string column of Parquet whose values may be invalid UTF-8."""
    return pyarrow.array(values, pyarrow.binary()).view("string")


def test_an_unreadable_parquet_row_does_not_affect_others(tmp_path):
    path = tmp_path / "texts.parquet"
    columns = {
        "text": undecoded(b"a film", b"caf\xe9", b"a book", b"a song", b"a play"),
        "other": undecoded(b"n0", b"n1", b"n2", b"\xff", b"n4"),
        "time": pyarrow.array(
            [0, 0, 2**62, 0, 0], pyarrow.timestamp("us")
        ),  # far after year 9999, the last of Python's datetime
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    rows = list(read_texts(DataSource(path)))
    assert [row.text for row in rows if isinstance(row, Example)] == ["a film", "a song", "a play"]
    assert [row.where for row in rows if isinstance(row, BadRow)] == [f"{path}, row 2", f"{path}, row 3"]
    assert "UTF-8" in reasons(DataSource(path))[1]
    assert reasons(DataSource(path))[2].startswith("the column 'time' cannot be read: ")
    assert list(reasons(DataSource(path, text="other"))) == [2, 3]


def test_a_list_in_parquet_that_is_not_utf8_makes_its_row_bad(tmp_path):
    path = tmp_path / "texts.parquet"
    lists = pyarrow.ListArray.from_arrays([0, 1, 2], undecoded(b"a", b"\xff"))
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a film", "a book"], "lists": lists}), path)
    assert texts_of(DataSource(path)) == ["a film"]
    assert "the column 'lists' cannot be read: 'utf-8' codec" in reasons(DataSource(path))[1]


def test_a_csv_quotation_mark_closed_by_a_later_row_that_has_too_many_columns(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text('id,text\n1,"open it is\n2,fine movie\n3,end",x\n4,last book\n')
    assert texts_of(DataSource(path)) == ["fine movie", "last book"]
    assert [row.where for row in read_texts(DataSource(path)) if isinstance(row, BadRow)] == [
        f"{path}, line 2",
        f"{path}, line 4",
    ]
