"""The recipes of deployment are what their readers take."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

EXPORT = Path(__file__).parents[2] / "export"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((EXPORT / "tf_serving/compose.yml").read_text())


# Of the Compose specification what the recipe uses, so that a misspelt key is
# an error.
KEYS = {
    *("image", "command", "environment", "ports", "volumes", "healthcheck"),
    *("depends_on", "read_only", "cap_drop", "security_opt", "restart"),
}
HEALTH = {"test", "interval", "timeout", "start_period", "retries"}


def test_compose_file(compose):
    services = compose["services"]
    for service in services.values():
        assert service.keys() <= KEYS
        assert service.get("healthcheck", {}).keys() <= HEALTH
        # One version, for this machine alone, which it cannot write to.
        assert re.search(r":(\$\{\w+:-)?v?\d[\d.]+\}?$", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert all(each["read_only"] for each in service.get("volumes", []))
        for name in service.get("depends_on", {}):
            assert "healthcheck" in services[name]


def test_prometheus_scrapes_what_is_served(compose):
    config = yaml.safe_load((EXPORT / "tf_serving/prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    host, port = scrape["static_configs"][0]["targets"][0].split(":")
    ports = compose["services"][host]["ports"]
    assert any(entry.endswith(f":{port}") for entry in ports)


def test_health_check_asks_for_every_model(compose, tmp_path):
    """Its shell script, against a server that answers as the image does."""
    import http.server
    import threading

    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    available, asked = set(), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            there = self.path.rpartition("/")[2] in available
            self.send_response(200 if there else 404)
            self.end_headers()
            if there:
                answer = {"model_version_status": [{"state": "AVAILABLE"}]}
                self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    make_configs = runpy.run_path(str(EXPORT / "tf_serving/make_configs.py"))
    config = tmp_path / "models.config"
    test = compose["services"]["serving"]["healthcheck"]["test"]
    assert test[:3] == ["CMD", "bash", "-c"]
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    script = test[3].replace("$$", "$")
    script = script.replace("/8501", f"/{server.server_port}")
    script = script.replace("/config/models.config", str(config))

    def check():
        command = [bash, "-c", script]
        return subprocess.run(command, capture_output=True).returncode

    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        assert check() == 1  # nothing is to be served
        config.write_text(
            make_configs["models_config"]({"judge": "/a", "other-1.2": "/b"})
        )
        for there, code in (({"judge"}, 1), ({"judge", "other-1.2"}, 0)):
            asked.clear()
            available.update(there)
            assert check() == code
            assert asked == ["/v1/models/judge", "/v1/models/other-1.2"]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert check() == 1  # nobody listens


# ---- KServe


def manifests(name):
    return list(yaml.safe_load_all((EXPORT / "kserve" / name).read_text()))


@pytest.fixture(scope="module")
def service():
    return manifests("inference_service.yaml")[-1]


@pytest.mark.parametrize("name", ["inference_service.yaml", "predictor.yaml"])
def test_inference_service(name):
    service = manifests(name)[-1]
    assert service["apiVersion"] == "serving.kserve.io/v1beta1"
    predictor = service["spec"]["predictor"]
    assert 1 <= predictor["minReplicas"] < predictor["maxReplicas"]
    assert predictor["scaleMetric"] in ("cpu", "memory", "concurrency", "rps")
    assert predictor["scaleTarget"] > 0


def test_prometheus_scrapes_what_kserve_serves(service):
    """TensorFlow Serving has no metrics unless a config names their path."""
    config = manifests("inference_service.yaml")[0]
    ((file, text),) = config["data"].items()
    path = re.search('path: "(.*)"', text)[1]
    predictor = service["spec"]["predictor"]
    (volume,) = predictor["volumes"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    (mount,) = predictor["model"]["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert (
        f"--monitoring_config_file={mount['mountPath']}/{file}"
        in predictor["model"]["args"]
    )
    annotations = service["metadata"]["annotations"]
    for prefix in ("prometheus.io", "prometheus.kserve.io"):
        assert annotations[f"{prefix}/path"] == path
        assert annotations[f"{prefix}/port"] == "8080"  # of the runtime


def test_servers_have_onednn_on_any_processor(compose, service):
    (given,) = service["spec"]["predictor"]["model"]["env"]
    assert (
        compose["services"]["serving"]["environment"]
        == {given["name"]: given["value"]}
        == {"TF_ENABLE_ONEDNN_OPTS": "1"}
    )
