// A gateway as one would build it from express and express-idempotency: node gateway.js PORT UPSTREAM_PORT
//
// 1. Keys and answers are in memory: nothing is durable, and a crash forgets all of them.
// 2. The library's own memory is an array that is searched from its beginning for each request, and says that it is not
//    for production. Here it is a Map, which costs the same however many keys there are.
// 3. The body is read as JSON, because the library compares it. What is forwarded goes through undici's pool.

const express = require("express");
const { idempotency, getSharedIdempotencyService } = require("express-idempotency");
const { Pool } = require("undici");

const [port, upstreamPort] = process.argv.slice(2).map(Number);
const upstream = new Pool(`http://127.0.0.1:${upstreamPort}`, { connections: 256 });

class Memory {
  resources = new Map();
  async findByIdempotencyKey(key) { return this.resources.get(key) ?? null; }
  async create(resource) { this.resources.set(resource.idempotencyKey, resource); }
  async update(resource) { this.resources.set(resource.idempotencyKey, resource); }
  async delete(key) { this.resources.delete(key); }
}

const app = express();
app.disable("x-powered-by");
app.disable("etag");
app.use(express.json());
app.use(idempotency({ dataAdapter: new Memory() }));
const kept = getSharedIdempotencyService();

app.use(async (request, response) => {
  if (kept.isHit(request)) return;
  const answer = await upstream.request({
    path: request.originalUrl,
    method: request.method,
    headers: { "content-type": "application/json", "idempotency-key": request.get("idempotency-key") },
    body: JSON.stringify(request.body),
  });
  response.status(answer.statusCode).type(answer.headers["content-type"]);
  response.send(await answer.body.text());
});

app.listen(port, "127.0.0.1");
