"""The running kernel is reported, and can be required or disabled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_plain_disables_the_compiled_kernel() -> None:
    assert run(SHOW, COVEY_KERNEL="plain").stdout == "False\n"


def test_a_required_compiled_kernel_loads_or_gives_a_message() -> None:
    has_compiled = any(Path(kernel.__file__).parent.glob("_compiled.*.so"))

    done = run(SHOW, COVEY_KERNEL="compiled")

    assert done.stdout == ("True\n" if has_compiled else "")
    assert has_compiled or "it was not built" in done.stderr


def test_another_kernel_name_is_rejected() -> None:
    assert "set it to compiled or plain" in run(SHOW, COVEY_KERNEL="fast").stderr


def test_the_plain_kernel_needs_no_cython() -> None:
    code = "import sys; sys.modules['cython'] = None; import covey.kernel.{}; print('fine')"

    for part in ("arena", "index", "phases"):
        assert run(code.format(part)).stdout == "fine\n"


@pytest.mark.skipif(
    not any(Path(kernel.__file__).parent.glob("_compiled.*.so")), reason="not built"
)
def test_the_compiled_kernel_is_not_older_than_its_source() -> None:
    folder = Path(kernel.__file__).parent
    built = max(path.stat().st_mtime for path in folder.glob("_compiled.*.so"))

    parts = list(folder.glob("*.pxd"))
    assert len(parts) > 5
    for path in parts:
        assert built >= path.stat().st_mtime
        assert built >= path.with_suffix(".py").stat().st_mtime
