"""slow_link.py A B DELAY_MS LOSS: connects two network interfaces as a slow link does, for kernels without `tc netem`.

Each frame is forwarded after the delay, or lost with the given probability. Needs root. Prints `ready`, and runs until killed.
"""

import collections
import random
import select
import socket
import sys
import time

ALL_PROTOCOLS = 3
OUTGOING = 4
SOL_PACKET = 263
PACKET_VNET_HDR = 15


def opened(name):
    """A socket for the frames of an interface, with their header of checksums and segments that are still to be made."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    link.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    link.bind((name, ALL_PROTOCOLS))
    return link


a, b = opened(sys.argv[1]), opened(sys.argv[2])
delay, loss = float(sys.argv[3]) / 1e3, float(sys.argv[4])
to = {a: b, b: a}
chance = random.Random(1)
waiting = collections.deque()
print("ready", flush=True)
while True:
    left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
    for link in select.select([a, b], [], [], left)[0]:
        try:
            frame, origin = link.recvfrom(1 << 17)
        except OSError:
            continue  # the interface is down
        # The socket also sees what this program sends.
        if origin[2] != OUTGOING and chance.random() >= loss:
            waiting.append((time.monotonic() + delay, to[link], frame))
    while waiting and waiting[0][0] <= time.monotonic():
        _, link, frame = waiting.popleft()
        try:
            link.send(frame)
        except OSError as error:
            print("lost a frame:", error, file=sys.stderr)
