// Debits an account once, however often it is asked: the key, the debit and the receipt commit together.
//
//     DATABASE_URL=postgres://... node payment.js KEY ACCOUNT CENTS
//
// It prints what came of it and the receipt: `run` the first time, `replay` from then on.
'use strict'

const { randomUUID } = require('node:crypto')
const { setTimeout: pause } = require('node:timers/promises')
const { Client } = require('pg')

// Within what a key is unique. A service with callers of its own puts the caller in.
const SCOPE = 'payments'

// Above READ COMMITTED, a deadlock, a server that shuts down, and one that ended a transaction that slept.
const AGAIN = ['40001', '40P01', '57P01', '57P02', '57P03', '25P03']

// The effect, in the caller's transaction. That there is too little money is an answer like any other.
async function debit(client, account, cents) {
  const { rows } = await client.query(
    `UPDATE accounts SET balance_cents = balance_cents - $2
     WHERE id = $1 AND balance_cents >= $2 RETURNING balance_cents`, [account, cents])
  if (rows.length === 0) return `declined: ${account} has not ${cents}`
  await client.query('INSERT INTO payments (account, cents) VALUES ($1, $2)', [account, cents])
  return `debited ${cents} from ${account}, ${rows[0].balance_cents} left`
}

// begin: once
// One try, in an open transaction. Gives what came of it, and the receipt.
async function payIn(client, attempt, key, account, cents) {
  const { rows: [{ claim, fence, outcome }] } = await client.query(
    `SELECT claim, fence, outcome
     FROM semel.once($1, $2, $3, semel.fingerprint('debit', $4, $5))`,
    [SCOPE, key, attempt, account, String(cents)])
  if (claim === 'completed') return ['replay', outcome.toString()]
  if (claim !== 'acquired') return [claim, ''] // mismatch, forgotten, in-flight, unknown or dead: nothing is to be done
  const receipt = await debit(client, account, cents)
  await client.query('SELECT semel.complete($1, $2, $3, $4, $5)', [SCOPE, key, fence, attempt, Buffer.from(receipt)])
  return ['run', receipt]
}

async function pay(url, key, account, cents) {
  const attempt = randomUUID()
  for (const ms of [100, 200, 400, 800, null]) {
    const client = new Client({ connectionString: url })
    let lost = true
    client.on('error', () => { lost = true })
    try {
      await client.connect()
      lost = false
      await client.query('BEGIN')
      const paid = await payIn(client, attempt, key, account, cents)
      await client.query('COMMIT')
      return paid
    } catch (error) {
      // Was the connection lost in COMMIT, then it may have happened: the next try is told so.
      if (ms === null || !(lost || AGAIN.includes(error.code))) throw error
      await pause(ms)
    } finally {
      await client.end().catch(() => {}) // what is not committed is rolled back
    }
  }
}
// end: once

if (require.main === module) {
  const [key, account, cents] = process.argv.slice(2)
  pay(process.env.DATABASE_URL, key, account, Number(cents)).then(
    ([what, receipt]) => console.log(what, receipt),
    (error) => { console.error(`payment: ${error.message}`); process.exitCode = 1 })
}
