"""A Ray cluster as the place of jobs.

Every node must give the same results as this process, so each job begins with a look at the
fingerprint of its node. Ray runs a job again whose worker or node is lost.
"""

import contextlib
import hashlib
import ipaddress
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from importlib.metadata import version
from typing import Any, TypeVar

import numpy as np

from covey.errors import ConfigError, CoveyError, LimitError, need_of, optional_module
from covey.jobs.running import KEPT
from covey.kernel import Clock, is_compiled

Result = TypeVar("Result")

CLIENT = "ray://"
TOKEN = "token"  # noqa: S105 - a mode, not a secret
_PROBE_S = 5.0  # for a cluster to accept a connection
_ATTEMPTS, _PAUSE_S = 3, 2.0  # to connect, if Ray could not start a server for this client
_NOT_STARTED = "Starting Ray client server failed"
_RETRIES = 20  # of a job, after its worker or node was lost
_LOOKS = 3  # without a worker, one after the other, that end the work


class RayPool:
    """Makes calls on the workers of a cluster, one CPU each."""

    def __init__(self, ray: Any, address: str) -> None:
        self._ray, self._address, self._empty = ray, address, 0
        # Spread, so that jobs are not all on one node while others are idle.
        options = {"num_cpus": 1, "max_retries": _RETRIES, "scheduling_strategy": "SPREAD"}
        self._run = ray.remote(**options)(run_call)

    @property
    def workers(self) -> int:
        """The CPUs of the cluster; raises `LimitError` if it has had none for some time."""
        try:
            cpus = int(self._ray.cluster_resources().get("CPU", 0))
        except Exception as error:
            raise self._lost(f"the connection was lost, {_line(error)}") from None
        self._empty = 0 if cpus else self._empty + 1
        if self._empty >= _LOOKS:
            raise self._lost("it has no worker left")
        return max(1, cpus)

    def submit(self, call: Callable[[], Result], /) -> Future[Result]:
        """Begin a call on some worker."""
        facts = fingerprint(), not is_loopback(self._address), os.getcwd()
        return self._run.remote(*facts, call).future()  # type: ignore[no-any-return]

    def result(self, future: Future[Result], /) -> Result:
        """Return what a call returned, or raise what it raised."""
        try:
            return future.result()
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, CoveyError):
                raise error.cause from None
            raise ConfigError(
                f"a node of the cluster cannot run it ({_line(error.cause)}); install the same "
                "covey and modules on all nodes"
            ) from None
        except Exception as error:
            raise self._lost(f"it lost a job for good, {type(error).__name__}") from None

    def _lost(self, how: str) -> LimitError:
        return LimitError(f"the cluster at {self._address} was lost ({how}); {KEPT}")


def run_call(
    expected: dict[str, str], needs_token: bool, folder: str, call: Callable[[], Result]
) -> Result:
    """Make a call on a worker, if its node gives the results of the process that wants them."""
    import ray

    node = ray.util.get_node_ip_address()
    check_fingerprint(node, fingerprint(), here=expected)
    if needs_token:
        _check_token(f"node {node}")
    if os.path.isdir(folder):  # relative paths mean the same there as here
        os.chdir(folder)
    try:
        return call()
    except CoveyError as error:
        raise type(error)(f"{error} (on node {node})") from None


def check_fingerprint(node: str, there: dict[str, str], *, here: dict[str, str]) -> None:
    """Raise `ConfigError` if a node could give other results than this process."""
    differ = [
        f"{key} {there.get(key)} there, {own} here"
        for key, own in here.items()
        if there.get(key) != own
    ]
    if differ:
        raise ConfigError(
            f"node {node} of the cluster could give other results: {' and '.join(differ)}; install "
            "the same on all nodes, or remove this one"
        )


@contextlib.contextmanager
def connected(on: str) -> Iterator[RayPool]:
    """Yield the cluster at an address; Ray ends unfinished calls with the block.

    `on` is "ray", the cluster of this machine or of RAY_ADDRESS, or "ray://host:port".
    """
    check_address(on)
    # Else Ray writes on standard output that a node was lost, among the results.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    ray = optional_module("ray", missing=need_of("Clusters", "ray", extra="ray"))
    address = _address(on)
    if not is_loopback(address):
        _check_token(f"the cluster at {address}")
    try:
        _probe(address)
        _connect(ray, address)
    except Exception as error:
        raise ConfigError(
            f"there is no Ray cluster at {address} ({_line(error)}); see that it runs, and that "
            "the address and the token are right"
        ) from None
    try:
        yield RayPool(ray, address)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    for left in reversed(range(_ATTEMPTS)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Ray's; the caller says what fails
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            return
        except ConnectionError as error:
            # The server of a client before may still have the port of the next one.
            if not left or _NOT_STARTED not in str(error):
                raise
            ray.shutdown()
            time.sleep(_PAUSE_S)


def check_address(on: str) -> None:
    """Raise `ConfigError` for what is no address of a cluster."""
    host, _, port = on.removeprefix(CLIENT).rpartition(":")
    if on != "ray" and not (on.startswith(CLIENT) and host and port.isdigit()):
        raise ConfigError(f"{on!r} is no place for jobs; use ray, or ray://host:port")


def _address(on: str) -> str:
    from ray._private.services import canonicalize_bootstrap_address_or_die

    address = os.environ.get("RAY_ADDRESS", "") if on == "ray" else on
    if address.startswith(CLIENT):
        return address
    try:
        return canonicalize_bootstrap_address_or_die("auto")  # type: ignore[no-any-return]
    except (ConnectionError, ValueError):
        raise ConfigError(
            "no Ray cluster runs on this machine; start one (ray start --head), or name its "
            "address: ray://host:port"
        ) from None


def is_loopback(address: str) -> bool:
    """Return whether an address, with its port, is of this machine only."""
    host = address.removeprefix(CLIENT).rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_token(what: str) -> None:
    if os.environ.get("RAY_AUTH_MODE") != TOKEN:
        raise ConfigError(
            f"{what} can be reached over the network without a token, so that others can run code "
            "on it; set RAY_AUTH_MODE=token here and on all nodes (see docs/operations/cluster.md)"
        )


def _probe(address: str) -> None:
    """Raise if nothing there speaks Ray's protocol: Ray itself waits for minutes."""
    import grpc

    if os.environ.get("RAY_USE_TLS") == "1":  # needs Ray's own certificates
        return
    with grpc.insecure_channel(address.removeprefix(CLIENT)) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_PROBE_S)
        except grpc.FutureTimeoutError:
            raise TimeoutError(f"no answer within {_PROBE_S:.0f} s") from None


def _line(error: BaseException) -> str:
    """Return the line that says what failed: the last one after a traceback, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1 if "Traceback" in str(error) else 0] if lines else type(error).__name__


@cache
def fingerprint() -> dict[str, str]:
    """Return what is the same in two processes that give the same results, to the last digit."""
    clock = Clock([1.0, 2.0, 0.5], [0.3, 0.25, 0.8])
    floors = [clock.at(10**power) for power in range(13)]
    # Vector units of other processors may round otherwise, also within one array.
    points = np.arange(1, 1025) / 1024
    vectors = [np.log1p(points), np.log(points), np.exp(points), np.sqrt(points), points**0.3]
    functions = (math.log, math.exp, math.sqrt, math.log1p, math.erf, lambda x: math.pow(x, 0.3))
    scalars = [function(x) for function in functions for x in points.tolist()]
    digest = hashlib.sha256(repr((floors, scalars, [*map(np.ndarray.tolist, vectors)])).encode())
    return {
        "covey": version("covey"),
        "kernel": "compiled" if is_compiled() else "plain",
        "numpy": np.__version__,
        "arithmetic": digest.hexdigest()[:12],
    }
