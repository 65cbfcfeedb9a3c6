"""What a shared store costs beside its database alone. Run through `./bench stores`.

1. The floor is the plainest client of each database with what Semel has to do at least: a claim and a settlement, each
   committed by itself. PostgreSQL: pgbench with an INSERT and an UPDATE, prepared. MariaDB: the example `plain`, the same
   two. Redis: redis-benchmark with Semel's own two scripts.
2. The floor has as many connections as serve it best, of 8, 16, 32 and 64, found out before the first round.
3. Floor and Semel take turns on one durable server, and only ratios within a round are compared.
4. With `--size`, the store is filled in bulk (`fill.py`), and measured again at each size up to `--records`.
"""

import argparse
import contextlib
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import fill
import lines

ROOT = Path(__file__).parents[2]
OUT = ROOT / "target/bench"
THROUGHPUT, PLAIN = (ROOT / "target/release/examples" / name for name in ("throughput", "plain"))
SERVE = ROOT / "target/debug/examples/serve"
KINDS = ("postgres", "mariadb", "redis")
NAMES = {"postgres": "PostgreSQL", "mariadb": "MariaDB", "redis": "Redis"}
CALLERS = (1, 16, 512)
FLOOR_CONNECTIONS = (8, 16, 32, 64)
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
TICKS = os.sysconf("SC_CLK_TCK")
KEY = b"<key>"
# kind, callers, figure, whether at least or at most, bar
BARS = (
    ("postgres", 16, "ratio", ">=", 0.8), ("postgres", 512, "ratio", ">=", 3.0),
    ("redis", 16, "ratio", ">=", 0.8), ("redis", 512, "ratio", ">=", 1.5),
    ("mariadb", 16, "ratio", ">=", 0.7),
    *((kind, 1, "latency", "<=", 1.3) for kind in KINDS),
)
SIZE_BAR = 0.7


def main():
    options = arguments()
    build()
    results = {"rounds": options.rounds, "seconds": options.seconds, "stores": {}, "sizes": {}, "bars": []}
    for kind in options.only:
        with server(kind) as place:
            results["stores"][kind] = beside_the_floor(place, options)
        if options.size:
            with server(kind) as place:
                results["sizes"][kind] = by_size(place, options)
    judge(results, options)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "stores.json").write_text(json.dumps(results, indent=2) + "\n")
    print("target/bench/stores.json")
    if results["sizes"]:
        (OUT / "stores.svg").write_text(lines.picture(
            {NAMES[kind]: [(one["records"], one["rate"]) for one in sizes] for kind, sizes in results["sizes"].items()},
            "claim and settle, pairs per second at 512 callers", "records in the store"))
        print("target/bench/stores.svg")


def arguments():
    parser = argparse.ArgumentParser(prog="./bench stores", allow_abbrev=False, add_help=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", type=kinds, default=KINDS)
    parser.add_argument("--size", action="store_true")
    parser.add_argument("--records", type=int, default=SIZES[-1])
    return parser.parse_args()


def kinds(text):
    wanted = tuple(text.split(","))
    for kind in wanted:
        if kind not in KINDS:
            raise argparse.ArgumentTypeError("no store '%s'; there are: %s" % (kind, ", ".join(KINDS)))
    return wanted


def build(features="full", examples=("throughput", "plain")):
    # Each alone: the examples in release, as they ship; the server's keeper need not be quick.
    examples = [word for example in examples for word in ("--example", example)]
    for command in (
        ("build", "--release", "-p", "semel-store", "--features", features, *examples),
        ("build", "-p", "semel-testbed", "--example", "serve"),
    ):
        if subprocess.run(["cargo", *command], cwd=ROOT).returncode:
            sys.exit("bench: the build failed")


# --- the servers ---------------------------------------------------------------------------------------------------


class Place:
    """A running server, and what its plainest client is."""

    def __init__(self, kind, url, keeper):
        self.kind, self.url, self.keeper = kind, url, keeper
        self.folder = Path(tempfile.mkdtemp(prefix="semel-bench-"))
        self.best = self.scripts = None

    def cpu_seconds(self):
        """Of the server, with all its processes, also those that have ended."""
        return tree_seconds(self.keeper.pid)

    def floor(self, connections, seconds):
        return {"postgres": pgbench, "mariadb": plain, "redis": redis_benchmark}[self.kind](self, connections, seconds)

    def semel(self, callers, seconds):
        line = output([THROUGHPUT, str(seconds), self.semel_url(), str(callers)]).splitlines()[1].split()
        return {"rate": float(line[1]), "p50_us": float(line[2]), "p99_us": float(line[3])}

    def semel_url(self):
        return self.url


@contextlib.contextmanager
def server(kind):
    with running(kind) as (url, keeper):
        place = Place(kind, url, keeper)
        place.semel(1, 1)  # makes the schema
        yield place


@contextlib.contextmanager
def running(kind):
    """A durable server of one's own: its URL, and the process whose child it is."""
    keeper = subprocess.Popen([SERVE, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = keeper.stdout.readline().strip()
        if not url:
            sys.exit("bench: no %s" % NAMES[kind])
        yield url, keeper
    finally:
        keeper.stdin.close()
        keeper.wait(60)


def output(command, stdin_bytes=b""):
    command = [part if isinstance(part, bytes) else str(part) for part in command]
    done = subprocess.run(command, capture_output=True, input=stdin_bytes)
    said, complained = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    if done.returncode:
        sys.exit("bench: %s: %s" % (command[0], complained or said))
    return said


def tree_seconds(root):
    children, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                used[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    total, open_ = 0.0, list(children.get(root, []))
    while open_:
        one = open_.pop()
        total += used.get(one, 0.0)
        open_ += children.get(one, [])
    return total


# --- the floors ----------------------------------------------------------------------------------------------------

PG_TABLE = """
    CREATE TABLE IF NOT EXISTS plain (key text COLLATE "C", scope text COLLATE "C", state smallint NOT NULL,
        attempt uuid NOT NULL, digest bytea NOT NULL, until bigint NOT NULL, outcome bytea, PRIMARY KEY (key, scope))
"""
# pgbench takes every colon for a variable, within quotes too.
PG_PAIR = r"""\set n random(1, 9000000000000000000)
INSERT INTO plain (key, scope, state, attempt, digest, until) VALUES (md5(:n::text), 'http default anonymous', 1, md5(:n::text)::uuid, '\x0707070707070707070707070707070707070707070707070707070707070707', 30000) ON CONFLICT DO NOTHING;
UPDATE plain SET state = 3, outcome = convert_to(repeat('x', 320), 'UTF8'), until = 86400000 WHERE key = md5(:n::text) AND scope = 'http default anonymous' AND attempt = md5(:n::text)::uuid AND state = 1;
"""


def pgbench(place, connections, seconds):
    script = place.folder / "pair.sql"
    if not script.exists():
        script.write_text(PG_PAIR)
        output(["psql", "-q", place.url, "-c", PG_TABLE])
    said = output([program("pgbench"), "-n", "-M", "prepared", "-f", script, "-c", connections, "-j", min(2, connections),
                   "-T", seconds, place.url])
    rate = float(re.search(r"tps = ([\d.]+) \(without", said).group(1))
    return {"rate": rate, "latency_us": float(re.search(r"latency average = ([\d.]+) ms", said).group(1)) * 1e3}


def program(name):
    """Debian keeps PostgreSQL's programs out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/" + name))
    return found[-1] if found else name


def plain(place, connections, seconds):
    line = output([PLAIN, place.url, seconds, connections]).split()
    return {"rate": float(line[1]), "latency_us": connections / float(line[1]) * 1e6}


def redis_benchmark(place, connections, seconds):
    """Claims of fresh keys, then settlements of what runs: a pair takes the time of both."""
    # Fewer settlements than keys, so that few of these random numbers come twice: the second one writes nothing.
    claims, settlements, keys = seconds * 10_000, seconds * 5_000, seconds * 20_000
    claim, settle = fresh_scripts(place)
    made = benchmark(place, connections, claims, 10**12, claim)
    claim, settle = fresh_scripts(place)
    claim_all(place, claim, keys)
    rate = 1 / (1 / made + 1 / benchmark(place, connections, settlements, keys, settle))
    return {"rate": rate, "latency_us": connections / rate * 1e6}


def benchmark(place, connections, count, keys, script):
    address = urlsplit(place.url)
    said = output(["redis-benchmark", "-h", address.hostname, "-p", address.port, "-P", 1, "-c", connections, "-r",
                   keys, "-n", count, "--csv", *script])
    return float(said.splitlines()[-1].split('","')[1].strip('"'))


def claim_all(place, claim, keys):
    """Claims the key of every number that redis-benchmark may draw."""
    address = urlsplit(place.url)
    numbers = (b"%012d" % number for number in range(keys))
    commands = b"".join(fill.resp([part.replace(b"__rand_int__", number) for part in claim]) for number in numbers)
    output(["redis-cli", "-h", address.hostname, "-p", address.port, "--pipe"], stdin_bytes=commands)


def fresh_scripts(place):
    """Semel's two commands, of keys that nothing has claimed yet: those of an earlier run are completed, and a replay
    writes nothing."""
    if not place.scripts:
        place.scripts = heard_scripts(place)
    number = secrets.token_hex(4).encode() + b"__rand_int__"
    return [[part.replace(KEY, number) for part in one] for one in place.scripts]


def heard_scripts(place):
    """Semel's own two commands, as the server hears them, with KEY where the key was."""
    address = urlsplit(place.url)
    listener = subprocess.Popen(["redis-cli", "-h", address.hostname, "-p", str(address.port), "MONITOR"],
                                stdout=subprocess.PIPE, text=True)
    try:
        listener.stdout.readline()
        semel = subprocess.Popen([THROUGHPUT, "1", place.semel_url(), "1"], stdout=subprocess.DEVNULL)
        heard = []
        while len(heard) < 40:
            line = listener.stdout.readline()
            if '"EVALSHA"' in line.upper() and " lua] " not in line:
                heard.append(words(line))
        semel.wait()
    finally:
        listener.kill()
        listener.wait()
    return pair_of(heard)


def words(line):
    """The words of a line of MONITOR, as bytes. An argument of a program holds no NUL; the scripts look into none of the
    words that have one."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"', line.split("] ", 1)[1])
    return [one.encode().decode("unicode_escape").encode("latin-1").replace(b"\0", b"|") for one in found]


def pair_of(heard):
    """Two that follow one another and name one key: its claim and its settlement."""
    for claim, settle in zip(heard, heard[1:]):
        # Behind the three sets stands the record; what opens the store has fewer words.
        names = set(re.findall(rb"[0-9a-f]{32}(?![0-9a-f])", b"".join(claim[6:7])))
        for name in names:
            if name in b"".join(settle[6:7]) and claim[1] != settle[1]:
                return [[part.replace(name, KEY) for part in one] for one in (claim, settle)]
    sys.exit("bench: no claim and settlement of one key were heard")


# --- the turns -----------------------------------------------------------------------------------------------------


def beside_the_floor(place, options):
    tried = {count: place.floor(count, 2)["rate"] for count in FLOOR_CONNECTIONS}
    place.best = max(tried, key=tried.get)
    print("\n%s: the floor is best with %d connections: %s" % (
        NAMES[place.kind], place.best, ", ".join("%d: %.0f/s" % one for one in tried.items())), flush=True)
    samples = {"floor": [], "floor, one": [], **{callers: [] for callers in CALLERS}}
    for _ in range(options.rounds):
        samples["floor"].append(take(place, lambda: place.floor(place.best, options.seconds)))
        samples["floor, one"].append(take(place, lambda: place.floor(1, options.seconds)))
        for callers in CALLERS:
            samples[callers].append(take(place, lambda: place.semel(callers, options.seconds)))
    rows = {"connections": place.best}
    for who, mine in samples.items():
        base = samples["floor, one" if who in (1, "floor, one") else "floor"]
        ratios = [one["rate"] / other["rate"] for one, other in zip(mine, base)]
        rows[str(who)] = {"rate": summary(one["rate"] for one in mine), "ratio": summary(ratios),
                          "latency": summary(1 / ratio for ratio in ratios),
                          "server_cpu_us": summary(one["server_cpu_us"] for one in mine),
                          **({"p99_us": summary(one["p99_us"] for one in mine)} if "p99_us" in mine[0] else {})}
        print("  %-12s %9.0f/s (%.0f to %.0f)  ratio %.2f (%.2f to %.2f)  server %.1f µs a pair" % (
            who if isinstance(who, str) else "Semel, %d" % who, *spread(rows[str(who)]["rate"]),
            *spread(rows[str(who)]["ratio"]), rows[str(who)]["server_cpu_us"]["median"]), flush=True)
    return rows


def take(place, measure):
    before, begun = place.cpu_seconds(), time.monotonic()
    sample = measure()
    pairs = sample["rate"] * (time.monotonic() - begun)
    return {**sample, "server_cpu_us": (place.cpu_seconds() - before) / pairs * 1e6}


def by_size(place, options):
    """The same load at each size of the store, filled in bulk."""
    print("\n%s, by the number of records, 512 callers" % NAMES[place.kind], flush=True)
    found, own, filled = [], 0.0, 0
    for size in (size for size in SIZES if size <= options.records):
        missing = size - filled - round(own)
        if missing > 0:
            fill.fill(place.kind, place.url, filled + 1, filled + missing)
            filled += missing
        samples = [place.semel(512, options.seconds) for _ in range(options.rounds)]
        rate = statistics.median(sample["rate"] for sample in samples)
        found.append({"records": size, "rate": rate,
                      "p99_us": statistics.median(sample["p99_us"] for sample in samples)})
        own += sum(sample["rate"] for sample in samples) * options.seconds
        print("  %12s records: %9.0f/s  p99 %.1f ms" % (
            format(size, ","), rate, found[-1]["p99_us"] / 1e3), flush=True)
    return found


def judge(results, options):
    print("\nBars, by the medians")
    for kind, callers, figure, compared, bar in BARS:
        if kind in results["stores"]:
            found = results["stores"][kind][str(callers)][figure]["median"]
            verdict(results, "%s, %d callers: %s" % (NAMES[kind], callers, figure), found, compared, bar)
    for kind, sizes in results["sizes"].items():
        verdict(results, "%s, %s records beside %s" % (
            NAMES[kind], format(sizes[-1]["records"], ","), format(sizes[0]["records"], ",")),
            sizes[-1]["rate"] / sizes[0]["rate"], ">=", SIZE_BAR)


def verdict(results, what, found, compared, bar):
    met = found >= bar if compared == ">=" else found <= bar
    results["bars"].append({"what": what, "found": found, "is": compared, "bar": bar, "met": met})
    print("  %-7s %s %s %s (%.2f)" % ("met" if met else "missed", what, compared, bar, found))


def summary(values):
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def spread(found):
    return found["median"], found["min"], found["max"]


if __name__ == "__main__":
    main()
