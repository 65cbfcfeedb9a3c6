//! Sockets to a service, and what can be seen of them from outside while hyper reads and writes them.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::gateway::tap::{Tap, Tapped};

/// A socket that can be looked at while it is in use.
pub(super) struct Stream(pub(super) Arc<TcpStream>);

/// What a look finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing: it is open, and the other side has said nothing.
    Quiet,
    /// Bytes that nobody has read yet.
    Bytes,
    /// The other side has closed it, or it is gone.
    Closed,
}

/// A look at the socket itself: hyper learns of the other side's end only when it is polled again.
pub(super) fn look(socket: &Weak<TcpStream>) -> Sight {
    // Gone when hyper is done with the connection.
    let Some(socket) = socket.upgrade() else { return Sight::Closed };
    match socket2::SockRef::from(&*socket).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Sight::Closed,
        Ok(_) => Sight::Bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sight::Quiet,
        Err(_) => Sight::Closed,
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

impl Stream {
    /// A read that leaves room has emptied the socket. Then the next one waits for the system to say that there is more,
    /// as tokio's own streams do, and does not ask first: to tokio it is as if this one had met with nothing.
    fn read(&self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let room = buf.remaining();
        let mut read = None;
        let seen = self.0.try_io(Interest::READABLE, || {
            let bytes = self.0.try_read_buf(buf)?;
            read = Some(bytes);
            if (1..room).contains(&bytes) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if read.is_some() { Ok(()) } else { seen }
    }

    fn poll_try(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// A stream whose first byte is told to somebody else too.
pub(super) type FirstByte<S> = Tapped<S, Telling>;

/// Whom it is told to, once.
pub(super) struct Telling(Option<oneshot::Sender<u8>>);

impl<S> FirstByte<S> {
    pub(super) fn of(inner: S) -> (FirstByte<S>, oneshot::Receiver<u8>) {
        let (tell, told) = oneshot::channel();
        (Tapped::by(inner, Telling(Some(tell))), told)
    }
}

impl Tap for Telling {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(inner).poll_read(cx, buf);
        if let Some(first) = buf.filled().get(before)
            && let Some(tell) = self.0.take()
        {
            let _ = tell.send(*first);
        }
        read
    }
}
