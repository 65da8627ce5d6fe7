// Places an order over HTTP, for a service without a database of its own. Needs nothing but Node 18.
//
// The answer comes after the message is committed to the outbox. A request without an answer may have been accepted, so it
// is repeated under the same id: Landfall then recognises the message and enqueues it once.

import { setTimeout as pause } from "node:timers/promises";

const url = process.env.LANDFALL_URL ?? "http://127.0.0.1:7700";
const order = Number(process.argv[2] ?? 1);

const request = {
  method: "POST",
  headers: { "content-type": "application/json", "idempotency-key": `order-${order}-placed` },
  body: JSON.stringify({ topic: "orders", key: "zoë", kind: "OrderPlaced", payload: { order, item: "book" } }),
};

// Returns the answer, or undefined if the request may be repeated: there was no answer, or the server was unavailable.
async function post() {
  try {
    const response = await fetch(`${url}/v1/messages`, { ...request, signal: AbortSignal.timeout(5_000) });
    if (response.status === 429 || response.status >= 500) return undefined;
    const answer = await response.json();
    if (!response.ok) throw new Error(`${answer.title}: ${answer.detail}`, { cause: "refused" });
    return answer;
  } catch (error) {
    if (error.cause === "refused") throw error;
    return undefined;
  }
}

let answer;
for (let attempt = 0; !answer && attempt < 5; attempt++) {
  if (attempt > 0) await pause(2 ** attempt * 200);
  answer = await post();
}
if (!answer) throw new Error(`no answer from ${url}; run the same command again, the message is sent once`);
console.log(`accepted order ${order} as ${answer.id}`);
