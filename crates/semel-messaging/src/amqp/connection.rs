//! Connecting, and what the broker's errors mean.

use std::time::Duration;

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Connection, ConnectionProperties, Error, ErrorKind};
use tokio::time::timeout;

use super::RabbitMq;
use crate::source::SourceError;

/// Twice as long a silence ends a connection.
pub(super) const HEARTBEAT_SECONDS: u16 = 10;

/// No step of a conversation takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl RabbitMq {
    pub(super) async fn connect(&self, purpose: &str) -> Result<Connection, SourceError> {
        let properties =
            ConnectionProperties::default().with_connection_name(format!("semel {purpose}").into());
        let connected = timeout(PATIENCE, Connection::connect_uri((*self.uri).clone(), properties)).await;
        connected.map_err(|elapsed| self.unreachable(elapsed))?.map_err(|error| self.refused_or_not(error))
    }

    pub(super) fn unreachable(&self, reason: impl Into<semel::BoxError>) -> SourceError {
        SourceError::Unreachable { at: self.place(), reason: reason.into() }
    }

    /// By the code that the broker gives, and not by its words; those are for people.
    pub(super) fn refused_or_not(&self, error: Error) -> SourceError {
        let ErrorKind::ProtocolError(said) = error.kind() else { return self.unreachable(error) };
        let hint = match said.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => "check user, password and permissions",
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                "there is no such queue: check its name, or declare it"
            }
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => {
                "it is there with other settings: take it as it is, or delete it"
            }
            AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => "another connection has it for itself",
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
                "check the virtual host, and the user's permissions for it"
            }
            // The broker is being stopped, say.
            _ => return self.unreachable(error),
        };
        SourceError::Refused(format!(
            "the broker at {} refuses: {} ({hint})",
            self.place(),
            said.get_message()
        ))
    }
}
