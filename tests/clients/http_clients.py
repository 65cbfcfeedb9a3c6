"""The same POST by every HTTP client: what they send is what their users would send."""

import ssl
import subprocess
from dataclasses import dataclass
from typing import Callable

import httpx

import programs

REPLAYED = "Idempotent-Replayed"
FORM = ("Content-Type", "application/x-www-form-urlencoded")
TEN_EUROS = "amount=1000&currency=eur"


@dataclass
class Answer:
    version: str  # of HTTP: 1.1 or 2
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def replayed(self):
        return self.headers.get(REPLAYED) == "true"

    def problem(self):
        assert self.headers["Content-Type"] == "application/problem+json"
        return httpx.Response(200, content=self.body).json()


@dataclass(frozen=True)
class Client:
    """`post` takes a URL, header lines, a body, and the certificate to trust, if the gateway has one."""

    post: Callable
    version: str = "1.1"
    tls: bool = False
    # It shows one line for each name; the others show what came.
    joins_lines: bool = False


def curl(*flags):
    def post(url, headers, body, certificate=None):
        command = ["curl", "--silent", "--show-error", "--include", "--max-time", "30", "--data-binary", body, *flags]
        if certificate:
            command += ["--cacert", str(certificate)]
        for name, value in headers:
            command += ["--header", "%s: %s" % (name, value)]
        output = subprocess.run([*command, url], check=True, capture_output=True, timeout=40).stdout
        head, _, body = output.partition(b"\r\n\r\n")
        status_line, *lines = head.decode().split("\r\n")
        version, status = status_line.removeprefix("HTTP/").split()[:2]
        return Answer(version, int(status), httpx.Headers([line.split(": ", 1) for line in lines]), body)

    return post


def trusting(certificate):
    return ssl.create_default_context(cafile=certificate)


def by_httpx(url, headers, body, certificate=None):
    tls = {"http2": True, "verify": trusting(certificate)} if certificate else {}
    with httpx.Client(timeout=30, **tls) as client:
        answer = client.post(url, headers=[FORM, *headers], content=body)
    return Answer(answer.http_version.removeprefix("HTTP/"), answer.status_code, answer.headers, answer.content)


def undici(mode):
    def post(url, headers, body, certificate=None):
        with programs.node("undici.cjs", mode, *filter(None, [certificate])) as client:
            return ask(client, url, headers, body)

    return post


def go(url, headers, body, certificate=None):
    with programs.go(*filter(None, [certificate])) as client:
        return ask(client, url, headers, body)


def ask(client, url, headers, body=TEN_EUROS):
    """A POST by a program that is running already."""
    answer = client.ask(url=url, headers=[FORM, *headers], body=body)
    return Answer(answer["version"], answer["status"], httpx.Headers(answer["headers"]), answer["body"])


CLIENTS = {
    "curl": Client(curl()),
    "curl, HTTP/2 known before": Client(curl("--http2-prior-knowledge"), "2"),
    "curl, TLS": Client(curl("--http1.1"), tls=True),
    "curl, TLS and HTTP/2": Client(curl("--http2"), "2", tls=True),
    "httpx": Client(by_httpx),
    "httpx, TLS and HTTP/2": Client(by_httpx, "2", tls=True),
    "undici": Client(undici("request")),
    "undici's fetch": Client(undici("fetch"), joins_lines=True),
    "undici, TLS and HTTP/2": Client(undici("request"), "2", tls=True, joins_lines=True),
    "Go": Client(go),
    "Go, TLS and HTTP/2": Client(go, "2", tls=True),
}
