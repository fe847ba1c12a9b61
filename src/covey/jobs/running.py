"""Jobs in worker processes, of this machine or of a Ray cluster, and folders of finished work."""

import contextlib
import hashlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from covey import files
from covey.errors import ConfigError, CoveyError, DataError, LimitError

Key = TypeVar("Key")
Result = TypeVar("Result")

KEPT = "repeat the command: what is finished is kept in its folder"
_AHEAD = 2  # jobs submitted per worker, so that none is idle
_CHECK_S = 5.0  # between looks at a pool in which no job ends


class Pool(Protocol):
    """Makes calls in other processes."""

    @property
    def workers(self) -> int:
        """How many calls it makes at a time; raises `LimitError` if there will be none."""

    def submit(self, call: Callable[[], Result], /) -> Future[Result]:
        """Begin a call; it must be importable."""

    def result(self, future: Future[Result], /) -> Result:
        """Return what a call returned, or raise what it raised."""


class WorkerPool(ProcessPoolExecutor):
    """A pool of worker processes that never receive interrupts."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, mp_context=multiprocessing.get_context("spawn"))
        self.workers = workers

    def submit(self, call: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        """Begin a call.

        A terminal interrupts all processes; the parent ends the workers, without tracebacks. An
        interrupt while a worker starts, which another thread may receive, waits until it has.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or not hasattr(signal, "pthread_sigmask"):
            return super().submit(call, *args, **options)
        interrupts: list[int] = []
        handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(call, *args, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            signal.signal(signal.SIGINT, handler)
            if interrupts:
                signal.raise_signal(signal.SIGINT)

    def result(self, future: Future[Result], /) -> Result:
        return future.result()


def finished(
    keys: Collection[Key],
    call_of: Callable[[Key], Callable[[], Result]],
    *,
    workers: int,
    on: str | None = None,
    is_importable: bool = True,
    title: Callable[[Key], str] = str,
) -> Generator[tuple[Key, Result], None, None]:
    """Yield each key with the result of its call, in the order in which they finish.

    Calls run on the cluster `on`, or in so many processes of this machine. One process is this one,
    which also runs what others cannot import. Errors begin with the title of their key. Raises
    `ConfigError` if there is no such cluster, or if processes would run the calling script again,
    and `LimitError` if workers are lost.
    """
    if workers < 1:
        raise ConfigError(f"workers is {workers}; give the number of processes, 1 or more")
    if not keys:
        return
    workers = min(workers, len(keys))
    if on is None and (workers == 1 or not is_importable):
        for key in keys:
            with titled(title(key)):
                result = call_of(key)()
            yield key, result
        return
    waiting, futures = iter(keys), dict[Future[Result], Key]()
    with _pool(on, workers, is_importable=is_importable) as pool:
        while True:
            free = max(0, _AHEAD * pool.workers - len(futures))
            for key in itertools.islice(waiting, free):
                futures[pool.submit(call_of(key))] = key
            if not futures:
                return
            done, _ = wait(futures, timeout=_CHECK_S, return_when=FIRST_COMPLETED)
            # Failed jobs last, so that no finished one is lost.
            for future in sorted(done, key=lambda future: future.exception() is not None):
                key = futures.pop(future)
                with titled(title(key)):
                    result = pool.result(future)
                yield key, result


def worked(
    calls: Mapping[Key, Callable[[], Result]],
    *,
    kind: Any,
    paths: Mapping[Key, Path],
    workers: int,
    on: str | None,
    is_importable: bool = True,
    title: Callable[[Key], str] = str,
    progress: Callable[[float, Result], None] = lambda share, result: None,
) -> dict[Key, Result]:
    """Return the results of calls by their keys; files at `paths` keep them, of this `kind`."""
    before = {key: kept(path, kind) for key, path in paths.items()}
    results = {key: result for key, result in before.items() if result is not None}
    left = [key for key in calls if key not in results]
    steps = finished(
        left, calls.__getitem__, workers=workers, on=on, is_importable=is_importable, title=title
    )
    with contextlib.closing(steps):
        for count, (key, result) in enumerate(steps, 1):
            if key in paths:
                keep(paths[key], result)
            results[key] = result
            progress(count / len(left), result)
    return {key: results[key] for key in calls}


def path_of(call: partial[Any], folder: Path) -> Path:
    """Return the file of a call in a folder, which depends on its function and arguments."""
    packed = msgspec.json.encode([call.func.__name__, *call.args], enc_hook=repr)
    return folder / f"jobs/{hashlib.sha256(packed).hexdigest()[:32]}.json"


@contextlib.contextmanager
def titled(title: str) -> Iterator[None]:
    """Begin errors of the block with a title."""
    try:
        yield
    except CoveyError as error:
        raise type(error)(f"{title}: {error}") from None


def _pool(on: str | None, workers: int, *, is_importable: bool) -> AbstractContextManager[Pool]:
    if on is None:
        _check_guard(workers)
        return _worker_pool(workers)
    if not is_importable:
        raise ConfigError(
            "a policy or an environment is a class that only this process has; write it in a "
            "module that all nodes can import, or leave out the cluster"
        )
    from covey.jobs import ray_cluster

    return ray_cluster.connected(on)


@contextlib.contextmanager
def _worker_pool(workers: int) -> Iterator[WorkerPool]:
    """Yield processes that end with the block, immediately if it fails."""
    others = set(multiprocessing.active_children())
    pool = WorkerPool(workers)
    try:
        yield pool
    except BaseException as error:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        if not isinstance(error, BrokenProcessPool):
            raise
        raise LimitError(
            "a worker process was killed, probably because memory ran out; use fewer workers, and "
            f"{KEPT}"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_guard(workers: int) -> None:
    """Raise `ConfigError` if new processes, which import the main script, would run it again."""
    main = sys.modules["__main__"]
    path = Path(getattr(main, "__file__", None) or "")
    if main.__spec__ is None and path.is_file() and "__name__" not in path.read_text("utf-8"):
        raise ConfigError(
            f"{workers} workers are processes that import {path.name} again; put its calls under "
            '`if __name__ == "__main__":`, or set workers = 1'
        )


def claim(folder: Path, own: Mapping[str, Any], *, file: str, what: str) -> None:
    """Mark `folder` as that of the work described by `own`; raise `ConfigError` if it is another's.

    `file` holds the description, and `what` names the kind of work in messages.
    """
    path = folder / file
    own = msgspec.json.decode(msgspec.json.encode(own, enc_hook=str))
    stored: Mapping[str, Any]
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        stored = own
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); choose another folder") from None
    if stored != own:
        raise ConfigError(
            f"{folder} holds runs of another {what}: {_difference(stored, own)}; choose another "
            "folder, or remove this one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.format(msgspec.json.encode(own)) + b"\n")


def _difference(stored: Mapping[str, Any], own: Mapping[str, Any], where: str = "") -> str:
    """Return the first key that differs, with both values."""
    key = next(key for key in {**own, **stored} if stored.get(key) != own.get(key))
    old, new = stored.get(key), own.get(key)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _difference(old, new, f"{where}{key} ")
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return f"{where}{key} is {'only there' if new is None else 'not there'}"
    return f"{where}{key} is {old!r} there and {new!r} here"


def kept(path: Path, kind: type[Result]) -> Result | None:
    """Return the result in a file; None if there is none, or a power loss damaged it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def keep(path: Path, result: Any) -> None:
    """Write a finished result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, msgspec.json.encode(result))
