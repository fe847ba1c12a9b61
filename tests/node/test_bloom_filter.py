"""An id that the Bloom filter does not know was never added, also across restarts of a store."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.node.bloom_filter import BloomFilter
from support.served import FEEDBACK, INFER, Client, infer, run

pytestmark = pytest.mark.beside_the_kernel

KEYS = st.tuples(st.text(max_size=3), st.text(max_size=3))


@given(st.lists(KEYS))
def test_every_key_that_was_added_is_there(keys: list[tuple[str, str]]) -> None:
    known = BloomFilter()
    for key in keys:
        known.add(key)

    assert all(key in known for key in keys)


@given(st.lists(KEYS))
def test_keys_that_are_added_together_are_those_that_are_added_one_by_one(
    keys: list[tuple[str, str]],
) -> None:
    together, one_by_one = BloomFilter(), BloomFilter()
    together.add_many(keys)
    for key in keys:
        one_by_one.add(key)

    assert together._bits == one_by_one._bits


def test_few_keys_that_were_not_added_are_taken_for_known() -> None:
    known = BloomFilter()
    for k in range(100_000):
        known.add(("", f"a{k}"))

    assert sum(("", f"b{k}") in known for k in range(10_000)) < 100
    assert ("", "never") not in BloomFilter()


def test_a_request_from_before_a_restart_is_known_though_its_label_came_too(
    tmp_path: Path,
) -> None:
    many = [
        {"name": "size", "shape": [2], "datatype": "FP64", "data": [1, 2]},
        {"name": "kind", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]},
        {"name": "context", "shape": [2, 1], "datatype": "FP64", "data": [0.1, 0.9]},
    ]
    told = []

    async def story(client: Client) -> None:
        told.append(await client.post(INFER, infer("one")))
        told.append(await client.post(INFER, infer("two", inputs=many)))
        await client.post(FEEDBACK, {"id": "one", "truth": 0})
        for k in range(30):  # so that both are waited for no longer
            assert (await client.post(INFER, infer(f"{len(told)}-{k}")))[0] == 200

    run(tmp_path, story)
    run(tmp_path, story)

    assert told[:2] == told[2:]
    assert told[0][0] == 200
