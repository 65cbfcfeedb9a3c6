"""What the samples come to: medians, least and most, ratios within a round, and the bars that are met or missed."""

import json
import os
import platform
import statistics
import subprocess

import picture
from servers import SEMEL

FLOOR, PROXY = "nginx answering itself", "nginx as plain proxy"
OFF, FRESH, REPLAYS = "Semel, guard off", "Semel, fresh keys", "Semel, replays"
NOT_MEASURED = "not measured"
# So many are what the bar of a large file speaks of.
LARGE = 10_000_000


def keys_in_file(count):
    return "Semel, %s keys in the file" % format(count, ",")


def workers(count):
    return "Semel, %s worker%s" % (count, "" if count == "1" else "s")


# table, who, connections, which figure, whether at least or at most, the bar
BARS = (
    *(("gateways", OFF, connections, "ratio", ">=", 0.75) for connections in (32, 128)),
    *(("gateways", OFF, connections, "cpu_ratio", "<=", 1.8) for connections in (32, 128)),
    ("gateways", FRESH, 32, "ratio", ">=", 0.35),
    ("gateways", FRESH, 128, "ratio", ">=", 0.5),
    *(("gateways", REPLAYS, connections, "ratio", ">=", 1.4) for connections in (32, 128)),
    *(("size", keys_in_file(LARGE), connections, "ratio", ">=", 0.6) for connections in (32, 128)),
    *(("size", keys_in_file(LARGE), connections, "p99_ratio", "<=", 3) for connections in (32, 128)),
    ("size", keys_in_file(LARGE), 512, "peak_mib", "<=", 300),
    *(("workers, " + load, workers("2"), 32, "ratio", ">=", 1.5) for load in ("guard off", "replays")),
)
SAYS = {
    "ratio": "throughput, as a ratio",
    "cpu_ratio": "CPU for each request, as a ratio",
    "p99_ratio": "p99, as a ratio",
    "peak_mib": "peak memory in MiB",
}


def write(out, options, turns, samples, faults, not_run):
    rows = [row(samples, turn) for turn in turns]
    bars = [verdict(rows, *bar) for bar in BARS]
    print("\nMedian (least to most) of %d rounds of %d s. Ratios are within a round. CPU in µs for each request." % (
        options.rounds, options.seconds))
    for table in dict.fromkeys(row["table"] for row in rows):
        mine = [row for row in rows if row["table"] == table]
        print("\n%s: ratios to '%s'" % (table, mine[0]["base"]))
        for found in mine:
            print_row(found)
    print("\nBars, by the medians")
    for bar in bars:
        if bar["found"] is NOT_MEASURED:
            continue
        print("  %-7s %s at %d connections: %s %s %s (%s)" % (
            bar["verdict"], bar["who"], bar["connections"], SAYS[bar["figure"]], bar["is"], bar["bar"], bar["found"]))
    print("\nNot 2xx: 0, socket errors: 0, no replay reached the service" if not faults else
          "\nThese turns do not count:\n" + "\n".join(faults))
    print("Not run: " + ("; ".join(not_run) or "nothing that was asked for"))
    (out / "gateway.json").write_text(json.dumps({
        "rounds": options.rounds, "seconds": options.seconds, "parts": options.only, "machine": machine(),
        "faults": faults, "not_run": not_run, "bars": bars, "results": rows}, indent=2) + "\n")
    (out / "gateway.svg").write_text(picture.bars(rows))
    print("target/bench/gateway.json, target/bench/gateway.svg")


def print_row(found):
    print("%4d  %-38s %8.0f /s (%.0f to %.0f)  ratio %.2f (%.2f to %.2f)  p50 %.2f ms  p99 %.2f ms" % (
        found["connections"], found["name"], *spread(found["rate"]), *spread(found["ratio"]),
        found["p50_ms"]["median"], found["p99_ms"]["median"]))
    print("      CPU: %s; the server used %.2f cores; peak memory: %s" % (
        ", ".join("%s %.1f" % item for item in found["cpu_us_per_request"].items()), found["cores_used"],
        ", ".join("%s %.0f MiB" % item for item in found["peak_mib"].items())))


def row(samples, turn):
    def turns(name):
        wanted = (turn.table, name, turn.connections)
        return [s for s in samples if (s["table"], s["name"], s["connections"]) == wanted]

    mine, base = turns(turn.name), turns(turn.base)
    server, base_server = mine[0]["server"], base[0]["server"]
    ratios = lambda figure, base_figure=None: summary(
        figure(one) / (base_figure or figure)(other) for one, other in zip(mine, base))
    return {
        "table": turn.table,
        "name": turn.name,
        "base": turn.base,
        "connections": turn.connections,
        "rate": summary(sample["rate"] for sample in mine),
        "ratio": ratios(lambda sample: sample["rate"]),
        "p50_ms": summary(sample["p50_ms"] for sample in mine),
        "p99_ms": summary(sample["p99_ms"] for sample in mine),
        "p99_ratio": ratios(lambda sample: sample["p99_ms"]),
        "cpu_us_per_request": medians(sample["cpu_us_per_request"] for sample in mine),
        "cpu_ratio": ratios(lambda sample: sample["cpu_us_per_request"][server],
                            lambda sample: sample["cpu_us_per_request"][base_server]),
        "cores_used": statistics.median(s["cpu_us_per_request"][server] * s["rate"] / 1e6 for s in mine),
        "peak_mib": medians(sample["peak_mib"] for sample in mine),
        "server": server,
        "refused": sum(sample["refused"] for sample in mine),
        "socket_errors": sum(sample["socket_errors"] for sample in mine),
    }


def verdict(rows, table, who, connections, figure, compared, bar):
    """Whether a bar is met, by the median; or why nobody can say."""
    judged = {"who": who, "connections": connections, "figure": figure, "is": compared, "bar": bar}
    wanted = (table, who, connections)
    found = next((row for row in rows if (row["table"], row["name"], row["connections"]) == wanted), None)
    if table.startswith("workers"):
        judged["who"] += " (%s)" % table.removeprefix("workers, ")
    if not found:
        return {**judged, "verdict": "-", "found": NOT_MEASURED}
    if figure == "peak_mib":
        value, text = found["peak_mib"]["semel"], "%.0f" % found["peak_mib"]["semel"]
    else:
        value, text = found[figure]["median"], "%.2f (%.2f to %.2f)" % spread(found[figure])
    if table.startswith("workers") and os.cpu_count() < 4:
        return {**judged, "verdict": "-", "found": text + no_free_core(rows, found)}
    met = value >= bar if compared == ">=" else value <= bar
    return {**judged, "verdict": "met" if met else "MISSED", "found": text}


def no_free_core(rows, two):
    """With fewer than four cores the second worker takes its core from the load and the service. What can be told is what
    a request costs the gateway with one worker and with two: were the cores free, the ratio would be twice that."""
    one = next(row for row in rows if row["table"] == two["table"] and row["name"] == two["base"])
    cost = one["cpu_us_per_request"]["semel"] / two["cpu_us_per_request"]["semel"]
    return "; %d cores, none of them free; CPU for each request says %.2f with two free ones" % (os.cpu_count(), 2 * cost)


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
