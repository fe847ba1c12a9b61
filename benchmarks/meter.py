"""Run a command, its output into a file, and print its seconds and its peak memory as JSON.

A small separate process, since Linux counts the memory of the parent of a program towards the
program's peak. Usage: python meter.py OUTPUT COMMAND...
"""

import json
import os
import subprocess
import sys
import time


def main() -> int:
    """Run the command that the arguments hold."""
    with open(sys.argv[1], "wb") as output:
        begin = time.perf_counter()
        started = subprocess.Popen(sys.argv[2:], stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(started.pid, 0)
        wall = time.perf_counter() - begin
    unit = 1 if sys.platform == "darwin" else 1024
    measured = {
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * unit,
    }
    print(json.dumps(measured))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    raise SystemExit(main())
