"""Bars as SVG, written by hand: no library, and the same text for the same figures."""

from html import escape

WIDTH, ROW, LEFT, RIGHT = 900, 26, 270, 150
COLOURS = {"nginx": "#8a8f98", "Semel": "#2f6f9f", "axum": "#b58a4a", "express": "#7d8f5a",
           "plain": "#8a8f98", "inbox": "#b58a4a"}


def bars(rows):
    """Requests per second: a bar for the median, a line from least to most, the ratio behind it."""
    scale = (WIDTH - LEFT - RIGHT) / max(row["rate"]["max"] for row in rows)
    parts, y = [], 20
    for table, connections in dict.fromkeys((row["table"], row["connections"]) for row in rows):
        title = "%s: requests per second at %d connections" % (table, connections)
        parts.append(text(10, y + 14, title, weight="bold"))
        y += ROW
        for row in rows:
            if (row["table"], row["connections"]) == (table, connections):
                parts += bar(row, y, scale)
                y += ROW
        y += 14
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">\n'
        '<rect width="100%%" height="100%%" fill="white"/>\n%s\n</svg>\n' % (WIDTH, y, "\n".join(parts)))


def bar(row, y, scale):
    rate, middle = row["rate"], y + ROW / 2 - 3
    colour = COLOURS[row["name"].split()[0].rstrip(",")]
    least, most = (LEFT + rate[end] * scale for end in ("min", "max"))
    yield text(LEFT - 8, y + 14, row["name"], anchor="end")
    yield '<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>' % (LEFT, y, rate["median"] * scale, ROW - 6, colour)
    yield '<path d="M%.1f %.1fH%.1f" stroke="black"/>' % (least, middle, most)
    yield text(most + 8, y + 14, "%s  (%.2f×)" % (format(round(rate["median"]), ","), row["ratio"]["median"]))


def text(x, y, words, anchor="start", weight="normal"):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" font-weight="%s">%s</text>' % (x, y, anchor, weight, escape(words))
