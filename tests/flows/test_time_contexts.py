"""Slots and previous labels as contexts, past the horizon: everywhere the same decisions."""

from typing import Any

import pytest

import covey
from covey.errors import DataError

CONFIG: dict[str, Any] = {
    "data": {
        "context": [
            "x",
            {"scale": "slot", "horizon": 40, "after": "wrap"},
            {"scale": "previous-label", "classes": [0, 1]},
        ]
    },
    "policy": {"preset": "cos", "slices": 2, "pending": True},
    "learner": [
        {"name": "site0", "functions": ["f0", "f1"], "peers": {"site1": 0.05}},
        {"name": "site1", "functions": ["f2", "f3"], "peers": {"site0": 0.05}},
    ],
}


def test_a_batch_of_records_is_answered_as_single_records_with_the_same_previous_label() -> None:
    functions = dict.fromkeys(["f0", "f1", "f2", "f3"], lambda record: int(record["x"] > 0.5))
    records = [{"x": k / 50} for k in range(50)]
    single, batched = (covey.Network(CONFIG, functions=functions)["site0"] for _ in range(2))

    answers = batched.predict_batch(records)

    assert [answer.arm for answer in answers] == [single.predict(record).arm for record in records]


def test_what_is_no_record_is_refused_with_what_to_pass() -> None:
    functions = dict.fromkeys(["f0", "f1", "f2", "f3"], lambda record: 0)
    site = covey.Network(CONFIG, functions=functions)["site0"]

    with pytest.raises(DataError, match="makes contexts from records .* or pass the context"):
        site.predict(0.5)
    with pytest.raises(DataError, match="there is no column 'x'"):
        site.predict({"y": 1})
    assert site.predict(None, (0.1, 0.5, 0.0)).arm == "f0"
