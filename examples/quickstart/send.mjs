// Places an order over HTTP, for a service without a database of its own. Needs nothing but Node 18.
//
// The answer comes after the message is committed to the outbox. A request without an answer may have been accepted:
// repeating it can send a second message. A service with a database avoids this, see send.py.

const url = process.env.LANDFALL_URL ?? "http://127.0.0.1:7700";
const order = Number(process.argv[2] ?? 1);

const response = await fetch(`${url}/v1/messages`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ topic: "orders", key: "zoë", kind: "OrderPlaced", payload: { order, item: "book" } }),
});
const answer = await response.json();
if (!response.ok) throw new Error(`${answer.title}: ${answer.detail}`);
console.log(`accepted order ${order} as ${answer.id}`);
