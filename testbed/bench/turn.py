"""One turn: wrk against one server for some seconds, what everybody used meanwhile, and whether it counts."""

import json
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from servers import served

KNOWN_KEYS = 100_000
FILL_CONNECTIONS = 64
FILL_SECONDS_MAX = 240


def measure(turn, server, upstream, seconds, cores=None):
    """What one turn of load came to: a sample."""
    involved = {part.name: part for part in (upstream, server)}.values()
    for part in involved:
        part.forget_peak()
    before = {part.name: part.cpu_seconds() for part in involved}
    served_before, wrk_before = served(upstream), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = finished(wrk(server.port, turn.keys, turn.who, turn.connections, seconds, cores), seconds + 60)
    wrk_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = {part.name: part.cpu_seconds() - before[part.name] for part in involved}
    cpu["wrk"] = wrk_after.ru_utime + wrk_after.ru_stime - wrk_before.ru_utime - wrk_before.ru_stime
    return {
        "table": turn.table,
        "name": turn.name,
        "connections": turn.connections,
        "server": server.name,
        "rate": result["requests"] / result["seconds"],
        "served_by_upstream": served(upstream) - served_before - 1,
        "cpu_us_per_request": {part: used * 1e6 / result["requests"] for part, used in cpu.items()},
        "peak_mib": {part.name: part.peak_mib() for part in involved},
        **result,
    }


def fill(server, upstream, who):
    """Sends every known key once, until the upstream has answered all of them."""
    before, looks = served(upstream), 0
    process = wrk(server.port, "each", who, FILL_CONNECTIONS, FILL_SECONDS_MAX)
    while served(upstream) - before - looks - 1 < KNOWN_KEYS:
        looks += 1
        if process.poll() is not None:
            sys.exit("bench: %s had not answered %d keys after %d s" % (server.name, KNOWN_KEYS, FILL_SECONDS_MAX))
        time.sleep(0.05)  # between two looks, not instead of one
    process.send_signal(signal.SIGINT)
    finished(process, 30)


def wrk(port, keys, who, connections, seconds, cores=None):
    pinned = ["taskset", "-c", ",".join(map(str, sorted(cores)))] if cores else []
    command = ["wrk", "-t", "2", "-c", str(connections), "-d", "%ds" % seconds, "--timeout", "10s",
               "-s", str(Path(__file__).with_name("load.lua")), "http://127.0.0.1:%d" % port,
               "--", keys, str(random.getrandbits(40)), str(KNOWN_KEYS), who]
    return subprocess.Popen(pinned + command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process, seconds):
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    for line in out.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    sys.exit("bench: wrk said no result:\n" + out)


def faults_of(turn, sample):
    """Why this turn does not count, if it doesn't: an error is quick to answer, and a replay must be one."""
    where = "%s at %d connections: " % (sample["name"], sample["connections"])
    faults = []
    if sample["refused"]:
        faults.append(where + "%d answers that are not 2xx or 3xx" % sample["refused"])
    if sample["socket_errors"]:
        faults.append(where + "%d socket errors" % sample["socket_errors"])
    if turn.keys == "known" and sample["served_by_upstream"]:
        faults.append(where + "%d replays reached the upstream" % sample["served_by_upstream"])
    if turn.keys != "known" and sample["served_by_upstream"] < sample["requests"]:
        faults.append(where + "%d of %d requests reached the upstream" % (
            sample["served_by_upstream"], sample["requests"]))
    return faults
