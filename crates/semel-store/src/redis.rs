//! Records in Redis.

use std::sync::Arc;

use crate::{ConnectError, Connected, Migrate, Options};

pub(crate) async fn open(_url: &str, _options: &Options) -> Result<Connected, ConnectError> {
    Err(ConnectError::Url("this store is being built".to_owned()))
}

pub(crate) fn migrations(_url: &str) -> Result<Arc<dyn Migrate>, ConnectError> {
    Err(ConnectError::Url("this store is being built".to_owned()))
}
