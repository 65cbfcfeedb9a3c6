"""Lines as SVG, written by hand: no library, and the same text for the same figures."""

import math

from picture import text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 90, 130, 50, 50
COLOURS = ("#2f6f9f", "#b58a4a", "#7d8f5a", "#8a5a8f")


def picture(series, title, below):
    """Points of (x, y) by name; x in powers of ten, y from zero."""
    points = [point for line in series.values() for point in line]
    least, most = (round_(math.log10(end(x for x, _ in points))) for round_, end in ((math.floor, min), (math.ceil, max)))
    top = max(y for _, y in points) * 1.1
    place = lambda x, y: (LEFT + (math.log10(x) - least) / max(1, most - least) * (WIDTH - LEFT - RIGHT),
                          HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM))
    parts = [text(LEFT, 24, title, weight="bold"), text(LEFT, HEIGHT - 10, below)]
    for power in range(least, most + 1):
        x, y = place(10 ** power, 0)
        parts.append('<path d="M%.1f %.1fV%d" stroke="#ddd"/>' % (x, y, TOP))
        parts.append(text(x, y + 18, format(10 ** power, ","), anchor="middle"))
    for share in range(5):
        x, y = place(10 ** least, top * share / 4)
        parts.append('<path d="M%.1f %.1fH%d" stroke="#ddd"/>' % (x, y, WIDTH - RIGHT))
        parts.append(text(x - 8, y + 4, format(round(top * share / 4), ","), anchor="end"))
    for colour, (name, line) in zip(COLOURS, series.items()):
        places = [place(*point) for point in line]
        parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (
            " ".join("%.1f,%.1f" % one for one in places), colour))
        parts += ['<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>' % (*one, colour) for one in places]
        parts.append(text(places[-1][0] + 8, places[-1][1] + 4, name))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">\n'
        '<rect width="100%%" height="100%%" fill="white"/>\n%s\n</svg>\n' % (WIDTH, HEIGHT, "\n".join(parts)))
