//! A batch by plain statements, for people who may not create functions.
//!
//! 1. **What is fresh, and what completes**, goes first, as sets in one transaction that is sent in one piece: an INSERT that
//!    leaves out what is there, and an UPDATE of running records by fence and attempt. Each is atomic as a statement is.
//! 2. **The rest** is judged here, by [`semel::record`]: the rows are locked, in the order of the index, then outcomes and
//!    the server's clock are read by statements of their own, which see what was committed before the locks were had;
//!    the rules are applied, what changed is written, and the locks go with the commit.
//! 3. A key that the INSERT met and the lock did not find was swept in between, or its transaction was rolled back. It
//!    begins anew.
//! 4. What of the first step is committed stays so when the second one fails: so each call has an answer of its own.

use std::collections::HashMap;

use bytes::Bytes;
use semel::record::{self, Record, Unfit};
use semel::{Claim, Fence, Key, Lease, Outcome, Purpose, Scope, Settlement, Timestamp, Was};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::call::{Answer, Ending, Verb};
use super::error::{Failure, Kind};
use super::rows::{self, Id, Stored, Written, bytes, clock, columns, integer, millis, stored, strange, text};

/// How often a key begins anew.
const TRIES_MAX: u32 = 10;

/// Locks are waited for, but not for ever: somebody's own transaction may hold one. Whatever the database's default level
/// is, the statements behind a lock must see what was committed before it.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '2s'";

/// Fresh keys, in the order of the index, so that two batches never wait for each other crosswise.
const INSERT: &str = concat!(
    "INSERT INTO semel.records (key, scope, state, fence, attempt, attempts, algorithm, digest, bound_by, doubt, first_at, \
     since, label, input, open_at, was, settles) \
     SELECT key, scope, 1, 1, attempt, 1, algorithm, digest, 1, false, now, now, label, input, \
     CASE WHEN ms > 9223372036854775807 - now THEN 9223372036854775807 ELSE now + ms END, 0, false \
     FROM (SELECT ",
    clock!(),
    " AS now OFFSET 0) AS clock, unnest($1::text[], $2::text[], $3::uuid[], $4::smallint[], $5::bytea[], $6::bigint[], \
     $7::text[], $8::bytea[]) AS asked (key, scope, attempt, algorithm, digest, ms, label, input) \
     ORDER BY key COLLATE \"C\", scope COLLATE \"C\" \
     ON CONFLICT (key, scope) DO NOTHING RETURNING key, scope, attempt"
);

/// Fenced: only running records, by the very lease. The outcome goes in by the same statement.
const COMPLETE: &str = concat!(
    "WITH done AS (\
     UPDATE semel.records AS r SET state = 3, since = now, doubt = false, \
     replay_until = CASE WHEN replay_ms > 9223372036854775807 - now THEN 9223372036854775807 ELSE now + replay_ms END, \
     forget_at = CASE WHEN greatest(replay_ms, remember_ms) > 9223372036854775807 - now THEN 9223372036854775807 \
     ELSE now + greatest(replay_ms, remember_ms) END, \
     outcome_format = format, open_at = NULL, was = NULL, settles = NULL, cause = NULL \
     FROM (SELECT ",
    clock!(),
    " AS now OFFSET 0) AS clock, unnest($1::text[], $2::text[], $3::bigint[], $4::uuid[], $5::smallint[], $6::bytea[], \
     $7::bigint[], $8::bigint[]) WITH ORDINALITY \
     AS asked (key, scope, fence, attempt, format, outcome, replay_ms, remember_ms, n) \
     WHERE r.key = asked.key AND r.scope = asked.scope AND r.fence = asked.fence AND r.attempt = asked.attempt \
     AND r.state = 1 RETURNING asked.n, r.id, asked.outcome), \
     kept AS (INSERT INTO semel.outcomes (record, bytes) SELECT id, outcome FROM done) \
     SELECT n FROM done"
);

const LOCK: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM semel.records AS r JOIN unnest($1::text[], $2::text[]) AS asked (key, scope) \
     ON r.key = asked.key AND r.scope = asked.scope ORDER BY r.key, r.scope FOR UPDATE OF r"
);

/// Of locked rows: what their outcomes are cannot change any more.
const OUTCOMES: &str = "SELECT record, bytes FROM semel.outcomes WHERE record = ANY ($1)";

const CLOCK: &str = concat!("SELECT ", clock!());

/// Locked rows, whole.
const UPDATE: &str = "UPDATE semel.records AS r SET fence = w.fence, bound_by = w.bound_by, attempts = w.attempts, \
     first_at = w.first_at, since = w.since, attempt = w.attempt, algorithm = w.algorithm, digest = w.digest, \
     doubt = w.doubt, label = w.label, spent = w.spent::uuid[], input = w.input, state = w.state, open_at = w.open_at, \
     was = w.was, settles = w.settles, not_before = w.not_before, replay_until = w.replay_until, \
     forget_at = w.forget_at, cause = w.cause, outcome_format = w.outcome_format \
     FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::uuid[], \
     $9::smallint[], $10::bytea[], $11::boolean[], $12::text[], $13::text[], $14::bytea[], $15::smallint[], $16::bigint[], \
     $17::smallint[], $18::boolean[], $19::bigint[], $20::bigint[], $21::bigint[], $22::text[], $23::smallint[]) \
     AS w (key, scope, fence, bound_by, attempts, first_at, since, attempt, algorithm, digest, doubt, label, spent, input, \
     state, open_at, was, settles, not_before, replay_until, forget_at, cause, outcome_format) \
     WHERE r.key = w.key AND r.scope = w.scope";

const DROP_OUTCOMES: &str = "DELETE FROM semel.outcomes WHERE record = ANY ($1)";

const KEEP_OUTCOMES: &str =
    "INSERT INTO semel.outcomes (record, bytes) SELECT * FROM unnest($1::bigint[], $2::bytea[])";

/// Makes the calls of a batch. Gives an answer for each, in their order.
pub(super) async fn run(client: &Client, verbs: &[&Verb]) -> Vec<Result<Answer, Failure>> {
    let mut batch = Batch { client, verbs, answers: verbs.iter().map(|_| None).collect() };
    for _ in 0..TRIES_MAX {
        if let Err(failure) = batch.step().await {
            return batch.finish(&failure);
        }
        if batch.open().is_empty() {
            break;
        }
    }
    batch.finish(&Failure::said(Kind::Unavailable, "the key is made and swept again and again"))
}

struct Batch<'a> {
    client: &'a Client,
    verbs: &'a [&'a Verb],
    answers: Vec<Option<Answer>>,
}

/// A locked row, and what becomes of it.
struct Slot {
    id: i64,
    /// As it was when it was locked.
    had_outcome: bool,
    record: Record,
    is_changed: bool,
}

impl Batch<'_> {
    /// The places of the calls that have no answer yet.
    fn open(&self) -> Vec<usize> {
        (0..self.verbs.len()).filter(|place| self.answers[*place].is_none()).collect()
    }

    fn finish(self, failure: &Failure) -> Vec<Result<Answer, Failure>> {
        self.answers.into_iter().map(|answer| answer.ok_or_else(|| failure.clone())).collect()
    }

    async fn step(&mut self) -> Result<(), Failure> {
        self.sets().await?;
        if self.open().is_empty() { Ok(()) } else { self.judge().await }
    }

    /// What is fresh, and what completes. All is sent at once, and ends with the commit.
    async fn sets(&mut self) -> Result<(), Failure> {
        let (mut fresh, mut done) = (Fresh::default(), Done::default());
        for place in self.open() {
            match self.verbs[place] {
                Verb::Claim(request) => fresh.push(place, request),
                Verb::Settle(lease, Ending::Settlement(settlement)) => done.push(place, lease, settlement),
                Verb::Settle(..) => {}
            }
        }
        if fresh.places.is_empty() && done.places.is_empty() {
            return Ok(());
        }
        let (inserting, completing) = (fresh.parameters(), done.parameters());
        let (begun, inserted, completed, committed) = tokio::join!(
            self.client.batch_execute(BEGIN),
            maybe(self.client, INSERT, &inserting, fresh.places.is_empty()),
            maybe(self.client, COMPLETE, &completing, done.places.is_empty()),
            self.client.batch_execute("COMMIT"),
        );
        begun.map_err(Failure::server)?;
        let (inserted, completed) = (inserted.map_err(Failure::server)?, completed.map_err(Failure::server)?);
        committed.map_err(Failure::server)?;
        self.note_fresh(&fresh.places, &inserted)?;
        for row in &completed {
            let n: i64 = row.try_get(0).map_err(Failure::row)?;
            let place = usize::try_from(n).ok().and_then(|n| done.places.get(n.checked_sub(1)?));
            self.answers[*place.ok_or_else(strange)?] = Some(Answer::Settled(Ok(())));
        }
        Ok(())
    }

    fn note_fresh(&mut self, places: &[usize], inserted: &[Row]) -> Result<(), Failure> {
        let mut winners = HashMap::new();
        for row in inserted {
            let text = |column: usize| row.try_get::<_, &str>(column).map_err(Failure::row);
            winners.insert((text(0)?, text(1)?), row.try_get::<_, Id>(2).map_err(Failure::row)?.0);
        }
        for place in places {
            let Verb::Claim(request) = self.verbs[*place] else { continue };
            if winners.get(&(request.key.as_str(), request.scope.as_str())) == Some(&request.attempt) {
                self.answers[*place] = Some(Answer::Claim(Claim::Acquired(Lease {
                    scope: request.scope.clone(),
                    key: request.key.clone(),
                    fence: Fence(1),
                    attempt: request.attempt,
                    attempts: 1,
                    was: Was::New,
                    doubt: false,
                })));
            }
        }
        Ok(())
    }

    /// What is there already. An error before the commit leaves nothing behind.
    async fn judge(&mut self) -> Result<(), Failure> {
        let (mut slots, now) = match self.locked().await {
            Ok(locked) => locked,
            Err(failure) => {
                let _ = self.client.batch_execute("ROLLBACK").await;
                return Err(failure);
            }
        };
        let mut judged = Vec::new();
        for place in self.open() {
            if let Some(answer) = judge(self.verbs[place], &mut slots, now) {
                judged.push((place, answer));
            }
        }
        let changed = Changed::of(&slots);
        let (writing, keeping) = (changed.parameters(), changed.outcomes());
        let dropping: [Parameter<'_>; 1] = [(&changed.dropped, Type::INT8_ARRAY)];
        let (written, dropped, kept, committed) = tokio::join!(
            maybe(self.client, UPDATE, &writing, changed.keys.is_empty()),
            maybe(self.client, DROP_OUTCOMES, &dropping, changed.dropped.is_empty()),
            maybe(self.client, KEEP_OUTCOMES, &keeping, changed.kept.is_empty()),
            self.client.batch_execute("COMMIT"),
        );
        written.map_err(Failure::server)?;
        dropped.map_err(Failure::server)?;
        kept.map_err(Failure::server)?;
        committed.map_err(Failure::server)?;
        for (place, answer) in judged {
            self.answers[place] = Some(answer);
        }
        Ok(())
    }

    /// Begins a transaction, and locks and reads what the open calls are about.
    async fn locked(&self) -> Result<(HashMap<(Key, Scope), Slot>, Timestamp), Failure> {
        let mut names: Vec<_> = self.open().into_iter().map(|place| self.verbs[place].place()).collect();
        names.sort();
        names.dedup();
        let keys: Vec<&str> = names.iter().map(|(key, _)| key.as_str()).collect();
        let scopes: Vec<&str> = names.iter().map(|(_, scope)| scope.as_str()).collect();
        let locking: [Parameter<'_>; 2] = [(&keys, Type::TEXT_ARRAY), (&scopes, Type::TEXT_ARRAY)];
        let (begun, locked) =
            tokio::join!(self.client.batch_execute(BEGIN), self.client.query_typed(LOCK, &locking));
        begun.map_err(Failure::before_commit)?;
        let locked = locked.map_err(Failure::before_commit)?;
        let ids = locked.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, Error>>();
        let ids = ids.map_err(Failure::row)?;
        let reading: [Parameter<'_>; 1] = [(&ids, Type::INT8_ARRAY)];
        let (outcomes, clock) = tokio::join!(
            self.client.query_typed(OUTCOMES, &reading),
            self.client.query_typed_one(CLOCK, &[])
        );
        let now = Timestamp(clock.map_err(Failure::before_commit)?.try_get(0).map_err(Failure::row)?);
        let mut kept: HashMap<i64, Bytes> = HashMap::new();
        for row in outcomes.map_err(Failure::before_commit)? {
            kept.insert(row.try_get(0).map_err(Failure::row)?, bytes(&row, 1)?.ok_or_else(strange)?);
        }
        let mut slots = HashMap::new();
        for (row, id) in locked.iter().zip(ids) {
            let Stored { id, key, scope, record } = stored(row, kept.remove(&id))?;
            let had_outcome = rows::outcome(&record).is_some();
            slots.insert((key, scope), Slot { id, had_outcome, record, is_changed: false });
        }
        Ok((slots, now))
    }
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Sends the statement, unless there is nothing to do. Joined with others, it is sent in its turn.
async fn maybe(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
    is_empty: bool,
) -> Result<Vec<Row>, Error> {
    if is_empty { Ok(Vec::new()) } else { client.query_typed(sql, parameters).await }
}

/// The rules, on locked rows. `None`: the key was to be there and is not.
fn judge(verb: &Verb, slots: &mut HashMap<(Key, Scope), Slot>, now: Timestamp) -> Option<Answer> {
    let (key, scope) = verb.place();
    let slot = slots.get_mut(&(key.clone(), scope.clone()));
    let old = slot.as_ref().map(|slot| &slot.record);
    let (new, answer) = match verb {
        Verb::Claim(request) => {
            if old.is_none() && matches!(request.purpose, Purpose::Run { .. }) {
                return None;
            }
            let (new, claim) = record::claim(old, request, now);
            (new, Answer::Claim(claim))
        }
        Verb::Settle(lease, Ending::Renew(lease_for)) => {
            split(record::renew(old, lease, *lease_for, now).map(Some))
        }
        Verb::Settle(lease, Ending::Settlement(settlement)) => {
            split(record::settle(old, lease, settlement, now))
        }
    };
    if let (Some(slot), Some(new)) = (slot, new) {
        slot.record = new;
        slot.is_changed = true;
    }
    Some(answer)
}

fn split(result: Result<Option<Record>, Unfit>) -> (Option<Record>, Answer) {
    match result {
        Ok(new) => (new, Answer::Settled(Ok(()))),
        Err(unfit) => (None, Answer::Settled(Err(unfit))),
    }
}

/// The parameters of [`INSERT`].
#[derive(Default)]
struct Fresh<'a> {
    places: Vec<usize>,
    keys: Vec<&'a str>,
    scopes: Vec<&'a str>,
    attempts: Vec<Id>,
    algorithms: Vec<i16>,
    digests: Vec<&'a [u8]>,
    lease_ms: Vec<i64>,
    labels: Vec<String>,
    inputs: Vec<Option<&'a [u8]>>,
}

impl<'a> Fresh<'a> {
    fn push(&mut self, place: usize, request: &'a semel::ClaimRequest) {
        let Purpose::Run { fingerprint, .. } = &request.purpose else { return };
        self.places.push(place);
        self.keys.push(request.key.as_str());
        self.scopes.push(request.scope.as_str());
        self.attempts.push(Id(request.attempt));
        self.algorithms.push(i16::from(fingerprint.algorithm.0));
        self.digests.push(&fingerprint.digest);
        self.lease_ms.push(millis(request.lease_for));
        self.labels.push(text(request.label.as_str()));
        self.inputs.push(request.input.as_deref());
    }

    fn parameters(&self) -> [Parameter<'_>; 8] {
        [
            (&self.keys, Type::TEXT_ARRAY),
            (&self.scopes, Type::TEXT_ARRAY),
            (&self.attempts, Type::UUID_ARRAY),
            (&self.algorithms, Type::INT2_ARRAY),
            (&self.digests, Type::BYTEA_ARRAY),
            (&self.lease_ms, Type::INT8_ARRAY),
            (&self.labels, Type::TEXT_ARRAY),
            (&self.inputs, Type::BYTEA_ARRAY),
        ]
    }
}

/// The parameters of [`COMPLETE`].
#[derive(Default)]
struct Done<'a> {
    places: Vec<usize>,
    keys: Vec<&'a str>,
    scopes: Vec<&'a str>,
    fences: Vec<i64>,
    attempts: Vec<Id>,
    formats: Vec<i16>,
    outcomes: Vec<&'a [u8]>,
    replay_ms: Vec<i64>,
    remember_ms: Vec<i64>,
}

impl<'a> Done<'a> {
    fn push(&mut self, place: usize, lease: &'a Lease, settlement: &'a Settlement) {
        let Settlement::Complete { outcome, replay_for, remember_for } = settlement else { return };
        self.places.push(place);
        self.keys.push(lease.key.as_str());
        self.scopes.push(lease.scope.as_str());
        self.fences.push(integer(lease.fence.0));
        self.attempts.push(Id(lease.attempt));
        self.formats.push(i16::from(outcome.format));
        self.outcomes.push(&outcome.bytes);
        self.replay_ms.push(millis(*replay_for));
        self.remember_ms.push(millis(*remember_for));
    }

    fn parameters(&self) -> [Parameter<'_>; 8] {
        [
            (&self.keys, Type::TEXT_ARRAY),
            (&self.scopes, Type::TEXT_ARRAY),
            (&self.fences, Type::INT8_ARRAY),
            (&self.attempts, Type::UUID_ARRAY),
            (&self.formats, Type::INT2_ARRAY),
            (&self.outcomes, Type::BYTEA_ARRAY),
            (&self.replay_ms, Type::INT8_ARRAY),
            (&self.remember_ms, Type::INT8_ARRAY),
        ]
    }
}

/// The parameters of [`UPDATE`], and what becomes of the outcomes.
#[derive(Default)]
struct Changed<'a> {
    keys: Vec<&'a str>,
    scopes: Vec<&'a str>,
    columns: Columns<'a>,
    dropped: Vec<i64>,
    kept: Vec<i64>,
    bytes: Vec<&'a [u8]>,
}

#[derive(Default)]
struct Columns<'a> {
    fences: Vec<i64>,
    bound_by: Vec<i64>,
    attempts: Vec<i64>,
    first_at: Vec<i64>,
    since: Vec<i64>,
    attempt: Vec<Id>,
    algorithms: Vec<Option<i16>>,
    digests: Vec<Option<&'a [u8]>>,
    doubts: Vec<bool>,
    labels: Vec<String>,
    spent: Vec<String>,
    inputs: Vec<Option<&'a [u8]>>,
    states: Vec<i16>,
    open_at: Vec<Option<i64>>,
    was: Vec<Option<i16>>,
    settles: Vec<Option<bool>>,
    not_before: Vec<Option<i64>>,
    replay_until: Vec<Option<i64>>,
    forget_at: Vec<Option<i64>>,
    causes: Vec<Option<String>>,
    formats: Vec<Option<i16>>,
}

impl<'a> Changed<'a> {
    fn of(slots: &'a HashMap<(Key, Scope), Slot>) -> Changed<'a> {
        let mut changed = Changed::default();
        for ((key, scope), slot) in slots.iter().filter(|(_, slot)| slot.is_changed) {
            changed.keys.push(key.as_str());
            changed.scopes.push(scope.as_str());
            changed.columns.push(&slot.record);
            if slot.had_outcome {
                changed.dropped.push(slot.id);
            }
            if let Some(Outcome { bytes, .. }) = rows::outcome(&slot.record) {
                changed.kept.push(slot.id);
                changed.bytes.push(bytes);
            }
        }
        changed
    }

    fn outcomes(&self) -> [Parameter<'_>; 2] {
        [(&self.kept, Type::INT8_ARRAY), (&self.bytes, Type::BYTEA_ARRAY)]
    }

    fn parameters(&self) -> [Parameter<'_>; 23] {
        let c = &self.columns;
        [
            (&self.keys, Type::TEXT_ARRAY),
            (&self.scopes, Type::TEXT_ARRAY),
            (&c.fences, Type::INT8_ARRAY),
            (&c.bound_by, Type::INT8_ARRAY),
            (&c.attempts, Type::INT8_ARRAY),
            (&c.first_at, Type::INT8_ARRAY),
            (&c.since, Type::INT8_ARRAY),
            (&c.attempt, Type::UUID_ARRAY),
            (&c.algorithms, Type::INT2_ARRAY),
            (&c.digests, Type::BYTEA_ARRAY),
            (&c.doubts, Type::BOOL_ARRAY),
            (&c.labels, Type::TEXT_ARRAY),
            (&c.spent, Type::TEXT_ARRAY),
            (&c.inputs, Type::BYTEA_ARRAY),
            (&c.states, Type::INT2_ARRAY),
            (&c.open_at, Type::INT8_ARRAY),
            (&c.was, Type::INT2_ARRAY),
            (&c.settles, Type::BOOL_ARRAY),
            (&c.not_before, Type::INT8_ARRAY),
            (&c.replay_until, Type::INT8_ARRAY),
            (&c.forget_at, Type::INT8_ARRAY),
            (&c.causes, Type::TEXT_ARRAY),
            (&c.formats, Type::INT2_ARRAY),
        ]
    }
}

impl<'a> Columns<'a> {
    fn push(&mut self, record: &'a Record) {
        let Written { flat, open_at } = Written::of(record);
        self.fences.push(integer(record.fence.0));
        self.bound_by.push(integer(record.bound_by.0));
        self.attempts.push(i64::from(record.attempts));
        self.first_at.push(record.first_at.0);
        self.since.push(record.since.0);
        self.attempt.push(Id(record.attempt));
        self.algorithms.push(record.fingerprint.map(|fingerprint| i16::from(fingerprint.algorithm.0)));
        self.digests.push(record.fingerprint.as_ref().map(|fingerprint| fingerprint.digest.as_slice()));
        self.doubts.push(record.doubt);
        self.labels.push(text(record.label.as_str()));
        let spent: Vec<String> = record.spent.iter().map(ToString::to_string).collect();
        self.spent.push(format!("{{{}}}", spent.join(",")));
        self.inputs.push(record.input.as_deref());
        self.states.push(i16::from(flat.state));
        self.open_at.push(open_at);
        self.was.push(flat.was.map(i16::from));
        self.settles.push(flat.settles);
        self.not_before.push(flat.not_before);
        self.replay_until.push(flat.replay_until);
        self.forget_at.push(flat.forget_at);
        self.causes.push(flat.cause.map(text));
        self.formats.push(flat.outcome_format.map(i16::from));
    }
}
