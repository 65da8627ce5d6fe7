"""Reads a number of messages of a stream with nats-py and prints each as one line of JSON."""

import asyncio
import base64
import json
import sys

import nats


async def main(url, stream, count):
    client = await nats.connect(url)
    subscription = await client.jetstream().pull_subscribe("", durable="foreign", stream=stream)
    while count > 0:
        for message in await subscription.fetch(count, timeout=20):
            payload = base64.b64encode(message.data).decode()
            print(json.dumps({"subject": message.subject, "headers": message.headers, "payload": payload}))
            await message.ack()
            count -= 1
    await client.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
