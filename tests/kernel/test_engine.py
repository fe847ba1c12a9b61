"""The running kernel is reported, and can be required or disabled."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import covey
from covey import kernel

SHOW = "from covey import kernel as engine; print(engine.is_compiled())"


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "COVEY_KERNEL"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_requested_kernel_runs() -> None:
    wish = os.environ.get("COVEY_KERNEL")

    assert wish is None or kernel.is_compiled() == (wish == "compiled")


def test_plain_disables_the_compiled_kernel_and_needs_no_cython() -> None:
    code = f"import sys; sys.modules['cython'] = None; {SHOW}"

    assert run(code, COVEY_KERNEL="plain").stdout == "False\n"


def test_a_required_compiled_kernel_loads_or_gives_a_message() -> None:
    has_compiled = any(Path(kernel.__file__).parent.glob("*.so"))

    done = run(SHOW, COVEY_KERNEL="compiled")

    assert done.stdout == ("True\n" if has_compiled else "")
    assert has_compiled or "was not built" in done.stderr


def test_another_kernel_name_is_rejected() -> None:
    assert "set it to compiled or plain" in run(SHOW, COVEY_KERNEL="fast").stderr


@pytest.mark.skipif(not any(Path(kernel.__file__).parent.glob("*.so")), reason="not built")
def test_the_compiled_kernel_is_not_older_than_its_source() -> None:
    folder = Path(kernel.__file__).parent
    built = {path.name.split(".")[0]: path.stat().st_mtime for path in folder.glob("*.so")}

    assert set(built) == set(kernel.COMPILED) == {path.stem for path in folder.glob("*.pxd")}
    for part, when in built.items():
        assert when >= (folder / f"{part}.py").stat().st_mtime
        assert when >= (folder / f"{part}.pxd").stat().st_mtime


@pytest.mark.parametrize("preset", ["auto", "cos", "dcza", "share-ucb"])
@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("labels_are", ["prompt", "late or expired", "hidden", "in batches"])
def test_both_loops_decide_the_same(preset: str, dimension: int, labels_are: str) -> None:
    """A replay without rare options has a compiled loop, also for labels that are not prompt."""
    rng = np.random.default_rng(dimension)
    slots = 500
    labels = rng.integers(0, 3, slots)
    right = rng.random((6, slots)) < rng.uniform(0.3, 1.0, (6, 1))
    log = {
        "predictions": np.where(right, labels, (labels + 1) % 3),
        "labels": labels,
        "contexts": rng.random((slots, dimension)),
    }
    config = {
        "policy": {"preset": preset, "label-wait": 20, "pending": True},
        "learner": [
            {
                "name": f"s{k}",
                "functions": [f"f{k}", f"g{k}"],
                "peers": {f"s{other}": 0.0 for other in range(3) if other != k},
            }
            for k in range(3)
        ],
    }
    late = {"delay": rng.integers(0, 40, slots)}
    options = {"late or expired": late, "in batches": {"batch": np.arange(slots) // 8}}
    options["hidden"] = {**late, "revealed": rng.random(slots) < 0.7}
    busy = [{**site, "answer-delay": "zero"} for site in config["learner"]]
    log |= {"columns": {"zero": np.zeros(slots, int)}, **options.get(labels_are, {})}

    short, general = (
        covey.replay({**config, "learner": sites}, **log).trace.columns()
        for sites in (config["learner"], busy)
    )

    assert short == general
