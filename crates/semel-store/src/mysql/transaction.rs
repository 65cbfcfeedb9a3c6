//! The straight way: lock the rows, apply the pure rules, write the rows, commit.
//!
//! Atomic because `FOR UPDATE` reads the latest row and keeps everybody else from it until the commit, at either isolation
//! level. A name without a row cannot be locked: whoever inserts it first has it, and the other one's insertion says 1062;
//! then this transaction is undone and made again, and finds the row. Where gaps are locked too (REPEATABLE READ), two
//! that insert into one gap are a deadlock, of which the server ends one; it is made again as well.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql_async::Value;
use semel::record::{self, Record, Unfit};
use semel::{StoreError, Timestamp};
use tokio::time::Instant;

use super::failure::{Cause, Failure, Step};
use super::job::{self, Answer, Job, Reply, Verb};
use super::link::Link;
use super::rows::{self, Name};

/// An own insertion that met another one's is made again at once, so often; then with a pause like every failure.
const AGAIN_MAX: usize = 3;

/// Whoever waited longer for locks asks for the time again.
const CLOCK_FOR: Duration = Duration::from_millis(100);

/// The records of some names, as this transaction sees and changes them.
type Sheet = BTreeMap<Name, Line>;

#[derive(Default)]
struct Line {
    id: Option<u64>,
    record: Option<Record>,
    is_changed: bool,
}

/// Makes the calls that still wait, all or none.
pub(super) async fn transact(link: &mut Link, jobs: &mut [Job]) -> Result<(), Failure> {
    let mut jobs = job::waiting(jobs);
    if jobs.is_empty() {
        return Ok(());
    }
    for time in 1.. {
        match attempt(link, &mut jobs).await {
            Err(failure) if failure.is_duplicate() && time < AGAIN_MAX => link.roll_back().await,
            Err(failure) => {
                link.roll_back().await;
                return Err(failure);
            }
            Ok(replies) => {
                jobs.iter_mut().zip(replies).for_each(|(job, reply)| job.reply(reply));
                break;
            }
        }
    }
    Ok(())
}

async fn attempt(link: &mut Link, jobs: &mut [&mut Job]) -> Result<Vec<Reply>, Failure> {
    link.run("START TRANSACTION", Step::Read).await?;
    let mut sheet: Sheet =
        jobs.iter().filter_map(|job| job.name()).map(|name| (name, Line::default())).collect();
    let now = lock(link, &mut sheet).await?;
    let replies = jobs.iter().map(|job| apply(job, &mut sheet, now)).collect();
    save(link, &sheet).await?;
    job::committing(jobs.iter_mut().map(|job| &mut **job));
    let done = link.run("COMMIT", Step::Commit).await;
    job::committed(jobs.iter_mut().map(|job| &mut **job), done)?;
    Ok(replies)
}

/// Locks the rows in the order of their names, and gives the time.
async fn lock(link: &mut Link, sheet: &mut Sheet) -> Result<Timestamp, Failure> {
    let begun = Instant::now();
    let names: Vec<Name> = sheet.keys().cloned().collect();
    let mut rest = names.as_slice();
    let mut now = None;
    while !rest.is_empty() {
        let (these, others) = rest.split_at(rows::portion(rest.len()));
        rest = others;
        let found = link.rows(&rows::lock(these.len()), parameters(these), Step::Read).await?;
        for found in job::read(found, |cause| link.failure(Step::Read, cause))? {
            now = now.max(Some(found.now));
            let line = Line { id: Some(found.id), record: Some(found.record), is_changed: false };
            sheet.insert(found.name, line);
        }
    }
    match now.filter(|_| begun.elapsed() < CLOCK_FOR) {
        Some(now) => Ok(now),
        None => clock(link).await,
    }
}

/// The server's clock.
pub(super) async fn clock(link: &mut Link) -> Result<Timestamp, Failure> {
    let found = link.rows(rows::CLOCK, Vec::new(), Step::Read).await?;
    let now = found.into_iter().next().map(|row| rows::Columns(row.into_iter()).integer("now"));
    match now {
        Some(Ok(now)) => Ok(Timestamp(now)),
        _ => Err(link.failure(Step::Read, Cause::Unreadable("now"))),
    }
}

pub(super) fn parameters(names: &[Name]) -> Vec<Value> {
    let mut parameters = Vec::with_capacity(2 * names.len());
    names.iter().for_each(|name| name.push(&mut parameters));
    parameters
}

/// Applies the rule of the verb to its line.
fn apply(job: &Job, sheet: &mut Sheet, now: Timestamp) -> Reply {
    let Some(line) = job.name().and_then(|name| sheet.get_mut(&name)) else {
        unreachable!("only calls that name a record are made here")
    };
    let old = line.record.as_ref();
    match &job.verb {
        Verb::Claim(request) => {
            let (new, answer) = record::claim(old, request, now);
            line.change(new);
            Ok(Answer::Claim(answer))
        }
        Verb::Renew { lease, lease_for } => {
            let renewed = record::renew(old, lease, *lease_for, now);
            line.end(renewed.map(Some))
        }
        Verb::Settle { lease, settlement } => {
            let settled = record::settle(old, lease, settlement, now);
            line.end(settled)
        }
        _ => unreachable!("what only reads is not made here"),
    }
}

impl Line {
    fn change(&mut self, new: Option<Record>) {
        if new.is_some() {
            self.record = new;
            self.is_changed = true;
        }
    }

    fn end(&mut self, result: Result<Option<Record>, Unfit>) -> Reply {
        self.change(result.map_err(StoreError::from)?);
        Ok(Answer::Done)
    }
}

/// Writes the lines that were changed: first those that have a row, then the new ones.
async fn save(link: &mut Link, sheet: &Sheet) -> Result<(), Failure> {
    let changed = |is_there: bool| {
        let lines = sheet.iter().filter(|(_, line)| line.is_changed);
        lines.filter(move |(_, line)| line.id.is_some() == is_there).collect::<Vec<_>>()
    };
    write(link, &changed(true), rows::overwrite).await?;
    write(link, &changed(false), rows::insert).await
}

async fn write(
    link: &mut Link,
    mut lines: &[(&Name, &Line)],
    sql: impl Fn(usize) -> String,
) -> Result<(), Failure> {
    while !lines.is_empty() {
        let (these, others) = lines.split_at(rows::portion(lines.len()));
        lines = others;
        let mut parameters = Vec::with_capacity(26 * these.len());
        for (name, line) in these {
            let Some(record) = &line.record else { continue };
            parameters.extend(line.id.map(Value::from));
            rows::written(name, record, &mut parameters);
        }
        link.write(&sql(these.len()), parameters, Step::Read).await?;
    }
    Ok(())
}
