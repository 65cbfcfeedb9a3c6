//! Between a record and its row; the statements that read and write rows.
//!
//! 1. **The clock is the server's, at the statement**: `UTC_TIMESTAMP(6)` is the wall clock when the statement began, not
//!    the transaction, and knows no time zone. (`NOW()` is the same in the session's time zone. `SYSDATE()` is the time of
//!    its own evaluation, in the session's time zone, and `--sysdate-is-now` changes that.) A statement that then waits
//!    for a lock has an old one, so whoever waited asks again.
//! 2. **A shifted instant** is written as so many milliseconds from now on: the pure rule is applied at the instant 0, and
//!    the server adds its clock within the statement. What never comes stays so.
//! 3. Names are compared as bytes, in one order: that of the index, in which all statements take their locks.

use mysql_async::Value;
use semel::record::Record;
use semel::{Algorithm, AttemptId, Fence, Fingerprint, Key, Label, Scope, Timestamp};

use crate::flat::{self, Flat};

/// Milliseconds since 1970-01-01 UTC.
macro_rules! now {
    () => {
        "(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000)"
    };
}
pub(super) use now;

/// So many milliseconds from now on; null stays null.
macro_rules! from_now {
    ($offset:expr) => {
        concat!(
            "(LEAST(CAST(",
            $offset,
            " AS SIGNED), 9223372036854775807 - ",
            $crate::mysql::rows::now!(),
            ") + ",
            $crate::mysql::rows::now!(),
            ")"
        )
    };
}
pub(super) use from_now;

/// What [`Found::of`] reads, in its order.
macro_rules! columns {
    () => {
        concat!(
            $crate::mysql::rows::now!(),
            ", id, `key`, scope, due_at, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, \
             first_at, since, label, state, lease_until, was, settles, not_before, replay_until, forget_at, cause, \
             outcome_format, outcome, input"
        )
    };
}
pub(super) use columns;

pub(super) const CLOCK: &str = concat!("SELECT ", now!());

/// The columns that are written, in the order of [`written`].
const WRITTEN: &str = "`key`, scope, state, due_at, fence, attempt, spent, attempts, algorithm, digest, bound_by, \
     doubt, first_at, since, label, lease_until, was, settles, not_before, replay_until, forget_at, cause, \
     outcome_format, input, outcome";

/// A row of them as they are.
const AS_GIVEN: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// A row of them whose instants are shifted.
const SHIFTED: &str = concat!(
    "(?, ?, ?, ",
    from_now!("?"),
    ", ?, ?, ?, ?, ?, ?, ?, ?, ",
    from_now!("?"),
    ", ",
    from_now!("?"),
    ", ?, ",
    from_now!("?"),
    ", ?, ?, ",
    from_now!("?"),
    ", ",
    from_now!("?"),
    ", ",
    from_now!("?"),
    ", ?, ?, ?, ?)"
);

/// What a row that is there takes over from the row that was to be written.
const TAKEN_OVER: &str = "state = VALUES(state), due_at = VALUES(due_at), fence = VALUES(fence), \
     attempt = VALUES(attempt), spent = VALUES(spent), attempts = VALUES(attempts), algorithm = VALUES(algorithm), \
     digest = VALUES(digest), bound_by = VALUES(bound_by), doubt = VALUES(doubt), first_at = VALUES(first_at), \
     since = VALUES(since), label = VALUES(label), lease_until = VALUES(lease_until), was = VALUES(was), \
     settles = VALUES(settles), not_before = VALUES(not_before), replay_until = VALUES(replay_until), \
     forget_at = VALUES(forget_at), cause = VALUES(cause), outcome_format = VALUES(outcome_format), \
     input = VALUES(input), outcome = VALUES(outcome)";

/// New rows, all or none: if one key has a row, the statement writes nothing and says 1062. So a key gets one row,
/// whoever asks at the same instant; the unique index decides.
pub(super) fn insert_shifted(rows: usize) -> String {
    format!("INSERT INTO semel_records ({WRITTEN}) VALUES {}", repeat(SHIFTED, ", ", rows))
}

/// The same within a transaction, which knows the time.
pub(super) fn insert(rows: usize) -> String {
    format!("INSERT INTO semel_records ({WRITTEN}) VALUES {}", repeat(AS_GIVEN, ", ", rows))
}

/// Over rows that this transaction has locked: they are there, so none is inserted.
pub(super) fn overwrite(rows: usize) -> String {
    let row = format!("(?, {}", &AS_GIVEN[1..]);
    format!(
        "INSERT INTO semel_records (id, {WRITTEN}) VALUES {} ON DUPLICATE KEY UPDATE {TAKEN_OVER}",
        repeat(&row, ", ", rows)
    )
}

/// The records of some names. One statement, so one snapshot, and one clock.
pub(super) fn load(names: usize) -> String {
    let names = repeat("(`key` = ? AND scope = ?)", " OR ", names);
    format!("SELECT {} FROM semel_records FORCE INDEX (semel_records_key) WHERE {names}", columns!())
}

/// The same, and nobody else writes them before this transaction ends. The locks are taken along the index, in the order
/// of the names.
pub(super) fn lock(names: usize) -> String {
    format!("{} FOR UPDATE", load(names))
}

/// The text so many times.
pub(super) fn repeat(text: &str, between: &str, times: usize) -> String {
    let mut whole = String::with_capacity((text.len() + between.len()) * times);
    for time in 0..times {
        if time > 0 {
            whole.push_str(between);
        }
        whole.push_str(text);
    }
    whole
}

/// How many of `left` rows go into the next statement: few sizes, so that few statements are kept prepared.
pub(super) fn portion(left: usize) -> usize {
    if left <= 16 { left } else { 1 << left.ilog2().min(6) }
}

/// A record's name. Its order is that of the index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    pub(super) key: Key,
    pub(super) scope: Scope,
}

impl Name {
    pub(super) fn new(scope: &Scope, key: &Key) -> Name {
        Name { key: key.clone(), scope: scope.clone() }
    }

    pub(super) fn push(&self, parameters: &mut Vec<Value>) {
        parameters.push(bytes(self.key.as_str()));
        parameters.push(bytes(self.scope.as_str()));
    }
}

/// The values of a row, in the order of the columns that are written.
pub(super) fn written(name: &Name, record: &Record, parameters: &mut Vec<Value>) {
    let flat = Flat::of(&record.state);
    let bound = record.fingerprint.as_ref();
    name.push(parameters);
    parameters.extend([
        flat.state.into(),
        flat::due_at(record).0.into(),
        record.fence.0.into(),
        Value::Bytes(record.attempt.0.to_vec()),
        Value::Bytes(flat::spent_bytes(&record.spent)),
        record.attempts.into(),
        bound.map(|bound| bound.algorithm.0).into(),
        bound.map(|bound| bound.digest.to_vec()).into(),
        record.bound_by.0.into(),
        record.doubt.into(),
        record.first_at.0.into(),
        record.since.0.into(),
        bytes(record.label.as_str()),
        flat.lease_until.into(),
        flat.was.into(),
        flat.settles.into(),
        flat.not_before.into(),
        flat.replay_until.into(),
        flat.forget_at.into(),
        flat.cause.map(|cause| cause.as_bytes().to_vec()).into(),
        flat.outcome_format.into(),
        record.input.as_ref().map(|input| input.to_vec()).into(),
        flat.outcome.map(<[u8]>::to_vec).into(),
    ]);
}

pub(super) fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

/// A row that was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) now: Timestamp,
    pub(super) id: u64,
    pub(super) name: Name,
    pub(super) due_at: i64,
    pub(super) record: Record,
}

/// What is wrong with a row.
pub(super) type Unreadable = &'static str;

impl Found {
    /// Reads the columns.
    pub(super) fn of(row: Vec<Value>) -> Result<Found, Unreadable> {
        let mut row = Columns(row.into_iter());
        let now = Timestamp(row.integer("now")?);
        let id = row.number("id")?;
        let key = Key::new(row.text("key")?).map_err(|_| "key")?;
        let scope = Scope::new(row.text("scope")?).map_err(|_| "scope")?;
        let due_at = row.integer("due_at")?;
        let record = record(&mut row)?;
        Ok(Found { now, id, name: Name { key, scope }, due_at, record })
    }
}

fn record(row: &mut Columns) -> Result<Record, Unreadable> {
    Ok(Record {
        fence: Fence(row.number("fence")?),
        attempt: AttemptId(row.exactly("attempt")?),
        spent: flat::spent_of(&row.bytes("spent")?).ok_or("spent")?,
        attempts: row.small("attempts")?,
        fingerprint: fingerprint(row)?,
        bound_by: Fence(row.number("bound_by")?),
        doubt: row.number("doubt")? != 0,
        first_at: Timestamp(row.integer("first_at")?),
        since: Timestamp(row.integer("since")?),
        label: Label::new(row.text("label")?),
        state: {
            let state = row.small("state")?;
            let (lease_until, was) = (row.integer_or_null("lease_until")?, row.small_or_null("was")?);
            let settles = row.small_or_null::<u8>("settles")?.map(|settles| settles != 0);
            let not_before = row.integer_or_null("not_before")?;
            let replay_until = row.integer_or_null("replay_until")?;
            let forget_at = row.integer_or_null("forget_at")?;
            let cause = row.text_or_null("cause")?;
            let outcome_format = row.small_or_null("outcome_format")?;
            let outcome = row.bytes_or_null("outcome")?;
            let (cause, outcome) = (cause.as_deref(), outcome.as_deref());
            let flat = Flat {
                state,
                lease_until,
                was,
                settles,
                not_before,
                replay_until,
                forget_at,
                cause,
                outcome_format,
                outcome,
            };
            flat.state().ok_or("state")?
        },
        input: row.bytes_or_null("input")?.map(Into::into),
    })
}

fn fingerprint(row: &mut Columns) -> Result<Option<Fingerprint>, Unreadable> {
    match (row.small_or_null("algorithm")?, row.bytes_or_null("digest")?) {
        (None, None) => Ok(None),
        (Some(algorithm), Some(digest)) => {
            let digest = digest.try_into().map_err(|_| "digest")?;
            Ok(Some(Fingerprint { algorithm: Algorithm(algorithm), digest }))
        }
        _ => Err("digest"),
    }
}

/// The values of a row, one after the other. A value of another type than its column's is an error with its name.
pub(super) struct Columns(pub(super) std::vec::IntoIter<Value>);

impl Columns {
    fn next(&mut self, name: Unreadable) -> Result<Option<Value>, Unreadable> {
        match self.0.next() {
            Some(Value::NULL) => Ok(None),
            Some(value) => Ok(Some(value)),
            None => Err(name),
        }
    }

    pub(super) fn integer_or_null(&mut self, name: Unreadable) -> Result<Option<i64>, Unreadable> {
        match self.next(name)? {
            None => Ok(None),
            Some(Value::Int(number)) => Ok(Some(number)),
            Some(Value::UInt(number)) => i64::try_from(number).map(Some).map_err(|_| name),
            Some(_) => Err(name),
        }
    }

    pub(super) fn integer(&mut self, name: Unreadable) -> Result<i64, Unreadable> {
        self.integer_or_null(name)?.ok_or(name)
    }

    pub(super) fn number(&mut self, name: Unreadable) -> Result<u64, Unreadable> {
        match self.next(name)? {
            Some(Value::UInt(number)) => Ok(number),
            Some(Value::Int(number)) => u64::try_from(number).map_err(|_| name),
            _ => Err(name),
        }
    }

    pub(super) fn small<T: TryFrom<i64>>(&mut self, name: Unreadable) -> Result<T, Unreadable> {
        self.small_or_null(name)?.ok_or(name)
    }

    fn small_or_null<T: TryFrom<i64>>(&mut self, name: Unreadable) -> Result<Option<T>, Unreadable> {
        self.integer_or_null(name)?.map(T::try_from).transpose().map_err(|_| name)
    }

    pub(super) fn bytes_or_null(&mut self, name: Unreadable) -> Result<Option<Vec<u8>>, Unreadable> {
        match self.next(name)? {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(name),
        }
    }

    fn bytes(&mut self, name: Unreadable) -> Result<Vec<u8>, Unreadable> {
        self.bytes_or_null(name)?.ok_or(name)
    }

    pub(super) fn exactly<const N: usize>(&mut self, name: Unreadable) -> Result<[u8; N], Unreadable> {
        self.bytes(name)?.try_into().map_err(|_| name)
    }

    pub(super) fn text_or_null(&mut self, name: Unreadable) -> Result<Option<String>, Unreadable> {
        self.bytes_or_null(name)?.map(String::from_utf8).transpose().map_err(|_| name)
    }

    pub(super) fn text(&mut self, name: Unreadable) -> Result<String, Unreadable> {
        self.text_or_null(name)?.ok_or(name)
    }
}
