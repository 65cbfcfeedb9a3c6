//! Whether there is a queue of a name: for people who have misspelt it.

use lapin::options::QueueDeclareOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{Connection, Error, ErrorKind};
use tokio::time::timeout;

use super::RabbitMq;
use super::connection::PATIENCE;
use super::properties::short;
use crate::source::SourceError;

impl RabbitMq {
    /// How many messages of a queue nobody holds; `None` where there is no such queue. It makes and takes nothing.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached, or refuses to say.
    pub async fn messages_in(&self, queue: &str) -> Result<Option<u32>, SourceError> {
        let connection = self.connect("look").await?;
        let counted = timeout(PATIENCE, count(&connection, queue)).await;
        let _ = timeout(PATIENCE, connection.close(200, "done".into())).await;
        match counted.map_err(|elapsed| self.unreachable(elapsed))? {
            Ok(messages) => Ok(Some(messages)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(self.refused_or_not(error)),
        }
    }
}

async fn count(connection: &Connection, queue: &str) -> Result<u32, Error> {
    let channel = connection.create_channel().await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = short(queue).map_err(std::io::Error::other)?;
    Ok(channel.queue_declare(name, options, FieldTable::default()).await?.message_count())
}

fn is_not_found(error: &Error) -> bool {
    let ErrorKind::ProtocolError(said) = error.kind() else { return false };
    *said.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND)
}
