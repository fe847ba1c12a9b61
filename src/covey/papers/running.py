"""Cases -> what came of them, in all processes at once, in a folder that can be resumed.

The folder holds `identity.json`, which says what its figures were made of, one file per finished
case under `runs`, and the `material` that they are played on.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Protocol

import msgspec

from covey import files
from covey.crews import crew, unbroken
from covey.errors import ConfigError, DataError
from covey.papers.cases import Case
from covey.papers.playing import Played, play

TITLE = "The paper's results beside covey's"  # of the report in the folder
_TOGETHER = 8  # cases that a process is given at once
_EFFORT = {"river": 200, "boosting": 40}  # roughly, of which a replay has 1
Identity = Mapping[str, str]


class Shown(Protocol):
    """What is told how far the work has come."""

    def __call__(self, share: float, slots: int) -> None:
        """Take the share that is done, and the slots played so far."""


def run(
    cases: Iterable[Case], folder: Path, *, workers: int, progress: Shown | None = None
) -> dict[str, Played]:
    """Play what is not finished yet in `folder`, and return what came of all cases by their keys.

    An interruption leaves a folder with which the same call goes on.
    """
    wanted = {case.key(): case for case in cases}
    found = {key: kept for key in wanted if (kept := _finished(path_of(folder, key))) is not None}
    left = [case for key, case in wanted.items() if key not in found]
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    effort = sum(map(_effort, left))
    slots = done = 0
    for played in _played(left, folder, workers):
        found[played.case.key()] = played
        slots += played.case.slots
        done += _effort(played.case)
        if progress is not None:
            progress(done / effort, slots)
    return found


def claim(folder: Path, identity: Identity) -> None:
    """Make `folder` that of figures made of this, or refuse it with the reason."""
    path = folder / "identity.json"
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose a folder")
    try:
        theirs = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        theirs = {}
        _check_stranger(folder)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); choose another folder") from None
    for name in identity.keys() & theirs.keys():
        if theirs[name] != identity[name]:
            raise ConfigError(
                f"{folder} holds figures of another version: {name} is {_brief(theirs[name])} "
                f"there and {_brief(identity[name])} here; choose another folder, or remove this "
                "one"
            )
    folder.mkdir(parents=True, exist_ok=True)
    merged = {**theirs, **identity}
    files.replace(path, msgspec.json.format(msgspec.json.encode(merged)) + b"\n")


def _check_stranger(folder: Path) -> None:
    """Raise `ConfigError` if the report would replace what somebody else wrote there."""
    readme = folder / "README.md"
    if readme.is_file() and not readme.read_bytes().startswith(f"# {TITLE}".encode()):
        raise ConfigError(f"{readme} is no report of this command; choose another folder")


def path_of(folder: Path, key: str) -> Path:
    """Return where a finished case stands."""
    return folder / "runs" / f"{key}.json"


def finish(cases: Sequence[Case], folder: Path) -> list[Played]:
    """Play some cases and keep each as soon as it is finished; this is what a process does."""
    done = []
    for case in cases:
        played = play(case, folder)
        files.replace(path_of(folder, case.key()), msgspec.json.encode(played))
        done.append(played)
    return done


def _finished(path: Path) -> Played | None:
    """Return what a file holds; None if there is none, or a power loss left it in pieces."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Played)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _played(cases: Sequence[Case], folder: Path, workers: int) -> Iterable[Played]:
    if not cases:
        return
    pieces = _pieces(cases)
    with crew(min(workers, len(pieces))) as pool, unbroken("figures"):
        for future in as_completed([pool.submit(finish, piece, folder) for piece in pieces]):
            yield from future.result()


def _pieces(cases: Sequence[Case]) -> list[list[Case]]:
    """Return what a process is given at once: slow cases first and alone, the others together."""
    slow = [case for case in cases if _effort(case) > 1]
    quick = [case for case in cases if _effort(case) == 1]
    together = [quick[first : first + _TOGETHER] for first in range(0, len(quick), _TOGETHER)]
    return [*([case] for case in slow), *together]


def _effort(case: Case) -> int:
    return _EFFORT.get(case.does, 1)


def _brief(text: str) -> str:
    return repr(text if len(text) <= 16 else text[:8] + "…")
