// Receives orders over HTTP and writes one receipt per message.
//
// Landfall posts a message until it is confirmed, so a message may arrive twice. The receipt is named for the message id
// and created exclusively: a second delivery finds the file and changes nothing.

import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";

const folder = process.env.RECEIPTS ?? "receipts";
await mkdir(folder, { recursive: true });

async function receive(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const { order } = JSON.parse(body);
  try {
    await writeFile(`${folder}/${request.headers["idempotency-key"]}.json`, body, { flag: "wx", flush: true });
    console.log(`order ${order}: receipt written`);
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    console.log(`order ${order}: duplicate`);
  }
}

const server = createServer((request, response) => {
  receive(request).then(
    () => response.writeHead(204).end(),
    // Landfall retries after an answer of 500.
    (error) => response.writeHead(500).end(String(error)),
  );
});
server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", () => {
  console.log(`listening on 127.0.0.1:${server.address().port}`);
});
