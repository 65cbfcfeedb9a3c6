//! A batch by the functions of the schema: one statement, one round trip, one commit.
//!
//! What a claim or a settlement comes to is decided there; here it is only read. Each statement is atomic for each of its
//! rows, and all or nothing for the batch: an error means that none of it was written.

use semel::record::Unfit;
use semel::{Algorithm, Cause, Claim, ClaimRequest, Fence, Lease, Outcome, Purpose, Settlement};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::call::{Answer, Ending, Verb};
use super::error::Failure;
use super::in_transaction::was_word;
use super::lanes::all;
use super::rows::{Id, bytes, cause, integer, millis, number, strange, text};
use super::session::{Parameter, Session};

const CLAIM: &str = "SELECT n, claim, fence, attempts, was, doubt, age_ms, retry_after_ms, cause, bound_algorithm, format, \
     outcome FROM semel.claim_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const SETTLE: &str =
    "SELECT n, answer FROM semel.settle_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// First the settlements: a key that is given free may be claimed in the same batch. Their numbers are negative.
const BOTH: &str = "SELECT -n, answer, NULL::bigint, NULL::bigint, NULL::text, NULL::boolean, NULL::bigint, \
     NULL::bigint, NULL::text, NULL::integer, NULL::integer, NULL::bytea \
     FROM semel.settle_many($13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24) \
     UNION ALL \
     SELECT n, claim, fence, attempts, was, doubt, age_ms, retry_after_ms, cause, bound_algorithm, format, outcome \
     FROM semel.claim_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// A call alone, without the sets.
const CLAIM_ALONE: &str = "SELECT 1, claim, fence, attempts, was, doubt, age_ms, retry_after_ms, cause, bound_algorithm, \
     format, outcome FROM semel.claim_alone($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const SETTLE_ALONE: &str = "SELECT 1, semel.settle_alone($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// Makes the calls of a batch. Gives an answer for each, in their order.
pub(super) async fn run(session: &Session, verbs: &[&Verb]) -> Vec<Result<Answer, Failure>> {
    made(session, verbs).await.unwrap_or_else(|failure| all(verbs.len(), &failure))
}

async fn made(session: &Session, verbs: &[&Verb]) -> Result<Vec<Result<Answer, Failure>>, Failure> {
    let (mut claims, mut ends) = (Claims::default(), Ends::default());
    let (mut claim_places, mut end_places) = (Vec::new(), Vec::new());
    for (place, verb) in verbs.iter().enumerate() {
        match verb {
            Verb::Claim(request) => {
                claims.push(request);
                claim_places.push(place);
            }
            Verb::Settle(lease, ending) => {
                ends.push(lease, ending);
                end_places.push(place);
            }
        }
    }
    let mut answers: Vec<Option<Result<Answer, Failure>>> = verbs.iter().map(|_| None).collect();
    let rows = match (claim_places.len(), end_places.len()) {
        (1, 0) => session.query(CLAIM_ALONE, &claims.first()).await,
        (0, 1) => session.query(SETTLE_ALONE, &ends.first()).await,
        (_, 0) => session.query(CLAIM, &claims.parameters()).await,
        (0, _) => session.query(SETTLE, &ends.parameters()).await,
        _ => session.query(BOTH, &[claims.parameters(), ends.parameters()].concat()).await,
    }
    .map_err(Failure::server)?;
    let is_settled = claim_places.is_empty();
    for row in &rows {
        let n: i32 = row.try_get(0).map_err(Failure::row)?;
        let places = if is_settled || n < 0 { &end_places } else { &claim_places };
        let place = n.unsigned_abs() as usize - 1;
        let place = *places.get(place).ok_or_else(strange)?;
        answers[place] = Some(match verbs[place] {
            Verb::Claim(request) => claimed(row, request).map(Answer::Claim),
            Verb::Settle(..) => ended(row).map(Answer::Settled),
        });
    }
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(strange()))).collect())
}

/// The parameters of `claim_many`: a column each.
#[derive(Default)]
struct Claims<'a> {
    scopes: Vec<&'a str>,
    keys: Vec<&'a str>,
    attempts: Vec<Id>,
    seen: Vec<Option<i64>>,
    forced: Vec<bool>,
    algorithms: Vec<Option<i16>>,
    digests: Vec<Option<&'a [u8]>>,
    reruns: Vec<bool>,
    attempts_max: Vec<i64>,
    lease_ms: Vec<i64>,
    labels: Vec<String>,
    inputs: Vec<Option<&'a [u8]>>,
}

impl<'a> Claims<'a> {
    fn push(&mut self, request: &'a ClaimRequest) {
        self.scopes.push(request.scope.as_str());
        self.keys.push(request.key.as_str());
        self.attempts.push(Id(request.attempt));
        self.lease_ms.push(millis(request.lease_for));
        self.labels.push(text(request.label.as_str()));
        self.inputs.push(request.input.as_deref());
        let (seen, force, fingerprint, rerun, attempts_max) = match &request.purpose {
            Purpose::Run { fingerprint, rerun, attempts_max } => {
                (None, false, Some(fingerprint), *rerun, *attempts_max)
            }
            Purpose::Settle { seen, force } => (Some(integer(seen.0)), *force, None, false, 0),
        };
        self.seen.push(seen);
        self.forced.push(force);
        self.algorithms.push(fingerprint.map(|fingerprint| i16::from(fingerprint.algorithm.0)));
        self.digests.push(fingerprint.map(|fingerprint| fingerprint.digest.as_slice()));
        self.reruns.push(rerun);
        self.attempts_max.push(i64::from(attempts_max));
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.scopes, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.attempts, Type::UUID_ARRAY),
            (&self.seen, Type::INT8_ARRAY),
            (&self.forced, Type::BOOL_ARRAY),
            (&self.algorithms, Type::INT2_ARRAY),
            (&self.digests, Type::BYTEA_ARRAY),
            (&self.reruns, Type::BOOL_ARRAY),
            (&self.attempts_max, Type::INT8_ARRAY),
            (&self.lease_ms, Type::INT8_ARRAY),
            (&self.labels, Type::TEXT_ARRAY),
            (&self.inputs, Type::BYTEA_ARRAY),
        ]
    }

    /// The only one's, each by itself.
    fn first(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.scopes[0], Type::TEXT),
            (&self.keys[0], Type::TEXT),
            (&self.attempts[0], Type::UUID),
            (&self.seen[0], Type::INT8),
            (&self.forced[0], Type::BOOL),
            (&self.algorithms[0], Type::INT2),
            (&self.digests[0], Type::BYTEA),
            (&self.reruns[0], Type::BOOL),
            (&self.attempts_max[0], Type::INT8),
            (&self.lease_ms[0], Type::INT8),
            (&self.labels[0], Type::TEXT),
            (&self.inputs[0], Type::BYTEA),
        ]
    }
}

/// The parameters of `settle_many`: a column each.
#[derive(Default)]
struct Ends<'a> {
    scopes: Vec<&'a str>,
    keys: Vec<&'a str>,
    fences: Vec<i64>,
    attempts: Vec<Id>,
    hows: Vec<&'static str>,
    formats: Vec<Option<i16>>,
    outcomes: Vec<Option<&'a [u8]>>,
    for_ms: Vec<Option<i64>>,
    remember_ms: Vec<Option<i64>>,
    unbinds: Vec<bool>,
    rans: Vec<bool>,
    causes: Vec<Option<String>>,
}

impl<'a> Ends<'a> {
    fn push(&mut self, lease: &'a Lease, ending: &'a Ending) {
        self.scopes.push(lease.scope.as_str());
        self.keys.push(lease.key.as_str());
        self.fences.push(integer(lease.fence.0));
        self.attempts.push(Id(lease.attempt));
        let mut end = End::default();
        let how = match ending {
            Ending::Renew(lease_for) => {
                end.for_ms = Some(millis(*lease_for));
                "renew"
            }
            Ending::Settlement(Settlement::Complete { outcome, replay_for, remember_for }) => {
                end.outcome = Some(outcome);
                end.for_ms = Some(millis(*replay_for));
                end.remember_ms = Some(millis(*remember_for));
                "complete"
            }
            Ending::Settlement(Settlement::Release { not_before, unbind, ran, remember_for }) => {
                end.for_ms = Some(millis(not_before.unwrap_or_default()));
                end.remember_ms = Some(millis(*remember_for));
                (end.unbind, end.ran) = (*unbind, *ran);
                "release"
            }
            Ending::Settlement(Settlement::Park { cause }) => {
                end.cause = Some(cause);
                "park"
            }
            Ending::Settlement(Settlement::Bury { cause }) => {
                end.cause = Some(cause);
                "bury"
            }
        };
        self.hows.push(how);
        self.formats.push(end.outcome.map(|outcome| i16::from(outcome.format)));
        self.outcomes.push(end.outcome.map(|outcome| outcome.bytes.as_ref()));
        self.for_ms.push(end.for_ms);
        self.remember_ms.push(end.remember_ms);
        self.unbinds.push(end.unbind);
        self.rans.push(end.ran);
        self.causes.push(end.cause.map(|cause| text(cause.as_str())));
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.scopes, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.fences, Type::INT8_ARRAY),
            (&self.attempts, Type::UUID_ARRAY),
            (&self.hows, Type::TEXT_ARRAY),
            (&self.formats, Type::INT2_ARRAY),
            (&self.outcomes, Type::BYTEA_ARRAY),
            (&self.for_ms, Type::INT8_ARRAY),
            (&self.remember_ms, Type::INT8_ARRAY),
            (&self.unbinds, Type::BOOL_ARRAY),
            (&self.rans, Type::BOOL_ARRAY),
            (&self.causes, Type::TEXT_ARRAY),
        ]
    }

    /// The only one's, each by itself.
    fn first(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.scopes[0], Type::TEXT),
            (&self.keys[0], Type::TEXT),
            (&self.fences[0], Type::INT8),
            (&self.attempts[0], Type::UUID),
            (&self.hows[0], Type::TEXT),
            (&self.formats[0], Type::INT2),
            (&self.outcomes[0], Type::BYTEA),
            (&self.for_ms[0], Type::INT8),
            (&self.remember_ms[0], Type::INT8),
            (&self.unbinds[0], Type::BOOL),
            (&self.rans[0], Type::BOOL),
            (&self.causes[0], Type::TEXT),
        ]
    }
}

/// What an ending has, whichever it is.
#[derive(Default)]
struct End<'a> {
    outcome: Option<&'a Outcome>,
    for_ms: Option<i64>,
    remember_ms: Option<i64>,
    unbind: bool,
    ran: bool,
    cause: Option<&'a Cause>,
}

fn claimed(row: &Row, request: &ClaimRequest) -> Result<Claim, Failure> {
    let word: &str = row.try_get(1).map_err(Failure::row)?;
    let age = || span(row, 6);
    Ok(match word {
        "acquired" => Claim::Acquired(Lease {
            scope: request.scope.clone(),
            key: request.key.clone(),
            fence: Fence(number(row, 2)?),
            attempt: request.attempt,
            attempts: attempts(row)?,
            was: was_word(row.try_get(4).map_err(Failure::row)?).ok_or_else(strange)?,
            doubt: row.try_get(5).map_err(Failure::row)?,
        }),
        "in-flight" => Claim::InFlight { retry_after: span(row, 7)?, age: age()? },
        "completed" => {
            let outcome = Outcome { format: small(row, 10)?, bytes: bytes(row, 11)?.ok_or_else(strange)? };
            Claim::Completed { outcome, age: age()?, attempts: attempts(row)? }
        }
        "mismatch" => Claim::Mismatch { algorithm: Algorithm(small(row, 9)?) },
        "unknown" => Claim::Unknown { fence: Fence(number(row, 2)?), cause: why(row)?, age: age()? },
        "dead" => Claim::Dead { fence: Fence(number(row, 2)?), cause: why(row)?, age: age()? },
        "forgotten" => Claim::Forgotten { age: age()? },
        "moved" => Claim::Moved,
        _ => return Err(strange()),
    })
}

fn ended(row: &Row) -> Result<Result<(), Unfit>, Failure> {
    match row.try_get(1).map_err(Failure::row)? {
        "done" => Ok(Ok(())),
        "lease-lost" => Ok(Err(Unfit::LeaseLost)),
        "refused" => Ok(Err(Unfit::Settled)),
        _ => Err(strange()),
    }
}

fn attempts(row: &Row) -> Result<u32, Failure> {
    u32::try_from(number(row, 3)?).map_err(|_| strange())
}

fn why(row: &Row) -> Result<Cause, Failure> {
    cause(row.try_get(8).map_err(Failure::row)?)
}

fn span(row: &Row, column: usize) -> Result<Duration, Failure> {
    number(row, column).map(Duration::from_millis)
}

fn small(row: &Row, column: usize) -> Result<u8, Failure> {
    let number: i32 = row.try_get(column).map_err(Failure::row)?;
    u8::try_from(number).map_err(|_| strange())
}
