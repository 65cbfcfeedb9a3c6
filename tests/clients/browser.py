"""A real browser on a page of its own origin, and what the page's script may do and read."""

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

PAGE = (Path(__file__).parent / "browser/page.html").read_bytes()

# A new profile, no sandbox (which root cannot have), and no word to the outside.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-quic", "--disable-extensions",
    # Every name is one that does not exist; the pages here have addresses.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--no-proxy-server",
]


@dataclass
class Read:
    """What the script could read of an answer; nothing where `failed`."""

    failed: "str | None"
    status: "int | None" = None
    headers: "httpx.Headers | None" = None
    body: "str | None" = None

    def json(self):
        return json.loads(self.body)


def chromium():
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert found, "no Chromium: ./test setup installs it"
    return found


class Page:
    """A web server whose one page makes the calls that it is told to."""

    def __init__(self):
        self._reports = queue.Queue()
        self._calls = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.origin = "http://127.0.0.1:%d" % self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def open(self, profile, *calls, timeout=60):
        """Opens the page in a new browser, which makes the calls, and returns what the script read of each."""
        self._calls = calls
        with (profile / "browser.log").open("wb") as log:
            browser = subprocess.Popen(
                [chromium(), *FLAGS, "--user-data-dir=%s" % (profile / "chromium"), "--remote-debugging-port=0",
                 self.origin + "/"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            return self._reports.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError("no report from the page; the browser said:\n%s"
                                 % (profile / "browser.log").read_text()[-3000:]) from None
        finally:
            # What was started is a script, and the browser its child, with more of its own: the session's group.
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()

    def _handler(page):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if self.path == "/calls":
                    return self._send("application/json", json.dumps(page._calls).encode())
                if self.path == "/":
                    return self._send("text/html", PAGE)
                self.send_error(404)

            def do_POST(self):
                report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                # Answered first: the browser is ended by whoever reads the report.
                self._send("text/plain", b"")
                page._reports.put([
                    Read(one.get("failed"), one.get("status"), httpx.Headers(one.get("headers", [])), one.get("body"))
                    for one in report
                ])

            def _send(self, content_type, body):
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler
