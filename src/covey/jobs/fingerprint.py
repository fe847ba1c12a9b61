"""What results depend on besides their input: the versions, the kernel and the arithmetic."""

import hashlib
import math
import struct
from functools import cache
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from covey.kernel import Clock, is_compiled

_SLOTS = (2, 3, 10, 10**3, 10**6, 10**9, 10**12)


class Fingerprint(NamedTuple):
    """Two processes with the same fingerprint give the same results, to the last digit."""

    covey: str
    kernel: str
    numpy: str
    arithmetic: str  # a digest of logarithms, powers and roots

    def differences(self, other: "Fingerprint") -> str:
        """Return what differs, with the values of the other first."""
        pairs = zip(self._fields, other, self, strict=True)
        return " and ".join(f"{name} {a} there, {b} here" for name, a, b in pairs if a != b)


@cache
def fingerprint() -> Fingerprint:
    """Return the fingerprint of this process."""
    clock = Clock([1.0, 2.0, 0.5], [0.3, 0.25, 0.8])
    floors = [floor for slot in _SLOTS for floor in clock.at(slot)]
    numbers = [value for k in range(1, 257) for value in _functions(k / 256)]
    # Vector units of other processors may round otherwise, also within one array.
    points = np.arange(1, 1025) / 1024
    vectors = [np.log1p(points), np.log(points), np.exp(points), np.sqrt(points), points**0.3]
    digest = hashlib.sha256(struct.pack(f"<{len(floors)}q", *floors))
    digest.update(struct.pack(f"<{len(numbers)}d", *numbers))
    for vector in vectors:
        digest.update(vector.astype("<f8").tobytes())
    return Fingerprint(
        covey=version("covey"),
        kernel="compiled" if is_compiled() else "plain",
        numpy=np.__version__,
        arithmetic=digest.hexdigest()[:12],
    )


def _functions(x: float) -> tuple[float, ...]:
    return math.log(x), math.exp(x), math.pow(x, 0.3), math.sqrt(x), math.log1p(x), math.erf(x)
