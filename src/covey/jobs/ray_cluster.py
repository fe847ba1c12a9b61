"""A Ray cluster as the place of jobs.

Every node must give the same results as this process, so each is asked for its fingerprint. A job
whose worker or node is lost runs again on another one.
"""

import contextlib
import ipaddress
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from covey.errors import ConfigError, CoveyError, need_of, optional_module
from covey.jobs.fingerprint import Fingerprint, fingerprint
from covey.jobs.running import AHEAD, LostJob

Result = TypeVar("Result")

CLIENT = "ray://"
DOCUMENT = "docs/operations/cluster.md"
TOKEN = "token"  # noqa: S105 - a mode, not a secret
_PROBE_S = 5.0  # for a cluster to accept a connection
_NODE_S = 120.0  # for a node to start a worker and import covey
_ATTEMPTS, _PAUSE_S = 3, 2.0  # to connect, if Ray could not start a server for this client
_NOT_STARTED = "Starting Ray client server failed"
_RETRIES = 20  # of a job, after its worker or node was lost
_CHECKS = 3  # without a worker, one after the other, that end the work


class ClusterNode(NamedTuple):
    """What a node of the cluster says of itself."""

    fingerprint: Fingerprint
    mode: str  # of authentication


class RayPool:
    """Makes calls on the workers of a cluster, one CPU each."""

    check_every_s = 5.0

    def __init__(self, ray: Any, address: str) -> None:
        self._ray = ray
        self._address = address
        self._refs: dict[Future[Any], Any] = {}
        self._without_workers = 0
        # Spread, so that jobs are not all on one node while others are idle.
        options = {"num_cpus": 1, "max_retries": _RETRIES, "scheduling_strategy": "SPREAD"}
        self._run = ray.remote(**options)(run_call)

    @property
    def workers(self) -> int:
        """The CPUs of the cluster."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    @property
    def ahead(self) -> int:
        """Enough calls for all workers, also for those that join later."""
        return AHEAD * max(1, self.workers)

    def submit(self, call: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        """Begin a call on some worker."""
        ref = self._run.remote(fingerprint(), os.getcwd(), call, args, options)
        outer: Future[Result] = Future()
        outer.set_running_or_notify_cancel()
        self._refs[outer] = ref
        ref.future().add_done_callback(lambda inner: self._finish(inner, outer))
        return outer

    def check(self) -> None:
        """Raise `LostJob` if no worker has been there for some time."""
        try:
            workers = self.workers
        except Exception as error:
            reason = _first_line(error)
            raise LostJob(f"the connection to {self._address} was lost ({reason})") from None
        self._without_workers = 0 if workers else self._without_workers + 1
        if self._without_workers >= _CHECKS:
            raise LostJob(f"the cluster at {self._address} has no worker left")

    def check_nodes(self, *, needs_token: bool) -> None:
        """Raise `ConfigError` for a node whose results could differ, or that is open to all."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        described = self._ray.remote(num_cpus=0, max_retries=1)(describe_node)
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        asked = {}
        for node in nodes:
            if node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked[node["NodeManagerAddress"]] = described.options(
                    scheduling_strategy=there
                ).remote()
        if not asked:
            raise ConfigError(f"the cluster at {self._address} has no node with a CPU; add one")
        for name, ref in sorted(asked.items()):
            try:
                found = self._ray.get(ref, timeout=_NODE_S)
            except Exception as error:
                raise ConfigError(
                    f"node {name} of the cluster cannot run covey ({_first_line(error)}); install "
                    "the same covey on all nodes"
                ) from None
            check_fingerprint(name, found.fingerprint, expected=fingerprint())
            if needs_token and found.mode != TOKEN:
                raise ConfigError(_without_token(f"node {name}"))

    def cancel(self) -> None:
        """End all calls that have not returned."""
        for ref in list(self._refs.values()):
            with contextlib.suppress(Exception):
                self._ray.cancel(ref, force=True)

    def _finish(self, inner: Future[Any], outer: Future[Any]) -> None:
        self._refs.pop(outer, None)
        error = inner.exception()
        if error is None:
            outer.set_result(inner.result())
        else:
            outer.set_exception(self._own(error))

    def _own(self, error: BaseException) -> BaseException:
        """Return what the call raised, or that it was lost."""
        cause = getattr(error, "cause", None)
        if isinstance(error, self._ray.exceptions.RayTaskError) and cause is not None:
            return cause  # type: ignore[no-any-return]
        reason = type(error).__name__
        return LostJob(f"the cluster at {self._address} lost a job for good ({reason})")


def run_call(
    expected: Fingerprint,
    folder: str,
    call: Callable[..., Result],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Result:
    """Make a call on a worker; a node that joined later is checked as the others were."""
    import ray

    node = ray.util.get_node_ip_address()
    check_fingerprint(node, fingerprint(), expected=expected)
    if os.path.isdir(folder):  # relative paths mean the same there as here
        os.chdir(folder)
    try:
        return call(*args, **options)
    except CoveyError as error:
        raise type(error)(f"{error} (on node {node})") from None


def describe_node() -> ClusterNode:
    """Return what this node says of itself."""
    return ClusterNode(fingerprint(), os.environ.get("RAY_AUTH_MODE", ""))


def check_fingerprint(node: str, found: Fingerprint, *, expected: Fingerprint) -> None:
    """Raise `ConfigError` if a node could give other results than this process."""
    if found != expected:
        differences = expected.differences(found)
        raise ConfigError(
            f"node {node} of the cluster could give other results: {differences}; install the "
            "same on all nodes, or remove this one"
        )


@contextlib.contextmanager
def connected(on: str) -> Iterator[RayPool]:
    """Yield the cluster at an address; unfinished calls end if the block fails.

    `on` is "ray", the cluster of this machine or of RAY_ADDRESS, or "ray://host:port".
    """
    check_address(on)
    # Else Ray writes on standard output that a node was lost, among the results.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    ray = optional_module("ray", missing=need_of("Clusters", "ray", extra="ray"))
    address = _found_address(on)
    needs_token = not _is_loopback(address)
    if needs_token and os.environ.get("RAY_AUTH_MODE") != TOKEN:
        raise ConfigError(_without_token(f"the cluster at {address}"))
    _probe(address)
    _connect(ray, address)
    pool = RayPool(ray, address)
    try:
        pool.check_nodes(needs_token=needs_token)
        yield pool
    except BaseException:
        pool.cancel()
        raise
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    for left in reversed(range(_ATTEMPTS)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Ray's; what fails is said below
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            # The server of a client before may still have the port of the next one.
            if not left or _NOT_STARTED not in str(error):
                raise _unusable(address, _first_line(error)) from None
            ray.shutdown()
            time.sleep(_PAUSE_S)
        else:
            return


def check_address(on: str) -> None:
    """Raise `ConfigError` for what is no address of a cluster."""
    host, _, port = on.removeprefix(CLIENT).rpartition(":")
    if on != "ray" and not (on.startswith(CLIENT) and host and port.isdigit()):
        raise ConfigError(f"{on!r} is no place for jobs; use ray, or ray://host:port")


def _found_address(on: str) -> str:
    if on != "ray":
        return on
    from ray._private.services import canonicalize_bootstrap_address_or_die

    try:
        given = os.environ.get("RAY_ADDRESS", "")
        return given if given.startswith(CLIENT) else canonicalize_bootstrap_address_or_die("auto")
    except (ConnectionError, ValueError):
        raise ConfigError(
            "no Ray cluster runs on this machine; start one (ray start --head), or name its "
            "address: ray://host:port"
        ) from None


def _is_loopback(address: str) -> bool:
    host = _target(address).rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _target(address: str) -> str:
    return address.removeprefix(CLIENT)


def _probe(address: str) -> None:
    """Raise `ConfigError` if nothing there speaks Ray's protocol: Ray itself waits for minutes."""
    import grpc

    if os.environ.get("RAY_USE_TLS") == "1":  # needs Ray's own certificates
        return
    with grpc.insecure_channel(_target(address)) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_PROBE_S)
        except grpc.FutureTimeoutError:
            raise _unusable(address, f"no answer within {_PROBE_S:.0f} s") from None


def _unusable(address: str, reason: str) -> ConfigError:
    return ConfigError(
        f"there is no Ray cluster at {address} ({reason}); see that it runs, and that the address "
        "and the token are right"
    )


def _without_token(what: str) -> str:
    return (
        f"{what} can be reached over the network without a token, so that others can run code on "
        f"it; set RAY_AUTH_MODE=token here and on all nodes (see {DOCUMENT})"
    )


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1 if "Traceback" in str(error) else 0].strip() if lines else type(error).__name__
