"""The Helm chart: what it renders is valid, and our own parsers accept it. `make test-chart`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from hqueue import Settings
from hqueue.cli.app import app
from hqueue_workers.console.settings import ConsoleSettings
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings
from hqueue_workers.probe import probe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.chart

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "hqueue"
KUBERNETES = ("1.25", "1.30", "1.37")
FOREIGN = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of Prometheus' operator, whose schemas Kubernetes does not have."""

SECTIONS = {"worker": WorkerSettings, "hub": HubSettings, "console": ConsoleSettings}
END_MS = 15_000
"""What a role may take to end, besides `drain_ms`: registrations, then connections."""

MINIMAL = {"settings": {"zookeeper": "zk:2181"}}
FULL: dict[str, Any] = {
    "settings": {
        "zookeeper": "zk-0.zk:2181,zk-1.zk:2181",
        "operation_timeout_ms": 45_000,
        "hbase_authentication": "kerberos",
        "zookeeper_authentication": "digest",
        "hbase_masters": ["m1:16000", "m2:16000"],
    },
    "tls": {"secretName": "hqueue-tls"},
    "kerberos": {"principal": "hqueue@X.ORG", "keytabSecretName": "kt", "configMapName": "krb5"},
    "zookeeperAuth": {"secretName": "zk"},
    "besideRegionServers": {"labels": {"app": "hbase-regionserver"}, "namespaces": ["hbase"]},
    "worker": {
        "settings": {"drain_ms": 15_500, "push": True},
        "extraArgs": ["--poll-ms-max", "500ms"],
        "regionHostIsNode": True,
    },
    "hub": {
        "enabled": True,
        "queues": ["events", "jobs"],
        "settings": {"authorizer": "rules", "administrators": "admin,ops*"},
        "hostIsNode": True,
    },
    "api": {"enabled": True, "settings": {"api_idle_ms": 60_000}},
    "console": {
        "enabled": True,
        "settings": {"host_names": "console.example.com", "allow_changes": True},
        "spnegoKeytabSecretName": "console-keytab",
    },
    "serviceMonitor": {"enabled": True, "tlsSecretName": "prometheus-tls"},
    "prometheusRule": {"enabled": True},
    "grafanaDashboard": {"enabled": True},
    "networkPolicy": {"enabled": True},
}


class Container(NamedTuple):
    """A container, and what its pod gives it."""

    args: list[str]
    environ: dict[str, str]
    file: str
    spec: dict[str, Any]
    pod: dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("helm", path=f"{ROOT / '.tools'}{os.pathsep}{os.environ.get('PATH', '')}")
    assert found, "there is no helm here: `make test-chart` installs it with Go"
    return subprocess.run(
        [found, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def render(values: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    import yaml  # noqa: PLC0415  (`make test-chart` installs it)

    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values), "utf-8")
    return helm("template", "x", str(CHART), "--kube-version", "1.30.0", "--values", str(path))


@pytest.fixture(params=[MINIMAL, FULL], ids=["minimal", "full"])
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> list[dict[str, Any]]:
    """The objects that the chart makes of values."""
    import yaml  # noqa: PLC0415

    ended = render(request.param, tmp_path)
    assert ended.returncode == 0, ended.stderr
    return [each for each in yaml.safe_load_all(ended.stdout) if each]


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """A variable's value, in which earlier variables stand as Kubernetes writes them."""
    return re.sub(r"\$\((\w+)\)", lambda name: environ[name[1]], text)


def containers(rendered: list[dict[str, Any]]) -> Iterator[Container]:
    """The containers, with the variables that Kubernetes would set."""
    files = {each["metadata"]["name"]: each for each in rendered if each["kind"] == "ConfigMap"}
    known = {"POD_NAME": "pod-0", "POD_NAMESPACE": "default", "NODE_NAME": "node1"}
    for each in rendered:
        if each["kind"] not in ("StatefulSet", "Deployment"):
            continue
        pod = each["spec"]["template"]["spec"]
        (spec,) = pod["containers"]
        environ: dict[str, str] = {}
        for variable in spec["env"]:
            given = variable.get("value", known.get(variable["name"]))
            assert isinstance(given, str), variable
            environ[variable["name"]] = expanded(given, environ)
        file = files[each["metadata"]["name"]]["data"]["hqueue.toml"]
        yield Container(spec["args"], environ, file, spec, pod)


def test_helm_finds_nothing_wrong() -> None:
    ended = helm("lint", str(CHART), "--strict", "--kube-version", "1.30.0")
    assert ended.returncode == 0, ended.stdout


def test_each_object_is_what_kubernetes_expects(rendered: list[dict[str, Any]]) -> None:
    import kubernetes_validate  # noqa: PLC0415  (`make test-chart` installs it)

    checked = [each for each in rendered if each["kind"] not in FOREIGN]
    assert {"StatefulSet", "Service", "PodDisruptionBudget"} <= {each["kind"] for each in checked}
    for each in checked:
        for version in KUBERNETES:
            kubernetes_validate.validate(each, version, strict=True)


def test_no_two_objects_have_one_name(rendered: list[dict[str, Any]]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered]
    assert len(names) == len(set(names))


def test_our_own_parser_accepts_the_arguments(rendered: list[dict[str, Any]]) -> None:
    root = typer.main.get_command(app)
    for container in containers(rendered):
        name, *rest = container.args
        with root.make_context("hqueue", [name], resilient_parsing=True) as context:
            command = root.get_command(context, name)  # type: ignore[attr-defined]
            assert command is not None
            command.make_context(name, rest, parent=context)


def test_our_own_settings_accept_the_files_and_variables(
    rendered: list[dict[str, Any]], tmp_path: Path
) -> None:
    for container in containers(rendered):
        path = tmp_path / "hqueue.toml"
        path.write_text(container.file, "utf-8")
        environ = {**container.environ, "HQUEUE_CONFIG": str(path)}
        connection = Settings.load(None, environ)
        assert connection.zookeeper.startswith("zk")
        (section,) = SECTIONS.keys() & tomllib.loads(container.file).keys()
        found = SECTIONS[section].load(None, environ)
        command = container.spec["readinessProbe"]["exec"]["command"]
        assert command[2:] == ["hqueue_workers.probe", section]
        assert probe(section, environ=environ)  # Nothing answers, and no setting is wrong.
        ports = {each["containerPort"] for each in container.spec["ports"]}
        metrics = getattr(found, "metrics_port", None)
        assert getattr(found, "port", 0) in {*ports, 0}
        assert metrics is None or metrics in ports
        drain_ms = getattr(found, "drain_ms", 0)
        grace_ms = 1_000 * container.pod["terminationGracePeriodSeconds"]
        assert grace_ms >= drain_ms + END_MS


def test_prometheus_reaches_the_metrics_of_each_role(
    rendered: list[dict[str, Any]], tmp_path: Path
) -> None:
    pods = [each for each in rendered if each["kind"] in ("StatefulSet", "Deployment")]
    named = {(each["kind"], each["metadata"]["name"]): each for each in rendered}
    monitors = [each for each in rendered if each["kind"] == "ServiceMonitor"]
    for each, container in zip(pods, containers(rendered), strict=True):
        name, labels = each["metadata"]["name"], each["spec"]["template"]["metadata"]["labels"]
        path = tmp_path / "hqueue.toml"
        path.write_text(container.file, "utf-8")
        (section,) = SECTIONS.keys() & tomllib.loads(container.file).keys()
        settings: Any = SECTIONS[section].load(
            None, {**container.environ, "HQUEUE_CONFIG": str(path)}
        )
        assert settings.metrics_host == "0.0.0.0"
        service = named["Service", name]
        assert service["spec"]["selector"].items() <= labels.items()
        ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        assert ports["metrics"] == settings.metrics_port
        for monitor in monitors:
            wanted = monitor["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= service["metadata"]["labels"].items()
            assert [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]] == ["metrics"]
        policy = named.get(("NetworkPolicy", name))
        if policy is not None:
            opened = [rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]]
            assert sorted(opened) == sorted(ports.values())


def test_files_lie_where_the_settings_look_for_them(rendered: list[dict[str, Any]]) -> None:
    for container in containers(rendered):
        mounted = [each["mountPath"] for each in container.spec["volumeMounts"]]
        for path in re.findall(r'"(/etc/hqueue/[^"]+)"', container.file):
            assert str(Path(path).parent) in mounted
        volumes = {each["name"] for each in container.pod["volumes"]}
        assert {each["name"] for each in container.spec["volumeMounts"]} == volumes


def test_pods_have_no_more_rights_than_they_need(rendered: list[dict[str, Any]]) -> None:
    for container in containers(rendered):
        assert container.pod["securityContext"]["runAsNonRoot"] is True
        assert container.pod["automountServiceAccountToken"] is False
        assert container.pod["enableServiceLinks"] is False
        assert container.spec["securityContext"]["readOnlyRootFilesystem"] is True
        assert container.spec["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"workers": {}}, "workers"),
        ({"worker": {"replicas": "three"}}, "replicas"),
        ({"worker": {"settings": {"Drain-ms": 1}}}, "Drain-ms"),
        ({"hub": {"enabled": True}}, "hub.queues must name the queues"),
        ({"console": {"enabled": True}}, "console.settings.host_names"),
        ({"tls": {"secretName": "t"}, "serviceMonitor": {"enabled": True}}, "tlsSecretName"),
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any], text: str, tmp_path: Path) -> None:
    ended = render(values, tmp_path)
    assert ended.returncode != 0
    assert text in ended.stderr
