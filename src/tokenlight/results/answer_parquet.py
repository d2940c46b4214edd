"""A large explained answer as a Parquet file, with a row for each token of the answer.

A row has the scores of the tokens before it; those of the token itself and of later tokens are 0 and not written.
Fields without a value for each token of the answer are in the file's metadata, as JSON.
"""

import json
from pathlib import Path
from typing import Any

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.common.files import atomic_write

ENDING = ".parquet"
METADATA_KEY = b"tokenlight"
COLUMNS = {"ids": "id", "numbers": "number", "log_probabilities": "log_probability", "alternatives": "alternatives"}
SCORES = "scores"


def write_parquet(plain: dict[str, Any], path: Path) -> None:
    """Write an answer, given as `ExplainedAnswer.to_dict` returns it."""
    with from_extra("bench", "writing Parquet"):
        import pyarrow
        import pyarrow.parquet

    number = getattr(pyarrow, {"float32": "float32", "float64": "float64"}[plain["dtype"]])()
    alternative = pyarrow.struct(
        {"token": pyarrow.string(), "index": pyarrow.int64(), "probability": pyarrow.float64()}
    )
    types = {
        "ids": pyarrow.int64(),
        "numbers": number,
        "log_probabilities": number,
        "alternatives": pyarrow.list_(alternative),
    }
    count = len(plain["ids"])
    columns = {"token": pyarrow.array(plain["tokens"][len(plain["tokens"]) - count :], pyarrow.string())}
    columns |= {column: pyarrow.array(plain[name], types[name]) for name, column in COLUMNS.items()}
    columns[SCORES] = pyarrow.array(
        without_later_tokens(plain["matrix"], len(plain["tokens"]) - count), pyarrow.list_(number)
    )
    metadata = {name: value for name, value in plain.items() if name not in (*COLUMNS, "matrix")}
    table = pyarrow.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(metadata, ensure_ascii=False)})
    # Scores are split into streams of bytes: neighbors have similar signs and exponents, which compress well.
    encoding = {"use_dictionary": ["token"], "use_byte_stream_split": [f"{SCORES}.list.element"], "compression": "zstd"}
    with atomic_write(path) as temporary:
        pyarrow.parquet.write_table(table, temporary, **encoding)


def read_parquet(path: Path) -> dict[str, Any]:
    """Read an answer as a dict for `ExplainedAnswer.from_dict`."""
    with from_extra("bench", "reading Parquet"):
        import pyarrow
        import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise RefusedValue(f"{path} is not a Parquet file, or a damaged one: {error}") from error
    names, metadata = [*COLUMNS.values(), SCORES], (table.schema.metadata or {}).get(METADATA_KEY)
    if metadata is None or not set(names) <= set(table.column_names):
        raise RefusedValue(f"{path} holds no saved answer; it has the columns {', '.join(table.column_names)}")
    plain: dict[str, Any] = json.loads(metadata)
    values = {column: table[column].to_pylist() for column in names}
    width = len(plain["tokens"])
    matrix = [row + [0.0] * (width - len(row)) for row in values[SCORES]]
    return {**plain, **{name: values[column] for name, column in COLUMNS.items()}, "matrix": matrix}


def without_later_tokens(matrix: list[list[float]], prompt_length: int) -> list[list[float]]:
    """Rows without the scores of the token itself and of later tokens, which have to be 0."""
    rows = []
    for step, row in enumerate(matrix):
        before, later = row[: prompt_length + step], row[prompt_length + step :]
        if any(later):
            raise RefusedValue(
                f"token {step} of the answer has scores for tokens after it, which this format does not keep"
            )
        rows.append(before)
    return rows
