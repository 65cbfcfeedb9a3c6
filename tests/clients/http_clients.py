"""The same POST by every HTTP client: what they send is what their users would send."""

import subprocess
from dataclasses import dataclass

import httpx

import programs

REPLAYED = "Idempotent-Replayed"
FORM = ("Content-Type", "application/x-www-form-urlencoded")
TEN_EUROS = "amount=1000&currency=eur"


@dataclass
class Answer:
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def replayed(self):
        return self.headers.get(REPLAYED) == "true"

    def problem(self):
        assert self.headers["Content-Type"] == "application/problem+json"
        return httpx.Response(200, content=self.body).json()


def curl(url, headers, body):
    command = ["curl", "--silent", "--show-error", "--include", "--max-time", "30", "--data-binary", body]
    for name, value in headers:
        command += ["--header", "%s: %s" % (name, value)]
    output = subprocess.run([*command, url], check=True, capture_output=True, timeout=40).stdout
    head, _, body = output.partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    return Answer(int(status_line.split()[1]), httpx.Headers([line.split(": ", 1) for line in lines]), body)


def by_httpx(url, headers, body):
    with httpx.Client(timeout=30) as client:
        answer = client.post(url, headers=[FORM, *headers], content=body)
    return Answer(answer.status_code, answer.headers, answer.content)


def undici(url, headers, body):
    with programs.node("undici.cjs", "request") as client:
        return ask(client, url, headers, body)


def undici_fetch(url, headers, body):
    with programs.node("undici.cjs", "fetch") as client:
        return ask(client, url, headers, body)


def go(url, headers, body):
    with programs.go() as client:
        return ask(client, url, headers, body)


def ask(client, url, headers, body=TEN_EUROS):
    """A POST by a program that is running already."""
    answer = client.ask(url=url, headers=[FORM, *headers], body=body)
    return Answer(answer["status"], httpx.Headers(answer["headers"]), answer["body"])


CLIENTS = {"curl": curl, "httpx": by_httpx, "undici": undici, "undici's fetch": undici_fetch, "Go": go}
