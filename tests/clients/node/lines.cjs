// One request per line of standard input, one answer per line of standard output, both JSON.

const readline = require("node:readline");

exports.serve = async (answer) => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let said;
    try {
      said = await answer(JSON.parse(line));
    } catch (error) {
      said = { failed: failure(error) };
    }
    process.stdout.write(JSON.stringify(said) + "\n");
  }
  // A connection that a client keeps would keep this process.
  process.exit();
};

function failure(error) {
  const { name, message, code, statusCode, type, param, headers, raw } = error;
  return { name, message, code, status: statusCode, type, param, headers, raw };
}
