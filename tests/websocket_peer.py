"""A server of Responses and Realtime over WebSocket, on the library `websockets`.

Prints its port, then for each connection that ends a line of JSON: path, types of the messages, and how it was closed. It closes
connections that do not answer pings, and sends the last event in fragments.
"""

import asyncio
import json

from websockets.asyncio.server import serve

USAGE = {"input_tokens": 2, "output_tokens": 3}


async def answer(socket, last):
    await socket.send(json.dumps({"type": "response.created", "response": {"id": "r", "output": []}}, indent=2))
    for _ in range(3):
        await socket.send(json.dumps({"type": "response.output_text.delta", "output_index": 0, "delta": "hé"}))
    text = json.dumps({"type": last, "response": {"id": "r", "status": "completed", "usage": USAGE}})
    await socket.send([text[:10], text[10:40], text[40:]])


async def converse(socket):
    kinds = []
    realtime = "realtime" in socket.request.path
    if realtime:
        await socket.send(json.dumps({"type": "session.created", "session": {}}))
    async for message in socket:
        kinds.append(json.loads(message)["type"])
        if kinds[-1] == "response.create":
            await answer(socket, "response.done" if realtime else "response.completed")
    print(json.dumps([socket.request.path, kinds, socket.close_code]), flush=True)


async def main():
    async with serve(converse, "127.0.0.1", 0, ping_interval=0.2, ping_timeout=2) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().create_future()


asyncio.run(main())
