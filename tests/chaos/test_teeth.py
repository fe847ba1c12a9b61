"""A storm that finds nothing must be able to: every planted bug is found.

The seed that found it before is played first. It may find it no longer, as any change of the code
is another storm; then others do, and `make teeth` writes down which.
"""

import pytest

from chaos.bugs import BUGS, Bug, trusts_all_peers_like_the_most_trusted
from chaos.runs import play
from chaos.teeth import bite, known

MOST_SEEDS = 150


def test_every_bug_is_known_to_be_found() -> None:
    assert len(BUGS) >= 45
    assert sorted(known()) == sorted(bug.__name__ for bug in BUGS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    before = known()[bug.__name__]

    assert bite(bug, [before.seed, *range(MOST_SEEDS)]) is not None


def test_a_seed_that_fails_fails_the_same_way_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = trusts_all_peers_like_the_most_trusted
    found = bite(bug, [known()[bug.__name__].seed, *range(MOST_SEEDS)])
    bug(monkeypatch)

    assert found is not None
    first, again = play(found.seed), play(found.seed)
    assert first.found
    assert first == again
