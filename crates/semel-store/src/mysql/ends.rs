//! Settlements and renewals.
//!
//! 1. The common ones, a completion and a plain release of what runs, are **one statement** for all that wait: a fenced
//!    update that commits by itself, at the server's clock. Its condition is the rule's: the row runs, with the lease's
//!    fence and attempt. What it writes is what the rule makes of such a row.
//! 2. It counts only where every row was met. Otherwise all of them go the straight way, where those that were written
//!    are repetitions, which succeed (K2), and the others get their answer.
//! 3. A renewal that comes alone is one statement too.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_async::Value;
use semel::record::{self, Record, State};
use semel::{AttemptId, Label, Lease, Settlement, Timestamp, Was};

use super::failure::{Failure, Step};
use super::job::{self, Answer, Job, Verb};
use super::link::Link;
use super::rows::{self, Name, bytes, from_now};
use super::transaction;
use crate::flat::{self, Flat};

/// Larger outcomes go in a statement of their own.
const SHARED_BYTES_MAX: usize = 16 << 10;

/// Rows in one update: each looks for its values among those of all.
const SHARED_MAX: usize = 32;

/// Fenced: a row that is not the lease's is not met, and one that was settled before is not either.
const OWNED: &str = "(`key` = ? AND scope = ? AND fence = ? AND attempt = ? AND state = 1 AND settles <= ?)";

/// One row. Atomic by itself: the row is locked when the condition is looked at, and until it is written.
const END_ONE: &str = concat!(
    "UPDATE semel_records FORCE INDEX (semel_records_key) SET state = ?, due_at = ",
    from_now!("?"),
    ", not_before = ",
    from_now!("?"),
    ", replay_until = ",
    from_now!("?"),
    ", forget_at = ",
    from_now!("?"),
    ", outcome_format = ?, outcome = ?, doubt = doubt * ?, since = ",
    rows::now!(),
    ", lease_until = NULL, was = NULL, settles = NULL WHERE ",
    "(`key` = ? AND scope = ? AND fence = ? AND attempt = ? AND state = 1 AND settles <= ?)"
);

/// One row. Atomic as [`END_ONE`] is.
const RENEW_ONE: &str = concat!(
    "UPDATE semel_records FORCE INDEX (semel_records_key) SET lease_until = ",
    from_now!("?"),
    ", due_at = ",
    from_now!("?"),
    " WHERE `key` = ? AND scope = ? AND fence = ? AND attempt = ? AND state = 1"
);

/// Answers every call, or fails with those that are left.
pub(super) async fn serve(link: &mut Link, jobs: &mut [Job]) -> Result<(), Failure> {
    end(link, jobs).await?;
    renew(link, jobs).await?;
    transaction::transact(link, jobs).await
}

/// What a settlement makes of a running row, its instants counted from now on.
struct End {
    name: Name,
    lease: Lease,
    state: State,
    due_at: i64,
    keeps_doubt: bool,
}

impl End {
    /// `None` for a settlement whose row has to be read first: what it writes depends on it.
    fn of(job: &Job) -> Option<End> {
        let Verb::Settle { lease, settlement } = &job.verb else { return None };
        let is_plain = match settlement {
            Settlement::Complete { .. } => true,
            Settlement::Release { unbind, ran, .. } => !unbind && *ran,
            Settlement::Park { .. } | Settlement::Bury { .. } => false,
        };
        let running = running(lease);
        let ended = record::settle(Some(&running).filter(|_| is_plain), lease, settlement, Timestamp(0));
        let ended = ended.ok().flatten()?;
        Some(End {
            name: Name::new(&lease.scope, &lease.key),
            lease: lease.clone(),
            due_at: flat::due_at(&ended).0,
            keeps_doubt: ended.doubt,
            state: ended.state,
        })
    }

    /// A release by a claim that settles also counts the attempts, so it is not met.
    fn is_of_settler(&self) -> bool {
        matches!(self.state, State::Completed { .. })
    }

    fn push_owned(&self, parameters: &mut Vec<Value>) {
        self.name.push(parameters);
        parameters.extend([self.lease.fence.0.into(), attempt(&self.lease), self.is_of_settler().into()]);
    }

    /// The values that differ from row to row, in the order of both statements.
    fn values(&self) -> [Value; 8] {
        let flat = Flat::of(&self.state);
        [
            flat.state.into(),
            self.due_at.into(),
            flat.not_before.into(),
            flat.replay_until.into(),
            flat.forget_at.into(),
            flat.outcome_format.into(),
            flat.outcome.map(<[u8]>::to_vec).into(),
            self.keeps_doubt.into(),
        ]
    }
}

/// A row that the lease owns. What else is in it, a plain settlement leaves as it is.
fn running(lease: &Lease) -> Record {
    Record {
        fence: lease.fence,
        attempt: lease.attempt,
        spent: Vec::new(),
        attempts: 1,
        fingerprint: None,
        bound_by: lease.fence,
        doubt: true,
        first_at: Timestamp(0),
        since: Timestamp(0),
        label: Label::default(),
        input: None,
        state: State::Running { until: Timestamp(0), was: Was::New, settles: false },
    }
}

fn attempt(lease: &Lease) -> Value {
    Value::Bytes(lease.attempt.0.to_vec())
}

async fn end(link: &mut Link, jobs: &mut [Job]) -> Result<(), Failure> {
    let mut ends: Vec<(End, &mut Job)> =
        job::waiting(jobs).into_iter().filter_map(|job| Some((End::of(job)?, job))).collect();
    // The order of the index, as everywhere; and rows are told apart by their attempts.
    ends.sort_by(|one, other| one.0.name.cmp(&other.0.name));
    ends.dedup_by(|one, other| one.0.name == other.0.name);
    let mut attempts: BTreeSet<AttemptId> = BTreeSet::new();
    ends.retain(|(end, _)| attempts.insert(end.lease.attempt));
    let (mut large, mut small): (Vec<_>, Vec<_>) =
        ends.into_iter().partition(|(_, job)| job.bytes() > SHARED_BYTES_MAX);
    let mut rest = small.as_mut_slice();
    while !rest.is_empty() {
        let (these, others) = rest.split_at_mut(rows::portion(rest.len()).min(SHARED_MAX));
        rest = others;
        end_all(link, these).await?;
    }
    for one in &mut large {
        end_all(link, std::slice::from_mut(one)).await?;
    }
    Ok(())
}

async fn end_all(link: &mut Link, ends: &mut [(End, &mut Job)]) -> Result<(), Failure> {
    let (sql, parameters) = match ends {
        [(end, _)] => one(end),
        _ => several(&ends.iter().map(|(end, _)| end).collect::<Vec<_>>()),
    };
    job::committing(ends.iter_mut().map(|(_, job)| &mut **job));
    let done = link.write(&sql, parameters, Step::Commit).await;
    let met = job::committed(ends.iter_mut().map(|(_, job)| &mut **job), done)?;
    if met >= ends.len() as u64 {
        ends.iter_mut().for_each(|(_, job)| job.answer(Answer::Done));
    }
    Ok(())
}

fn one(end: &End) -> (String, Vec<Value>) {
    let mut parameters = Vec::from(end.values());
    end.push_owned(&mut parameters);
    (END_ONE.to_owned(), parameters)
}

/// All rows, or those of them that are owned: each takes the values that stand beside its attempt. One statement, so
/// atomic as [`END_ONE`] is; the rows are met in the order of the index.
fn several(ends: &[&End]) -> (String, Vec<Value>) {
    let choice = format!("CASE attempt {} END", rows::repeat("WHEN ? THEN ?", " ", ends.len()));
    let now = rows::now!();
    let shifted = format!("(LEAST(CAST({choice} AS SIGNED), 9223372036854775807 - {now}) + {now})");
    let sql = format!(
        "UPDATE semel_records FORCE INDEX (semel_records_key) SET state = {choice}, due_at = {shifted}, \
         not_before = {shifted}, replay_until = {shifted}, forget_at = {shifted}, outcome_format = {choice}, \
         outcome = {choice}, doubt = doubt * {choice}, since = {now}, lease_until = NULL, was = NULL, \
         settles = NULL WHERE {}",
        rows::repeat(OWNED, " OR ", ends.len())
    );
    let mut values: Vec<_> = ends.iter().map(|end| end.values().into_iter()).collect();
    let mut parameters = Vec::with_capacity(21 * ends.len());
    for _ in 0..8 {
        for (end, values) in ends.iter().zip(&mut values) {
            parameters.push(attempt(&end.lease));
            parameters.extend(values.next());
        }
    }
    ends.iter().for_each(|end| end.push_owned(&mut parameters));
    (sql, parameters)
}

/// A renewal that changes no instant, within one millisecond, meets no row; it goes the straight way.
async fn renew(link: &mut Link, jobs: &mut [Job]) -> Result<(), Failure> {
    let mut waiting = job::waiting(jobs);
    let [job] = waiting.as_mut_slice() else { return Ok(()) };
    let Verb::Renew { lease, lease_for } = &job.verb else { return Ok(()) };
    let parameters = renewal(lease, *lease_for);
    job::committing([&mut **job]);
    let done = link.write(RENEW_ONE, parameters, Step::Commit).await;
    if job::committed([&mut **job], done)? > 0 {
        job.answer(Answer::Done);
    }
    Ok(())
}

fn renewal(lease: &Lease, lease_for: Duration) -> Vec<Value> {
    let until = Timestamp(0).after(lease_for).0;
    let (key, scope) = (bytes(lease.key.as_str()), bytes(lease.scope.as_str()));
    vec![until.into(), until.into(), key, scope, lease.fence.0.into(), attempt(lease)]
}
