"""Build the source distribution and a wheel per interpreter, and try them where nothing else is.

    python deploy/dist.py python3.11 python3.12 python3.13

It writes dist/. Each wheel is repaired and stripped by auditwheel, then installed into a new
environment without extras and without a C compiler, and tried. The source distribution must hold
the files of the repository; it is installed without a compiler too, and its tests are collected
and some of them run.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
LEFT_OUT = re.compile(r"\.(ci/.*|gitignore)")
ADDED = re.compile(r"PKG-INFO|setup\.cfg|src/covey\.egg-info/.*")
TESTS = (
    *("tests/test_structure.py", "tests/test_public.py", "tests/test_distribution.py"),
    *("tests/bandit/test_policies.py", "tests/node/test_store.py"),
)
NO_COMPILER = {"CC": "/nonexistent/cc", "COVEY_BUILD": ""}
TRIALS = (  # what a new environment must do, and what it must print
    (("covey", "--help"), "evaluate the theorems"),
    (("covey", "demo", "--slots", "2000", "--quiet"), "Over all sites, the best own function"),
    (("covey", "replay", "log.csv", "--config", "sites.toml", "--trace", "t.csv"), "net gain"),
    (("covey", "bounds", "T1"), "T1"),
    (("python", "-W", "error", "-c", "import covey; print(covey.Network.__name__)"), "Network"),
)


def main(pythons: list[str]) -> None:
    """Build and try for each of the interpreters."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = build_source(work)
        run_tests(source, work / "unpacked")
        for number, python in enumerate(pythons or [sys.executable]):
            place = work / str(number)
            wheel = build_wheel(python, source, place)
            try_it(python, wheel, place / "wheel", "compiled")
            try_it(python, source, place / "source", "plain Python", **NO_COMPILER)
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size / 1e6:6.2f} MB  {path.relative_to(ROOT)}")


def build_source(work: Path) -> Path:
    """Build the source distribution; fail unless it has every file of the repository."""
    # Isolated in a copy: files that a run has left in the clone must not get in.
    clone = work / "clone"
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    for name in tracked:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, clone / name)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, clone, COVEY_BUILD="plain")
    (path,) = DIST.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    wanted = {name for name in tracked if not LEFT_OUT.fullmatch(name)}
    differing = {name for name in wanted ^ held if not ADDED.fullmatch(name)}
    if differing:
        sys.exit(f"the source distribution differs from the repository: {sorted(differing)}")
    print(f"{path.name}: {len(held)} files")
    return path


def build_wheel(python: str, source: Path, place: Path) -> Path:
    """Build a wheel from the source distribution, repair and strip it."""
    made = place / "made"
    words = ("--python", python, "wheel", "--no-deps", "--wheel-dir", made, source)
    # Without debug information, which is stripped anyway and takes most of the memory of gcc.
    pip(*words, COVEY_BUILD="compiled")
    (wheel,) = made.glob("*.whl")
    repaired = place / "repaired"
    run(BIN / "auditwheel", "repair", "--strip", "--wheel-dir", repaired, wheel, PATH=PATH)
    (found,) = repaired.glob("*.whl")
    return Path(shutil.copy2(found, DIST))


def try_it(python: str, package: Path, place: Path, kernel: str, **environment: str) -> None:
    """Install a package into a new environment, and run what needs no extra."""
    run(python, "-m", "venv", "--without-pip", place)
    its_own = place / "bin" / "python"
    pip("--python", its_own, "install", package, **environment)
    more = {**environment, "PATH": f"{place / 'bin'}:{PATH}"}
    shown = run(place / "bin" / "covey", "--version", **more)
    if f"(kernel: {kernel}" not in shown:
        sys.exit(f"{package.name}: {shown.strip()}; expected the kernel {kernel}")
    data = place / "demo-report"
    for (program, *words), printed in TRIALS:
        folder = data if data.exists() else place
        if printed not in run(place / "bin" / program, *words, cwd=folder, **more):
            sys.exit(f"{package.name}: {program} {' '.join(words)} does not print {printed!r}")
    version = run(its_own, "--version").strip()
    print(f"{package.name} works in {version}: {shown.strip()}")


def run_tests(source: Path, place: Path) -> None:
    """Collect all tests of the source distribution, and run some."""
    with tarfile.open(source) as archive:
        archive.extractall(place, filter="data")
    (unpacked,) = place.iterdir()
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    environment = {"PYTHONPATH": str(unpacked / "src")}
    counts = [
        run(*pytest, "--collect-only", cwd=folder, **environment).splitlines()[-1].split()[0]
        for folder in (ROOT, unpacked)
    ]
    if counts[0] != counts[1]:
        sys.exit(f"{counts[0]} tests here, {counts[1]} in the source distribution")
    last = run(*pytest, *TESTS, cwd=unpacked, **environment).splitlines()[-1]
    print(f"{source.name}: {counts[1]} tests; of some of them, {last}")


BIN = Path(sys.executable).parent
PATH = f"{BIN}:{os.environ['PATH']}"


def pip(*words: object, **environment: str) -> None:
    """Run the pip of this environment."""
    run(
        sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, **environment
    )


def run(*words: object, cwd: Path | None = None, **environment: str) -> str:
    """Run a program and return what it prints; leave with all that it said if it fails."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = "\n".join(f"{done.stdout}{done.stderr}".splitlines()[-60:])
        sys.exit(f"{' '.join(map(str, words))} failed\n{said}")
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
