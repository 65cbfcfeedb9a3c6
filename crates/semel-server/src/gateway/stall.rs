//! A caller that stops reading: bounded, as one that stops writing is.
//!
//! A write that makes no headway for so long ends the connection. What was being answered is settled already, so
//! nothing is lost: the retry is a replay. A caller that reads slowly, but reads, is not concerned.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::tap::{Tap, Tapped};

/// A connection whose writes must make headway.
pub type Moving<S> = Tapped<S, Headway>;

/// Within what time.
#[derive(Debug)]
pub struct Headway {
    within: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Moving<S> {
    pub fn new(inner: S, within: Duration) -> Moving<S> {
        Tapped::by(inner, Headway { within, stalled: None })
    }
}

impl Tap for Headway {
    /// The write's own result; or, where it has waited too long, the end.
    fn wrote<T>(&mut self, cx: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.stalled = None;
            return write;
        }
        let within = self.within;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(within)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_stops_reading_ends_its_connection() {
        let (ours, _theirs) = duplex(4);
        let mut ours = Moving::new(ours, MINUTE);
        let begun = tokio::time::Instant::now();
        let error = ours.write_all(b"more than four bytes").await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, MINUTE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_reads_slowly_gets_everything() {
        let (ours, mut theirs) = duplex(4);
        let mut ours = Moving::new(ours, MINUTE);
        let reader = tokio::spawn(async move {
            let mut read = Vec::new();
            while read.len() < 20 {
                tokio::time::sleep(MINUTE - Duration::from_secs(1)).await;
                read.push(theirs.read_u8().await.unwrap());
            }
            read
        });
        ours.write_all(b"more than four bytes").await.unwrap();
        assert_eq!(reader.await.unwrap(), b"more than four bytes");
    }
}
