"""A large explained answer as a Parquet file, with a row for each token of the answer.

A row has the scores of all tokens before it; what stands behind is 0 and not written. What is not about a single token
of the answer is in the file's metadata, as JSON.
"""

import json
from pathlib import Path
from typing import Any

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.common.files import atomic_write

ENDING = ".parquet"
ABOUT = b"tokenlight"  # the key of the metadata
BY_TOKEN = {"ids": "id", "numbers": "number", "log_probabilities": "log_probability", "alternatives": "alternatives"}
SCORES = "scores"


def write_parquet(plain: dict[str, Any], path: Path) -> None:
    """An answer as its `to_dict` gives it."""
    with from_extra("bench", "writing Parquet"):
        import pyarrow
        import pyarrow.parquet

    number = getattr(pyarrow, {"float32": "float32", "float64": "float64"}[plain["dtype"]])()
    one = pyarrow.struct({"token": pyarrow.string(), "index": pyarrow.int64(), "probability": pyarrow.float64()})
    types = {"ids": pyarrow.int64(), "numbers": number, "log_probabilities": number, "alternatives": pyarrow.list_(one)}
    count = len(plain["ids"])
    columns = {"token": pyarrow.array(plain["tokens"][len(plain["tokens"]) - count :], pyarrow.string())}
    columns |= {column: pyarrow.array(plain[name], types[name]) for name, column in BY_TOKEN.items()}
    columns[SCORES] = pyarrow.array(lower_part(plain["matrix"], len(plain["tokens"]) - count), pyarrow.list_(number))
    about = {name: value for name, value in plain.items() if name not in (*BY_TOKEN, "matrix")}
    table = pyarrow.table(columns).replace_schema_metadata({ABOUT: json.dumps(about, ensure_ascii=False)})
    # The bytes of scores side by side: signs and exponents of neighbors are alike, their last digits are not.
    ways = {"use_dictionary": ["token"], "use_byte_stream_split": [f"{SCORES}.list.element"], "compression": "zstd"}
    with atomic_write(path) as part:
        pyarrow.parquet.write_table(table, part, **ways)


def read_parquet(path: Path) -> dict[str, Any]:
    """The answer again, as `from_dict` takes it."""
    with from_extra("bench", "reading Parquet"):
        import pyarrow
        import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise RefusedValue(f"{path} is not a Parquet file, or a damaged one: {error}") from error
    wanted, about = [*BY_TOKEN.values(), SCORES], (table.schema.metadata or {}).get(ABOUT)
    if about is None or not set(wanted) <= set(table.column_names):
        raise RefusedValue(f"{path} holds no saved answer; it has the columns {', '.join(table.column_names)}")
    plain: dict[str, Any] = json.loads(about)
    found = {column: table[column].to_pylist() for column in wanted}
    width = len(plain["tokens"])
    matrix = [row + [0.0] * (width - len(row)) for row in found[SCORES]]
    return {**plain, **{name: found[column] for name, column in BY_TOKEN.items()}, "matrix": matrix}


def lower_part(matrix: list[list[float]], prompt: int) -> list[list[float]]:
    """Without what stands behind each token, where everything is 0."""
    rows = []
    for step, row in enumerate(matrix):
        before, behind = row[: prompt + step], row[prompt + step :]
        if any(behind):
            raise RefusedValue(
                f"token {step} of the answer has scores for tokens after it, which this format does not keep"
            )
        rows.append(before)
    return rows
