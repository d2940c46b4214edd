import json
import os
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from tests.tokenizers_ import explainer_for
from tokenlight.common.errors import RefusedValue
from tokenlight.data.columns import find_whole_words
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import MASK_MARK, BadRow, Example, fill_mask
from tokenlight.data.read import read_examples, read_texts
from tokenlight.data.readers import MAX_FIELD_LINES, unquote
from tokenlight.text.segmentation import occurrences

BLIMP = (
    ",sentence_good,sentence_bad,one_prefix_prefix,one_prefix_word_good,one_prefix_word_bad,UID,target\n"
    '0,"Ann, a niece of kings, runs.","Ann, a niece of kings, run.","Ann, a niece of kings,",runs,run,sva,niece\n'
    "1,The cups alarm Angela.,The cups alarms Angela.,The cups,alarm,alarms,sva,NA\n"
    "2,The cat and cat sees us.,The cat and cat see us.,The cat and cat,sees,see,sva,cat\n"
    "3,The bobcat sees us.,The bobcat see us.,The bobcat,sees,see,sva,cat\n"
    "4,The cat sees us.,The cat see us.,The cat,sees,sees,sva,cat\n"
    "5,A cat saw us.,A cat see us.,The cat,sees,see,sva,cat\n"
)
CONTEXT = "Ada wrote the first program in 1843."
QUESTIONS = [
    {"id": "q1", "question": "When?", "answers": [{"text": "1843", "answer_start": 31}, {"text": "x"}]},
    {"id": "q2", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 1}]},
    {"id": "q3", "question": "Why?", "answers": [{"text": "Ada", "answer_start": 0}], "is_impossible": True},
    {"id": "q6", "question": "Why?", "answers": [], "is_impossible": True},
    {"id": "q4", "question": " ", "answers": [{"text": "Ada", "answer_start": 0}]},
    {"id": "q5", "question": "Who?", "answers": [{"text": "Ada", "answer_start": "0"}]},
]


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


def reasons(rows: list[Example | BadRow]) -> list[str]:
    return [row.reason for row in rows if isinstance(row, BadRow)]


def good(rows: list[Example | BadRow]) -> list[Example]:
    return [row for row in rows if isinstance(row, Example)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_tsv_with_header(tmp_path, newline):
    lines = ["label\ttext_a", '1\ta "fine" film ', " 0 \tdull", "1", "1\t ", "\tno label"]
    path = write(tmp_path / "d.tsv", "\ufeff" + newline.join(lines) + newline)
    rows = list(read_examples(DataSource(path)))
    assert good(rows) == [Example("2", 'a "fine" film ', "1"), Example("3", "dull", "0")]
    assert [row.where[-6:] for row in rows if isinstance(row, BadRow)] == ["line 4", "line 5", "line 6"]
    first, second, third = reasons(rows)
    assert first == "expected 2 columns, found 1"
    assert "empty" in second
    assert "label" in third


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ('"She said ""no""."', 'She said "no".'),
        ('"quoted whole"', '"quoted whole"'),
        ('"a" and "b"', '"a" and "b"'),
        ('"', '"'),
        ('""', '""'),
        ('a "" b', 'a "" b'),
    ],
)
def test_tsv_unquotes_only_fields_with_doubled_marks(field, text):
    assert unquote(field) == text


@pytest.mark.parametrize(
    ("lines", "bad"),
    [
        (["text\tlabel", '"one', 'two"\t0', "three\t1"], [2, 3]),
        (["label\ttext", '0\t"one', "two", "", '""three"""', "1\tfour"], [2, 3, 4, 5]),
        (["label\ttext\tnote", '0\t"one', 'two"\tx', "1\tthree\ty"], [2, 3]),
    ],
)
def test_lines_of_a_tsv_field_with_line_breaks_are_bad_rows(lines, bad, tmp_path):
    source = DataSource(write(tmp_path / "d.tsv", "\n".join(lines) + "\n"))
    rows = list(read_examples(source))
    assert len(good(rows)) == 1
    reason = "part of a field with line breaks between quotation marks"
    assert [row.where for row in rows if isinstance(row, BadRow) and row.reason.startswith(reason)] == [
        f"{tmp_path / 'd.tsv'}, line {number}" for number in bad
    ]
    assert source.count() == len(rows)


@pytest.mark.parametrize(
    "lines",
    [
        ["label\ttext", '0\t"one', 'said "two"\tx"', '1\t"three'],  # marks are characters: each line is a row
        ["text\tlabel", '"one\t0', 'two"\t1', '"three"\t1'],
        ["label\ttext", '0\t"one', '1\t"two', '0\tthree"'],
        ["text", '"one', "two", 'three"'],
    ],
)
def test_single_marks_in_tsv_are_characters(lines, tmp_path):
    rows = list(read_texts(DataSource(write(tmp_path / "d.tsv", "\n".join(lines) + "\n"))))
    texts = [row.text for row in rows if isinstance(row, Example)]
    column = lines[0].split("\t").index("text")
    assert texts == [line.split("\t")[column] for line in lines[1:]]


def test_an_unmatched_mark_does_not_suppress_later_rows(tmp_path):
    lines = ["label\ttext", '0\t"one', *["alone"] * (MAX_FIELD_LINES + 5), '1\t"two', "x", '1\tthree"', '0\t"four']
    rows = list(read_examples(DataSource(write(tmp_path / "d.tsv", "\n".join(lines) + "\n"))))
    assert [row.text for row in good(rows)] == ['"one', '"two', 'three"', '"four']
    assert set(reasons(rows)) == {"expected 2 columns, found 1"}
    assert len(rows) == len(lines) - 1


def test_csv_with_quotes_and_line_breaks(tmp_path):
    rows = list(
        read_examples(DataSource(write(tmp_path / "d.csv", 'Review,Sentiment\n"one,\n""two""",Positive\nthree\n')))
    )
    assert good(rows) == [Example("3", 'one,\n"two"', "Positive")]
    assert reasons(rows) == ["expected 2 columns, found 1"]


def test_csv_with_an_incomplete_header_is_refused(tmp_path):
    with pytest.raises(ValueError, match="comma-separated"):
        list(read_examples(DataSource(write(tmp_path / "d.csv", '"text\none'))))


def test_plain_text_has_one_example_per_line(tmp_path):
    rows = list(read_examples(DataSource(write(tmp_path / "d.txt", "one\n\ntwo"))))
    assert [(e.id, e.text) for e in good(rows)] == [("1", "one"), ("3", "two")]
    assert len(reasons(rows)) == 1


@pytest.mark.parametrize("name", ["d.jsonl", "d.json"])
def test_json_lines(tmp_path, name):
    records = [
        {"premise": "a", "hypothesis": "b", "label": 2, "data": "mnli"},
        {"premise": "a", "label": 0},
        {"premise": "a", "hypothesis": "b", "label": True},
        {"premise": "a", "hypothesis": 3, "label": 1},
        [1],
        {"premise": "a", "hypothesis": "b", "label": 1.5},
    ]
    text = "\n".join(json.dumps(r) for r in records) + "\n{broken\n"
    rows = list(read_examples(DataSource(write(tmp_path / name, text))))
    assert good(rows) == [Example("1", ("a", "b"), 2)]
    missing, boolean, number, no_object, half, broken = reasons(rows)
    assert missing == "no value under 'hypothesis'"
    assert "found True" in boolean
    assert "hypothesis: " in number
    assert no_object == broken == "not a JSON object"
    assert "found 1.5" in half


def test_json_array(tmp_path):
    path = write(tmp_path / "d.json", " " + json.dumps([{"text": "a"}, 3, {"text": "b"}], indent=2))
    rows = list(read_examples(DataSource(path)))
    assert [(e.id, e.text, e.label) for e in good(rows)] == [("1", "a", None), ("3", "b", None)]
    assert reasons(rows) == ["not a JSON object"]


def test_parquet_with_labels_as_whole_floats(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"question1": ["a", "b", None], "question2": ["c", "d", "e"], "label": [1.0, None, 0.0]})
    parquet.write_table(table, tmp_path / "d.parquet")
    rows = list(read_examples(DataSource(tmp_path / "d.parquet")))
    assert good(rows) == [Example("1", ("a", "c"), 1)]
    assert isinstance(good(rows)[0].label, int)
    assert reasons(rows) == ["no value under 'label'", "no value under 'question1'"]


@pytest.mark.parametrize("indent", [None, 1])
def test_squad_files(tmp_path, indent):
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": QUESTIONS}]}]}
    rows = list(read_examples(DataSource(write(tmp_path / "squad.json", json.dumps(content, indent=indent)))))
    assert good(rows) == [Example("q1", ("When?", CONTEXT), answer=(31, 35))]
    elsewhere, impossible, unanswered, empty, no_number = reasons(rows)
    assert elsewhere == "the answer is not in the context where answer_start says"
    assert impossible == unanswered == "unanswerable question"
    assert "empty" in empty
    assert no_number == "expected answers with text and answer_start"
    assert [row.where[-2:] for row in rows if isinstance(row, BadRow)] == ["q2", "q3", "q6", "q4", "q5"]


def test_a_question_without_an_id_does_not_affect_others(tmp_path):
    good = {"id": "a", "question": "who ?", "answers": [{"text": "book", "answer_start": 4}]}
    questions = [good, "who ?", {"question": "who ?"}, {**good, "id": "b"}]
    paragraph = {"context": "the book", "qas": questions}
    rows = list(
        read_examples(DataSource(write(tmp_path / "d.json", json.dumps({"data": [{"paragraphs": [paragraph]}]}))))
    )
    assert [row.id for row in rows if isinstance(row, Example)] == ["a", "b"]
    assert reasons(rows) == ["expected a question with an id"] * 2


def test_the_error_names_the_record_that_is_nested_too_deeply(tmp_path):
    with pytest.raises(ValueError, match="record 1: the JSON is nested too deeply"):
        list(read_examples(DataSource(write(tmp_path / "d.json", "[" + "[" * 100_000))))


def test_questions_in_the_columns_of_hugging_face(tmp_path):
    record = {"id": "q1", "context": CONTEXT, "question": "When?"}
    answers = [{"text": ["1843", "x"], "answer_start": [31, 0]}, {"text": [], "answer_start": []}, {"text": "1843"}]
    content = "\n".join(json.dumps({**record, "answers": answer}) for answer in answers)
    rows = list(read_examples(DataSource(write(tmp_path / "d.jsonl", content))))
    assert good(rows) == [Example("1", ("When?", CONTEXT), answer=(31, 35))]
    assert reasons(rows) == ["unanswerable question", "expected answers with text and answer_start"]


def test_minimal_pairs_as_prefixes(tmp_path):
    rows = list(read_examples(DataSource(write(tmp_path / "blimp.csv", BLIMP))))
    prefix = "Ann, a niece of kings,"
    example = Example("2", prefix, target=" runs", foil=" run", evidence=((7, 12),), group="sva")
    assert rows[0] == example
    assert prefix[7:12] == "niece"
    assert reasons(rows) == [
        "no evidence is marked",
        "the evidence occurs more than once in the prefix",
        "the evidence occurs nowhere in the prefix",
        "the right and the wrong word are the same",
    ]


def test_minimal_pairs_with_a_mask(tmp_path):
    rows = list(read_examples(DataSource(write(tmp_path / "blimp.csv", BLIMP)), gap="inside"))
    (example,) = good(rows)
    assert example.text == f"Ann, a niece of kings, {MASK_MARK}."
    assert reasons(rows)[-1] == "the sentence does not begin with the prefix and the right word"


def test_minimal_pairs_under_plain_names(tmp_path):
    (row,) = read_examples(DataSource(write(tmp_path / "d.csv", "prefix,target,foil,evidence\nThe keys,are,is,keys\n")))
    assert row == Example("2", "The keys", target=" are", foil=" is", evidence=((4, 8),))


def test_minimal_pairs_are_not_for_classifiers(tmp_path):
    with pytest.raises(ValueError, match="words to predict, for models of the tasks fill-mask and text-generation"):
        list(read_examples(DataSource(write(tmp_path / "blimp.csv", BLIMP)), gap=None))


def test_filling_the_mask_shifts_later_evidence():
    example = Example("1", f"Where {MASK_MARK} the keys of Ann", evidence=((21, 25), (0, 5)))
    assert isinstance(example.text, str)
    assert example.text[21:25] == "keys"
    filled = fill_mask(example, "[MASK]")
    assert isinstance(filled.text, str)
    assert filled.text == "Where [MASK] the keys of Ann"
    assert [filled.text[slice(*span)] for span in filled.evidence] == ["keys", "Where"]
    with pytest.raises(ValueError, match="expected one"):
        fill_mask(filled, "[MASK]")


@pytest.mark.parametrize(
    ("header", "named", "text"),
    [
        ("a\tb\tlabel", {"text": "b"}, "2"),
        ("a\tb\tlabel", {"pair": ("b", "a")}, ("2", "1")),
        ("a\tTEXT\tlabel", {}, "2"),
        ("question\tsentence\tlabel", {}, ("1", "2")),
        ("text_a\ttext_b\tlabel", {}, ("1", "2")),
        ("sentence\ttext\tlabel", {"text": "sentence"}, "1"),
    ],
)
def test_columns_with_common_or_given_names(tmp_path, header, named, text):
    (row,) = read_examples(DataSource(write(tmp_path / "d.tsv", f"{header}\n1\t2\t3\n"), **named))
    assert row == Example("2", text, "3")


@pytest.mark.parametrize(
    ("header", "named", "message"),
    [
        ("a\tb\tc", {}, "it has a, b, c"),
        ("sentence\tb\tc", {"text": "Sentence"}, "no column 'Sentence'; it has sentence, b, c"),
        ("sentence\tb\tc", {"label": "gold"}, "no column 'gold'; it has sentence, b, c"),
        ("sentence\ttext\tc", {}, "any of the columns sentence, text may be the text"),
        ("sentence\tlabel\tsentiment", {}, "may be the label"),
        ("sentence\tb\tc", {"text": "b", "pair": ("b", "c")}, "a text or those of a pair"),
        ("sentence\tb\tc", {"pair": ("b",)}, "a pair has two columns"),
        ("sentence\tb\tb", {}, "expected a header"),
        ("sentence\tb\tc", {"kind": "xml"}, "no kind of data 'xml'; kinds: text, tsv"),
        ("sentence\tb\tc", {"split": "test"}, "no split 'test'"),
        ("sentence\tb\tc", {"limit": 0}, "limit"),
    ],
)
def test_errors_about_columns_and_options_list_what_exists(tmp_path, header, named, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        list(read_examples(DataSource(write(tmp_path / "d.tsv", f"{header}\n1\t2\t3\n"), **named)))


def test_missing_empty_and_unknown_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="hf:NAME"):
        read_examples(DataSource(tmp_path / "none.tsv"))
    with pytest.raises(ValueError, match=r"ends in \.tsv"):
        read_examples(DataSource(write(tmp_path / "d.xml", "x")))
    for name in ("d.tsv", "d.csv", "d.jsonl", "d.txt"):
        with pytest.raises(ValueError, match="found none"):
            list(read_examples(DataSource(write(tmp_path / name, ""))))
    with pytest.raises(ValueError, match="found none"):
        list(read_examples(DataSource(write(tmp_path / "d.tsv", "label\ttext\n"))))
    (tmp_path / "d.txt").write_bytes(b"caf\xe9\ntea\n")
    rows = list(read_examples(DataSource(tmp_path / "d.txt")))
    assert [e.text for e in good(rows)] == ["tea"]
    assert reasons(rows) == ["text: holds bytes that are not UTF-8"]
    with pytest.raises(ValueError, match="SQuAD"):
        list(read_examples(DataSource(write(tmp_path / "d.json", '{"data": [{}]}'))))


def test_limit_counts_rows_and_reads_no_further(tmp_path):
    path = write(tmp_path / "d.jsonl", '{"text": "a"}\n{bad\n{"text": "b"}\n')
    assert len(list(read_examples(DataSource(path, limit=2)))) == 2


def test_hugging_face_datasets(monkeypatch):
    calls = []

    def load_dataset(name, config, split, streaming):
        calls.append((name, config, split, streaming))
        return iter([{"sentence": "good", "label": 1}, {"sentence": None, "label": 0}])

    fake = SimpleNamespace(load_dataset=load_dataset, get_dataset_split_names=lambda name, config: ["train", "test"])
    monkeypatch.setitem(sys.modules, "datasets", fake)
    rows = list(read_examples(DataSource("hf:org/glue:sst2", split="test")))
    assert rows[0] == Example("1", "good", 1)
    assert reasons(rows) == ["no value under 'sentence'"]
    assert calls == [("org/glue", "sst2", "test", True)]
    with pytest.raises(ValueError, match="train, test"):
        list(read_examples(DataSource("hf:org/glue")))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"tokenlight\[bench\]"):
        list(read_examples(DataSource("hf:org/glue", split="test")))


def test_labels_of_the_data_are_mapped_to_labels_of_the_model():
    explainer = explainer_for("bert")
    for label in (2, "2", "positive", "Positive", "POSITIVE"):
        assert explainer.task.index(label) == 2
    for label in (True, 3, "-1", "good", None):
        with pytest.raises(ValueError, match=r"no label .*negative"):
            explainer.task.index(label)


def test_real_files_have_only_expected_bad_rows():
    data = Path(os.environ.get("TOKENLIGHT_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not data.is_dir():
        pytest.skip(f"no data in {data}: set TOKENLIGHT_DATA")
    sizes = {
        "sst2/dev.tsv": 872,
        "imdb/orig_test.tsv": 488,
        "xquad/xquad.en.json": 1190,
        "evidence/ioi_dataset.csv": 1000,
    }
    for name, size in sizes.items():
        rows = list(read_examples(DataSource(data / name)))
        assert len(rows) == len(good(rows)) == size
    pairs = list(read_examples(DataSource(data / "evidence" / "anaphor_gender_agreement.csv")))
    assert len(good(pairs)) == 979
    assert set(reasons(pairs)) == {"no evidence is marked"}


def test_a_label_of_minus_one_is_kept(tmp_path):
    """GLUE's test splits write -1 instead of labels; only the model can tell whether that is the name of a label."""
    path = tmp_path / "test.tsv"
    path.write_text("sentence\tlabel\na film\t-1\nanother\t1\n")
    assert [example.label for example in read_examples(DataSource(path)) if isinstance(example, Example)] == ["-1", "1"]


def test_whole_words_are_the_same_as_those_of_a_regular_expression():
    draw = random.Random(0)
    for _ in range(3000):
        text, phrase = ("".join(draw.choices("ab_ é(", k=draw.randrange(1, longest))) for longest in (30, 5))
        expected = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text)]
        assert find_whole_words(text, phrase) == expected


def test_evidence_is_found_in_one_pass_over_the_text():
    """Also in repetitive texts, there are at most two comparisons for each character."""
    comparisons = 0

    class Counted(str):
        def __getitem__(self, at: Any) -> Any:
            nonlocal comparisons
            comparisons += isinstance(at, int)
            return super().__getitem__(at)

    phrase, text = Counted("(" * 50 + "x"), "(" * 1000
    assert list(occurrences(text, phrase)) == []
    assert comparisons <= 4 * (len(phrase) + len(text))


def test_each_row_may_have_its_own_columns():
    """Labels are read even if the first row has none; a pair among single texts is a bad row."""
    rows = [{"text": "a good movie"}, {"text": "a bad movie", "label": 0}]
    assert [row.label for row in good(list(read_examples(DataSource(rows), None)))] == [None, 0]
    pairs = [{"text_a": "it is", "text_b": "a movie", "label": 1}, {"text_a": "it is", "label": 0}]
    first, second = read_examples(DataSource(pairs), None)
    assert isinstance(first, Example)
    assert isinstance(second, BadRow)
    assert "has one text (text_a), where the rows before it have two texts" in second.reason
    single, pair = read_examples(DataSource([{"sentence": "it is"}, {"question": "who", "sentence": "it is"}]), None)
    assert isinstance(single, Example)
    assert isinstance(pair, BadRow)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_blanks_around_the_names_of_columns_hide_no_label(ending, tmp_path):
    path = tmp_path / f"d.{ending}"
    if ending == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"text": ["good"], " Label": [1]}), path)
    else:
        write(path, {"csv": "text, Label\ngood,1\n", "tsv": "text\t Label \ngood\t1\n"}.get(ending, ""))
    if ending == "jsonl":
        write(path, json.dumps({"text": "good", " Label": 1}))
    (found,) = read_examples(DataSource(path))
    assert isinstance(found, Example)
    assert (found.text, str(found.label)) == ("good", "1")


def test_blanks_behind_the_commas_of_csv_are_none_of_the_values(tmp_path):
    lines = ['label, text, "id"', '1, "good, very good", a', "0,bad , b", '0, "two', 'lines", c']
    path = write(tmp_path / "d.csv", "\n".join(lines) + "\n")
    found = list(read_examples(DataSource(path)))
    assert [(one.text, one.label) for one in good(found)] == [
        ("good, very good", "1"),
        ("bad ", "0"),
        ("two\nlines", "0"),
    ]
    assert [one.id for one in good(found)] == ["2", "3", "5"]
    assert [one.id for one in good(list(read_texts(DataSource(path, id="id"))))] == ["a", "b", "c"]


def test_evidence_is_found_under_any_spelling_of_its_column():
    row = {"Prompt": "The key is red. Which color?", "Answer": "red", "Evidence ": "red"}
    (found,) = read_examples(DataSource([row]))
    assert isinstance(found, Example)
    assert [one.span for one in found.rests_on] == [(11, 14)]
    (twice,) = read_examples(DataSource([row | {"evidence": "key"}]))
    assert isinstance(twice, BadRow)
    assert twice.reason == "expected one column with evidence, found 'Evidence ', 'evidence'"


def test_two_columns_of_parquet_with_one_name_are_refused(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table([pyarrow.array(["good"]), pyarrow.array(["bad"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="expected a header with the names of the columns, found"):
        list(read_examples(DataSource(tmp_path / "d.parquet")))


def test_labels_may_be_numbers_of_numpy():
    (found,) = read_examples(DataSource([{"text": "good", "label": numpy.int64(1)}]))
    assert isinstance(found, Example)
    assert type(found.label) is int


@pytest.mark.parametrize("data", [{"text": ["good", "bad"]}, {"good", "bad"}, iter(["good"]), b"good"])
def test_keys_and_sets_are_no_rows(data):
    with pytest.raises(TypeError, match=f"found {type(data).__name__}"):
        DataSource(data)


def test_tables_in_memory_are_refused_with_what_to_give():
    """Iterating over one gives the names of its columns, which would be explained as texts."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": ["good", "bad"], "label": [1, 0]})
    with pytest.raises(TypeError, match="found a DataFrame: give the column"):
        DataSource(table)
    with pytest.raises(TypeError, match="found a DataFrame: give the column"):
        explainer_for("bert").explain(table)
    found = list(read_examples(DataSource(table.to_dict("records"))))
    assert [(one.text, one.label) for one in good(found)] == [("good", 1), ("bad", 0)]
    assert [one.text for one in good(list(read_texts(DataSource(table["text"]))))] == ["good", "bad"]


@pytest.mark.parametrize("wrap", [lambda rows: "\n".join(rows), lambda rows: f"[{', '.join(rows)}]"])
def test_a_json_object_with_a_name_twice_is_a_bad_row(tmp_path, wrap):
    """As two columns with one name in CSV and Parquet: Python's json would read the second and lose the first."""
    file = tmp_path / "d.json"
    rows = [
        '{"text": "good", "text": "bad", "label": 1}',
        '{"text": "fine", "label": 1}',
        '{"text": "bad", "label": 1, "more": [{"role": "user", "role": "system"}]}',
    ]
    file.write_text(wrap(rows), encoding="utf-8")
    first, second, third = read_examples(DataSource(file))
    assert isinstance(first, BadRow)
    assert first.reason.startswith("the name 'text' stands twice in an object")
    assert isinstance(second, Example)
    assert second.text == "fine"
    assert isinstance(third, BadRow)
    assert third.reason.startswith("the name 'role' stands twice")


@pytest.mark.parametrize("content", [b"ARROW1\0\0 and more", b"", b"PAR1 cut off"])
def test_what_is_no_parquet_file_is_refused_by_name(tmp_path, content):
    pytest.importorskip("pyarrow")
    file = tmp_path / "d.parquet"
    file.write_bytes(content)
    for read in (lambda: list(read_examples(DataSource(file))), lambda: DataSource(file).count()):
        with pytest.raises(RefusedValue, match=r"d\.parquet: expected a Parquet file, found another or a damaged one"):
            read()
