"""Runs the tests of the workspace: builds all of them, then runs the test programs, some beside one another.

    run_tests.py BESIDE [ARGUMENT OF cargo test ...]

`cargo test` runs one program after the other, and many of ours wait for a server, a lease or a killed process most of
their time. Rules:

1. A program is run as cargo runs it: in its package's folder, with every test in it, whatever the others do.
2. What it prints is shown whole when it has ended, so that programs do not write into one another.
3. A failure stops nothing. The exit code is 1 when a program, or a doc test, failed.
4. The longest come first (LONGEST): the end is then not one program alone. The list says nothing about what is run.

Tests of one program share servers (testbed/), programs share none: so two of them cannot disturb one another, but by the
time they take from each other.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

LONGEST = ("ledger", "bad_days", "contract_postgres", "transaction", "gateway", "amqp", "transport", "postgres", "shared")


def build(arguments):
    """Builds, and returns each test program as (name, file, folder of its package)."""
    cargo = subprocess.Popen(
        ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments], stdout=subprocess.PIPE, text=True
    )
    programs = []
    for line in cargo.stdout:
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            folder = pathlib.Path(message["manifest_path"]).parent
            programs.append((f"{folder.name}: {message['target']['name']}", message["executable"], folder))
    if cargo.wait() != 0:
        sys.exit(1)
    if not programs:
        sys.exit("run_tests.py: cargo built no test program")
    return programs


def place(program):
    """Where a program comes in the order: the longest first, the others as cargo named them."""
    name = program[0].split(": ")[1]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def run(program):
    _, file, folder = program
    started = time.monotonic()
    ended = subprocess.run(
        [file], cwd=folder, env={**os.environ, "CARGO_MANIFEST_DIR": str(folder)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    return ended.returncode, ended.stdout, time.monotonic() - started


def main():
    beside, arguments = int(sys.argv[1]), sys.argv[2:]
    programs = sorted(build(arguments), key=place)
    failed = []
    with ThreadPoolExecutor(beside) as pool:
        running = {pool.submit(run, program): program[0] for program in programs}
        for ended in as_completed(running):
            code, printed, seconds = ended.result()
            print(f"--- {running[ended]}, {seconds:.1f} s\n{printed}", flush=True)
            if code != 0:
                failed.append(f"{running[ended]} (exit code {code})")
    if subprocess.run(["cargo", "test", "--doc", *arguments]).returncode != 0:
        failed.append("doc tests")
    print(f"{len(programs)} test programs and the doc tests; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
