//! What an inner service can say about a request that failed.

use std::error::Error;

use semel::BoxError;

/// The request was certainly not processed: the name was not resolved, the connection refused, TLS not agreed on,
/// or the stream refused before anything of it was handled (HTTP/2 REFUSED_STREAM; GOAWAY below the stream).
///
/// An inner service returns it, or an error with it in the chain of its sources. Every other error counts as
/// unknown, so when in doubt leave it out: a timeout or a cut connection proves nothing.
#[derive(Debug, thiserror::Error)]
#[error("the request was not sent: {0}")]
pub struct NotSent(#[source] BoxError);

impl NotSent {
    /// With what went wrong.
    pub fn new(cause: impl Into<BoxError>) -> NotSent {
        NotSent(cause.into())
    }

    /// Whether it is the error, or one of its sources.
    pub(crate) fn is_in(error: &(dyn Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<NotSent>() {
                return true;
            }
            next = error.source();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] BoxError);

    #[test]
    fn it_is_found_down_the_chain_and_nowhere_else() {
        let not_sent = NotSent::new("connection refused");
        assert!(NotSent::is_in(&not_sent));
        assert!(NotSent::is_in(&Outer(Box::new(Outer(Box::new(not_sent))))));
        assert!(!NotSent::is_in(&Outer("connection reset".into())));
    }
}
