"""Folders of benchmarks whose files were changed: noticed, said in words, and measured again where a run continues."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_explain import fail
from tests.tokenizers_ import explainer_for
from tokenlight.bench import benchmark
from tokenlight.bench import measure_chunk as module
from tokenlight.bench.benchmark import bench
from tokenlight.bench.tabulate import read_table
from tokenlight.runs.run_folder import Journal

TEXTS = [
    "it is a good movie",
    "the key is here",
    "they are not here",
    "who wrote the book ?",
    "the movie is bad",
]
STAGES = ("results-00000.jsonl", "results-00001.jsonl")


def run(folder: Path) -> Any:
    return bench(
        explainer_for("bert"),
        TEXTS,
        ["gradient_x_input", "attcat"],
        ["aopc"],
        output=folder,
        erasure=False,
        progress=False,
    )


@pytest.fixture(autouse=True)
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(benchmark, "CHUNK_ROWS", 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run; tests get copies."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "CHUNK_ROWS", 2)
        run(folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    copied = tmp_path / "run"
    copied.mkdir()
    for path in finished.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    return copied


@pytest.fixture
def measured(monkeypatch) -> list[int]:
    """The rows that are measured from now on, in the methods' stage and in that of the inverse."""
    rows: list[int] = []
    real = module.measure_chunk

    def measure_chunk(plan: Any, part: Any) -> Any:
        rows.extend(number for number, _ in part.rows)
        return real(plan, part)

    monkeypatch.setattr(module, "measure_chunk", measure_chunk)
    return rows


def change_value(path: Path, row: int) -> None:
    """Another digit in a measured value of this row."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    (number,) = (i for i, line in enumerate(lines) if json.loads(line).get("row") == row)
    match = re.search(r'"aopc": -?\d\.(\d)', lines[number])
    assert match is not None
    place = match.start(1)
    lines[number] = lines[number][:place] + str((int(match[1]) + 5) % 10) + lines[number][place + 1 :]
    path.write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize("stage", STAGES)
def test_a_changed_number_is_noticed_and_its_part_measured_again(stage, folder, measured):
    table = read_table(folder).to_csv()
    records = list(Journal(folder / stage))
    change_value(folder / stage, 2)
    with pytest.raises(ValueError, match=rf"{stage} is damaged: the group that line 6 ends is not what was written"):
        read_table(folder)
    assert f"{stage} is damaged" in fail("bench", str(folder))
    with pytest.warns(RuntimeWarning, match=rf"{stage} was damaged: .* measured again"):
        assert run(folder).to_csv() == table
    assert measured == [2, 3]
    assert list(Journal(folder / stage)) == records
    assert read_table(folder).to_csv() == table


def test_a_finished_run_is_not_measured_again(folder, measured):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    run(folder)
    assert measured == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_from_before_checksums_is_read_and_continued(folder, measured):
    table = read_table(folder).to_csv()
    for stage in STAGES:
        content = (folder / stage).read_text(encoding="utf-8")
        (folder / stage).write_text(re.sub(r', "sha256": "[0-9a-f]{64}"', "", content), encoding="utf-8")
    assert read_table(folder).to_csv() == table
    assert run(folder).to_csv() == table
    assert measured == []


def test_without_checksums_a_record_that_lacks_something_is_refused_in_words(folder):
    content = (folder / STAGES[0]).read_text(encoding="utf-8")
    content = re.sub(r', "sha256": "[0-9a-f]{64}"', "", content).replace('"set_aside"', '"set_asid"', 1)
    (folder / STAGES[0]).write_text(content, encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"results-00000.jsonl is damaged: a record cannot be read \(KeyError: 'set_aside'"
    ):
        read_table(folder)


def test_the_inverse_of_another_method_starts_anew(folder, measured, monkeypatch):
    """Groups that are measured again may change which method is the best."""
    before = read_table(folder).controls[-1].label
    other = "attcat" if before == "inverse of gradient_x_input" else "gradient_x_input"
    monkeypatch.setattr(benchmark, "best_method", lambda folder: other)
    assert run(folder).controls[-1].label == f"inverse of {other}"
    assert measured == list(range(len(TEXTS)))


BROKEN = ["", "{", "[]", "7", '"text"', "[" * 100_000, "\udcff"]


def write(path: Path, content: str) -> None:
    path.write_bytes(content.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("content", [*BROKEN, '{"0": 7}', '{"0": [7]}', '{"0": [{}]}', '{"0": null}'], ids=range(11))
def test_damaged_examples_are_refused_before_anything_is_measured(content, folder, measured):
    write(folder / "examples.json", content)
    (folder / STAGES[0]).unlink()
    with pytest.raises(ValueError, match=r"examples\.json cannot be used \(.*delete it, then the same call"):
        run(folder)
    assert measured == []
    (folder / "examples.json").unlink()
    run(folder)


def test_a_damaged_example_is_said_on_the_command_line(folder):
    stored = json.loads((folder / "examples.json").read_text(encoding="utf-8"))
    stored["0"][0]["scores"][0] = "much"
    (folder / "examples.json").write_text(json.dumps(stored), encoding="utf-8")
    assert "examples.json cannot be used (this saved explanation is damaged" in fail("bench", str(folder))


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_settings_that_are_none_are_refused(content, folder):
    write(folder / "run.json", content)
    for read in (read_table, run):
        with pytest.raises(ValueError, match=r"run\.json is damaged \(.*restore it .* or run again in another folder"):
            read(folder)


def without(*keys: str) -> Any:
    def change(settings: Any) -> None:
        for key in keys[:-1]:
            settings = settings[key]
        del settings[keys[-1]]

    return change


def replaced(value: Any, *keys: str) -> Any:
    def change(settings: Any) -> None:
        for key in keys[:-1]:
            settings = settings[key]
        settings[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        without("protocol"),
        without("protocol", "measures"),
        without("protocol", "name"),
        without("methods"),
        without("methods", "attcat", "title"),
        without("methods", "attcat", "control"),
        without("model"),
        without("data", "source"),
        replaced(7, "methods"),
        replaced([7], "protocol", "measures"),
        replaced([{"metric": "aopc", "nothing": 1}], "protocol", "measures"),
        replaced([{"metric": "my_own", "perturbation": None}], "protocol", "measures"),
        replaced(7, "data"),
    ],
    ids=range(13),
)
def test_settings_that_lack_something_are_refused_in_words(change, folder):
    settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    change(settings)
    (folder / "run.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(ValueError, match=r"run\.json cannot be used \(.*run the benchmark again in another folder"):
        read_table(folder)


def test_files_of_different_runs_are_told_apart(folder):
    settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    settings["methods"]["cat"] = settings["methods"].pop("attcat")
    (folder / "run.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(ValueError, match=r"holds results of attcat, which run\.json does not name"):
        read_table(folder)
    settings["format"] = "tokenlight.corpus"
    (folder / "run.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(ValueError, match=r"run.json describes 'tokenlight.corpus', not a benchmark"):
        read_table(folder)
