//! Every transition by name: [`matrix`] has the tables, [`rules`] the numbered rules and the K clauses,
//! [`history`] what must hold in every history.

mod history;
mod matrix;
mod rules;

use std::time::Duration;

use super::{Record, Unfit, claim, renew, settle, view};
use crate::environment::Timestamp;
use crate::store::{Claim, ClaimRequest, Fence, Lease, Settlement, View};
use crate::testing::sample;

/// One key from its first claim on, driven by hand.
#[derive(Debug, Clone)]
struct Life {
    record: Option<Record>,
    now: Timestamp,
}

impl Life {
    fn new() -> Life {
        Life { record: None, now: Timestamp(1_000_000) }
    }

    fn claim(&mut self, request: &ClaimRequest) -> Claim {
        let (write, answer) = claim(self.record.as_ref(), request, self.now);
        self.record = write.or(self.record.take());
        answer
    }

    /// A claim that must be granted.
    #[track_caller]
    fn acquire(&mut self, request: &ClaimRequest) -> Lease {
        sample::lease(self.claim(request))
    }

    fn renew(&mut self, lease: &Lease, lease_for: Duration) -> Result<(), Unfit> {
        self.record = Some(renew(self.record.as_ref(), lease, lease_for, self.now)?);
        Ok(())
    }

    fn settle(&mut self, lease: &Lease, settlement: &Settlement) -> Result<(), Unfit> {
        if let Some(record) = settle(self.record.as_ref(), lease, settlement, self.now)? {
            self.record = Some(record);
        }
        Ok(())
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    fn view(&self) -> Option<View> {
        self.record.as_ref().and_then(|record| view(record, self.now))
    }

    fn reads_as(&self) -> &'static str {
        self.view().map_or("absent", |view| view.name())
    }

    fn fence(&self) -> Fence {
        self.record.as_ref().map_or(Fence(0), |record| record.fence)
    }
}
