//! Frees what nothing reads any more: outcomes past their replay, records past being remembered.
//!
//! The index `records_sweep` leads straight to what is due, so a sweep costs by what it frees, not by what is
//! there. It goes in pieces, each one call in the writer's queue. Claims go before it, and wait for the piece that
//! is being made, and one store makes one at a time, whoever asks (case C73).

use std::time::{Duration, Instant};

use rusqlite::{Connection, Statement};
use semel::{Clock, Swept};

use super::rows::{DROP_INPUT, DROP_OUTCOME, Rows};
use super::writer::Verb;

/// Rows in one piece. Few, because a claim may wait for them; the commit that each piece costs is cheap beside that.
const ROWS_MAX: u32 = 64;

/// A piece ends after this, whatever is left of it: freeing large outcomes takes longer than freeing small ones.
const PIECE_FOR: Duration = Duration::from_millis(1);

/// What is due, longest overdue first.
pub(super) const DUE: &str =
    "SELECT id, forget_at <= ?1 FROM records WHERE sweep_at <= ?1 ORDER BY sweep_at LIMIT ?2";

/// What is forgotten by and by leaves only the key.
const FORGET_OUTCOME: &str = "UPDATE records SET outcome_format = NULL WHERE id = ?1";
const FORGET: &str = "DELETE FROM records WHERE id = ?1";

/// A part of a sweep.
pub(super) struct Piece {
    limit: u32,
}

/// What a piece freed, and whether there is more.
pub(super) struct Freed {
    pub(super) freed: Swept,
    pub(super) more: bool,
}

impl Piece {
    pub(super) fn of(limit: u32) -> Piece {
        Piece { limit: limit.min(ROWS_MAX) }
    }
}

impl Verb for Piece {
    type Answer = Freed;
    const GIVES_WAY: bool = true;

    /// Atomic as every verb is: what is due cannot be claimed anew between the look and the deletion.
    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<Freed> {
        let writer = rows.connection();
        let begun = Instant::now();
        let due = due(&mut *writer.prepare_cached(DUE)?, clock.now().0, self.limit)?;
        let mut freed = Swept::default();
        for (id, is_over) in &due {
            if freed.total() > 0 && begun.elapsed() > PIECE_FOR {
                return Ok(Freed { freed, more: true });
            }
            free(writer, *id, *is_over)?;
            freed.records += u32::from(*is_over);
            freed.outcomes += u32::from(!*is_over);
        }
        Ok(Freed { freed, more: due.len() == self.limit as usize })
    }
}

/// Read to the end before the first row is changed.
fn due(statement: &mut Statement<'_>, now: i64, limit: u32) -> rusqlite::Result<Vec<(i64, bool)>> {
    statement.query_map((now, limit), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn free(writer: &Connection, id: i64, is_over: bool) -> rusqlite::Result<()> {
    let run = |sql| writer.prepare_cached(sql)?.execute([id]).map(drop);
    run(DROP_OUTCOME)?;
    if !is_over {
        return run(FORGET_OUTCOME);
    }
    run(DROP_INPUT)?;
    run(FORGET)
}
