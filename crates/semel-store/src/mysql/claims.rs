//! Claims, and looks at records.
//!
//! 1. A claim of a key that is new is **one statement**: an insertion that commits by itself. The unique index decides, so
//!    nothing is read before. What the rule says of an absent key is written at the server's clock.
//! 2. What changes nothing (a replay, in flight, a mismatch) is read and answered, without a lock or a transaction. One
//!    statement is one snapshot, and holds everything that was acknowledged before it began.
//! 3. Everything else goes the straight way. So does what these two could not answer: a claim may be repeated, so an
//!    insertion that was not answered, or met another one, is no special case.

use semel::record;
use semel::{Purpose, Timestamp};

use super::browse;
use super::failure::{Failure, Step};
use super::job::{self, Answer, Job, Verb};
use super::link::Link;
use super::rows::{self, Name};
use super::transaction;

/// After so many batches in which a look found nothing, claims are inserted without one.
const MISSES_MAX: u32 = 8;

/// Whether claims are looked up before they are inserted. A guess about what comes next; nothing but time depends on it.
#[derive(Debug)]
pub(super) struct Guess {
    misses: u32,
}

impl Guess {
    /// New keys are what comes first.
    pub(super) fn new() -> Guess {
        Guess { misses: MISSES_MAX }
    }

    fn is_worth_it(&self) -> bool {
        self.misses < MISSES_MAX
    }

    fn note(&mut self, has_found: bool) {
        self.misses = if has_found { 0 } else { self.misses.saturating_add(1) };
    }
}

/// Answers every call, or fails with those that are left.
pub(super) async fn serve(link: &mut Link, guess: &mut Guess, jobs: &mut [Job]) -> Result<(), Failure> {
    let is_looked_up = guess.is_worth_it() || jobs.iter().any(|job| matches!(job.verb, Verb::Find { .. }));
    if is_looked_up {
        let known = look_up(link, jobs).await?;
        guess.note(!known.is_empty());
        insert(link, jobs, &known).await?;
    } else if !insert(link, jobs, &[]).await? {
        let known = look_up(link, jobs).await?;
        guess.note(true);
        insert(link, jobs, &known).await?;
    }
    transaction::transact(link, jobs).await
}

/// Answers what changes nothing. Gives the names, in their order, that have a record, whatever is to become of it.
async fn look_up(link: &mut Link, jobs: &mut [Job]) -> Result<Vec<Name>, Failure> {
    let mut jobs = job::waiting(jobs);
    let mut names: Vec<Name> = jobs.iter().filter_map(|job| job.name()).collect();
    names.sort();
    names.dedup();
    let mut found = Vec::with_capacity(names.len());
    let mut rest = names.as_slice();
    while !rest.is_empty() {
        let (these, others) = rest.split_at(rows::portion(rest.len()));
        rest = others;
        let rows = link.rows(&rows::load(these.len()), transaction::parameters(these), Step::Read).await?;
        found.extend(job::read(rows, |cause| link.failure(Step::Read, cause))?);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    for job in &mut jobs {
        let Some(name) = job.name() else { continue };
        let found = found.binary_search_by(|found| found.name.cmp(&name)).ok().map(|at| &found[at]);
        // Of what is absent the time does not matter: nothing is said about it that has one.
        let (now, record) = (found.map_or(Timestamp(0), |found| found.now), found.map(|found| &found.record));
        match &job.verb {
            Verb::Claim(request) => {
                let (new, answer) = record::claim(record, request, now);
                if new.is_none() {
                    job.answer(Answer::Claim(answer));
                }
            }
            Verb::Find { scope, key } => {
                let entry =
                    record.and_then(|record| record::entry(record, scope, key, browse::place(&name), now));
                job.answer(Answer::Entry(entry));
            }
            _ => {}
        }
    }
    Ok(found.into_iter().map(|found| found.name).collect())
}

/// Inserts the claims of keys that are not among the known ones, one of each key. Gives whether all were inserted: if one
/// has a row, its statement inserted none.
async fn insert(link: &mut Link, jobs: &mut [Job], known: &[Name]) -> Result<bool, Failure> {
    let mut fresh: Vec<(Name, &mut Job)> = Vec::new();
    for job in job::waiting(jobs) {
        let may_be_new =
            matches!(&job.verb, Verb::Claim(request) if matches!(request.purpose, Purpose::Run { .. }));
        let Some(name) = job.name().filter(|name| may_be_new && known.binary_search(name).is_err()) else {
            continue;
        };
        fresh.push((name, job));
    }
    // One order for all, so that two batches which share keys wait for one another and not in a circle. Stable: of one
    // key the first one goes.
    fresh.sort_by(|one, other| one.0.cmp(&other.0));
    fresh.dedup_by(|one, other| one.0 == other.0);
    let mut rest = fresh.as_mut_slice();
    let mut are_all_new = true;
    while !rest.is_empty() {
        let (these, others) = rest.split_at_mut(rows::portion(rest.len()));
        rest = others;
        are_all_new &= insert_all(link, these).await?;
    }
    Ok(are_all_new)
}

async fn insert_all(link: &mut Link, fresh: &mut [(Name, &mut Job)]) -> Result<bool, Failure> {
    let mut parameters = Vec::with_capacity(25 * fresh.len());
    let mut answers = Vec::with_capacity(fresh.len());
    for (name, job) in fresh.iter() {
        let Verb::Claim(request) = &job.verb else { continue };
        // The rule for an absent key asks for no time, so it may be asked at the instant 0.
        let (Some(record), answer) = record::claim(None, request, Timestamp(0)) else { continue };
        rows::written(name, &record, &mut parameters);
        answers.push(answer);
    }
    job::committing(fresh.iter_mut().map(|(_, job)| &mut **job));
    let done = link.write(&rows::insert_shifted(fresh.len()), parameters, Step::Commit).await;
    match job::committed(fresh.iter_mut().map(|(_, job)| &mut **job), done) {
        Ok(_) => {
            let jobs = fresh.iter_mut().zip(answers);
            jobs.for_each(|((_, job), answer)| job.answer(Answer::Claim(answer)));
            Ok(true)
        }
        Err(failure) if failure.is_duplicate() => Ok(false),
        Err(failure) => Err(failure),
    }
}
