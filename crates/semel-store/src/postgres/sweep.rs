//! Frees what nothing reads any more: outcomes past their replay, records past being remembered.
//!
//! The index of what is due leads straight to it, so a sweep costs by what it frees. It goes in pieces of [`ROWS_MAX`]
//! rows, each a statement and a transaction of its own. Rows that somebody has locked are passed over, and the next
//! sweep meets them; a claim that meets a row which is being swept waits for one piece (case C73). Several gateways may
//! sweep at once: they take different rows.

use semel::{StoreError, Swept};
use tokio_postgres::types::Type;

use super::error::Failure;
use super::reader::Reader;
use super::rows::{clock, number};

const ROWS_MAX: u32 = 500;

/// Atomic as a statement is: what is due is locked first, and judged by what the lock found, so that a key that was claimed
/// anew meanwhile stays. The rows are named by their place: a locked row does not move.
const PIECE: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT ",
    clock!(),
    " AS now), due AS MATERIALIZED (\
     SELECT ctid AS place, id, key, scope, forget_at <= (SELECT now FROM clock) AS is_over, outcome_format FROM semel.records \
     WHERE (CASE WHEN outcome_format IS NULL THEN forget_at ELSE replay_until END) < 9223372036854775807 \
     AND (CASE WHEN outcome_format IS NULL THEN forget_at ELSE replay_until END) <= (SELECT now FROM clock) \
     ORDER BY (CASE WHEN outcome_format IS NULL THEN forget_at ELSE replay_until END) \
     LIMIT $1 FOR UPDATE SKIP LOCKED), \
     outcomes AS (DELETE FROM semel.outcomes WHERE record = ANY (ARRAY(\
     SELECT id FROM due WHERE outcome_format IS NOT NULL))), \
     forgotten AS (UPDATE semel.records SET outcome_format = NULL WHERE ctid = ANY (ARRAY(\
     SELECT place FROM due WHERE NOT is_over)) RETURNING 1), \
     history AS (DELETE FROM semel.history AS h USING due WHERE is_over AND h.key = due.key AND h.scope = due.scope), \
     gone AS (DELETE FROM semel.records WHERE ctid = ANY (ARRAY(SELECT place FROM due WHERE is_over)) RETURNING 1) \
     SELECT (SELECT count(*) FROM forgotten), (SELECT count(*) FROM gone)"
);

pub(super) async fn sweep(reader: &Reader, limit: u32) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    while swept.total() < limit {
        let rows = i64::from(ROWS_MAX.min(limit - swept.total()));
        let piece = match reader.once(PIECE, &[(&rows, Type::INT8)]).await {
            Ok(piece) => piece,
            // What was freed is freed. The next sweep goes on.
            Err(_) if swept.total() > 0 => break,
            Err(failure) => return Err(failure.into()),
        };
        let (outcomes, records) = freed(&piece)?;
        swept.outcomes += outcomes;
        swept.records += records;
        if outcomes + records == 0 {
            break;
        }
    }
    Ok(swept)
}

fn freed(piece: &[tokio_postgres::Row]) -> Result<(u32, u32), Failure> {
    let row = piece.first().ok_or_else(super::rows::strange)?;
    let count = |column| number(row, column).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    Ok((count(0)?, count(1)?))
}
