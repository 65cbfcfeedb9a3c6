//! What has a connection of its own, so that it keeps no claim waiting: listings, history, sweeps.

use super::failure::Failure;
use super::job::{Job, Verb};
use super::link::Link;
use super::{browse, history, sweep};

/// Answers every call, or fails with those that are left.
pub(super) async fn serve(link: &mut Link, jobs: &mut [Job]) -> Result<(), Failure> {
    for job in jobs.iter_mut().filter(|job| job.waits()) {
        let answer = match &job.verb {
            Verb::Open { state, after, limit } => browse::open(link, *state, *after, *limit).await?,
            Verb::List(page) => browse::page(link, page).await?,
            Verb::Append { scope, key, event } => history::append(link, scope, key, event).await?,
            Verb::History { scope, key } => history::read(link, scope, key).await?,
            Verb::Sweep { limit } => sweep::piece(link, *limit).await?,
            Verb::Claim(_) | Verb::Renew { .. } | Verb::Settle { .. } | Verb::Find { .. } => {
                unreachable!("the live calls have queues of their own")
            }
        };
        job.answer(answer);
    }
    Ok(())
}
