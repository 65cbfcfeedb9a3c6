//! What the caller is told: each [`Answer`] of the engine as a response (H8, H9), and as one line of the log.

use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Method, Response, StatusCode, Uri};
use semel::{Answer, Key, Lease, Scope};

use crate::body::Body;
use crate::coding::Accepts;
use crate::headers::SEMEL_RECORDED;
use crate::problem::{Code, Effect, Problem};
use crate::request;
use crate::response::{self, Ran};
use crate::settings::Settings;
use crate::trace::{Decided, TraceContext};

/// What was asked, for as long as it takes to answer.
pub(crate) struct Asked {
    pub(crate) settings: Arc<Settings>,
    /// What the request belongs to.
    pub(crate) trace: Option<TraceContext>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) accepts: Accepts,
    pub(crate) scope: Scope,
    pub(crate) key: Key,
}

/// What the line says beside the request and the status.
struct Decision {
    result: &'static str,
    fence: Option<u64>,
    attempts: Option<u32>,
    age: Option<Duration>,
    /// The run that a replay goes back to.
    original: Option<TraceContext>,
}

impl Asked {
    /// The engine's answer as a response.
    pub(crate) fn respond(self, answer: Answer<Ran>) -> Response<Body> {
        let mut decision = Decision::of(&answer);
        let mut response = match answer {
            Answer::Ran { value, lease, recorded } => self.ran(value, &lease, recorded),
            Answer::Replay { outcome, .. } => {
                let replayed = response::kept(&outcome).and_then(|mut kept| {
                    decision.original = kept.trace.take();
                    response::replayed(kept, &self.method, self.accepts)
                });
                replayed.unwrap_or_else(|problem| self.refused(problem))
            }
            refusal => self.refused(self.problem(refusal)),
        };
        self.log(&decision, response.status());
        if self.trace.is_some() {
            let Decision { result, original, .. } = decision;
            response.extensions_mut().insert(Decided { result, route: self.settings.route(), original });
        }
        response
    }

    fn ran(&self, ran: Ran, lease: &Lease, recorded: bool) -> Response<Body> {
        let mut response = match ran {
            Ran::Answer(response) => response,
            Ran::Unsure(upstream) => self.refused(own_unknown(upstream)),
            Ran::NotSent => self.refused(unreachable(lease)),
        };
        if !recorded {
            response.headers_mut().insert(SEMEL_RECORDED, HeaderValue::from_static("false"));
        }
        response
    }

    fn problem(&self, answer: Answer<Ran>) -> Problem {
        let options = &self.settings.options;
        match answer {
            Answer::Broke { .. } => own_unknown(None),
            Answer::Late { .. } => Problem::new(
                Code::UpstreamTimeout,
                "The operation is still running. Ask again with the same key: its answer is kept when it comes.",
            ),
            Answer::InFlight { retry_after, age } => {
                let problem = Problem::new(Code::InFlight, "Ask again with the same key.");
                let soon = Code::InFlight.row().retry_after.unwrap_or_default();
                problem.status(options.in_flight_status).retry_after(retry_after.min(age.max(soon)))
            }
            Answer::Mismatch => Problem::new(
                Code::KeyReused,
                "The same key was used for a request that differs from this one.",
            )
            .status(options.mismatch_status),
            Answer::Unknown { .. } => Problem::new(
                Code::OutcomeUnknown,
                "An earlier attempt ended without an answer. The key waits until somebody has found out.",
            ),
            Answer::Dead { .. } => Problem::new(Code::AttemptsExhausted, "The key waits for an operator."),
            Answer::Forgotten { .. } => Problem::new(
                Code::KeyExpired,
                "The operation was done with this key before, and is not run again.",
            ),
            Answer::OutOfAge => {
                let detail = "The key's own time is too long ago, or in the future. Nothing ran now.";
                Problem::new(Code::KeyExpired, detail)
                    .title("The key is too old to be new, and nothing is known of it")
                    .effect(Effect::Unknown)
            }
            Answer::Stopping => {
                Problem::new(Code::StoreUnavailable, "This instance is stopping. Nothing ran.")
            }
            Answer::TooMany => {
                let detail = "This caller has too many operations open, or too many new ones. Nothing ran.";
                Problem::new(Code::TooManyClaims, detail)
            }
            Answer::Unavailable(error) => {
                tracing::warn!(%error, "the store did not decide");
                Problem::new(Code::StoreUnavailable, "The store does not answer. Nothing ran.")
            }
            // Both have left by the other door.
            Answer::Ran { .. } | Answer::Replay { .. } => own_unknown(None),
        }
    }

    fn refused(&self, problem: Problem) -> Response<Body> {
        problem.into_response(&self.settings.describedby)
    }

    fn log(&self, decision: &Decision, status: StatusCode) {
        if !tracing::enabled!(target: "semel::decision", tracing::Level::INFO) {
            return;
        }
        tracing::info!(
            target: "semel::decision",
            result = decision.result,
            scope = self.scope.as_str(),
            key = self.key.digest(),
            label = request::label(&self.settings, &self.method, &self.uri).as_str(),
            fence = decision.fence,
            attempts = decision.attempts,
            age_ms = decision.age.map(|age| age.as_millis() as u64),
            status = status.as_u16(),
            trace = self.trace.as_ref().map(TraceContext::trace_id),
            original_trace = decision.original.as_ref().map(TraceContext::trace_id),
        );
    }
}

fn own_unknown(upstream: Option<StatusCode>) -> Problem {
    let detail = "The service gave no answer that tells. Ask again with the same key, never with a new one.";
    Problem::new(Code::OutcomeUnknown, detail).own().upstream(upstream)
}

/// Nothing was sent now; but where an earlier attempt is in doubt, that says nothing about the operation.
fn unreachable(lease: &Lease) -> Problem {
    let problem = Problem::new(Code::UpstreamUnreachable, "Nothing was sent. Ask again with the same key.");
    if lease.doubt { problem.effect(Effect::Unknown) } else { problem }
}

/// The word for an answer, in the log and in metrics.
pub(crate) fn result<T>(answer: &Answer<T>) -> &'static str {
    Decision::of(answer).result
}

impl Decision {
    fn of<T>(answer: &Answer<T>) -> Decision {
        let nothing = |result| Decision { result, fence: None, attempts: None, age: None, original: None };
        let leased = |result, lease: &Lease| Decision {
            fence: Some(lease.fence.0),
            attempts: Some(lease.attempts),
            ..nothing(result)
        };
        let aged = |result, age: &Duration| Decision { age: Some(*age), ..nothing(result) };
        match answer {
            Answer::Ran { lease, .. } => leased("run", lease),
            Answer::Broke { lease, .. } => leased("broke", lease),
            Answer::Late { lease } => leased("timeout", lease),
            Answer::Replay { age, attempts, .. } => {
                Decision { attempts: Some(*attempts), ..aged("replay", age) }
            }
            Answer::InFlight { age, .. } => aged("in_flight", age),
            Answer::Mismatch => nothing("mismatch"),
            Answer::Unknown { age, .. } => aged("unknown", age),
            Answer::Dead { age, .. } => aged("dead", age),
            Answer::Forgotten { age } => aged("late", age),
            Answer::OutOfAge => nothing("out_of_age"),
            Answer::Unavailable(_) => nothing("unavailable"),
            Answer::Stopping => nothing("stopping"),
            Answer::TooMany => nothing("too_many"),
        }
    }
}
