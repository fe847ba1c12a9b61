"""What was asked alone is row 0 of its request, and a second label is told by the client's id."""

from pathlib import Path
from typing import Any

import pytest
from test_labelsets import in_bytes

from covey.node.store import Store
from support.served import FEEDBACK, INFER, Client, infer, run


def labels(rows: list[int], truth: list[Any]) -> dict[str, Any]:
    return {"id": "a", "rows": rows, "truth": truth}


def test_the_label_of_one_row_may_name_its_row(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))

        told = [await client.post(FEEDBACK, labels([0], [0])) for _ in range(2)]
        assert told[0] == (202, {"id": "a", "new": [True], "right": [True]})
        assert told[1] == (200, {"id": "a", "new": [False], "right": [True]})
        assert (await client.post(FEEDBACK, labels([0], [1])))[1]["code"] == "conflict"
        assert (await client.post(FEEDBACK, {"id": "a", "truth": 0}))[0] == 200
        assert await in_bytes(client, [0]) == 200
        assert (await client.post(FEEDBACK, {"id": "a:0", "truth": 0}))[0] == 200
        assert (await client.post(FEEDBACK, {"id": "a:1", "truth": 0}))[0] == 404

    run(tmp_path, story)
    store = Store(tmp_path / "north.store")
    assert list(store.counters().values()) == [(1, 1)]
    store.close()


@pytest.mark.parametrize(
    ("rows", "truth", "status"),
    [
        ([1], [0], 404),
        ([0, 1], [0, 0], 404),
        ([], [], 422),
        ([0], [0, 0], 422),
        ([-1], [0], 422),
        ([0, 0], [0, 1], 409),
        ([0, 0], [0, 0], 202),
    ],
)
def test_another_row_than_the_only_one_is_refused_as_in_a_batch(
    tmp_path: Path, rows: list[int], truth: list[Any], status: int
) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))

        assert (await client.post(FEEDBACK, labels(rows, truth)))[0] == status
        again = await client.post(FEEDBACK, {"id": "a", "truth": 0})
        assert again[0] == (200 if status == 202 else 202)

    run(tmp_path, story)


def test_a_late_label_of_a_row_is_refused_as_too_late(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("a"))
        for k in range(25):
            await client.post(INFER, infer(str(k)))

        assert (await client.post(FEEDBACK, labels([0], [0])))[1]["code"] == "label_too_late"

    run(tmp_path, story)


def test_a_second_label_is_refused_by_the_id_of_the_client(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await client.post(INFER, infer("flow-17"))
        await client.post(FEEDBACK, {"id": "flow-17", "truth": 0})
        status, told = await client.post(FEEDBACK, {"id": "flow-17", "truth": 1})

        assert status == 409
        assert told["detail"] == ("'flow-17' has the label 0; the conflicting label 1 was rejected")

    run(tmp_path, story)
