"""Runs the tests that reach a changed function, in a copy of a process that has all modules.

A copy (`fork`) has nothing to import, and only the tests that were seen to call the function are
run, cheap ones first: a change costs a second rather than a minute.
"""

import contextlib
import gc
import io
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from mutants.changes import SOURCES, Change, make
from support.required import ROOT

MOST_S = 60.0  # of CPU, for the tests of one change
ARGUMENTS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--slowest", "0")


class Reached(NamedTuple):
    """A test that called a function, and the CPU seconds that it took."""

    cpu_s: float
    test: str


class Watch:
    """Notes which functions of the package each test calls."""

    def __init__(self) -> None:
        self.reached: dict[tuple[str, str], list[Reached]] = defaultdict(list)
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        codes: set[CodeType] = set()

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                codes.add(frame.f_code)

        start_s = time.process_time()
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            seen = Reached(time.process_time() - start_s, item.nodeid)
            for code in codes:
                if code.co_filename.startswith(str(SOURCES)):
                    self.reached[code.co_filename, code.co_qualname].append(seen)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def watch(tests: Iterable[str]) -> Watch:
    """Run tests, and return what they call; those that fail without any change say nothing."""
    seen = Watch()
    code, said = _told([*ARGUMENTS, *tests], plugins=[seen])
    if code > 1 or not seen.reached:
        raise SystemExit(said)
    gc.collect()
    return seen


def is_noticed(change: Change, seen: Watch) -> bool:
    """Return whether a test fails, or never ends, with a change."""
    tests = _tests_of(change, seen)
    if not tests:
        return False
    child = os.fork()
    if not child:
        os.chdir(ROOT)  # where names of tests begin
        signal.alarm(int(10 + 10 * MOST_S))  # ends the process: a loop without an end is noticed
        try:
            code = _told([*ARGUMENTS, "-x", *tests])[0] if make(change) else 0
        except BaseException:
            code = 1
        os._exit(int(code))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code <= 2, f"pytest ended with {code}: {tests}"
    return code != 0


def _tests_of(change: Change, seen: Watch) -> list[str]:
    """Return the tests that reach a change, as many as there is time for."""
    path = SOURCES / change.module
    line = path.read_text().count("\n", 0, change.start) + 1
    around: list[tuple[int, str]] = []
    _enclosing(compile(path.read_text(), str(path), "exec"), line, around)
    found = {one for _, name in around for one in seen.reached.get((str(path), name), ())}
    chosen, spent_s = [], 0.0
    for one in sorted(found):
        spent_s += one.cpu_s
        if spent_s < MOST_S and one.test not in seen.failed:
            chosen.append(one.test)
    return chosen


def _enclosing(code: CodeType, line: int, found: list[tuple[int, str]]) -> None:
    """Note the functions whose lines a line is among."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            lines = [number for _, _, number in inner.co_lines() if number]
            if min(lines) <= line <= max(lines):
                found.append((inner.co_firstlineno, inner.co_qualname))
            _enclosing(inner, line, found)


def _told(arguments: list[str], **more: Any) -> tuple[int, str]:
    """Return how pytest ends, and what it says."""
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        return int(pytest.main(arguments, **more)), said.getvalue()
