"""What a site tells of itself: its state, and its metrics."""

import asyncio
import contextlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from covey.errors import PeerBusy
from covey.server.metrics import Metrics
from support import virtual
from support.served import FEEDBACK, INFER, Client, infer, metrics_of, run, served
from support.virtual import World

STATE = "/v2/models/north/state"
CONFIG = {
    "policy": {"preset": "cos", "slices": 2, "label-wait": 1_000},
    "learner": [
        {
            "name": f"site{k}",
            "functions": [f"f{k}0", f"f{k}1"],
            "peers": {f"site{j}": 0.1 for j in range(3) if j != k},
        }
        for k in range(3)
    ],
}
FUNCTIONS = {
    f"f{k}{f}": (lambda instance, n=k + f: (instance + n) % 2) for k in range(3) for f in range(2)
}


@served()
async def test_metrics_count_what_clients_do(client: Client) -> None:
    for k in range(3):
        await client.post(INFER, infer(str(k)))
    for id_, truth in (("0", 0), ("0", 0), ("0", 1), ("never", 0)):
        await client.post(FEEDBACK, {"id": id_, "truth": truth})
    await client.get("/nowhere/1")
    await client.get("/nowhere/2")

    told = await metrics_of(client)

    assert told["covey_decisions_total", "zero", "own", "explore"] == 2
    assert told["covey_decisions_total", "one", "own", "explore"] == 1
    for word in ("joined", "repeated", "conflict", "unknown"):
        assert told["covey_labels_total", word] == 1
    assert told["covey_arm_labels_total", "zero", "own"] == 1
    assert told["covey_arm_labels_right_total", "zero", "own"] == 1
    assert told["covey_store_bytes",] > 4096
    assert told["covey_store_free_bytes",] > 0
    assert told["covey_http_requests_total", "/v2/models/{model}/infer", "front", "200"] == 3
    assert told["covey_http_requests_total", "other", "front", "404"] == 2
    assert told["covey_http_request_duration_seconds_count", "other", "front"] == 2
    assert told["covey_pending_labels",] == 2
    assert told["covey_reward_ratio",] == 1.0
    assert told["covey_label_delay_slots_count",] == 1
    assert told["covey_label_delay_slots_sum",] == 2
    assert told["covey_active_cells",] == 1
    assert told["covey_ready",] == 1
    assert told["covey_store_write_duration_seconds_count",] >= 2
    assert told["covey_store_write_failures_total",] == 0
    assert told["covey_cost_total", "zero", "own"] == 0.0


@virtual.timed
async def test_series_are_zero_before_the_first_event() -> None:
    world = World(CONFIG, FUNCTIONS, dimension=1)
    metrics = Metrics({"/v2/models/site0/infer": "/v2/models/{model}/infer"}, ["/ask"])
    metrics.know(["s"])
    metrics.follow(world.nodes["site0"])
    told = samples(metrics)

    for arm, kind in (("f00", "own"), ("f01", "own"), ("site1", "peer"), ("site2", "peer")):
        for name in ("covey_arm_labels_total", "covey_arm_labels_right_total"):
            assert told[name, arm, kind] == 0
        assert told["covey_decisions_total", arm, kind, "explore"] == 0
        assert told["covey_cost_total", arm, kind] == 0
    for outcome in ("answered", "failed", "busy", "given_up"):
        assert told["covey_peer_requests_total", outcome, "s"] == 0
    for state in ("joined", "repeated", "late", "unknown", "conflict", "unfit"):
        assert told["covey_labels_total", state] == 0
    assert told["covey_http_requests_total", "/v2/models/{model}/infer", "front", "200"] == 0
    assert told["covey_http_requests_total", "/ask", "back", "200"] == 0
    assert told["covey_http_connections_refused_total", "back"] == 0
    assert told["covey_alarms_total", ""] == 0
    assert told["covey_function_failures_total", "f00"] == 0
    assert told["covey_peer_rows_total", "site1"] == 0


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *map(sample.labels.get, sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(metrics.page().body.decode())
        for sample in family.samples
    }


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (package prometheus) is not installed")
@served()
async def test_promtool_finds_nothing_to_say_of_the_metrics(client: Client) -> None:
    await client.post(INFER, infer("a"))
    async with client.session.get(client.root + "/metrics") as response:
        page = await response.text()
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@virtual.timed
async def test_an_alarm_of_the_change_detection_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each function is right for a long time, then wrong."""
    policy = {"preset": "auto", "alarm": 1.0}
    learner = {"name": "site0", "functions": ["f00", "f01"]}

    world = World({"policy": policy, "learner": [learner]}, FUNCTIONS, dimension=1)
    node = world.nodes["site0"]
    metrics = Metrics({})
    metrics.follow(node)
    for k in range(300):
        await world.predict("site0", str(k), 0, (0.5,))
        await world.learn("site0", str(k), 2 * (k >= 200))
        if k == 199:
            assert samples(metrics)["covey_alarms_total", ""] == 0
            assert (node.state().alarms, node.state().alarm_slot) == (0, 0)
    state = node.state()

    assert state.alarms >= 1
    assert samples(metrics)["covey_alarms_total", ""] == state.alarms
    assert 200 < state.alarm_slot <= 300
    assert caplog.text.count("change detected at slot") == state.alarms
    assert f"at slot {state.alarm_slot}:" in caplog.text
    world.crash("site0")
    world.boot("site0")
    again = world.nodes["site0"].state()
    assert (again.alarms, again.alarm_slot) == (0, state.alarm_slot)
    assert (again.alarms_total, again.alarm_slots) == (state.alarms, state.alarm_slots)
    assert again.alarm_slots[-1] == state.alarm_slot


@virtual.timed
async def test_documented_metrics_and_metrics_agree() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations" / "operating.md").read_text()
    documented = set(re.findall(r"^\| `((?:covey|process|python)_[a-z_]+)", text, re.MULTILINE))

    world = World(CONFIG, FUNCTIONS, dimension=1)
    metrics = Metrics({})
    metrics.follow(world.nodes["site0"])
    made = set(re.findall(r"^# TYPE (\w+)", metrics.page().body.decode(), re.MULTILINE))

    assert made == documented


def test_the_state_of_a_site_is_readable_as_json_and_labels_are_of_all_starts(
    tmp_path: Path,
) -> None:
    def arms(told: Any) -> list[tuple[Any, ...]]:
        keys = ("name", "kind", "decisions", "labels", "right", "version")
        return [tuple(arm[key] for key in keys) for arm in told["arms"]]

    async def story(client: Client) -> None:
        for id_ in "abc":
            await client.post(INFER, infer(id_))
        await client.post(FEEDBACK, {"id": "a", "truth": 0})
        status, told = await client.get(STATE)

        assert (status, told["name"], told["is_ready"], told["slot"]) == (200, "north", True, 3)
        assert (told["starts"], told["phases"], told["open_tickets"]) == (1, {"explore": 3}, 2)
        assert arms(told) == [("zero", "own", 2, 1, 1, "0"), ("one", "own", 1, 0, 0, "1")]

    async def again(client: Client) -> None:
        _, told = await client.get(STATE)
        assert (told["starts"], told["phases"], told["open_tickets"]) == (2, {}, 2)
        assert arms(told) == [("zero", "own", 0, 1, 1, "0"), ("one", "own", 0, 0, 0, "1")]

    run(tmp_path, story)
    run(tmp_path, again)


@virtual.timed
async def test_calls_to_peers_are_counted_and_timed_however_they_end() -> None:
    metrics = Metrics()
    for error in (None, ConnectionError(), PeerBusy("busy", wait_s=1.0), TimeoutError()):
        with contextlib.suppress(ConnectionError, PeerBusy, TimeoutError):
            async with asyncio.timeout(5):
                with metrics.calling("south", "ask"):
                    if isinstance(error, TimeoutError):
                        await asyncio.sleep(1e9)
                    elif error is not None:
                        raise error
    told = metrics.page().body.decode()
    for outcome in ("answered", "failed", "busy", "given_up"):
        assert f'covey_peer_requests_total{{outcome="{outcome}",peer="south"}} 1.0' in told
    assert 'covey_peer_request_duration_seconds_sum{peer="south"} 5.0' in told
