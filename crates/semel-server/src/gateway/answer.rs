//! From a request as it came to the answer that goes out: what the front refuses, the policy page, and all else
//! through the contract.

use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use semel::BoxError;
use semel_http::{Body, Code, NotSent, Problem};
use tower_service::Service;

use super::connection::Serving;
use super::forward::TooLate;
use super::front::{self, Refusal};
use super::page::POLICY_LINK;

/// The answer to a request.
pub async fn answer(mut request: Request<Incoming>, serving: &Serving) -> Response<Body> {
    let switches = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    // Read before anything is taken off the request.
    let asked = serving.shared.cors.asked(&request);
    let mut response = serving.shared.cors.answer(asked, answer_all(request, serving).await);
    if let Some(caller) = switches {
        serving.switch.answered(caller, &mut response);
    }
    response
}

async fn answer_all(request: Request<Incoming>, serving: &Serving) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    if let Err(refusal) = front::admit(&mut parts, &serving.caller) {
        return refused(refusal);
    }
    if let Some(page) = serving.shared.page.answer(&parts) {
        return page;
    }
    let span = serving.shared.traces.serves(&mut parts);
    let mut guarded = serving.shared.guarded.clone();
    let answered = guarded.call(Request::from_parts(parts, body)).await;
    let mut response = answered.unwrap_or_else(|error| unguarded_failed(&error));
    span.answered(&mut response);
    response
}

/// Why an unguarded request has no answer. With no key, repeating one that was sent could take effect twice.
fn unguarded_failed(error: &BoxError) -> Response<Body> {
    let problem = if error.is::<NotSent>() {
        Problem::new(Code::UpstreamUnreachable, "The service cannot be reached.")
    } else if error.is::<TooLate>() {
        let late = "The service did not answer in time. The request had no key.";
        Problem::new(Code::UpstreamTimeout, late).without_key()
    } else {
        let unknown = "The connection to the service broke. The request had no key.";
        Problem::new(Code::OutcomeUnknown, unknown).own().without_key()
    };
    tracing::warn!(%error, "an unguarded request has no answer");
    problem.into_response(&HeaderValue::from_static(POLICY_LINK))
}

/// The two ends may not agree where this request ends, so nothing more is read from the connection.
fn refused(refusal: Refusal) -> Response<Body> {
    tracing::debug!(reason = refusal.reason, "refused");
    let problem = Problem::of_http(refusal.status, refusal.reason).final_as_it_is();
    let mut response = problem.into_response(&HeaderValue::from_static(POLICY_LINK));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
