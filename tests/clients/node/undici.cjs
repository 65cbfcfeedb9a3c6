// undici: `request` over one Agent, with `retry` over a RetryAgent, with `fetch` through fetch.

const undici = require("undici");
const { serve } = require("./lines.cjs");

const mode = process.argv[2];
const agent = new undici.Agent();
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
  return { status: answer.statusCode, headers: lines, body: base64(await answer.body.arrayBuffer()) };
}

async function byFetch({ url, headers, body }) {
  const answer = await undici.fetch(url, { method: "POST", headers, body, dispatcher });
  return { status: answer.status, headers: [...answer.headers], body: base64(await answer.arrayBuffer()) };
}

function base64(bytes) {
  return Buffer.from(bytes).toString("base64");
}
