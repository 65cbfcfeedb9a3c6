//! A request, its business data and its answer in one database transaction: exactly once over HTTP (X6).
//!
//! 1. **The handler gets the open transaction**, in which its key is claimed, and gives an answer. The answer is kept and
//!    committed with what the handler wrote; it leaves only after the COMMIT.
//! 2. **The status decides**, by [`Statuses`](crate::Statuses) and `Semel-Outcome` as for the layer. 2xx and 3xx commit
//!    everything. Another answer that is kept, 402 or 422, say, undoes what the handler wrote and is kept alone.
//!    One that is not kept (409, 500, 503 …) rolls back everything, as if the request had never come. Nothing is ever
//!    unknown here, so an answer that means that elsewhere (502, 504) rolls back too.
//! 3. **A handler that fails** is answered 500 and rolled back. It runs once, unless [`Whole::rerun`] says that it touches
//!    nothing but the transaction.
//! 4. **A COMMIT without an answer is asked about**; only where nobody answers for long is the caller told
//!    `outcome-unknown`, and a retry of the same key finds out.
//! 5. **A retry hears the kept answer**, a twin that comes meanwhile 409 at once.
//!
//! The caller of this names the scope, as its own authentication says: only it knows whom the key belongs to.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use semel::{
    BoxError, Done, InTransaction, Lease, Once, Operation, Outcome, Ran, Scope, Transactions, Twin, Whole,
    WholeError,
};

use crate::body::Body;
use crate::coding::Accepts;
use crate::fingerprint::Subject;
use crate::headers;
use crate::key;
use crate::outcome::Kept;
use crate::problem::{Code, Problem};
use crate::response;
use crate::settings::Settings;
use crate::verdict::Meaning;

/// Answers requests, each in one transaction.
#[derive(Debug)]
pub struct OneTransaction<D> {
    whole: Whole<D>,
    settings: Settings,
}

/// A future of the handler's.
pub type Answering<'t> =
    std::pin::Pin<Box<dyn Future<Output = Result<Response<Bytes>, BoxError>> + Send + 't>>;

impl<D: Transactions> OneTransaction<D> {
    /// Of the settings it takes the key's names and syntax, the comparison, the policy, the statuses and the link to the
    /// published policy.
    #[must_use]
    pub fn new(whole: Whole<D>, settings: Settings) -> OneTransaction<D> {
        OneTransaction { whole, settings }
    }

    /// Answers the request: by the handler, once, or as it was answered before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the operation goes on to its end.
    ///
    /// # Panics
    ///
    /// When the handler does; its transaction is rolled back. Outside a tokio runtime.
    pub async fn answer<F>(&self, scope: Scope, request: Request<Bytes>, mut handler: F) -> Response<Body>
    where
        F: for<'t> FnMut(&'t mut <D::Tx as InTransaction>::Handle, &'t Lease) -> Answering<'t>
            + Send
            + 'static,
    {
        let (parts, body) = request.into_parts();
        let operation = match self.operation(scope, &parts, &body) {
            Ok(operation) => operation,
            Err(problem) => return self.refused(problem),
        };
        let statuses = self.settings.options.statuses.clone();
        let negotiated = Accepts::of(&parts.headers).named;
        let ended = self
            .whole
            .once(operation, Twin::Refuse, move |tx, lease| {
                let (answering, statuses) = (handler(tx, lease), statuses.clone());
                Box::pin(async move { Ok(done(&statuses, negotiated, answering.await?)) })
            })
            .await;
        self.respond(&parts, ended)
    }

    fn operation(&self, scope: Scope, parts: &Parts, body: &Bytes) -> Result<Operation, Problem> {
        let options = &self.settings.options;
        let key = key::read(&parts.headers, &options.key_names, options.key_syntax)
            .map_err(|malformed| Problem::new(Code::KeyMalformed, malformed.to_string()))?
            .ok_or_else(|| {
                Problem::new(Code::KeyMissing, "Send a key of your own, and the same one with each retry.")
            })?;
        let subject = Subject::of(parts, body);
        let fingerprint = options
            .comparison
            .fingerprint(&subject)
            .map_err(|error| Problem::of_http(StatusCode::BAD_REQUEST, error.to_string()).final_as_it_is())?;
        let comparison = options.comparison.clone();
        Ok(Operation::new(scope, key, fingerprint, options.policy.clone())
            .label(semel::Label::new(format!("{} {}", parts.method, parts.uri.path())))
            .fingerprint_by(move |algorithm| comparison.fingerprint_by(algorithm, &subject)))
    }

    fn respond(
        &self,
        parts: &Parts,
        ended: Result<Once<Ran<Response<Bytes>>, ()>, WholeError>,
    ) -> Response<Body> {
        match ended {
            Ok(Once::Run(ran)) => {
                let (mut head, body) = ran.value.into_parts();
                headers::remove_ours(&mut head.headers);
                response::whole(&parts.method, head, body)
            }
            Ok(Once::Replay { outcome, .. }) => {
                let kept = response::kept(&outcome);
                let replayed = kept
                    .and_then(|kept| response::replayed(kept, &parts.method, Accepts::of(&parts.headers)));
                replayed.unwrap_or_else(|problem| self.refused(problem))
            }
            Ok(told) => self.refused(self.problem(&told)),
            Err(error) => self.refused(failed(&error)),
        }
    }

    fn problem<R>(&self, told: &Once<R, ()>) -> Problem {
        let options = &self.settings.options;
        match told {
            Once::InFlight { retry_after, .. } => {
                Problem::new(Code::InFlight, "Ask again with the same key.")
                    .status(options.in_flight_status)
                    .retry_after(*retry_after)
            }
            Once::Mismatch { .. } => {
                let detail = "The same key was used for a request that differs from this one.";
                Problem::new(Code::KeyReused, detail).status(options.mismatch_status)
            }
            Once::Dead { .. } => Problem::new(Code::AttemptsExhausted, "The key waits for an operator."),
            Once::Forgotten { .. } | Once::OutOfAge { .. } => {
                let detail = "The operation was done with this key before, and is not run again.";
                Problem::new(Code::KeyExpired, detail)
            }
            Once::Unknown { .. } | Once::Run(_) | Once::Replay { .. } => Problem::new(
                Code::OutcomeUnknown,
                "An earlier attempt ended without an answer. The key waits until somebody has found out.",
            ),
        }
    }

    fn refused(&self, problem: Problem) -> Response<Body> {
        problem.into_response(&self.settings.describedby)
    }
}

/// What becomes of the transaction.
fn done(statuses: &crate::Statuses, negotiated: bool, answer: Response<Bytes>) -> Done<Response<Bytes>> {
    let (head, body) = answer.into_parts();
    let meaning = statuses.judge(head.status, &head.headers);
    let outcome = outcome(head.status, &head.headers, &body, negotiated);
    let status = head.status;
    let answer = Response::from_parts(head, body);
    match meaning {
        Meaning::Keep if status.is_client_error() || status.is_server_error() => {
            Done::Refuse(outcome, answer)
        }
        Meaning::Keep => Done::Keep(outcome, answer),
        Meaning::Release | Meaning::Unknown(_) => Done::RollBack(answer),
    }
}

fn outcome(status: StatusCode, lines: &HeaderMap, body: &Bytes, negotiated: bool) -> Outcome {
    let mut lines = lines.clone();
    headers::remove_hop_by_hop(&mut lines);
    headers::remove_ours(&mut lines);
    let kept: HeaderMap<HeaderValue> =
        headers::kept(&lines).map(|(name, value)| (name.clone(), value.clone())).collect();
    Kept { status, headers: kept, body: Some(body.clone()), negotiated, trace: None }.encode()
}

fn failed(error: &WholeError) -> Problem {
    tracing::warn!(%error, "an operation in one transaction did not come to its end");
    match error {
        WholeError::Work(_) => {
            Problem::of_http(StatusCode::INTERNAL_SERVER_ERROR, "The operation failed and was rolled back.")
        }
        WholeError::Unknown(_) => {
            let detail = "The database did not answer the COMMIT. Ask again with the same key.";
            Problem::new(Code::OutcomeUnknown, detail).own()
        }
        _ => Problem::new(Code::StoreUnavailable, "The database does not answer. Nothing happened."),
    }
}
