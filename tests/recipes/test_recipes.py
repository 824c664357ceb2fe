"""The health check of the recipe for TensorFlow Serving."""

import http.server
import json
import runpy
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

EXPORT = Path(__file__).parents[2] / "export"


def test_health_check_asks_for_every_model(tmp_path):
    """Its shell script, against a server that answers as the image does."""
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
    compose = yaml.safe_load((EXPORT / "tf_serving/compose.yml").read_text())
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
