//! One connection that comes back by itself.
//!
//! Nothing is sent over a connection that is known to be gone; so what fails before that has certainly written nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::error::{Failure, Kind};
use super::session::{Session, connect};

/// Pauses between two tries to connect: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A connection, when there is one.
pub(super) struct Link {
    address: Arc<Address>,
    client: Option<Arc<Session>>,
    pause: Duration,
}

impl Link {
    pub(super) fn new(address: Arc<Address>) -> Link {
        Link { address, client: None, pause: PAUSE }
    }

    pub(super) fn with(address: Arc<Address>, client: Session) -> Link {
        Link { address, client: Some(Arc::new(client)), pause: PAUSE }
    }

    /// The connection; makes one where there is none, and tries so until `until`.
    pub(super) async fn client(&mut self, until: Instant) -> Result<Arc<Session>, Failure> {
        if let Some(client) = self.client.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        self.client = None;
        loop {
            let failure = match timeout(until - Instant::now(), connect(&self.address)).await {
                Ok(Ok(client)) => {
                    self.pause = PAUSE;
                    return Ok(Arc::clone(self.client.insert(Arc::new(client))));
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::said(Kind::Unavailable, "the server cannot be reached in time"),
            };
            if !failure.is_passing() || Instant::now() + self.pause >= until {
                return Err(failure);
            }
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Gives the connection up: the next call makes another one.
    pub(super) fn drop_client(&mut self) {
        self.client = None;
    }

    /// The same, unless there is another one meanwhile.
    pub(super) fn drop_client_if(&mut self, failed: &Arc<Session>) {
        self.client.take_if(|client| Arc::ptr_eq(client, failed));
    }
}
