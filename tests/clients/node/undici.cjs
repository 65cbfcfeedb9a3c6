// undici: `request` over one Agent, with `retry` over a RetryAgent, with `fetch` through fetch. A second argument is a
// certificate to trust; HTTP/2 is spoken where the other side has it.

const { readFileSync } = require("node:fs");
const { subscribe } = require("node:diagnostics_channel");
const undici = require("undici");
const { serve } = require("./lines.cjs");

const [, , mode, certificate] = process.argv;
const agent = new undici.Agent({ allowH2: true, connect: certificate ? { ca: readFileSync(certificate) } : {} });
let version = "1.1";
subscribe("undici:client:connected", ({ socket }) => {
  version = socket.alpnProtocol === "h2" ? "2" : "1.1";
});
const dispatcher =
  mode === "retry"
    ? // Each is what a careful caller writes: POST has a key here, and an answer in flight or lost is asked for again.
      new undici.RetryAgent(agent, { methods: ["POST"], statusCodes: [409, 502, 503, 504], minTimeout: 20 })
    : agent;

serve(mode === "fetch" ? byFetch : byRequest);

async function byRequest({ url, headers, body }) {
  const options = { method: "POST", headers: headers.flat(), body, dispatcher, responseHeaders: "raw" };
  const answer = await undici.request(url, options);
  const raw = answer.headers.map(String);
  const lines = raw.flatMap((name, at) => (at % 2 ? [] : [[name, raw[at + 1]]]));
  return { version, status: answer.statusCode, headers: lines, body: base64(await answer.body.arrayBuffer()) };
}

async function byFetch({ url, headers, body }) {
  const answer = await undici.fetch(url, { method: "POST", headers, body, dispatcher });
  return { version, status: answer.status, headers: [...answer.headers], body: base64(await answer.arrayBuffer()) };
}

function base64(bytes) {
  return Buffer.from(bytes).toString("base64");
}
