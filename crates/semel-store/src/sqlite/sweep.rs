//! Frees what nothing reads any more: outcomes past their replay, records past being remembered.
//!
//! The table `due` leads straight to the blocks of rows that hold something due, so a sweep costs by what it frees, not
//! by what is there. It goes in pieces, each one call in the writer's queue. Claims go before it, and wait for the
//! piece that is being made, and one store makes one at a time, whoever asks (case C73).
//!
//! A block is never due later than the first of its rows, since whoever writes a row notes it. It may be due earlier:
//! the row has been claimed again, or another gateway swept it. Then there is less to free than was thought, or
//! nothing, and the block is due when the next of its rows is.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};
use semel::{Clock, Swept};

use super::history;
use super::rows::{BLOCK_BITS, DROP_SETTLED, Rows};
use super::writer::Verb;

/// Rows in one piece. Few, because a claim may wait for them; the commit that each piece costs is cheap beside that.
const ROWS_MAX: u32 = 64;

/// Blocks in one piece, whatever they hold.
const BLOCKS_MAX: u32 = 64;

/// A piece ends after this, whatever is left of it: freeing large outcomes takes longer than freeing small ones.
const PIECE_FOR: Duration = Duration::from_millis(1);

/// The block that is overdue longest.
pub(super) const DUE: &str = "SELECT block FROM due WHERE due_at <= ?1 ORDER BY due_at LIMIT 1";

/// What is due in a block, and whether the record is over with it.
pub(super) const DUE_IN_BLOCK: &str =
    "SELECT id, forget_at <= ?1 FROM settled WHERE id BETWEEN ?2 AND ?3 AND sweep_at <= ?1 LIMIT ?4";

/// When the next of a block is due.
pub(super) const NEXT_IN_BLOCK: &str = "SELECT min(sweep_at) FROM settled WHERE id BETWEEN ?1 AND ?2";
const DUE_LATER: &str = "UPDATE due SET due_at = ?2 WHERE block = ?1";
const DUE_NEVER: &str = "DELETE FROM due WHERE block = ?1";

/// What is forgotten by and by leaves only the key.
const FORGET_OUTCOME: &str = "UPDATE settled SET outcome_format = NULL, outcome = NULL WHERE id = ?1";

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

    /// Atomic as every verb is: what is due cannot be claimed anew between the look and the deletion. Each piece frees
    /// something, or puts off a block in which there is nothing to free, so a sweep comes to its end.
    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<Freed> {
        let mut sweep = Sweep {
            writer: rows.connection(),
            now: clock.now().0,
            limit: self.limit,
            begun: Instant::now(),
            freed: Swept::default(),
        };
        for _ in 0..BLOCKS_MAX {
            let Some(block) = sweep.due()? else { return Ok(Freed { freed: sweep.freed, more: false }) };
            sweep.clear(block)?;
            if sweep.is_over() {
                break;
            }
        }
        Ok(Freed { freed: sweep.freed, more: true })
    }
}

/// A piece that is being made.
struct Sweep<'c> {
    writer: &'c Connection,
    now: i64,
    limit: u32,
    begun: Instant,
    freed: Swept,
}

impl Sweep<'_> {
    fn is_over(&self) -> bool {
        self.freed.total() >= self.limit || self.begun.elapsed() > PIECE_FOR
    }

    fn due(&self) -> rusqlite::Result<Option<i64>> {
        self.writer.prepare_cached(DUE)?.query_row([self.now], |row| row.get(0)).optional()
    }

    /// Frees what is due in a block. Ended before its last row, the block stays due.
    fn clear(&mut self, block: i64) -> rusqlite::Result<()> {
        let (first, last) = (block << BLOCK_BITS, ((block + 1) << BLOCK_BITS) - 1);
        for (id, is_over) in self.due_between(first, last)? {
            if self.freed.total() > 0 && self.is_over() {
                return Ok(());
            }
            if is_over {
                self.writer.prepare_cached(history::FORGET)?.execute([id])?;
            }
            let sql = if is_over { DROP_SETTLED } else { FORGET_OUTCOME };
            self.writer.prepare_cached(sql)?.execute([id])?;
            self.freed.records += u32::from(is_over);
            self.freed.outcomes += u32::from(!is_over);
        }
        let mut next = self.writer.prepare_cached(NEXT_IN_BLOCK)?;
        match next.query_row([first, last], |row| row.get::<_, Option<i64>>(0))? {
            Some(at) => self.writer.prepare_cached(DUE_LATER)?.execute([block, at]).map(drop),
            None => self.writer.prepare_cached(DUE_NEVER)?.execute([block]).map(drop),
        }
    }

    /// Read to the end before the first row is changed.
    fn due_between(&self, first: i64, last: i64) -> rusqlite::Result<Vec<(i64, bool)>> {
        let left = self.limit - self.freed.total();
        let mut due = self.writer.prepare_cached(DUE_IN_BLOCK)?;
        due.query_map((self.now, first, last, left), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }
}
