//! What a connection is after its protocol was switched: bytes, both ways, until both sides have ended, or neither has
//! said anything for too long.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, sleep_until};

use super::framing::Watched;
use super::switch::Tunnel;
use super::tap::{Tap, Tapped};

/// How long both sides may be silent.
const SILENT_MAX: Duration = Duration::from_secs(5 * 60);

/// Carries it to its end. `S` is what the caller's connection is made of.
///
/// # Errors
///
/// That of the side which broke.
pub async fn carry<S>(tunnel: Tunnel) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let caller = tunnel.caller.await.map_err(io::Error::other)?;
    let service = tunnel.service.await.map_err(io::Error::other)?;
    let Ok(caller) = caller.downcast::<TokioIo<Watched<S>>>() else {
        return Err(io::Error::other("not the connection that was watched"));
    };
    // From here on nobody watches: these are no requests.
    let (stream, watch) = caller.io.into_inner().into_parts();
    let heard = Heard { begun: Instant::now(), last_ms: AtomicU64::new(0) };
    let mut caller_side = Tapped::by(stream, Hearing(&heard));
    let mut service_side = TokioIo::new(service);
    let carried = async {
        service_side.write_all(&caller.read_buf).await?;
        service_side.write_all(watch.held()).await?;
        copy_bidirectional(&mut caller_side, &mut service_side).await
    };
    tokio::select! {
        carried = carried => carried.map(|_| ()),
        () = heard.nothing_for(SILENT_MAX) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// When something was last heard.
struct Heard {
    begun: Instant,
    last_ms: AtomicU64,
}

impl Heard {
    fn something(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    async fn nothing_for(&self, bound: Duration) {
        loop {
            let end = self.begun + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + bound;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// On the caller's side: all that is said passes here, in one direction or the other.
struct Hearing<'a>(&'a Heard);

impl Tap for Hearing<'_> {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(inner).poll_read(cx, buf))?;
        self.0.something();
        Poll::Ready(Ok(()))
    }

    /// A flush follows what was written, so it counts as little more than that.
    fn wrote<T>(&mut self, _: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(write, Poll::Ready(Ok(_))) {
            self.0.something();
        }
        write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_word() {
        let heard = Heard { begun: Instant::now(), last_ms: AtomicU64::new(0) };
        let speaking = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(200)).await;
                heard.something();
            }
        };
        tokio::join!(speaking, heard.nothing_for(SILENT_MAX));
        assert_eq!(heard.begun.elapsed(), Duration::from_secs(600) + SILENT_MAX);
    }
}
