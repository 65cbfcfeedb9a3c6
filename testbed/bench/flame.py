"""A flame graph from `perf script`, as SVG, written by hand.

    perf record --call-graph dwarf,8192 -F 997 -p PID -o FILE
    perf script -i FILE --no-inline -F comm,ip,sym | python3 testbed/bench/flame.py TITLE > PICTURE.svg

A box is a function, its width the share of samples in which it was on the stack, what it called stands on top of it.
Boxes of less than half a percent are left out, so that the picture stays small; so are the runtime's own frames below
what the gateway does.
"""

import re
import sys
from html import escape

WIDTH, ROW, LEAST = 1200, 15, 0.005
# Frames that say nothing: how a poll reaches a task, and how a system call begins.
DULL = re.compile(
    r"^(\[unknown\]|std::|core::|clone3|start_thread|entry_SYSCALL_64|do_syscall_64|__x64_sys|__GI_|tokio::runtime::"
    r"(context|scheduler|task)|<core::|<std::|<alloc::|__libc_|ip_|__ip_|__dev_|__netif|__napi|net_rx|process_backlog|"
    r"do_softirq|handle_softirqs|__local_bh|vfs_|do_iter)")
COLOURS = (("sqlite", "#c9a24a"), ("unix", "#c9a24a"), ("wal", "#c9a24a"), ("pager", "#c9a24a"), ("rusqlite", "#c9a24a"),
           ("semel", "#5b8fb9"), ("hyper", "#8fb98a"), ("tokio", "#a8b98a"))


def main():
    root, count = [0, {}], 0
    for stack in stacks(sys.stdin):
        count += 1
        add(root, [frame for frame in reversed(stack) if not DULL.match(frame)])
    boxes = list(drawn(root, 0, 0, count))
    height = (max(level for level, *_ in boxes) + 3) * ROW
    print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="monospace" font-size="10">' % (
        WIDTH, height))
    print('<rect width="100%%" height="100%%" fill="white"/><text x="4" y="11">%s; %d samples</text>' % (
        escape(sys.argv[1]), count))
    for level, start, share, name in boxes:
        x, y, width = start * WIDTH / count, height - (level + 1) * ROW, share * WIDTH / count
        print('<g><title>%s %.1f%%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>' % (
            escape(name), 100 * share / count, x, y, max(width - 0.5, 0.5), ROW - 1, colour(name)), end="")
        shown = name[: int(width / 6.2)]
        print('%s</g>' % ('<text x="%.1f" y="%d">%s</text>' % (x + 2, y + 11, escape(shown)) if len(shown) > 3 else ""))
    print("</svg>")


def stacks(lines):
    """The functions of each sample, the innermost first."""
    stack = None
    for line in lines:
        if not line.strip():
            if stack:
                yield stack
            stack = None
        elif not line[0].isspace():
            stack = []
        elif stack is not None and (found := re.match(r"\s*[0-9a-f]+ (.*)", line)):
            stack.append(short(re.sub(r"\+0x[0-9a-f]+$", "", found[1])))
    if stack:
        yield stack


def short(name):
    """Without type parameters and closures."""
    name = re.sub(r"::\{\{closure\}\}|::<impl [^>]*>", "", name)
    while "<" in name[1:] and (plain := re.sub(r"(?<=.)<[^<>]*>", "", name)) != name:
        name = plain
    return name


def add(node, stack):
    node[0] += 1
    for frame in stack:
        node = node[1].setdefault(frame, [0, {}])
        node[0] += 1


def drawn(node, level, start, count):
    for name, child in sorted(node[1].items()):
        if child[0] >= LEAST * count:
            yield level, start, child[0], name
            yield from drawn(child, level + 1, start, count)
        start += child[0]


def colour(name):
    return next((colour for part, colour in COLOURS if part in name), "#c8ccd2")


if __name__ == "__main__":
    main()
