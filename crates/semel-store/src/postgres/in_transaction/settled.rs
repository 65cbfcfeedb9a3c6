//! Claims that are settled as they are made: one statement for a batch of any size.

use semel::{Claim, ClaimRequest, InTransaction, Purpose, Settlement, TransactionError, Twin};

use super::{Handle, In, Value, millis, strange};

/// One call of one function: see there why it is atomic. A row for each request, in their order.
macro_rules! claim_completed {
    ($keys:literal) => {
        concat!(
            "SELECT claim, fence, attempts, was, doubt, age_ms, retry_after_ms, cause, bound_algorithm, format, outcome \
             FROM semel.claim_completed($1::text[], ",
            $keys,
            ", $3::bytea[], $4::bigint[], $5::bytea[], $6::boolean[], $7::bigint[], $8::bigint[], $9::text[], \
             $10::bigint, $11::bytea, $12::bigint, $13::bigint) ORDER BY n"
        )
    };
}
const CLAIM_COMPLETED: &str = claim_completed!("$2::text[]");

/// Behind a BEGIN whose answer nobody has seen. Where that failed, this would be a transaction by itself, and a claim that
/// is completed would be committed without its run: then the timeout of that BEGIN is not there either, and the function
/// refuses keys that are NULL.
pub(super) const CLAIM_COMPLETED_BEHIND_BEGIN: &str =
    claim_completed!("CASE WHEN current_setting('lock_timeout') = '5003ms' THEN $2::text[] END");

impl<H: Handle> In<H> {
    pub(super) async fn claim_settled(
        &mut self,
        requests: &[ClaimRequest],
        settlement: &Settlement,
    ) -> Result<Vec<Claim>, TransactionError> {
        match settlement {
            Settlement::Complete { .. } if requests.iter().all(is_plain) => {
                self.claim_completed(requests, settlement).await
            }
            _ => self.claim_then_settle(requests, settlement).await,
        }
    }

    async fn claim_then_settle(
        &mut self,
        requests: &[ClaimRequest],
        settlement: &Settlement,
    ) -> Result<Vec<Claim>, TransactionError> {
        let claims = self.claim_in(requests, Twin::Wait).await?;
        for claim in &claims {
            if let Claim::Acquired(lease) = claim {
                self.settle(lease, settlement).await?;
            }
        }
        Ok(claims)
    }

    async fn claim_completed(
        &mut self,
        requests: &[ClaimRequest],
        settlement: &Settlement,
    ) -> Result<Vec<Claim>, TransactionError> {
        let Settlement::Complete { outcome, replay_for, remember_for } = settlement else {
            return Err(strange());
        };
        let columns = Columns::of(requests);
        let values = [
            Value::Texts(&columns.scopes),
            Value::Texts(&columns.keys),
            Value::ByteStrings(&columns.attempts),
            Value::Numbers(&columns.algorithms),
            Value::ByteStrings(&columns.digests),
            Value::Flags(&columns.reruns),
            Value::Numbers(&columns.attempts_max),
            Value::Numbers(&columns.leases),
            Value::Texts(&columns.labels),
            Value::Number(i64::from(outcome.format)),
            Value::Bytes(&outcome.bytes),
            Value::Number(millis(*replay_for)),
            Value::Number(millis(*remember_for)),
        ];
        let sql = match self.0.begin_is_unseen() {
            true => CLAIM_COMPLETED_BEHIND_BEGIN,
            false => CLAIM_COMPLETED,
        };
        let rows = self.0.rows(sql, &values).await?;
        let claims = rows.into_iter().zip(requests).map(|(reply, request)| reply.claim(request));
        let claims: Option<Vec<Claim>> = claims.collect();
        claims.filter(|claims| claims.len() == requests.len()).ok_or_else(strange)
    }
}

/// What the function knows of: runs, without an input.
fn is_plain(request: &ClaimRequest) -> bool {
    matches!(request.purpose, Purpose::Run { .. }) && request.input.is_none()
}

#[derive(Default)]
struct Columns<'a> {
    scopes: Vec<&'a str>,
    keys: Vec<&'a str>,
    attempts: Vec<&'a [u8]>,
    algorithms: Vec<i64>,
    digests: Vec<&'a [u8]>,
    reruns: Vec<bool>,
    attempts_max: Vec<i64>,
    leases: Vec<i64>,
    labels: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(requests: &'a [ClaimRequest]) -> Columns<'a> {
        let mut columns = Columns::default();
        for request in requests {
            columns.push(request);
        }
        columns
    }

    fn push(&mut self, request: &'a ClaimRequest) {
        let Purpose::Run { fingerprint, rerun, attempts_max } = &request.purpose else { return };
        self.scopes.push(request.scope.as_str());
        self.keys.push(request.key.as_str());
        self.attempts.push(&request.attempt.0);
        self.algorithms.push(i64::from(fingerprint.algorithm.0));
        self.digests.push(&fingerprint.digest);
        self.reruns.push(*rerun);
        self.attempts_max.push(i64::from(*attempts_max));
        self.leases.push(millis(request.lease_for));
        self.labels.push(request.label.as_str());
    }
}
