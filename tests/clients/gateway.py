"""The real program, started on private ports with a store that is thrown away."""

import os
import socket
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

SEMEL = os.environ.get("SEMEL", str(Path(__file__).parents[2] / "target/release/semel"))

# The program reads its flags from SEMEL_… too: what the person running the tests has set must not reach it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class Certificate:
    """For 127.0.0.1, signed by itself: whoever trusts the file trusts the gateway."""

    file: Path
    key_file: Path

    @classmethod
    def make(cls, folder):
        made = cls(folder / "gateway.pem", folder / "gateway.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "1", "-subj", "/CN=semel", "-addext", "subjectAltName=IP:127.0.0.1",
             "-out", made.file, "-keyout", made.key_file], check=True, capture_output=True)
        return made


class Gateway:
    """`semel gateway` in front of `upstream`, with TLS where it has a certificate; ready when the constructor
    returns."""

    def __init__(self, upstream, folder, *flags, certificate=None):
        listen, admin = "127.0.0.1:%d" % free_port(), "127.0.0.1:%d" % free_port()
        self.url = ("https://" if certificate else "http://") + listen
        if certificate:
            flags += ("--tls-cert", str(certificate.file), "--tls-key", str(certificate.key_file))
        self.ready_url = "http://%s/readyz" % admin
        self.store = "sqlite://%s" % (folder / "semel.db")
        self.log = folder / "gateway.log"
        command = [SEMEL, "gateway", "--upstream", upstream, "--listen", listen, "--admin", admin]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--store", self.store, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=folder, env=ENVIRONMENT)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self, timeout=20):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError("the gateway ended with %d:\n%s" % (self._process.returncode, self.log.read_text()))
            try:
                with urllib.request.urlopen(self.ready_url, timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.01)  # between two looks, not instead of one
        raise AssertionError("not ready after %d s:\n%s" % (timeout, self.log.read_text()))

    def command(self, *arguments):
        """Runs another command of the program beside the running gateway, on the same store."""
        return subprocess.run(
            [SEMEL, *arguments, "--store", self.store],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, env=ENVIRONMENT)

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
