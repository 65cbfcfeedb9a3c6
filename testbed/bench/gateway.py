"""What the gateway costs beside a plain proxy. Run through `./bench gateway`, which says what is measured."""

import argparse
import contextlib
import json
import os
import platform
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import picture

ROOT = Path(__file__).parents[2]
OUT = ROOT / "target/bench"
RUN = OUT / "gateway"  # configurations, logs and the store; thrown away
SEMEL = ROOT / "target/release/semel"
CONNECTIONS = (32, 128)
TICKS = os.sysconf("SC_CLK_TCK")

# name, which server answers, which keys the requests carry
CONTENDERS = (
    ("nginx answering itself", "upstream", "new"),
    ("nginx as plain proxy", "proxy", "new"),
    ("Semel, fresh keys", "semel", "new"),
    ("Semel, replays", "semel", "known"),
    ("Semel, no key", "semel", "absent"),
)
BASE = "nginx as plain proxy"

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


def main():
    options = arguments()
    # A run that is told to stop stops its servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir(parents=True)
    print("fdatasync of 4 KiB here: %.0f µs" % (fdatasync_seconds() * 1e6))
    samples, faults = [], []
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(nginx("upstream", UPSTREAM))
        proxy = stack.enter_context(nginx("proxy", PROXY, upstream=upstream.port))
        for number in range(options.rounds):
            for connections in CONNECTIONS:
                # A new store each time, so that no round pays for the rows of the ones before.
                with semel(upstream) as gateway:
                    servers = {"upstream": upstream, "proxy": proxy, "semel": gateway}
                    for contender in CONTENDERS:
                        sample = measure(contender, connections, options.seconds, servers)
                        faults += faults_of(sample)
                        samples.append(sample)
                        print("round %d, %3d connections, %-22s %9.0f /s" % (
                            number + 1, connections, sample["name"], sample["rate"]), flush=True)
    shutil.rmtree(RUN)
    report(options, samples, faults)
    sys.exit(1 if faults else 0)


def arguments():
    parser = argparse.ArgumentParser(prog="./bench gateway")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=positive, default=8)
    return parser.parse_args()


def positive(text):
    if (number := int(text)) < 1:
        raise ValueError
    return number


# --- servers -------------------------------------------------------------------------------------------------------


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
    folder, port = RUN / name, free_port()
    folder.mkdir()
    # Started by root, its worker would become a user who may not enter this folder.
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX % {"user": user, "servers": servers % {"port": port, **values}})
    command = ["nginx", "-p", folder, "-c", "nginx.conf", "-e", "error.log", "-g", "daemon off;"]
    with started(name, port, command, folder) as server:
        wait_until(server, lambda: socket.create_connection(("127.0.0.1", port), 1).close() or True)
        yield server


@contextlib.contextmanager
def semel(upstream):
    folder = RUN / "semel"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    port, admin = free_port(), free_port()
    command = [
        SEMEL, "gateway", "--upstream", "http://127.0.0.1:%d" % upstream.port, "--listen", "127.0.0.1:%d" % port,
        "--admin", "127.0.0.1:%d" % admin, "--store", "sqlite://%s" % (folder / "semel.db"),
        # No line for each request, as nginx writes no access log here.
        "--log", "warn",
    ]
    with started("semel", port, command, folder) as server:
        wait_until(server, lambda: urllib.request.urlopen("http://127.0.0.1:%d/readyz" % admin, timeout=2).status == 200)
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
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(server, ready, seconds=20):
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def served(upstream):
    """How many requests the upstream has answered, these looks included."""
    text = urllib.request.urlopen("http://127.0.0.1:%d/status" % upstream.port, timeout=5).read().decode()
    return int(text.splitlines()[2].split()[2])


# --- one turn ------------------------------------------------------------------------------------------------------


def measure(contender, connections, seconds, servers):
    name, target, keys = contender
    if keys == "known":
        fill(servers)
    involved = [servers["upstream"]] + [servers[target]] * (target != "upstream")
    for server in involved:
        server.forget_peak()
    before = {server.name: server.cpu_seconds() for server in involved}
    served_before, wrk_before = served(servers["upstream"]), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = wrk(servers[target].port, keys, connections, seconds)
    wrk_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = {server.name: server.cpu_seconds() - before[server.name] for server in involved}
    cpu["wrk"] = wrk_after.ru_utime + wrk_after.ru_stime - wrk_before.ru_utime - wrk_before.ru_stime
    return {
        "name": name,
        "keys": keys,
        "connections": connections,
        "rate": result["requests"] / result["seconds"],
        "served_by_upstream": served(servers["upstream"]) - served_before - 1,
        "cpu_us_per_request": {part: used * 1e6 / result["requests"] for part, used in cpu.items()},
        "peak_mib": {server.name: server.peak_mib() for server in involved},
        **result,
    }


def wrk(port, keys, connections, seconds):
    command = ["wrk", "-t", "2", "-c", str(connections), "-d", "%ds" % seconds, "--timeout", "10s",
               "-s", str(Path(__file__).with_name("load.lua")), "http://127.0.0.1:%d" % port,
               "--", keys, str(random.getrandbits(40))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    sys.exit("bench: wrk said no result:\n" + done.stdout + done.stderr)


def fill(servers):
    """Sends the known keys until a whole turn is served without the upstream."""
    for _ in range(30):
        before = served(servers["upstream"])
        wrk(servers["semel"].port, "known", 32, 1)
        if served(servers["upstream"]) - before == 1:
            return
    # The turn itself will show that these are no replays.


def faults_of(sample):
    """Why this turn does not count, if it doesn't: an error is quick to answer, and a replay must be one."""
    where = "%s at %d connections: " % (sample["name"], sample["connections"])
    faults = []
    if sample["refused"]:
        faults.append(where + "%d answers that are not 2xx or 3xx" % sample["refused"])
    if sample["socket_errors"]:
        faults.append(where + "%d socket errors" % sample["socket_errors"])
    if sample["keys"] == "known" and sample["served_by_upstream"]:
        faults.append(where + "%d replays reached the upstream" % sample["served_by_upstream"])
    if sample["keys"] != "known" and sample["served_by_upstream"] < sample["requests"]:
        faults.append(where + "%d of %d requests reached the upstream" % (
            sample["served_by_upstream"], sample["requests"]))
    return faults


def fdatasync_seconds():
    """The disk's part in a durable claim: without it a figure says little."""
    times = []
    with (RUN / "sync").open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(b"x" * 4096)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times)


# --- the report ----------------------------------------------------------------------------------------------------


def report(options, samples, faults):
    rows = [row(samples, name, connections) for connections in CONNECTIONS for name, _, _ in CONTENDERS]
    print("\nmedian (min–max) of %d rounds of %d s; ratio to '%s' within each round; CPU in µs per request" % (
        options.rounds, options.seconds, BASE))
    for found in rows:
        print("%3d  %-22s %8.0f /s (%.0f–%.0f)  ratio %.2f (%.2f–%.2f)  p50 %.2f ms  p99 %.2f ms" % (
            found["connections"], found["name"], *spread(found["rate"]), *spread(found["ratio"]),
            found["p50_ms"]["median"], found["p99_ms"]["median"]))
        print("     CPU: %s; peak memory: %s" % (
            ", ".join("%s %.1f" % item for item in found["cpu_us_per_request"].items()),
            ", ".join("%s %.0f MiB" % item for item in found["peak_mib"].items())))
    print("\nNot 2xx: 0, socket errors: 0, every replay came from the store" if not faults else
          "\nThese turns do not count:\n" + "\n".join(faults))
    print("Not run: peers other than nginx")
    (OUT / "gateway.json").write_text(json.dumps({
        "rounds": options.rounds, "seconds": options.seconds, "base": BASE, "machine": machine(),
        "faults": faults, "results": rows}, indent=2) + "\n")
    (OUT / "gateway.svg").write_text(picture.bars(rows, CONNECTIONS))
    print("target/bench/gateway.json, target/bench/gateway.svg")


def row(samples, name, connections):
    def turns(wanted):
        return [s for s in samples if (s["name"], s["connections"]) == (wanted, connections)]

    mine = turns(name)
    return {
        "name": name,
        "connections": connections,
        "rate": summary(sample["rate"] for sample in mine),
        "ratio": summary(sample["rate"] / base["rate"] for sample, base in zip(mine, turns(BASE))),
        "p50_ms": summary(sample["p50_ms"] for sample in mine),
        "p99_ms": summary(sample["p99_ms"] for sample in mine),
        "cpu_us_per_request": medians(sample["cpu_us_per_request"] for sample in mine),
        "peak_mib": medians(sample["peak_mib"] for sample in mine),
        "refused": sum(sample["refused"] for sample in mine),
        "socket_errors": sum(sample["socket_errors"] for sample in mine),
    }


def summary(values):
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def medians(tables):
    tables = list(tables)
    return {part: statistics.median(table[part] for table in tables) for part in tables[0]}


def spread(found):
    return found["median"], found["min"], found["max"]


def machine():
    def said(*command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return (done.stdout + done.stderr).splitlines()[0].strip()

    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "nginx": said("nginx", "-v"),
        "wrk": said("wrk", "-v"),
        "semel": said(SEMEL, "--version"),
    }


if __name__ == "__main__":
    main()
