"""A vector is many coordinates: the same whatever holds it, in all doors that read contexts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

import covey
from covey.data import contexts
from covey.errors import DataError

ROWS, SIZE = 300, 24
RNG = np.random.default_rng(5)
VECTORS = RNG.normal(size=(ROWS, SIZE))
LABELS = RNG.integers(0, 2, ROWS)
COLUMNS = {
    "hour": RNG.random(ROWS),
    "label": LABELS,
    "a": np.where(VECTORS[:, 0] > 0, LABELS, 1 - LABELS),
    "b": np.where(VECTORS[:, 0] < 0, LABELS, 1 - LABELS),
}
VECTOR = {"vector": "embedding", "size": SIZE}
CONFIG = {
    "data": {"context": ["hour", VECTOR]},
    "learner": [
        {"name": "north", "functions": ["a"], "peers": {"south": 0.05}},
        {"name": "south", "functions": ["b"]},
    ],
}


def places(vectors: Any, **scale: Any) -> np.ndarray:
    reader = contexts.parse([{**VECTOR, **scale}])
    return reader.extract({"embedding": vectors}, first_slot=1)


def test_a_direction_does_not_depend_on_the_length_of_the_vector() -> None:
    expected = VECTORS / np.sqrt((VECTORS**2).mean(axis=1, keepdims=True))
    expected = 0.5 + expected / (2 * np.sqrt(16 + expected**2))

    assert np.allclose(places(VECTORS), expected, rtol=0, atol=1e-12)
    assert np.array_equal(places(VECTORS), places(2.0**40 * VECTORS))
    assert np.array_equal(places(np.zeros((1, SIZE))), np.full((1, SIZE), 0.5))
    huge = np.array([[1e308, -1e308, 5e-324, *[0.0] * (SIZE - 3)]])
    assert ((places(huge) > 0) & (places(huge) < 1)).all()


def test_a_linear_vector_has_one_scale_for_all_its_numbers() -> None:
    given = np.linspace(-2, 2, SIZE)[None]

    assert np.array_equal(places(given, scale="linear", low=-2, high=2), (given + 2) / 4)
    clipped = places(given, scale="linear", low=-1, high=1, clip=True)
    assert np.array_equal(clipped, (given.clip(-1, 1) + 1) / 2)


@pytest.mark.parametrize(
    "form",
    [
        lambda row: row.tolist(),
        tuple,
        np.asarray,
        lambda row: json.dumps(row.tolist()),
        lambda row: " ".join(map(repr, row.tolist())),
        lambda row: ";".join(map(repr, row.tolist())),
        lambda row: "(" + ", ".join(map(repr, row.tolist())) + ")",
    ],
)
def test_numbers_are_the_same_in_lists_arrays_and_texts(form: Callable[[Any], Any]) -> None:
    whole = places(VECTORS)
    reader = contexts.parse([VECTOR])

    assert np.array_equal(places([form(row) for row in VECTORS]), whole)
    for row in range(0, ROWS, 50):  # bit for bit, one by one, too
        point = reader.extract_one({"embedding": form(VECTORS[row])}, slot=row + 1)
        assert point == tuple(whole[row].tolist())


def test_vectors_stand_among_columns_and_keep_their_names() -> None:
    reader = contexts.parse(["hour", {"vector": "e", "size": 2}, {"column": "x", "missing": "own"}])

    assert reader.names == ["hour", "e[0]", "e[1]", "x", "x is missing"]
    assert (reader.columns, reader.dimension) == (["hour", "e", "x"], 5)
    point = reader.extract_one({"hour": 0.25, "e": [1, -1], "x": None}, slot=1)
    low, high = 0.5 - 0.5 / 17**0.5, 0.5 + 0.5 / 17**0.5
    assert point == pytest.approx((0.25, high, low, 0.0, 0.75))


def as_csv(folder: Path, text: Callable[[list[float]], str]) -> Path:
    lines = ["|".join([*COLUMNS, "embedding"])]
    for row in range(ROWS):
        cells = [repr(column[row].item()) for column in COLUMNS.values()]
        lines.append("|".join([*cells, text(VECTORS[row].tolist())]))
    path = folder / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def as_parquet(folder: Path, vectors: Any) -> Path:
    path = folder / "log.parquet"
    parquet.write_table(arrow.table({**COLUMNS, "embedding": vectors}), path, row_group_size=100)
    return path


FIXED = arrow.FixedSizeListArray.from_arrays(arrow.array(VECTORS.ravel()), SIZE)
SOURCES: dict[str, Callable[[Path], Any]] = {
    "json": lambda folder: as_csv(folder, json.dumps),
    "spaces": lambda folder: as_csv(folder, lambda row: " ".join(map(repr, row))),
    "semicolons": lambda folder: as_csv(folder, lambda row: ";".join(map(repr, row))),
    "list": lambda folder: as_parquet(folder, arrow.array(VECTORS.tolist())),
    "fixed-size-list": lambda folder: as_parquet(folder, FIXED),
    "mapping": lambda _: {**COLUMNS, "embedding": VECTORS},
    "mapping of lists": lambda _: {**COLUMNS, "embedding": VECTORS.tolist()},
    "arrow": lambda _: arrow.table({**COLUMNS, "embedding": FIXED}),
    "pandas": lambda _: pytest.importorskip("pandas").DataFrame(
        {**COLUMNS, "embedding": [*VECTORS]}
    ),
    "polars": lambda _: pytest.importorskip("polars").DataFrame({**COLUMNS, "embedding": VECTORS}),
    "polars list": lambda _: pytest.importorskip("polars").DataFrame(
        {**COLUMNS, "embedding": VECTORS.tolist()}
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_table_with_vectors_gives_the_same_replay(source: str, tmp_path: Path) -> None:
    read = contexts.parse(["hour", VECTOR])
    points = read.extract({**COLUMNS, "embedding": VECTORS}, first_slot=1)
    config = {**CONFIG, "policy": {"preset": "cos", "slices": 2, "alpha": 1.0}}
    arrays = covey.replay(
        config, predictions=[COLUMNS["a"], COLUMNS["b"]], labels=LABELS, contexts=points
    )
    trace = covey.replay(config, data=SOURCES[source](tmp_path))

    assert trace.columns() == arrays.columns()


def test_plain_columns_are_the_coordinates_of_a_linear_vector() -> None:
    several = {f"embedding_{k}": VECTORS[:, k].clip(0, 1) for k in range(SIZE)}
    scale = {"scale": "linear", "low": 0, "high": 1, "clip": True}
    data = {**COLUMNS, **several, "embedding": VECTORS}
    traces = [
        covey.replay({**CONFIG, "data": {"context": context}}, data=data).columns()
        for context in ([*several], [{**VECTOR, **scale}], {**VECTOR, **scale})
    ]

    assert traces[0] == traces[1] == traces[2]
    assert set(traces[0]["cell"]) == {"z0"}  # one cell, whose name does not have 24 numbers


def test_a_vector_is_one_candidate_with_one_name() -> None:
    config = {
        "data": {"candidates": ["hour", VECTOR]},
        "policy": {"preset": "cos", "slices": 2, "alpha": 1.0},
        "learner": [{"name": "north", "functions": ["a", "b"]}],
    }
    trace = covey.replay(config, data={**COLUMNS, "embedding": VECTORS})

    spaces = {str(cell).rpartition("/")[0] for cell in trace.names["cell"]}
    assert spaces == {"hour", "embedding"}


WRONG = [
    (
        {"embedding": [[1.0] * SIZE] * (ROWS - 1) + [[1.0]]},
        "slot 300: vector 'embedding' has 1 num",
    ),
    (
        {"embedding": [[1.0] * SIZE] * 9 + [None] * (ROWS - 9)},
        "slot 10: vector 'embedding' is miss",
    ),
    ({"embedding": VECTORS[:, 1:]}, "slot 1: vector 'embedding' has 23 numbers, but size is 24"),
    ({"embedding": VECTORS, "label": VECTORS}, "column 'label' has a list in each row; only cont"),
    ({"embedding": VECTORS, "hour": VECTORS}, "column 'hour' has a list in each row"),
    ({"embeding": VECTORS}, "the table has no column 'embedding'; did you mean 'embeding'?"),
]


@pytest.mark.parametrize("is_arrow", [False, True])
@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_a_table_with_wrong_vectors_is_refused(
    wrong: dict[str, Any], sentence: str, is_arrow: bool
) -> None:
    data: Any = {**COLUMNS, **wrong}
    if is_arrow:
        data = arrow.table({name: [*values] for name, values in data.items()})
    with pytest.raises(DataError) as refused:
        covey.replay(CONFIG, data=data)

    assert str(refused.value).startswith(sentence)


def test_many_rows_of_a_parquet_log_do_not_take_more_memory(tmp_path: Path) -> None:
    from covey.data.tables import ParquetLog

    path = tmp_path / "wide.parquet"
    flat = arrow.array(np.zeros(9_000 * 512, np.float32))
    vectors = arrow.FixedSizeListArray.from_arrays(flat, 512)
    parquet.write_table(arrow.table({"e": vectors}), path, use_dictionary=False)
    sizes = [len(chunk["e"]) for chunk in ParquetLog(path, ["e"]).chunks()]

    assert sum(sizes) == 9_000
    assert max(sizes) * 512 * 4 <= 1 << 24
