"""Writes models.config and monitoring.config for TensorFlow Serving.

    python export/tf_serving/make_configs.py models/judge models/other

BASE_PATH is the folder of a model's versions; the server sees it as
/models/NAME (--server-path). Both files go beside this script (--out), in the
place of those of an earlier call: name every model that is to be served.

The first is a tensorflow.serving.ModelServerConfig, the second a
MonitoringConfig, a message that no Python package has.
"""

import argparse
import re
import sys
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

MONITORING = """\
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""


def models_config(server_paths):
    config = model_server_config_pb2.ModelServerConfig()
    for name, server_path in server_paths.items():
        model = config.model_config_list.config.add()
        model.name = name
        model.base_path = server_path
        model.model_platform = "tensorflow"
    return text_format.MessageToString(config)


def has_versions(folder):
    return any(path.name.isdigit() for path in folder.glob("*"))


def what_is_wrong(base_path):
    """Why nothing can be served from a folder, or None."""
    if has_versions(base_path):
        return None
    reason = f"'{base_path}' has no versions"
    if base_path.name.isdigit() and base_path.is_dir():
        return f"{reason}: it is one, of '{base_path.parent}'"
    near = [f"'{path}'" for path in base_path.glob("*") if has_versions(path)]
    return f"{reason}: {', '.join(sorted(near))} has" if near else reason


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base_paths", nargs="+", type=Path, metavar="BASE_PATH")
    parser.add_argument("--name", help="the model's; the folder's by default")
    parser.add_argument("--server-path", help="/models/NAME by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    if len(options.base_paths) > 1 and (options.name or options.server_path):
        sys.exit("--name and --server-path are for one BASE_PATH")
    server_paths = {}
    for base_path in options.base_paths:
        if reason := what_is_wrong(base_path):
            sys.exit(reason)
        name = options.name or base_path.resolve().name
        if not re.fullmatch("[A-Za-z0-9_.-]+", name):
            sys.exit(f"--name must be a part of an address, not {name!r}")
        if name in server_paths:
            sys.exit(f"Two models cannot both be {name!r}")
        server_paths[name] = options.server_path or f"/models/{name}"
    options.out.mkdir(parents=True, exist_ok=True)
    for file, text in (
        ("models.config", models_config(server_paths)),
        ("monitoring.config", MONITORING),
    ):
        (options.out / file).write_text(text)
        print(f"Wrote {options.out / file}")


if __name__ == "__main__":
    sys.exit(main())
