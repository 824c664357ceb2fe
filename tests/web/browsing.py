"""What tests of pages share: the parts they need, a server, and a driver."""

import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "export" / "web"
HERE = Path(__file__).parent
SCREENSHOTS = ROOT / "build" / "web"  # kept, to be looked at


def browser(*folders):
    """Chromium; skips where it is missing, or what npm puts in folders."""
    for name in ("node", "npm"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is missing: apt-get install nodejs npm")
    for folder in folders or (PAGE, HERE):
        if not (folder / "node_modules").is_dir():
            where = folder.relative_to(ROOT)
            pytest.skip(f"{where}/node_modules is missing: make test-web")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip("Chromium is missing: apt-get install chromium")


def copy_of_page(folder):
    """The folder of the pages, for files of a test's own beside them."""
    site = folder / "site"
    ignored = shutil.ignore_patterns("node_modules", "*.tflite", "*.json")
    shutil.copytree(PAGE, site, ignore=ignored)
    (site / "node_modules").symlink_to(PAGE / "node_modules")
    return site


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(site):
    """The address of a server of a folder."""
    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def node(script, *arguments):
    """What a script of node prints, with arguments, as JSON."""
    if shutil.which("node") is None:
        pytest.skip("node is missing: apt-get install nodejs")
    run = subprocess.run(
        ["node", "-e", script, "--", *map(str, arguments)],
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=60,
    )
    return json.loads(run.stdout)


def drive(driver, folder, site, folders=(), out=SCREENSHOTS, **settings):
    """What a driver of a page in Chromium prints."""
    chromium = browser(*folders)
    out.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.json"
    with served(site) as url:
        file.write_text(
            json.dumps(
                {
                    "chromium": chromium,
                    "profile": str(folder / "profile"),
                    "url": url,
                    "out": str(out),
                    **settings,
                }
            )
        )
        run = subprocess.run(
            ["node", HERE / driver, file],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)
