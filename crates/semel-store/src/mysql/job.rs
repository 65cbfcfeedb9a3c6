//! A call that waits for its answer.

use std::time::Duration;

use semel::{
    Claim, ClaimRequest, Entry, Event, Key, Lease, Past, Scope, Settlement, StateName, StoreError, Swept,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::failure::{Cause, Failure, Kind, Step};
use super::rows::{Found, Name};

/// What is asked for. Every one may be made again from its beginning.
#[derive(Debug)]
pub(super) enum Verb {
    Claim(ClaimRequest),
    Renew { lease: Lease, lease_for: Duration },
    Settle { lease: Lease, settlement: Settlement },
    Find { scope: Scope, key: Key },
    Open { state: u8, after: (i64, u64), limit: u32 },
    List(Page),
    Append { scope: Scope, key: Key, event: Event },
    History { scope: Scope, key: Key },
    Sweep { limit: u32 },
}

/// A part of a listing: from behind `from` on, and below `below`.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) from: (Vec<u8>, Vec<u8>),
    /// `None`: to the end.
    pub(super) below: Option<Vec<u8>>,
    pub(super) scope: Option<Scope>,
    pub(super) state: Option<StateName>,
    pub(super) rows_max: u32,
}

/// What a call is answered, in the order of the verbs.
#[derive(Debug)]
pub(super) enum Answer {
    Claim(Claim),
    Done,
    Entry(Option<Entry>),
    Rows(Vec<Found>),
    Past(Vec<Past>),
    /// What was freed, and whether there may be more.
    Swept(Swept, bool),
}

pub(super) type Reply = Result<Answer, StoreError>;

/// A verb whose caller waits.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) verb: Verb,
    /// When its caller has waited long enough.
    pub(super) until: Instant,
    /// `None` once it was answered.
    caller: Option<oneshot::Sender<Reply>>,
    /// A statement that commits it is under way.
    is_being_written: bool,
    /// Such a statement was not answered, an earlier time.
    may_be_written: bool,
}

impl Job {
    pub(super) fn new(verb: Verb, until: Instant) -> (Job, oneshot::Receiver<Reply>) {
        let (caller, answer) = oneshot::channel();
        let job = Job { verb, until, caller: Some(caller), is_being_written: false, may_be_written: false };
        (job, answer)
    }

    /// The record that it is about.
    pub(super) fn name(&self) -> Option<Name> {
        match &self.verb {
            Verb::Claim(request) => Some(Name::new(&request.scope, &request.key)),
            Verb::Renew { lease, .. } | Verb::Settle { lease, .. } => {
                Some(Name::new(&lease.scope, &lease.key))
            }
            Verb::Find { scope, key } | Verb::Append { scope, key, .. } | Verb::History { scope, key } => {
                Some(Name::new(scope, key))
            }
            Verb::Open { .. } | Verb::List(_) | Verb::Sweep { .. } => None,
        }
    }

    /// About how many bytes it adds to a statement.
    pub(super) fn bytes(&self) -> usize {
        const ROW: usize = 1 << 10;
        let carried = match &self.verb {
            Verb::Claim(request) => request.input.as_ref().map_or(0, |input| input.len()),
            Verb::Settle { settlement: Settlement::Complete { outcome, .. }, .. } => outcome.bytes.len(),
            _ => 0,
        };
        ROW + carried
    }

    pub(super) fn waits(&self) -> bool {
        self.caller.is_some()
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        self.reply(Ok(answer));
    }

    pub(super) fn reply(&mut self, reply: Reply) {
        if let Some(caller) = self.caller.take() {
            let _ = caller.send(reply);
        }
    }

    /// Says that it failed, and whether it may have been written all the same.
    pub(super) fn fail(&mut self, failure: Failure) {
        let is_unsure = self.may_be_written || self.is_being_written;
        self.reply(Err(if is_unsure { failure.after_doubt() } else { failure.into() }));
    }
}

/// Notes that a statement which commits these calls is sent; [`committed`] takes it back. A task that is ended in between
/// leaves the note.
pub(super) fn committing<'j>(jobs: impl IntoIterator<Item = &'j mut Job>) {
    jobs.into_iter().for_each(|job| job.is_being_written = true);
}

/// Notes how that statement ended.
pub(super) fn committed<'j, T>(
    jobs: impl IntoIterator<Item = &'j mut Job>,
    result: Result<T, Failure>,
) -> Result<T, Failure> {
    let is_unsure = result.as_ref().is_err_and(|failure| failure.kind() == Kind::Indeterminate);
    for job in jobs {
        job.is_being_written = false;
        job.may_be_written |= is_unsure;
    }
    result
}

/// Those of `jobs` whose callers still wait.
pub(super) fn waiting(jobs: &mut [Job]) -> Vec<&mut Job> {
    jobs.iter_mut().filter(|job| job.waits()).collect()
}

/// Reads the rows that were found, or says which is unreadable.
pub(super) fn read(
    rows: Vec<Vec<mysql_async::Value>>,
    unreadable: impl Fn(Cause) -> Failure,
) -> Result<Vec<Found>, Failure> {
    rows.into_iter().map(|row| Found::of(row).map_err(|what| unreadable(Cause::Unreadable(what)))).collect()
}

/// A failure of a task that is no more.
pub(super) fn ended(store: &std::sync::Arc<str>) -> Failure {
    Failure::new(store, Step::Commit, Cause::Ended)
}
