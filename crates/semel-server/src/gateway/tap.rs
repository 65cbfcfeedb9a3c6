//! A connection with something on its way that listens in: the one place where a wrapped stream passes everything on.
//!
//! 1. What a [`Tap`] does not say otherwise passes untouched, vectored writes too.
//! 2. A tap sees each read before it is done, and each write after it: it may hold back, answer from what it has, or
//!    end a write that waits. It never sees the bytes of a write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What listens in.
pub trait Tap: Unpin {
    /// A read of the connection's user.
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(inner).poll_read(cx, buf)
    }

    /// How a write or a flush of its user went.
    fn wrote<T>(&mut self, _: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        write
    }
}

/// A connection that is listened to.
#[derive(Debug)]
pub struct Tapped<S, T> {
    inner: S,
    tap: T,
}

impl<S, T> Tapped<S, T> {
    pub fn by(inner: S, tap: T) -> Tapped<S, T> {
        Tapped { inner, tap }
    }

    /// The connection, and what listened.
    pub fn into_parts(self) -> (S, T) {
        (self.inner, self.tap)
    }
}

impl<S: AsyncRead + Unpin, T: Tap> AsyncRead for Tapped<S, T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Tapped { inner, tap } = self.get_mut();
        tap.read(inner, cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, T: Tap> AsyncWrite for Tapped<S, T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Tapped { inner, tap } = self.get_mut();
        let write = Pin::new(inner).poll_write(cx, bytes);
        tap.wrote(cx, write)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Tapped { inner, tap } = self.get_mut();
        let flush = Pin::new(inner).poll_flush(cx);
        tap.wrote(cx, flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Tapped { inner, tap } = self.get_mut();
        let write = Pin::new(inner).poll_write_vectored(cx, bufs);
        tap.wrote(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
