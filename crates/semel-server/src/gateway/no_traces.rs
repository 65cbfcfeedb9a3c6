//! What stands for [`traces`](super::traces) in a build without OpenTelemetry: trace context passes as it came.

use http::request::Parts;
use http::{Request, Response};
use semel_http::Body;

use super::telemetry::Class;
use crate::config::Config;

/// Nothing is sent anywhere.
#[derive(Debug)]
pub struct Exporting(());

/// No spans are made.
#[derive(Debug, Clone)]
pub struct Traces(());

/// There is none.
#[derive(Debug)]
pub struct Span(());

impl Exporting {
    /// # Errors
    ///
    /// When it is wanted.
    pub fn new(config: &Config) -> Result<Exporting, String> {
        match config.otlp_endpoint {
            Some(_) => Err(
                "--otlp-endpoint: this program was built without OpenTelemetry; build it with the feature \
                 'otel'"
                    .to_owned(),
            ),
            None => Ok(Exporting(())),
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "as with it")]
    pub fn start(self) -> Result<Traces, String> {
        Ok(Traces(()))
    }
}

impl Traces {
    #[allow(clippy::unused_self, reason = "as with it")]
    pub fn serves(&self, _: &mut Parts) -> Span {
        Span(())
    }

    #[allow(clippy::unused_self, reason = "as with it")]
    pub fn calls(&self, _: &mut Request<Body>) -> Span {
        Span(())
    }

    #[allow(clippy::unused_async, reason = "as with it")]
    pub async fn flush(&self) {}
}

impl Span {
    pub fn answered(self, response: &mut Response<Body>) {
        response.extensions_mut().remove::<semel_http::Decided>();
    }

    pub fn called(self, _: Class) {}
}
