"""The servers that are measured: each started on a free port of this machine, stopped at the end, and asked what it used."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUT = ROOT / "target/bench"
RUN = OUT / "gateway"  # configurations, logs and stores; thrown away
SEMEL = ROOT / "target/release/semel"
TICKS = os.sysconf("SC_CLK_TCK")

UPSTREAM = """
    server {
        listen 127.0.0.1:%(port)d;
        location = /status { stub_status; }
        location / {
            default_type application/json;
            return 200 '{"id":"ch_3PQx2eLkdIwHu7ix","object":"charge","amount":1000,"status":"succeeded"}';
        }
    }
"""

PROXY = """
    upstream service {
        server 127.0.0.1:%(upstream)d;
        keepalive 256;
        keepalive_requests 1000000000;
    }
    server {
        listen 127.0.0.1:%(port)d;
        location / {
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }
    }
"""

NGINX = """
%(user)s
worker_processes 1;
error_log error.log;
pid nginx.pid;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    %(servers)s
}
"""


class Server:
    """A started process with its children, and what they have used of the machine."""

    def __init__(self, name, port, process):
        self.name, self.port, self.process = name, port, process

    def pids(self):
        pid = self.process.pid
        children = Path("/proc/%d/task/%d/children" % (pid, pid)).read_text()
        return [pid, *map(int, children.split())]

    def cpu_seconds(self):
        return sum(cpu_seconds(pid) for pid in self.pids())

    def forget_peak(self):
        for pid in self.pids():
            Path("/proc/%d/clear_refs" % pid).write_text("5")

    def peak_mib(self):
        return sum(peak_kib(pid) for pid in self.pids()) / 1024

    def keep_to(self, cores):
        for pid in self.pids():
            for thread in Path("/proc/%d/task" % pid).iterdir():
                os.sched_setaffinity(int(thread.name), cores)


def cpu_seconds(pid):
    # The command's name stands in parentheses and may hold spaces; the fields count from behind it.
    fields = Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_kib(pid):
    for line in Path("/proc/%d/status" % pid).read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


@contextlib.contextmanager
def nginx(name, servers, **values):
    folder, port = new_folder(name), free_port()
    # Started by root, its worker would become a user who may not enter this folder.
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX % {"user": user, "servers": servers % {"port": port, **values}})
    command = ["nginx", "-p", folder, "-c", "nginx.conf", "-e", "error.log", "-g", "daemon off;"]
    with listening(name, port, command, folder) as server:
        yield server


@contextlib.contextmanager
def semel(upstream, store=None, *options):
    """A gateway on a new store; or on one that is there, as after a restart."""
    folder = new_folder("semel")
    port, admin = free_port(), free_port()
    command = [
        SEMEL, "gateway", "--upstream", "http://127.0.0.1:%d" % upstream.port, "--listen", "127.0.0.1:%d" % port,
        "--admin", "127.0.0.1:%d" % admin, "--store", "sqlite://%s" % (store or folder / "semel.db"),
        # No line for each request, as nginx writes no access log here.
        "--log", "warn", *options,
    ]
    ready = "http://127.0.0.1:%d/readyz" % admin
    with started("semel", port, command, folder) as server:
        wait_until(server, lambda: urllib.request.urlopen(ready, timeout=2).status == 200)
        yield server


@contextlib.contextmanager
def listening(name, port, command, folder=None):
    """A server that is ready when it can be connected to."""
    with started(name, port, command, folder or new_folder(name)) as server:
        wait_until(server, lambda: socket.create_connection(("127.0.0.1", port), 1).close() or True)
        yield server


@contextlib.contextmanager
def started(name, port, command, folder):
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    try:
        yield Server(name, port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(server, ready, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        try:
            if ready():
                return
        except OSError:
            time.sleep(0.01)  # between two looks, not instead of one
    sys.exit("bench: %s did not start:\n%s" % (server.name, (RUN / server.name / "log").read_text()[-2000:]))


def new_folder(name):
    folder = RUN / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def served(upstream):
    """How many requests the upstream has answered, this look included."""
    text = urllib.request.urlopen("http://127.0.0.1:%d/status" % upstream.port, timeout=5).read().decode()
    return int(text.splitlines()[2].split()[2])
