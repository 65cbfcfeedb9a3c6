//! Looking at records: `unsettled` and the listings.
//!
//! 1. Every call to the server is short: at most [`PAGE`] records and about a mebibyte of outcomes, since nothing else
//!    runs there meanwhile. What changes between two of them may or may not be listed.
//! 2. **By key**: a page costs as many records as are looked at. With a filter on what is completed, released or
//!    forgotten that may be all of a prefix.
//! 3. **What runs, is unknown or is dead** is listed by way of the set of what is open, whose ids are all read and put in
//!    order: as many as there are open records, for each page.
//! 4. In a cluster each bucket is asked, and the pages are merged.

use std::collections::VecDeque;
use std::future::Future;

use futures_util::future::try_join_all;
use semel::record::{self, Record};
use semel::{Cursor, Entry, Filter, Key, Scope, StateName, StoreError, Timestamp, View};

use super::RedisStore;
use super::layout::{Bucket, parse_id};
use super::reply;
use super::scripts;

/// Records in one call.
const PAGE: usize = 100;

/// With so many bytes read, a call ends early.
const PAGE_BYTES: u64 = 1 << 20;

/// Above every byte of a text in UTF-8.
const ABOVE: &[u8] = b"\xff";

/// Some entries of one bucket in order, each with its place.
struct Page<P> {
    entries: Vec<(P, Entry)>,
    /// Where it goes on, if it does.
    next: Option<P>,
}

/// In the order of time: from when on it waits, and its id.
type OpenPlace = (i64, Vec<u8>);

impl RedisStore {
    pub(super) async fn find_record(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        let id = super::layout::id(scope, key);
        let (now, mut records) = self.read(self.layout.bucket(key), std::slice::from_ref(&id)).await?;
        let record = records.pop().flatten();
        Ok(record.and_then(|record| record::entry(&record, scope, key, Cursor(id), now)))
    }

    pub(super) async fn unsettled_entries(
        &self,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let after = after.map(open_place).transpose()?;
        let limit = limit as usize;
        let page = self.page_size(limit);
        merged(self.layout.buckets(), after, limit, |bucket, after| self.open_page(bucket, after, page)).await
    }

    pub(super) async fn list_entries(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let after = after.map(id_place).transpose()?;
        let limit = limit as usize;
        match filter.state {
            Some(StateName::Running | StateName::Unknown | StateName::Dead) => {
                self.list_open(filter, after, limit).await
            }
            _ => {
                let page = if filter.state.is_none() { self.page_size(limit) } else { PAGE };
                let fetch = |bucket, after| self.key_page(bucket, filter, after, page);
                merged(self.layout.buckets(), after, limit, fetch).await
            }
        }
    }

    pub(super) async fn key_entries(&self, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
        // A key holds no control character, so what begins so is this key and nothing else.
        let filter = Filter { prefix: Some(format!("{}\0", key.as_str())), ..Filter::default() };
        let fetch = |bucket, after| self.id_page(bucket, &filter, after, PAGE, |_| true);
        merged([self.layout.bucket(key)], None, limit as usize, fetch).await
    }

    /// Without a filter, each bucket gives about its share.
    fn page_size(&self, limit: usize) -> usize {
        (2 * limit / self.layout.buckets().count() + 8).min(PAGE)
    }

    async fn key_page(
        &self,
        bucket: Bucket,
        filter: &Filter,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Page<Vec<u8>>, StoreError> {
        self.id_page(bucket, filter, after, limit, |entry| filter.fits(entry)).await
    }

    /// What the index has behind `after` and under the filter's prefix.
    async fn id_page(
        &self,
        bucket: Bucket,
        filter: &Filter,
        after: Option<Vec<u8>>,
        limit: usize,
        fits: impl Fn(&Entry) -> bool,
    ) -> Result<Page<Vec<u8>>, StoreError> {
        let prefix = filter.prefix.as_deref().unwrap_or_default().as_bytes();
        let from = match after {
            Some(after) if after.as_slice() >= prefix => [b"(", after.as_slice()].concat(),
            _ => [b"[", prefix].concat(),
        };
        let below = [b"(", prefix, ABOVE].concat();
        let mut command = redis::cmd("ZRANGE");
        command
            .arg(self.layout.index(bucket))
            .arg(from)
            .arg(below)
            .arg("BYLEX")
            .arg("LIMIT")
            .arg(0)
            .arg(limit);
        let ids = reply::ids(self.link.command(command).await?)?;
        let (now, records) = self.read(bucket, &ids).await?;
        let is_last = ids.len() < limit && records.len() == ids.len();
        let next = if is_last { None } else { ids.get(records.len().max(1) - 1).cloned() };
        let mut entries = Vec::new();
        for (id, record) in ids.into_iter().zip(records) {
            // One that Redis has let go by itself is in the index until it is swept.
            let Some(record) = record else { continue };
            entries
                .extend(entry(&record, &id, Cursor(id.clone()), now)?.filter(&fits).map(|entry| (id, entry)));
        }
        Ok(Page { entries, next })
    }

    /// What is open and waits behind `after`.
    async fn open_page(
        &self,
        bucket: Bucket,
        after: Option<OpenPlace>,
        limit: usize,
    ) -> Result<Page<OpenPlace>, StoreError> {
        let found = self.ripe(self.layout.open(bucket), after.as_ref(), limit, "ripe").await?;
        let ids: Vec<_> = found.iter().map(|(_, id)| id.clone()).collect();
        let (now, records) = self.read(bucket, &ids).await?;
        let is_last = found.len() < limit && records.len() == found.len();
        let next = if is_last { None } else { found.get(records.len().max(1) - 1).cloned() };
        let mut entries = Vec::new();
        for (place, record) in found.into_iter().zip(records) {
            let Some(record) = record else {
                missing(&place.1);
                continue;
            };
            let cursor = open_cursor(&place);
            // It may have been renewed or settled between the two looks.
            let is_open = |entry: &Entry| matches!(entry.view, View::Unknown { .. } | View::Dead { .. });
            entries
                .extend(entry(&record, &place.1, cursor, now)?.filter(is_open).map(|entry| (place, entry)));
        }
        Ok(Page { entries, next })
    }

    /// What is open, in the order of keys.
    async fn list_open(
        &self,
        filter: &Filter,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let of_buckets = try_join_all(self.layout.buckets().map(|bucket| self.open_ids(bucket))).await?;
        let prefix = filter.prefix.as_deref().unwrap_or_default().as_bytes();
        let mut places: Vec<(Vec<u8>, Bucket)> = of_buckets.into_iter().flatten().collect();
        places.retain(|(id, _)| id.starts_with(prefix) && after.as_ref().is_none_or(|after| id > after));
        places.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let (mut found, mut rest) = (Vec::new(), places.as_slice());
        while let Some((_, bucket)) = rest.first().filter(|_| found.len() < limit) {
            let together = rest.iter().take(PAGE).take_while(|(_, other)| other == bucket);
            let ids: Vec<_> = together.map(|(id, _)| id.clone()).collect();
            let (now, records) = self.read(*bucket, &ids).await?;
            rest = &rest[records.len().clamp(1, ids.len())..];
            for (id, record) in ids.into_iter().zip(records) {
                let Some(record) = record else { continue };
                found
                    .extend(entry(&record, &id, Cursor(id.clone()), now)?.filter(|entry| filter.fits(entry)));
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn open_ids(&self, bucket: Bucket) -> Result<Vec<(Vec<u8>, Bucket)>, StoreError> {
        let mut ids = Vec::new();
        let mut after = None;
        loop {
            let found = self.ripe(self.layout.open(bucket), after.as_ref(), 10 * PAGE, "all").await?;
            let is_last = found.len() < 10 * PAGE;
            after = found.last().cloned();
            ids.extend(found.into_iter().map(|(_, id)| (id, bucket)));
            if is_last {
                return Ok(ids);
            }
        }
    }

    /// A page of a set that is in the order of time.
    pub(super) async fn ripe(
        &self,
        set: Vec<u8>,
        after: Option<&OpenPlace>,
        limit: usize,
        which: &str,
    ) -> Result<Vec<OpenPlace>, StoreError> {
        let (time, id) = match after {
            Some((time, id)) => (time.to_string(), id.clone()),
            None => ("-inf".to_owned(), Vec::new()),
        };
        let call = scripts::RIPE.call().keys([set]).bytes(time).bytes(id).number(limit as u64).bytes(which);
        reply::page(self.link.read(&call).await?)
    }

    /// Records of one bucket as of one instant. Maybe fewer than asked for, but one.
    async fn read(
        &self,
        bucket: Bucket,
        ids: &[Vec<u8>],
    ) -> Result<(Timestamp, Vec<Option<Record>>), StoreError> {
        if ids.is_empty() {
            return Ok((Timestamp(0), Vec::new()));
        }
        let names = ids.iter().map(|id| self.layout.record(bucket, id));
        reply::records(self.link.read(&scripts::READ.call().keys(names).number(PAGE_BYTES)).await?)
    }
}

/// One bucket's part of a merge.
struct Run<P> {
    bucket: Bucket,
    ready: VecDeque<(P, Entry)>,
    next: Option<P>,
    is_done: bool,
}

/// The entries of all buckets in order, at most `limit`. A bucket is asked again when what it gave is used up: nothing
/// can be said of what comes next before that.
async fn merged<P: Ord + Clone, F: Future<Output = Result<Page<P>, StoreError>>>(
    buckets: impl IntoIterator<Item = Bucket>,
    after: Option<P>,
    limit: usize,
    fetch: impl Fn(Bucket, Option<P>) -> F,
) -> Result<Vec<Entry>, StoreError> {
    let run = |bucket| Run { bucket, ready: VecDeque::new(), next: after.clone(), is_done: false };
    let mut runs: Vec<Run<P>> = buckets.into_iter().map(run).collect();
    let mut found = Vec::new();
    while found.len() < limit {
        let empty = runs.iter_mut().filter(|run| run.ready.is_empty() && !run.is_done);
        try_join_all(empty.map(|run| fill(run, &fetch))).await?;
        if runs.iter().any(|run| run.ready.is_empty() && !run.is_done) {
            continue;
        }
        let least = runs.iter_mut().filter(|run| !run.ready.is_empty()).min_by(|one, other| {
            let place = |run: &Run<P>| run.ready.front().map(|(place, _)| place.clone());
            place(one).cmp(&place(other))
        });
        let Some((_, entry)) = least.and_then(|run| run.ready.pop_front()) else { break };
        found.push(entry);
    }
    Ok(found)
}

async fn fill<P: Ord + Clone, F: Future<Output = Result<Page<P>, StoreError>>>(
    run: &mut Run<P>,
    fetch: &impl Fn(Bucket, Option<P>) -> F,
) -> Result<(), StoreError> {
    let page = fetch(run.bucket, run.next.clone()).await?;
    run.ready.extend(page.entries);
    run.is_done = page.next.is_none();
    run.next = page.next;
    Ok(())
}

fn entry(record: &Record, id: &[u8], cursor: Cursor, now: Timestamp) -> Result<Option<Entry>, StoreError> {
    let (scope, key) = parse_id(id)?;
    Ok(record::entry(record, &scope, &key, cursor, now))
}

/// What is open never goes by itself: somebody, or an eviction, has removed it.
fn missing(id: &[u8]) {
    if let Ok((scope, key)) = parse_id(id) {
        tracing::warn!(%scope, key = key.digest(), "a record that was open is gone from Redis: was it evicted?");
    }
}

fn id_place(cursor: &Cursor) -> Result<Vec<u8>, StoreError> {
    parse_id(&cursor.0).map_err(|_| not_ours())?;
    Ok(cursor.0.clone())
}

fn open_cursor((time, id): &OpenPlace) -> Cursor {
    Cursor([time.to_string().as_bytes(), b"\0", id].concat())
}

fn open_place(cursor: &Cursor) -> Result<OpenPlace, StoreError> {
    let border = cursor.0.iter().position(|byte| *byte == 0).ok_or_else(not_ours)?;
    let (time, id) = (&cursor.0[..border], &cursor.0[border + 1..]);
    parse_id(id).map_err(|_| not_ours())?;
    let time = std::str::from_utf8(time).ok().and_then(|time| time.parse().ok()).ok_or_else(not_ours)?;
    Ok((time, id.to_vec()))
}

fn not_ours() -> StoreError {
    StoreError::Refused("the cursor is none of this store's".into())
}
