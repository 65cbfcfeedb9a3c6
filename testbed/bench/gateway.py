"""What the gateway costs beside a plain proxy and beside what others build. Run through `./bench gateway`.

1. Everything takes its turn in each round (A B C A B C), and only ratios within a round are compared.
2. A turn with fresh keys begins with an empty store; one with replays on a store of 100,000 keys that an earlier gateway
   process has filled, so nothing of it is in the process's memory. The peers keep their answers in their own memory, and
   are asked in the process that has them.
3. A turn with errors, or with replays that reached the service, is named and fails the run.
"""

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

import peers
import report
from servers import OUT, ROOT, RUN, PROXY, UPSTREAM, new_folder, nginx, semel
from turn import faults_of, fill, measure

PARTS = ("floor", "off", "fresh", "replay", "axum", "express", "size", "workers")
CONNECTIONS = (32, 128)
FILL = ROOT / "target/release/examples/fill"
# What the example fill needs on the disk for a key, its log included.
BYTES_PER_KEY = 1_000


@dataclass(frozen=True)
class Turn:
    """Who answers, and what is asked."""

    table: str
    name: str
    connections: int
    keys: str
    # Makes a context with the server, of the place.
    serve: object
    # Whose ratio is 1, in the same table.
    base: str
    who: str = "bearer"
    # Where the server and everything else are kept apart.
    cores: tuple = None


class Place:
    """What stands for all turns."""

    def __init__(self, stack):
        self.stack = stack
        self.upstream = stack.enter_context(nginx("upstream", UPSTREAM))
        self.proxy = stack.enter_context(nginx("proxy", PROXY, upstream=self.upstream.port))
        self.stores, self.filled, self.node = new_folder("stores"), {}, None

    def replays(self):
        """A store with the known keys, filled by a gateway that has ended."""
        file = self.stores / "replays.db"
        if not file.exists():
            with semel(self.upstream, file) as gateway:
                fill(gateway, self.upstream, "bearer")
        return file

    def filled_peer(self, name, serve, who):
        """A peer that has the known keys in its memory, and stays."""
        if name not in self.filled:
            self.filled[name] = self.stack.enter_context(serve(self))
            fill(self.filled[name], self.upstream, who)
        return self.filled[name]

    def file_of(self, count):
        """A store with so many other keys."""
        file = self.stores / ("%d.db" % count)
        if not file.exists():
            begun = time.monotonic()
            subprocess.run([FILL, file, str(count)], check=True, stdout=subprocess.DEVNULL)
            print("filled a file with %s keys in %.0f s: %.1f GB" % (
                format(count, ","), time.monotonic() - begun, file.stat().st_size / 1e9), flush=True)
        return file


def main():
    options = arguments()
    build()
    # A run that is told to stop stops its servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    samples, faults = [], []
    try:
        shutil.rmtree(RUN, ignore_errors=True)
        RUN.mkdir(parents=True)
        print("fdatasync of 4 KiB here: %.0f µs" % (fdatasync_seconds() * 1e6), flush=True)
        with contextlib.ExitStack() as stack:
            place = Place(stack)
            turns, not_run = turns_of(options, place)
            for number in range(options.rounds):
                for turn in turns:
                    sample = take(turn, place, options.seconds)
                    faults += faults_of(turn, sample)
                    samples.append(sample)
                    print("round %d, %3d connections, %-36s %9.0f /s" % (
                        number + 1, turn.connections, turn.name, sample["rate"]), flush=True)
    finally:
        shutil.rmtree(RUN, ignore_errors=True)
    report.write(OUT, options, turns, samples, faults, not_run)
    sys.exit(1 if faults else 0)


def arguments():
    parser = argparse.ArgumentParser(prog="./bench gateway", allow_abbrev=False, add_help=False)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=positive, default=3)
    parser.add_argument("--keys", type=positive, default=10_000_000)
    parser.add_argument("--only", type=parts, default=PARTS)
    return parser.parse_args()


def positive(text):
    if (number := int(text)) < 1:
        raise ValueError
    return number


def parts(text):
    wanted = tuple(text.split(","))
    for part in wanted:
        if part not in PARTS:
            raise argparse.ArgumentTypeError("no part '%s'; there are: %s" % (part, ", ".join(PARTS)))
    return wanted


def build():
    for what in ((), ("--package", "semel-store", "--example", "fill")):
        if subprocess.run(["cargo", "build", "--release", *what], cwd=ROOT).returncode:
            sys.exit("bench: the release build failed")


# --- what is run ---------------------------------------------------------------------------------------------------


def turns_of(options, place):
    """The turns of one round, and what cannot be run here with the reason."""
    turns, not_run = list(beside_the_proxy(options, place)), []
    for name, make in (("axum", with_axum), ("express", with_express)):
        if name in options.only:
            try:
                turns += make(place)
            except peers.Missing as missing:
                not_run.append("%s: %s" % (name, missing))
    # Side by side: all at 32 connections, then all at 128.
    turns.sort(key=lambda turn: turn.connections)
    if "size" in options.only:
        needed, free = options.keys * BYTES_PER_KEY, shutil.disk_usage(RUN).free
        if needed < free:
            turns += by_size(options, place)
        else:
            not_run.append("size: %d keys need %.0f GB on the disk, and %.0f are free" % (
                options.keys, needed / 1e9, free / 1e9))
    if "workers" in options.only:
        turns += by_workers(place)
    return turns, not_run


def beside_the_proxy(options, place):
    compared = partial(Turn, "gateways", base=report.PROXY)
    for connections in CONNECTIONS:
        if set(options.only) - {"size", "workers"}:
            if "floor" in options.only:
                yield compared(report.FLOOR, connections, "new", lambda: contextlib.nullcontext(place.upstream))
            yield compared(report.PROXY, connections, "new", lambda: contextlib.nullcontext(place.proxy))
        if "off" in options.only:
            yield compared(report.OFF, connections, "new", lambda: semel(place.upstream, None, "--key", "natural"))
        if "fresh" in options.only:
            yield compared(report.FRESH, connections, "new", lambda: semel(place.upstream))
        if "replay" in options.only:
            yield compared(report.REPLAYS, connections, "known", lambda: semel(place.upstream, place.replays()))


def with_axum(place):
    peers.make_axum()
    return peer(place, "axum + axum-idempotent", lambda place: peers.axum(place.upstream), "session")


def with_express(place):
    node = peers.make_express()
    return peer(place, "express + express-idempotency", lambda place: peers.express(node, place.upstream), "bearer")


def peer(place, name, serve, who):
    compared = partial(Turn, "gateways", base=report.PROXY, who=who)
    turns = []
    for connections in CONNECTIONS:
        turns.append(compared(name + ", fresh", connections, "new", lambda: serve(place)))
        turns.append(compared(name + ", replays", connections, "known",
                              lambda: contextlib.nullcontext(place.filled_peer(name, serve, who))))
    return turns


def by_size(options, place):
    """Fresh keys beside ten thousand and beside so many others of the same scope, of which callers without an
    Authorization are. The small file is a new copy each time, or it would not stay small."""
    small, large = report.keys_in_file(10_000), report.keys_in_file(options.keys)
    place.file_of(10_000), place.file_of(options.keys)
    # Or the first turns would wait behind what the filling has left to be written.
    os.sync()

    def with_few():
        copy = shutil.copy(place.file_of(10_000), place.stores / "few.db")
        for companion in ("-wal", "-shm"):
            (place.stores / ("few.db" + companion)).unlink(missing_ok=True)
        return semel(place.upstream, copy)

    with_many = lambda: semel(place.upstream, place.file_of(options.keys))
    compared = partial(Turn, "size", keys="new", base=small, who="nobody")
    for connections in (*CONNECTIONS, 512):
        yield compared(small, connections, serve=with_few)
        yield compared(large, connections, serve=with_many)


def by_workers(place):
    """Where there are cores enough, the gateway has two to itself, and the load and the service have the others."""
    count = os.cpu_count()
    cores = (frozenset((0, 1)), frozenset(range(2, count))) if count >= 4 else None
    for table, keys, options in (("workers, guard off", "new", ("--key", "natural")), ("workers, replays", "known", ())):
        for workers in ("1", "2"):
            store = place.replays if keys == "known" else lambda: None
            serve = lambda store=store, options=options, workers=workers: semel(
                place.upstream, store(), *options, "--workers", workers)
            yield Turn(table, report.workers(workers), 32, keys, serve, report.workers("1"), cores=cores)


def take(turn, place, seconds):
    with turn.serve() as server:
        if not turn.cores:
            return measure(turn, server, place.upstream, seconds)
        own, others = turn.cores
        server.keep_to(own)
        place.upstream.keep_to(others)
        try:
            return measure(turn, server, place.upstream, seconds, others)
        finally:
            place.upstream.keep_to(own | others)


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


if __name__ == "__main__":
    main()
