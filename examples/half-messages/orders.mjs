// Places orders and announces them with half messages: plain HTTP, without an SDK.
//
//   node orders.mjs                         listens on $PORT (8081)
//   curl -X POST 127.0.0.1:8081/orders/7    places order 7
//
// A file per order stands for a store without a barrier table. So Landfall asks this service about an order whose
// decision is missing: POST /state. `?crash=before-commit` and `?crash=after-commit` end the process at that point.

import { createHmac, timingSafeEqual } from "node:crypto";
import { access, mkdir, rename, writeFile } from "node:fs/promises";
import { createServer } from "node:http";

const landfall = process.env.LANDFALL_URL ?? "http://127.0.0.1:7700";
const secret = Buffer.from((process.env.SECRET ?? "").replace("whsec_", ""), "base64");
const folder = process.env.ORDERS ?? "orders";
await mkdir(folder, { recursive: true });

/** Orders whose local transaction is still running here. */
const running = new Set();

async function post(path, body) {
  const response = await fetch(landfall + path, { method: "POST", body: body && JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

async function place(order, crash) {
  const end = (step) => crash === step && process.kill(process.pid, "SIGKILL");
  running.add(order);
  try {
    const { id } = await post("/v1/half-messages", {
      topic: "orders", key: `order-${order}`, kind: "OrderPlaced", payload: { order: Number(order) },
      business_type: "order", business_id: order, check_back: { http: `http://127.0.0.1:${server.address().port}/state` },
    });
    await writeFile(`${folder}/${order}.new`, order, { flush: true });
    end("before-commit");
    await rename(`${folder}/${order}.new`, `${folder}/${order}`);
    end("after-commit");
    await post(`/v1/half-messages/${id}/commit`);
  } finally {
    running.delete(order);
  }
}

/** Whether the order exists. While it is being placed that is unknown: "rolled_back" would be final. */
async function state(order) {
  if (running.has(order)) return "unknown";
  return access(`${folder}/${order}`).then(() => "committed", () => "rolled_back");
}

/** Verifies a Standard Webhooks signature. */
function isSigned(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": signatures = "" } = headers;
  if (Math.abs(Date.now() / 1000 - Number(seconds)) > 300) return false;
  const expected = Buffer.from(createHmac("sha256", secret).update(`${id}.${seconds}.${body}`).digest("base64"));
  return signatures.split(" ").some((signature) => {
    const given = Buffer.from(signature.replace("v1,", ""));
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

async function handle(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  if (pathname === "/state") {
    // An answer other than 200 is unknown, so a forged or damaged question decides nothing.
    if (!isSigned(request.headers, body)) return [401, { error: "the signature is missing or wrong" }];
    return [200, { state: await state(JSON.parse(body).business_id) }];
  }
  const [, order] = pathname.match(/^\/orders\/(\d+)$/) ?? [];
  if (!order) return [404, { error: "POST /orders/NUMBER or /state" }];
  await place(order, searchParams.get("crash"));
  return [201, { order }];
}

const server = createServer((request, response) => {
  handle(request)
    .catch((error) => [500, { error: String(error) }])
    .then(([status, answer]) => response.writeHead(status).end(JSON.stringify(answer)));
});
server.listen(Number(process.env.PORT ?? 8081), "127.0.0.1", () => {
  console.log(`listening on 127.0.0.1:${server.address().port}`);
});
