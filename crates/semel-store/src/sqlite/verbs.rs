//! The verbs as the writer makes them: read the row, apply the pure rule, write the row.
//!
//! Each is atomic because it runs within the writer's `BEGIN IMMEDIATE`: the row cannot change between its look
//! and its write. The clock is read after the lock was had, so a wait for it is not taken off a lease.

use std::time::Duration;

use rusqlite::Connection;
use semel::record::{self, Record, Unfit};
use semel::{Claim, ClaimRequest, Clock, Lease, Settlement};

use super::rows::{self, Rows};
use super::writer::Verb;

/// The answer to a claim that changes nothing, as of one snapshot, and the record that it is made of; `None` if the
/// rule wants to write.
pub(super) fn glance(
    reader: &Connection,
    request: &ClaimRequest,
    clock: &dyn Clock,
) -> rusqlite::Result<Option<(Claim, Option<Record>)>> {
    let record = rows::load(reader, &request.scope, &request.key)?.map(|stored| stored.record);
    let (write, answer) = record::claim(record.as_ref(), request, clock.now());
    Ok(write.is_none().then_some((answer, record)))
}

impl Verb for ClaimRequest {
    type Answer = Claim;

    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<Claim> {
        let old = rows.load(&self.scope, &self.key)?;
        let (write, answer) = record::claim(old.as_ref().map(|old| &old.record), self, clock.now());
        if let Some(new) = write {
            rows.save(&self.scope, &self.key, old.as_ref(), &new)?;
        }
        Ok(answer)
    }

    fn glance(&self, reader: &Connection, clock: &dyn Clock) -> rusqlite::Result<Option<Claim>> {
        Ok(glance(reader, self, clock)?.map(|(answer, _)| answer))
    }
}

pub(super) struct Renew {
    pub(super) lease: Lease,
    pub(super) lease_for: Duration,
}

impl Verb for Renew {
    type Answer = Result<(), Unfit>;

    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<Result<(), Unfit>> {
        let Lease { scope, key, .. } = &self.lease;
        let old = rows.load_leased(&self.lease)?;
        let new =
            record::renew(old.as_ref().map(|old| &old.record), &self.lease, self.lease_for, clock.now());
        match new {
            Ok(new) => rows.save(scope, key, old.as_ref(), &new).map(Ok),
            Err(unfit) => Ok(Err(unfit)),
        }
    }
}

pub(super) struct Settle {
    pub(super) lease: Lease,
    pub(super) settlement: Settlement,
}

impl Verb for Settle {
    type Answer = Result<(), Unfit>;

    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<Result<(), Unfit>> {
        let Lease { scope, key, .. } = &self.lease;
        let old = rows.load_leased(&self.lease)?;
        let new =
            record::settle(old.as_ref().map(|old| &old.record), &self.lease, &self.settlement, clock.now());
        match new {
            Ok(Some(new)) => rows.save(scope, key, old.as_ref(), &new).map(Ok),
            Ok(None) => Ok(Ok(())),
            Err(unfit) => Ok(Err(unfit)),
        }
    }
}
