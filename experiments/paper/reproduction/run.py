"""Run the cases that the tables need, in all processes or on a cluster; the folder resumes.

The folder holds `identity.json`, which says what its figures were made of, one file per finished
case under `runs`, and the prepared `windows` that the cases run on.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from covey.bandit.ensemble import Ensemble
from covey.bandit.policies import policy_from
from covey.config import load
from covey.data.logs import EncodedLog, Trace
from covey.errors import ConfigError, DataError, MissingExtra
from covey.files import replace
from covey.jobs.running import finished
from covey.replay.baselines import AdaBoost, BaselineRun, PreviousLabel, make
from covey.replay.encoding import Encoder
from covey.replay.replay import ReplayRun
from covey.simulation import run as simulation_run
from covey.simulation.environment import environment_from
from covey.toml import nearest
from covey.types import Array, Phase
from reproduction.data import (
    ELECTRICITY,
    LabelledStream,
    load_electricity,
    load_kdd,
    located,
    sklearn_version,
)
from reproduction.experiments import (
    FUNCTIONS,
    RIVER,
    Case,
    CaseResult,
    PreparedWindow,
    Trial,
    check_window,
    config,
    electricity_trials,
    electricity_with_last_label,
    load_window,
    noisy_trials,
    other_window_trials,
    paper_trials,
    prepare_window,
    window_path,
)
from reproduction.findings import PaperTable, table_of
from reproduction.models import VERSION as FUNCTIONS_VERSION
from reproduction.models import PredictionCache
from reproduction.rules import OzaRussell, WinStay
from reproduction.tables import NAMES, entries_of
from reproduction.variants import GREEDY, LOCKED_IN, varied

POINTS = 80  # of a curve


def run_case(case: Case, window: bytes) -> CaseResult:
    """Play a case on the file of its window, or in a world that needs none."""
    if case.does == "bumps":
        return _run_bumps(case)
    return _RUNNERS[case.does](case, load_window(window, case.slots))


def _run_replay(case: Case, window: PreparedWindow) -> CaseResult:
    trace = _replay(case, window)
    is_first = trace.learner == 0
    phase, arm = trace.phase[is_first], trace.arm[is_first]
    is_wrong = trace.correct[is_first] == 0
    is_exploit = phase == Phase.EXPLOIT
    marks = {"error": is_wrong, "training": phase == Phase.TRAIN}
    marks |= {"exploration": phase == Phase.EXPLORE, "exploitation error": is_wrong & is_exploit}
    owner = _owner(arm, case.learners)
    numbers = {name: _percent(mark) for name, mark in marks.items()}
    numbers["asked"] = _percent(arm >= FUNCTIONS * case.learners)
    numbers["net reward"] = 100 - numbers["error"] - case.price * numbers["asked"]
    for place in range(case.learners):
        numbers[f"training {place + 1}"] = _percent(marks["training"] & (owner == place))
        numbers[f"selection {place + 1}"] = _percent((owner == place)[is_exploit])
    curves = {name: _curve(mark) for name, mark in marks.items()}
    return CaseResult(case, numbers, curves)


def _run_ensemble(case: Case, window: PreparedWindow) -> CaseResult:
    """Let the learners vote, each for itself; an exploitation error is one where all exploit."""
    trace = _replay(case, window)
    names = [learner["name"] for learner in config(case)["learner"]]
    ensemble = Ensemble(names, weights=case.weights)
    shape = (case.slots, len(names))
    votes, cells = trace.prediction.reshape(shape), trace.cell.reshape(shape)[:, 0]
    answers = []
    rows = zip(votes.tolist(), window.labels.tolist(), cells.tolist(), strict=True)
    for said, label, cell in rows:
        answers.append(ensemble.elect(said, cell))
        ensemble.move(said, label, cell)
    is_wrong = np.array(answers) != window.labels
    is_exploit = (trace.phase.reshape(shape) == Phase.EXPLOIT).all(axis=1)
    numbers = {"error": _percent(is_wrong), "exploitation error": _percent(is_wrong & is_exploit)}
    return CaseResult(case, numbers)


def _run_bumps(case: Case) -> CaseResult:
    """Run a stationary environment: the mean regret of a learner, per 100 slots.

    All learners receive the same instances; the curve is the cumulative regret.
    """
    correlation = "best" if case.arrivals == "all" else "worst"
    run = simulation_run.play(
        environment_from({"name": "bumps", "correlation": correlation}),
        policy_from(config(case)["policy"]),
        seed=case.seed,
        horizon=case.slots,
        checkpoints=[(point + 1) * case.slots // POINTS for point in range(POINTS)],
    )
    curve = np.sum(list(run.regret.values()), axis=0) / run.learners
    numbers = {"regret": 100 * float(curve[-1]) / case.slots}
    return CaseResult(case, numbers, {"regret": curve.round(4).tolist()})


def _run_yardsticks(case: Case, window: PreparedWindow) -> CaseResult:
    """Run the methods without learning, and measure the error of each function."""
    functions = FUNCTIONS * case.learners
    said = window.predictions(case.seed, functions)
    contest = BaselineRun([PreviousLabel(), WinStay()])
    is_seen = np.random.default_rng([case.seed, functions]).random(case.slots) < case.labels
    answers = contest.add(_log(window.labels, said, is_seen))
    numbers = {name: _percent(given != window.labels) for name, given in answers.items()}
    errors = [_percent(row != window.labels) for row in said]
    numbers |= {"best single function": min(errors)}
    numbers |= {f"function {place + 1}": error for place, error in enumerate(errors)}
    return CaseResult(case, numbers)


def _run_boosting(case: Case, window: PreparedWindow) -> CaseResult:
    """Run AdaBoost, trained on the rows before the window, and its sliding variants."""
    functions = FUNCTIONS * case.learners
    names = ("sliding-adaboost-100", "sliding-adaboost-1000")
    boosted = AdaBoost(functions, training=len(window.labels_before))
    contest = BaselineRun([boosted, *make(names, functions=functions), OzaRussell(functions)])
    contest.add(_log(window.labels_before, window.predictions_before(case.seed, functions)))
    return _answered(case, window, contest)


def _run_river(case: Case, window: PreparedWindow) -> CaseResult:
    """Run the baselines from River; they start with the window, as covey does."""
    return _answered(
        case,
        window,
        BaselineRun(make(RIVER, functions=FUNCTIONS * case.learners, seed=case.seed)),
    )


def _answered(case: Case, window: PreparedWindow, contest: BaselineRun) -> CaseResult:
    said = window.predictions(case.seed, FUNCTIONS * case.learners)
    answers = contest.add(_log(window.labels, said))
    numbers = {name: _percent(given != window.labels) for name, given in answers.items()}
    return CaseResult(case, numbers)


_RUNNERS = {
    "replay": _run_replay,
    "ensemble": _run_ensemble,
    "yardsticks": _run_yardsticks,
    "boosting": _run_boosting,
    "river": _run_river,
}


def _replay(case: Case, window: PreparedWindow) -> Trace:
    changes = (GREEDY if case.is_greedy else {}) | (LOCKED_IN if case.locks_in else {})
    setup, points = varied(load(config(case)), changes), window.contexts[case.context]
    encoder = Encoder(setup, is_typed=True)
    run = ReplayRun(setup, encoder.vocabulary, width=points.shape[1])
    names = [name for site in setup.sites for name in site.functions]
    said = window.predictions(case.seed, len(names))
    answers = list(zip(names, said, strict=True))
    return run.decide(
        encoder.encode(answers, encoder.arrivals({"label": window.labels}), points, {})
    )


def _log(labels: Array, said: Array, is_seen: Array | None = None) -> EncodedLog:
    return EncodedLog(
        contexts=np.empty(0).data,
        predictions=said.astype(np.int32).data,
        labels=labels.astype(np.int32).data,
        at=None,
        delays=None if is_seen is None else np.where(is_seen, 0, -1).astype(np.int64).data,
        shown=None,
    )


def _owner(arm: Array, learners: int) -> Array:
    """Return the place of the learner whose functions an arm uses: an own one, or a peer's."""
    functions = FUNCTIONS * learners
    owner: Array = np.where(arm < functions, arm // FUNCTIONS, (arm - functions) % learners)
    return owner


def _percent(mark: Array) -> float:
    return 100.0 * float(mark.mean()) if len(mark) else 0.0


def _curve(mark: Any) -> list[float]:
    stretches = np.array_split(mark, min(POINTS, len(mark)))
    return [round(_percent(stretch), 4) for stretch in stretches]


TITLE = "The paper's results beside covey's"  # of the report in the folder
_TOGETHER = 8  # cases that a process is given at once
_EFFORT = {"river": 200, "boosting": 40}  # roughly, of which a replay has 1
Identity = Mapping[str, str]


class ProgressCallback(Protocol):
    """Receives the progress of the work."""

    def __call__(self, share: float, slots: int) -> None:
        """Take the share that is done, and the slots run so far."""


def run_cases(
    cases: Iterable[Case],
    folder: Path,
    *,
    workers: int,
    progress: ProgressCallback | None = None,
    on: str | None = None,
) -> dict[str, CaseResult]:
    """Run the cases that have no result in `folder`; return the results of all by their keys.

    Interrupted runs resume. `on` is a Ray cluster, in place of worker processes.
    """
    wanted = {case.key(): case for case in cases}
    found = {
        key: kept for key in wanted if (kept := _load_result(result_path(folder, key))) is not None
    }
    left = [case for key, case in wanted.items() if key not in found]
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    effort = sum(map(_effort, left))
    slots = done = 0
    for result in _run_remaining(left, folder, workers, on):
        replace(result_path(folder, result.case.key()), msgspec.json.encode(result))
        found[result.case.key()] = result
        slots += result.case.slots
        done += _effort(result.case)
        if progress is not None:
            progress(done / effort, slots)
    return found


def claim_folder(folder: Path, identity: Identity) -> None:
    """Write `identity` to `folder`; raises `ConfigError` if its figures have another identity."""
    path = folder / "identity.json"
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose a folder")
    try:
        theirs = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        theirs = {}
        _check_readme(folder)
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
    replace(path, msgspec.json.format(msgspec.json.encode(merged)) + b"\n")


def _check_readme(folder: Path) -> None:
    """Raise `ConfigError` if the report would replace another README."""
    readme = folder / "README.md"
    if readme.is_file() and not readme.read_bytes().startswith(f"# {TITLE}".encode()):
        raise ConfigError(f"{readme} was not written by this command; choose another folder")


def result_path(folder: Path, key: str) -> Path:
    """Return the path of a finished case."""
    return folder / "runs" / f"{key}.json"


def finish_cases(cases: Sequence[Case], window: bytes) -> list[CaseResult]:
    """Run some cases of one window in a worker process."""
    return [run_case(case, window) for case in cases]


def _load_result(path: Path) -> CaseResult | None:
    """Return the result in a file; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CaseResult)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _run_remaining(
    cases: Sequence[Case], folder: Path, workers: int, on: str | None
) -> Iterable[CaseResult]:
    def call_of(piece: Sequence[Case]) -> Callable[[], list[CaseResult]]:
        path = window_path(folder, piece[0].trial, piece[0].slots)
        window = b"" if piece[0].does == "bumps" else path.read_bytes()
        return partial(finish_cases, piece, window)

    pieces = finished(
        _batches(cases), call_of, workers=workers, on=on, title=lambda piece: piece[0].key()
    )
    for _, results in pieces:
        yield from results


def _batches(cases: Sequence[Case]) -> list[list[Case]]:
    """Return the work of one process at a time: slow cases first and alone, others together.

    The cases of a piece of work have the same window, which is sent with them.
    """
    slow = [case for case in cases if _effort(case) > 1]
    quick: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        if _effort(case) == 1:
            quick.setdefault((case.trial, case.slots, case.does == "bumps"), []).append(case)
    together = [
        alike[first : first + _TOGETHER]
        for alike in quick.values()
        for first in range(0, len(alike), _TOGETHER)
    ]
    return [*([case] for case in slow), *together]


def _effort(case: Case) -> int:
    return _EFFORT.get(case.does, 1)


def _brief(text: str) -> str:
    return repr(text if len(text) <= 16 else text[:8] + "…")


VERSION = "4"  # of what a folder keeps; raise it when figures come out otherwise
_WITHOUT_DATA = {"par_setup", "stationary"}


class Options(NamedTuple):
    """The tables to reproduce, the data and the folder of the results."""

    tables: Sequence[str]  # none: all of them
    data: Path | None
    folder: Path
    is_any_file: bool = False
    workers: int | None = None  # None: one per core
    on: str | None = None  # a Ray cluster, in place of worker processes


class Reproduction(NamedTuple):
    """The tables, and the result of each case by its key."""

    tables: dict[str, PaperTable]
    results: Mapping[str, CaseResult]
    identity: Mapping[str, str]
    left_out: list[str]  # sentences about tables that were not run


_Window = tuple[Trial, LabelledStream, int]  # and its slots


class _Streams(NamedTuple):
    kdd: LabelledStream | None
    electricity: LabelledStream | None


def reproduce(options: Options, *, progress: ProgressCallback | None = None) -> Reproduction:
    """Run the cases of the requested tables that are not finished, and return the tables.

    Raises `ConfigError` for an unknown table or a folder of other figures, `DataError` if the data
    are missing, `MissingExtra` without scikit-learn.
    """
    names = _checked(options.tables)
    found, left_out = _streams(names, options)
    windows = _trials(found)
    plans = {name: entries_of(name, windows) for name in names if name not in left_out}
    cases = [case for plan in plans.values() for entry in plan for case in entry.cases]
    needed = list(_needed(cases, windows, found))
    for trial, stream, slots in needed:
        check_window(trial, stream, slots)
    identity = _identity(found)
    claim_folder(options.folder, identity)
    _prepare(needed, options.folder)
    workers = options.workers or os.cpu_count() or 1
    results = run_cases(cases, options.folder, workers=workers, progress=progress, on=options.on)
    tables = {name: table_of(name, plan, results) for name, plan in plans.items()}
    return Reproduction(tables, results, identity, list(left_out.values()))


def _checked(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in NAMES:
            raise ConfigError(
                f"unknown table {name!r}{nearest(name, NAMES)}; tables: {', '.join(NAMES)}"
            )
    return [name for name in NAMES if name in names or not names]


def _streams(names: Sequence[str], options: Options) -> tuple[_Streams, dict[str, str]]:
    """Return the streams that are needed, and a sentence for each table that must be left out.

    The second stream may be missing only if all tables are requested.
    """
    kdd = electricity = None
    left_out = {}
    if set(names) - {"electricity"} - _WITHOUT_DATA:
        kdd = load_kdd(options.data, results=options.folder, is_any_file=options.is_any_file)
    if "electricity" in names:
        where = _beside(options.data)
        if options.tables or located(ELECTRICITY, where) is not None:
            electricity = load_electricity(where, is_any_file=options.is_any_file)
        else:
            left_out["electricity"] = (
                f"{ELECTRICITY.title} was not found, so its table is left out; put "
                f"{ELECTRICITY.file} beside the other file"
            )
    if "river" in names and (sentence := _why_no_river()):
        if options.tables:
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
    """Return the folder of the data if it holds the second stream; if None, COVEY_DATA is used."""
    folder = data if data is None or data.is_dir() else data.parent
    is_there = folder is not None and (folder / ELECTRICITY.file).is_file()
    return folder if is_there else None


def _identity(found: _Streams) -> dict[str, str]:
    """Return all that figures depend on besides their cases."""
    identity = {
        "covey": version("covey"),
        "figures": VERSION,
        "functions": str(FUNCTIONS_VERSION),
        "scikit-learn": sklearn_version(),
    }
    for name, stream in zip(_Streams._fields, found, strict=True):
        if stream is not None:
            identity[f"sha256 of {name}"] = stream.sha256
    return identity


def _trials(found: _Streams) -> dict[str, list[Trial]]:
    """Return the windows there are, by the table that they were chosen for."""
    windows: dict[str, list[Trial]] = {"paper": [], "further": [], "electricity": []}
    if found.kdd is not None:
        windows["paper"] = [*paper_trials(), *noisy_trials()]
        windows["further"] = other_window_trials(found.kdd)
    if found.electricity is not None:
        windows["electricity"] = [*electricity_trials(), *electricity_with_last_label()]
    return windows


def _needed(
    cases: Sequence[Case], windows: Mapping[str, list[Trial]], found: _Streams
) -> Iterator[_Window]:
    """Yield the windows that cases run on."""
    wanted = sorted({(case.trial, case.slots) for case in cases})
    for stream, kinds in ((found.kdd, ("paper", "further")), (found.electricity, ("electricity",))):
        if stream is not None:
            by_name = {trial.name: trial for kind in kinds for trial in windows[kind]}
            yield from ((by_name[name], stream, slots) for name, slots in wanted if name in by_name)


def _prepare(needed: Sequence[_Window], folder: Path) -> None:
    answers: dict[str, PredictionCache] = {}
    for trial, stream, slots in needed:
        kept = answers.get(stream.sha256) or PredictionCache(stream, results=folder / "windows")
        answers[stream.sha256] = kept
        prepare_window(trial, stream, kept, folder, slots=slots)
