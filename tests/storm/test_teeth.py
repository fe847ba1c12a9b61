"""A storm that finds nothing must be able to: every planted bug is found where it was before."""

import pytest

from storm.bugs import BUGS, Bug
from storm.teeth import bite, known


def test_every_bug_is_known_to_be_found() -> None:
    assert len(BUGS) >= 25
    assert sorted(known()) == sorted(bug.__name__ for bug in BUGS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    before = known()[bug.__name__]

    assert bite(bug, [before.seed]) == before
