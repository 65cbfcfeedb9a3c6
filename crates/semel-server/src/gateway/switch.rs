//! The moment between a request for another protocol and its answer.
//!
//! Until the answer is known, nobody can say what the bytes behind such a request are: another request, which has to
//! be watched, or the new protocol's, which nothing may touch. So reading stops behind the request's head, and goes on
//! when its answer is there: as HTTP, or in a tunnel.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;

/// One connection's.
#[derive(Default)]
pub struct Switch(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether the last request for another protocol was answered, and the connection stays what it is.
    stays: bool,
    reader: Option<Waker>,
    tunnel: Option<Tunnel>,
}

/// A connection that has changed over to another protocol, on both sides.
pub struct Tunnel {
    pub caller: OnUpgrade,
    pub service: OnUpgrade,
}

impl Switch {
    /// A request for another protocol has been read.
    pub fn hold(&self) {
        self.state().stays = false;
    }

    /// Waits until it has been answered, and the connection stays what it is.
    pub fn poll_stays(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.stays {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The answer to a request for another protocol is about to be written.
    pub fn answered<B>(&self, caller: OnUpgrade, response: &mut Response<B>) {
        let mut state = self.state();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            state.tunnel = Some(Tunnel { caller, service: hyper::upgrade::on(response) });
            return;
        }
        state.stays = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// The tunnel that the connection has become, if it has.
    pub fn tunnel(&self) -> Option<Tunnel> {
        self.state().tunnel.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch").field("stays", &self.state().stays).finish_non_exhaustive()
    }
}
