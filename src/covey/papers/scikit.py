"""The one file that names scikit-learn: functions trained by it, and data that it can fetch."""

import tempfile
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from covey.errors import MissingExtra

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.str_]
Labels = npt.NDArray[np.int8]


class Rows(NamedTuple):
    """Instances as functions see them: numbers, and words that are not numbers."""

    numbers: Floats  # row, column
    words: Words  # row, column


Predict = Callable[[Rows], Labels]


def release() -> str:
    """Return which release of scikit-learn is installed, or say which extra brings it."""
    try:
        return version("scikit-learn")
    except PackageNotFoundError:
        raise MissingExtra(
            "the paper's functions are trained by scikit-learn; install it with pip install "
            '"covey[sklearn]"'
        ) from None


def fetch_kdd() -> bytes:
    """Return the text of the 10 % file of KDD Cup 1999, fetched from the internet.

    scikit-learn keeps what it fetches as a pickle, so it is given a folder that is gone afterwards.
    Raises `OSError` where there is no internet.
    """
    release()
    from sklearn.datasets import fetch_kddcup99

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fetch_kddcup99(data_home=folder, percent10=True, n_retries=1, delay=0.1)
    return text_from(found.data, found.target)


def text_from(data: npt.NDArray[Any], labels: npt.NDArray[Any]) -> bytes:
    """Return the text that scikit-learn read such a table from: rates have two decimals."""
    columns = [_written(column) for column in (*data.T, labels)]
    return b"".join(b",".join(row) + b"\n" for row in zip(*columns, strict=True))


def _written(column: Iterable[Any]) -> list[bytes]:
    return [
        value
        if isinstance(value, bytes)
        else (b"%.2f" if isinstance(value, float) else b"%d") % value
        for value in column
    ]
