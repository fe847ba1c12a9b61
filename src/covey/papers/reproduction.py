"""The whole of it: data in, tables out; what is finished in a folder is not done again."""

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from covey.baselines import make
from covey.errors import ConfigError, MissingExtra
from covey.fields import nearest
from covey.papers import (
    beyond,
    elsewhere,
    files,
    functions,
    material,
    running,
    scikit,
    streams,
    trials,
)
from covey.papers.cases import Case
from covey.papers.entries import Entry
from covey.papers.findings import Table, table_of
from covey.papers.plan import PLANS
from covey.papers.playing import RIVER, Played
from covey.papers.printed import TABLES
from covey.papers.streams import Stream
from covey.papers.trials import Trial

VERSION = "3"  # of what a folder keeps; raise it when figures come out otherwise
BEYOND = ("horizon", "default", "prices", "stationary", "river", "further", "electricity")
_WITHOUT_DATA = {"par_setup", "stationary"}
NAMES = (*TABLES, *BEYOND)


class Wish(NamedTuple):
    """What is to be reproduced, of which data, and where it is kept."""

    tables: Sequence[str]  # none: all of them
    data: Path | None
    folder: Path
    is_any_file: bool = False
    workers: int | None = None  # None: one per core


class Reproduced(NamedTuple):
    """The tables, and what came of every case, by its key."""

    tables: dict[str, Table]
    played: Mapping[str, Played]
    identity: Mapping[str, str]
    left_out: list[str]  # sentences on what could not be done


_Window = tuple[Trial, Stream, int]  # and its slots


class _Streams(NamedTuple):
    kdd: Stream | None
    electricity: Stream | None


def reproduce(wish: Wish, *, progress: running.Shown | None = None) -> Reproduced:
    """Play what the wished tables need and is not finished yet, and return the tables.

    Raises `ConfigError` for a table that is not known or a folder of other figures, `DataError`
    where the data are missing, `MissingExtra` without scikit-learn.
    """
    names = _checked(wish.tables)
    found, left_out = _streams(names, wish)
    windows = _trials(found)
    plans = {name: _entries(name, windows) for name in names if name not in left_out}
    cases = [case for plan in plans.values() for entry in plan for case in entry.cases]
    needed = list(_needed(cases, windows, found))
    for trial, stream, slots in needed:
        trials.check(trial, stream, slots)
    identity = _identity(found)
    running.claim(wish.folder, identity)
    _prepare(needed, wish.folder)
    workers = wish.workers or os.cpu_count() or 1
    played = running.run(cases, wish.folder, workers=workers, progress=progress)
    tables = {name: table_of(name, plan, played) for name, plan in plans.items()}
    return Reproduced(tables, played, identity, list(left_out.values()))


def _checked(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in NAMES:
            raise ConfigError(
                f"unknown table {name!r}{nearest(name, NAMES)}; there are {', '.join(NAMES)}"
            )
    return [name for name in NAMES if name in names or not names]


def _streams(names: Sequence[str], wish: Wish) -> tuple[_Streams, dict[str, str]]:
    """Return the streams that are needed, and what is left out where one is not there.

    Only where everything is wished for may the second stream be missing.
    """
    kdd = electricity = None
    left_out = {}
    if set(names) - {"electricity"} - _WITHOUT_DATA:
        kdd = streams.kdd(wish.data, results=wish.folder, is_any_file=wish.is_any_file)
    if "electricity" in names:
        where = _beside(wish.data)
        if wish.tables or files.located(files.ELECTRICITY, where) is not None:
            electricity = streams.electricity(where, is_any_file=wish.is_any_file)
        else:
            left_out["electricity"] = (
                f"{files.ELECTRICITY.title} is not here, so its table is left out; put "
                f"{files.ELECTRICITY.file} beside the other file"
            )
    if "river" in names and (sentence := _why_no_river()):
        if wish.tables:
            raise MissingExtra(sentence)
        left_out["river"] = sentence
    return _Streams(kdd, electricity), left_out


def _why_no_river() -> str:
    try:
        make(RIVER, functions=1)
    except MissingExtra as error:
        return f"The table of River is left out: {error}"
    return ""


def _beside(data: Path | None) -> Path | None:
    """Return where the second stream should be: in the folder, or that of the file; else nowhere.

    Where it is not, `COVEY_DATA` says where to look.
    """
    folder = data if data is None or data.is_dir() else data.parent
    is_there = folder is not None and (folder / files.ELECTRICITY.file).is_file()
    return folder if is_there else None


def _identity(found: _Streams) -> dict[str, str]:
    """Return all that figures depend on besides their cases."""
    identity = {
        "covey": version("covey"),
        "figures": VERSION,
        "functions": str(functions.VERSION),
        "scikit-learn": scikit.release(),
    }
    for name, stream in zip(_Streams._fields, found, strict=True):
        if stream is not None:
            identity[f"sha256 of {name}"] = stream.sha256
    return identity


def _trials(found: _Streams) -> dict[str, list[Trial]]:
    """Return the windows there are, by the table that they were chosen for."""
    windows: dict[str, list[Trial]] = {"paper": [], "further": [], "electricity": []}
    if found.kdd is not None:
        windows["paper"] = [*trials.paper(), *material.noisy_trials()]
        windows["further"] = trials.further(found.kdd)
    if found.electricity is not None:
        windows["electricity"] = [*trials.electricity(), *trials.electricity_with_last_label()]
    return windows


def _entries(name: str, windows: Mapping[str, list[Trial]]) -> list[Entry]:
    if name in PLANS:
        return PLANS[name]()
    if name == "par_setup":
        return []
    if name in ("further", "electricity"):
        return _FOR_WINDOWS[name](windows[name])
    return _PLAIN[name]()


_PLAIN = {
    "horizon": beyond.horizon,
    "default": beyond.default,
    "prices": beyond.prices,
    "stationary": beyond.stationary,
    "river": beyond.river,
}
_FOR_WINDOWS = {"further": elsewhere.further, "electricity": elsewhere.electricity}


def _needed(
    cases: Sequence[Case], windows: Mapping[str, list[Trial]], found: _Streams
) -> Iterator[_Window]:
    """Yield the windows that cases are played in."""
    wanted = sorted({(case.trial, case.slots) for case in cases})
    for stream, kinds in ((found.kdd, ("paper", "further")), (found.electricity, ("electricity",))):
        if stream is not None:
            by_name = {trial.name: trial for kind in kinds for trial in windows[kind]}
            yield from ((by_name[name], stream, slots) for name, slots in wanted if name in by_name)


def _prepare(needed: Sequence[_Window], folder: Path) -> None:
    answers: dict[str, functions.Answers] = {}
    for trial, stream, slots in needed:
        kept = answers.get(stream.sha256) or functions.Answers(stream, results=folder / "material")
        answers[stream.sha256] = kept
        material.prepare(trial, stream, kept, folder, slots=slots)
