"""The files of deploy/: the tools that read them accept them, and they say what is true."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from covey.server import tokens
from covey.server.conditions import REMEDIES
from support.required import program
from support.site_processes import Offices, started, table

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
OPERATING = ROOT / "docs" / "operations" / "operating.md"
MOST_EXPOSED = 2.0  # of 10, as systemd-analyze rates it


def run(*words: object, **more: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, **more
    )


def test_the_service_is_little_exposed() -> None:
    done = run(program("systemd-analyze"), "security", "--offline=true", DEPLOY / "covey.service")
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot rate a file (it is older than 250)")

    level = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert level is not None, done.stderr
    assert float(level[1]) <= MOST_EXPOSED


def test_systemd_finds_nothing_wrong_in_the_service(tmp_path: Path) -> None:
    for name in ("covey.service", "covey-renew.service", "covey-renew.timer"):
        text = (DEPLOY / name).read_text().replace("/opt/covey/bin/covey", sys.executable)
        (tmp_path / name).write_text(text)

        done = run(program("systemd-analyze"), "verify", "--man=no", tmp_path / name)

        assert name not in done.stderr


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    found = manifests()

    for one in found:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    assert [one["kind"] for one in found] == ["Service", "StatefulSet"]
    found[1]["spec"]["replicas"] = "one"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found[1], kubernetes_validate.latest_version(), strict=True)


def test_the_command_of_the_pod_starts_a_site_with_the_default_policy(tmp_path: Path) -> None:
    """The files are those that the manifest names, in another folder and at free ports."""
    (container,) = manifests()[1]["spec"]["template"]["spec"]["containers"]
    offices = Offices(tmp_path, ["north"])
    tokens.new(tmp_path / "tokens.json", "app", scopes=["infer"])
    node = offices.node(
        "north", tokens="tokens.json", tls=True, features={"size": "FP64"}, dimension=1
    )
    learner = table("[[learner]]", {"name": "north", "functions": ["zero"]})
    function = table("[[function]]", {"name": "zero", "kind": "constant", "label": 0})
    site = tmp_path / "site.toml"
    site.write_text(f"{node}\n{learner}\n{function}")
    words = [str(site) if one == "/etc/covey/site/site.toml" else one for one in container["args"]]

    with started(*words) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "serves clients at https://" in line:
                process.terminate()

    assert process.returncode == 0, lines


def expressions() -> list[str]:
    """Return the queries of the dashboard, with its variables filled in."""
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(found) > 15
    return [one.replace("$__rate_interval", "5m").replace("$site", ".*") for one in found]


def test_alerts_and_dashboard_use_metrics_that_are_documented() -> None:
    text = OPERATING.read_text()
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))
    alerts = (DEPLOY / "alerts.yml").read_text()
    queries = re.findall(r"`([^`]*\b(?:covey|process)_[^`]*)`", text)
    used = {
        name.removesuffix("_bucket")
        for one in [alerts, *expressions(), *queries]
        for name in re.findall(r"\b(?:covey|process)_[a-z_]+", one)
    }

    assert len(used) > 20
    assert used <= documented


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_prometheus_takes_the_configuration_the_alerts_and_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:number_{k}", "expr": expr} for k, expr in enumerate(expressions())]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))

    for words in (
        ("rules", DEPLOY / "alerts.yml"),
        ("rules", tmp_path / "board.yml"),
        ("config", "--syntax-only", DEPLOY / "prometheus.yml"),
    ):
        done = run(program("promtool"), "check", *words)
        assert done.returncode == 0, done.stderr


STEPS, BAD = 2_304, 144  # of 5 minutes: eight days, and the last half of a day
CALM = {
    "up": "1+0x2304",
    'covey_labels_total{state="joined"}': "0+10x2304",
    'covey_decisions_total{phase="explore"}': "0+10x2304",
    'covey_arm_labels_total{arm="rules"}': "0+10x2304",
    'covey_arm_labels_right_total{arm="rules"}': "0+9x2304",
    'covey_alarms_total{space=""}': "0+0x2304",
    'covey_http_requests_total{side="front", status="200"}': "0+100x2304",
    'covey_http_requests_total{side="front", status="500"}': "0+0x2304",
}
ALERTS: dict[str, tuple[str, str]] = {
    "CoveySiteDown": ("up", "1+0x2160 0+0x144"),
    **{
        f"CoveyCondition{kind.title()}": (f'covey_condition{{kind="{kind}"}}', "0+0x2160 1+0x144")
        for kind in REMEDIES
    },
    "CoveyLabelsStopped": ('covey_labels_total{state="joined"}', "0+10x2160 21600+0x144"),
    "CoveyErrorRateRose": ('covey_arm_labels_right_total{arm="rules"}', "0+9x2160 19440+5x144"),
    "CoveyManyAlarms": ('covey_alarms_total{space=""}', "0+0x2160 1+1x144"),
    "CoveyServerErrors": (
        'covey_http_requests_total{side="front", status="500"}',
        "0+0x2160 2+2x144",
    ),
}


def _test_of(alert: str) -> dict[str, Any]:
    """Return a test of promtool that an alert fires for its cause, and no other one."""
    series = CALM | dict([ALERTS[alert]] if alert else [])
    fired = {alert} - {""}
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(fired)]
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "name": alert,
        "interval": "5m",
        "input_series": [
            {"series": _at_a_site(name), "values": values} for name, values in series.items()
        ],
        "promql_expr_test": [{"expr": firing, "eval_time": "8d", "exp_samples": samples}],
    }


def test_an_alert_fires_for_its_cause_and_not_without(tmp_path: Path) -> None:
    rules = {"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "2h"}
    test = {**rules, "tests": [_test_of(alert) for alert in ("", *ALERTS)]}
    (tmp_path / "test.yml").write_text(json.dumps(test))

    done = run(program("promtool"), "test", "rules", tmp_path / "test.yml")

    assert done.returncode == 0, done.stdout + done.stderr


def _at_a_site(series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{job="covey", instance="north:8080", {labels or "}"}'


def test_every_alert_has_a_cause_that_is_tested() -> None:
    found = re.findall(r"- alert: (\w+)", (DEPLOY / "alerts.yml").read_text())

    assert found
    assert sorted(found) == sorted(ALERTS)


def test_the_image_is_built_from_files_that_are_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [
        word for line in re.findall(r"^COPY (?!--)(.+)$", text, re.M) for word in line.split()
    ]
    admitted = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.M)

    sources = [word for word in copied if word != "./"]
    assert sorted(set(sources)) == sorted(admitted)
    assert all((ROOT / word).exists() for word in sources)


def test_the_page_on_operating_names_every_file() -> None:
    text = OPERATING.read_text()
    others = {"Dockerfile.dockerignore", "dist.py"}  # the latter builds releases
    files = {path.name for path in DEPLOY.iterdir()} - others

    assert len(files) >= 6
    assert {name for name in files if f"deploy/{name}" not in text} == set()
