"""Sends a message to a queue of RabbitMQ: only what that takes of AMQP 0-9-1, with the standard library.

    python3 send.py QUEUE ID BODY [HOST:PORT]

A producer of your own uses its client library; what counts is that it sets `message_id`.
"""

import socket
import struct
import sys


def short(text):
    return bytes([len(text)]) + text


def long(data):
    return struct.pack(">I", len(data)) + data


def frame(kind, channel, payload):
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(ids, arguments=b"", channel=1):
    return frame(1, channel, struct.pack(">HH", *ids) + arguments)


def heard(stream):
    """The ids of the broker's next method."""
    head = stream.read(7)
    if len(head) < 7:
        sys.exit("the broker has ended the connection: are user and password right?")
    _, _, size = struct.unpack(">BHI", head)
    payload = stream.read(size + 1)
    ids = struct.unpack(">HH", payload[:4])
    if ids in ((10, 50), (20, 40)):
        sys.exit("the broker refuses: " + payload[7 : 7 + payload[6]].decode())
    return ids


def send(queue, message_id, body, host, port):
    with socket.create_connection((host, port), timeout=10) as broker, broker.makefile("rb") as stream:
        broker.sendall(b"AMQP\x00\x00\x09\x01")
        heard(stream)  # start
        login = long(b"") + short(b"PLAIN") + long(b"\x00guest\x00guest") + short(b"en_US")
        broker.sendall(method((10, 11), login, 0))
        heard(stream)  # tune
        broker.sendall(method((10, 31), struct.pack(">HIH", 1, 131072, 0), 0))
        broker.sendall(method((10, 40), short(b"/") + short(b"") + b"\x00", 0))
        heard(stream)  # open-ok
        broker.sendall(method((20, 10), short(b"")))
        heard(stream)  # channel open-ok
        broker.sendall(method((85, 10), b"\x00"))
        heard(stream)  # confirms are on
        broker.sendall(method((60, 40), b"\x00\x00" + short(b"") + short(queue.encode()) + b"\x01"))  # mandatory
        # content-type, delivery-mode (persistent) and message-id
        properties = struct.pack(">H", 0x9080) + short(b"application/json") + b"\x02" + short(message_id.encode())
        broker.sendall(frame(2, 1, struct.pack(">HHQ", 60, 0, len(body)) + properties))
        broker.sendall(frame(3, 1, body))
        answer = heard(stream)
        if answer == (60, 50):
            sys.exit(f"there is no queue {queue!r}: the message came back")
        if answer != (60, 80):
            sys.exit("the broker did not confirm it")
        broker.sendall(method((10, 50), b"\x00\x00" + short(b"") + b"\x00\x00\x00\x00", 0))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    host, _, port = (sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1:5672").rpartition(":")
    try:
        send(sys.argv[1], sys.argv[2], sys.argv[3].encode(), host, int(port))
    except OSError as error:
        sys.exit(f"the broker at {host}:{port}: {error}")
