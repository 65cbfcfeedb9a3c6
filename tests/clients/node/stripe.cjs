// The Stripe SDK for Node: each line is one call, on a client of its own.

const Stripe = require("stripe");
const { serve } = require("./lines.cjs");

serve(async ({ url, secret, retries, service, call, params, key }) => {
  const { hostname, port } = new URL(url);
  const stripe = new Stripe(secret, { host: hostname, port, protocol: "http", maxNetworkRetries: retries });
  const options = key ? { idempotencyKey: key } : {};
  const made = await stripe[service][call](params, options);
  return { made, headers: made.lastResponse.headers };
});
