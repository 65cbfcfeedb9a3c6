//! Frees what nothing reads any more: outcomes past their replay, records past being remembered.
//!
//! The index of what is due leads straight to it, so a sweep costs by what it frees, not by what is there. It goes in
//! pieces, each a short transaction on a connection of its own.
//!
//! 1. What is due is looked for without a lock. Then the rows are locked as claims lock them: by their names, in the order
//!    of the index, so that no two wait in a circle. Rows that somebody else has are passed by, so a claim waits for a
//!    piece at most, and a piece for nobody.
//! 2. Whether a row is due is asked again of the locked row: what was claimed anew meanwhile stays.

use mysql_async::Value;
use semel::Swept;

use super::failure::{Cause, Failure, Step};
use super::job::Answer;
use super::link::Link;
use super::rows::{self, Columns, now};
use crate::flat::{COMPLETED, RELEASED};

/// Rows in one piece. Few, because a claim may wait for them.
const ROWS_MAX: u32 = 64;

/// What has been due longest in one state, without a lock. It may be out of date a moment later.
const DUE: &str = concat!(
    "SELECT `key`, scope FROM semel_records FORCE INDEX (semel_records_due) WHERE state = ? AND due_at <= ",
    now!(),
    " ORDER BY due_at LIMIT ?"
);

/// A piece of a sweep.
pub(super) async fn piece(link: &mut Link, limit: u32) -> Result<Answer, Failure> {
    let limit = limit.min(ROWS_MAX);
    let mut names = Vec::new();
    for state in [RELEASED, COMPLETED] {
        let room = limit - u32::try_from(names.len()).unwrap_or(limit);
        if room > 0 {
            names.extend(link.rows(DUE, vec![state.into(), room.into()], Step::Read).await?);
        }
    }
    if names.is_empty() {
        return Ok(Answer::Swept(Swept::default(), false));
    }
    let is_full = names.len() == limit as usize;
    let freed = free(link, names).await;
    if freed.is_err() {
        link.roll_back().await;
    }
    freed.map(|freed| Answer::Swept(freed, is_full && freed.total() > 0))
}

/// All or nothing, and only what is due still: the rows are locked from the look to the commit.
async fn free(link: &mut Link, names: Vec<Vec<Value>>) -> Result<Swept, Failure> {
    link.run("START TRANSACTION", Step::Read).await?;
    let rows = link.rows(&lock(names.len()), names.into_iter().flatten().collect(), Step::Read).await?;
    let (mut over, mut forgotten) = (Vec::new(), Vec::new());
    for row in rows {
        let (id, is_over) = due(row).map_err(|what| link.failure(Step::Read, Cause::Unreadable(what)))?;
        if is_over { over.push(Value::from(id)) } else { forgotten.push(Value::from(id)) }
    }
    let count = |ids: &[Value]| u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let freed = Swept { outcomes: count(&forgotten), records: count(&over) };
    if !over.is_empty() {
        link.write(&drop_history(over.len()), over.clone(), Step::Read).await?;
        link.write(&drop_records(over.len()), over, Step::Read).await?;
    }
    if !forgotten.is_empty() {
        link.write(&drop_outcomes(forgotten.len()), forgotten, Step::Read).await?;
    }
    link.run("COMMIT", Step::Commit).await?;
    Ok(freed)
}

fn due(row: Vec<Value>) -> Result<(u64, bool), &'static str> {
    let mut row = Columns(row.into_iter());
    Ok((row.number("id")?, row.integer("forget_at")? != 0))
}

fn lock(names: usize) -> String {
    let names = rows::repeat("(`key` = ? AND scope = ?)", " OR ", names);
    let now = now!();
    format!(
        "SELECT id, forget_at <= {now} FROM semel_records FORCE INDEX (semel_records_key) \
         WHERE state IN ({RELEASED}, {COMPLETED}) AND due_at <= {now} AND ({names}) FOR UPDATE SKIP LOCKED"
    )
}

// By the primary key and by nothing else: a small table would be read whole otherwise, and its rows waited for.

fn drop_history(records: usize) -> String {
    let ids = rows::repeat("?", ", ", records);
    format!("DELETE h FROM semel_history AS h FORCE INDEX (PRIMARY) WHERE h.record IN ({ids})")
}

fn drop_records(records: usize) -> String {
    let ids = rows::repeat("?", ", ", records);
    format!("DELETE r FROM semel_records AS r FORCE INDEX (PRIMARY) WHERE r.id IN ({ids})")
}

/// What is forgotten by and by leaves only the key.
fn drop_outcomes(records: usize) -> String {
    let ids = rows::repeat("?", ", ", records);
    format!(
        "UPDATE semel_records FORCE INDEX (PRIMARY) SET outcome_format = NULL, outcome = NULL, due_at = forget_at \
         WHERE id IN ({ids})"
    )
}
