//! The streams of one HTTP/2 connection: what keeps them within the bounds that an HTTP/1.1 connection has by itself.
//!
//! 1. A connection without a stream is told to go (GOAWAY) after as long as an idle one of HTTP/1.1, and cut when it
//!    is still there after as long as one that does not read.
//! 2. A connection whose every stream waits for its caller to read is cut after that time too. While one of them
//!    moves, or waits for the service, it stays.
//! 3. The first stream has the connection's own place. Each further one takes a place as a connection would, so that
//!    callers together hold no more requests than there is room for; where there is none it waits, and is refused
//!    (REFUSED_STREAM: certainly not processed) if none comes free.
//! 4. A caller that resets many streams, and most of its streams, before their answers is cut off (rapid reset,
//!    CVE-2023-44487; CVE-2025-8671 is the same by way of streams that the server has to reset). h2 bounds those that
//!    nobody has looked at yet, and those it resets itself; these are the others.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use semel::BoxError;
use semel_http::Body;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::connection::{HEAD_MAX, STALL_MAX};

/// How long a stream waits for a place.
const SEAT_MAX: Duration = Duration::from_secs(30);

/// Streams that a caller may reset before anybody counts how many it let live.
const RESETS_MAX: usize = 200;

/// How often it is looked whether a bound has been passed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// One connection's streams.
#[derive(Debug)]
pub struct Streams {
    begun: Instant,
    /// The place that the connection itself has.
    own: Arc<Semaphore>,
    open: AtomicUsize,
    /// Of those, the ones that wait for the service, or for their request's body.
    with_service: AtomicUsize,
    /// When a stream last moved, in milliseconds from the connection's beginning.
    moved_ms: AtomicU64,
    all: AtomicUsize,
    resets: AtomicUsize,
    too_many_resets: Notify,
}

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is told to go.
    Leave,
    /// It is cut.
    Cut,
}

impl Streams {
    pub fn new() -> Streams {
        Streams {
            begun: Instant::now(),
            own: Arc::new(Semaphore::new(1)),
            open: AtomicUsize::new(0),
            with_service: AtomicUsize::new(0),
            moved_ms: AtomicU64::new(0),
            all: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
            too_many_resets: Notify::new(),
        }
    }

    /// A request has come.
    pub fn begin(self: &Arc<Streams>) -> Stream {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.with_service.fetch_add(1, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        self.moved();
        let with_service = AtomicBool::new(true);
        Stream { streams: self.clone(), with_service, is_answered: false, seat: None }
    }

    /// Waits until one of the bounds is passed. `leaving`: whether it has been told to go already.
    ///
    /// Cancel safe: whoever asks again is told the same.
    pub async fn verdict(&self, leaving: bool) -> Verdict {
        loop {
            let quiet = self
                .begun
                .elapsed()
                .saturating_sub(Duration::from_millis(self.moved_ms.load(Ordering::Relaxed)));
            let (bound, verdict) = match self.open.load(Ordering::Relaxed) {
                0 if leaving => (STALL_MAX, Verdict::Cut),
                0 => (HEAD_MAX, Verdict::Leave),
                _ if self.with_service.load(Ordering::Relaxed) > 0 => (Duration::MAX, Verdict::Cut),
                _ => (STALL_MAX, Verdict::Cut),
            };
            if quiet >= bound {
                return verdict;
            }
            tokio::select! {
                () = sleep(LOOK_EVERY.min(bound - quiet)) => {}
                () = self.too_many_resets.notified() => return Verdict::Cut,
            }
        }
    }

    fn moved(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(now, Ordering::Relaxed);
    }

    fn reset(&self) {
        let resets = self.resets.fetch_add(1, Ordering::Relaxed) + 1;
        if resets > RESETS_MAX && resets > self.all.load(Ordering::Relaxed) / 2 {
            self.too_many_resets.notify_one();
        }
    }
}

/// One stream, until it is dropped: answered, or reset by its caller.
#[derive(Debug)]
pub struct Stream {
    streams: Arc<Streams>,
    with_service: AtomicBool,
    is_answered: bool,
    seat: Option<OwnedSemaphorePermit>,
}

impl Stream {
    /// Waits for a place.
    ///
    /// # Errors
    ///
    /// REFUSED_STREAM when none comes free.
    pub async fn seated(mut self, room: &Arc<Semaphore>) -> Result<Stream, h2::Error> {
        let (own, shared) = (self.streams.own.clone().acquire_owned(), room.clone().acquire_owned());
        let seat = timeout(SEAT_MAX, async {
            tokio::select! {
                biased;
                seat = own => seat,
                seat = shared => seat,
            }
        });
        match seat.await {
            Ok(Ok(seat)) => {
                self.seat = Some(seat);
                Ok(self)
            }
            _ => {
                self.is_answered = true;
                Err(h2::Reason::REFUSED_STREAM.into())
            }
        }
    }

    /// Its answer, on its way.
    pub fn answering(mut self, body: Body) -> Answering {
        self.is_answered = true;
        Answering { body, stream: self }
    }

    /// Who is waited for now.
    fn turn(&self, to_service: bool) {
        self.streams.moved();
        let counter = &self.streams.with_service;
        match (self.with_service.swap(to_service, Ordering::Relaxed), to_service) {
            (true, false) => drop(counter.fetch_sub(1, Ordering::Relaxed)),
            (false, true) => drop(counter.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.turn(false);
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
        if !self.is_answered {
            self.streams.reset();
        }
    }
}

/// An answer's body; it is asked for a piece when there is room to write one, so between a piece and the next question
/// the caller is waited for.
#[derive(Debug)]
pub struct Answering {
    body: Body,
    stream: Stream,
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.stream.turn(polled.is_pending());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams() -> Arc<Streams> {
        Arc::new(Streams::new())
    }

    async fn seated(streams: &Arc<Streams>, room: &Arc<Semaphore>) -> Stream {
        streams.begin().seated(room).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_leaves_and_is_cut_when_it_does_not() {
        let streams = streams();
        assert_eq!(streams.verdict(false).await, Verdict::Leave);
        assert_eq!(streams.begun.elapsed(), HEAD_MAX);
        assert_eq!(streams.verdict(true).await, Verdict::Cut);
        assert_eq!(streams.begun.elapsed(), STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_service_is_waited_for_a_connection_stays() {
        let (streams, room) = (streams(), Arc::new(Semaphore::new(0)));
        let slow = seated(&streams, &room).await;
        assert!(timeout(Duration::from_secs(3600), streams.verdict(false)).await.is_err());
        drop(slow.answering(Body::empty()));
        let begun = Instant::now();
        assert_eq!(streams.verdict(false).await, Verdict::Leave);
        assert_eq!(begun.elapsed(), HEAD_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_reads_nothing_is_cut() {
        let (streams, room) = (streams(), Arc::new(Semaphore::new(0)));
        let mut unread = seated(&streams, &room).await.answering(Body::from("text"));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(http_body::Body::poll_frame(Pin::new(&mut unread), &mut cx).is_ready());
        let begun = Instant::now();
        assert_eq!(streams.verdict(false).await, Verdict::Cut);
        assert_eq!(begun.elapsed(), STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn further_streams_take_places_and_are_refused_where_there_are_none() {
        let (streams, room) = (streams(), Arc::new(Semaphore::new(1)));
        let first = seated(&streams, &room).await;
        let second = seated(&streams, &room).await;
        assert_eq!(room.available_permits(), 0);
        let refused = streams.begin().seated(&room).await.unwrap_err();
        assert_eq!(refused.reason(), Some(h2::Reason::REFUSED_STREAM));
        drop(first);
        let third = seated(&streams, &room).await;
        drop(second);
        assert_eq!(room.available_permits(), 1);
        drop(third);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_resets_most_of_its_streams_is_cut() {
        let (streams, room) = (streams(), Arc::new(Semaphore::new(0)));
        let kept = seated(&streams, &room).await;
        for _ in 0..RESETS_MAX {
            drop(streams.begin());
        }
        assert!(timeout(LOOK_EVERY, streams.verdict(false)).await.is_err());
        drop(streams.begin());
        assert_eq!(streams.verdict(false).await, Verdict::Cut);
        drop(kept);
        let fair = self::streams();
        for _ in 0..2 * RESETS_MAX {
            drop(seated(&fair, &room).await.answering(Body::empty()));
            drop(fair.begin());
        }
        assert!(timeout(LOOK_EVERY, fair.verdict(false)).await.is_err());
    }
}
