//! What a request is, and asks for beside its operation: H3 and H8.
//!
//! **Guarded** (H3): the methods that the settings list, POST and PATCH by default. `application/grpc*` passes
//! by: its outcome stands in trailers, and its clients do not send this header. An `Upgrade` header does not let
//! a guarded method by: a server may ignore it (RFC 9110, section 7.8), and would then run the request unguarded.
//!
//! **Waiting** (H8): `Prefer: wait=10` (RFC 7240, section 4.3) asks to wait for another attempt that is in flight, for
//! so many seconds. The route says how long that may be; where it says nothing, nobody waits.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};
use semel::Label;

use crate::settings::Settings;

/// Whether the contract applies to a request with this head.
pub(crate) fn is_guarded(methods: &[Method], parts: &Parts) -> bool {
    methods.contains(&parts.method) && !is_grpc(&parts.headers)
}

fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let head = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().get(..GRPC.len()));
    head.is_some_and(|head| head.eq_ignore_ascii_case(GRPC))
}

/// What a request prefers (RFC 7240).
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Which of it was honoured (RFC 7240, section 3).
pub(crate) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// How long the request asks to wait, within what the route allows. Of several `wait` the first counts, as the RFC has
/// it; one that is no number of seconds is none.
pub(crate) fn wait(headers: &HeaderMap, at_most: Duration) -> Option<Duration> {
    if at_most.is_zero() {
        return None;
    }
    let lines = headers.get_all(PREFER).iter().filter_map(|line| line.to_str().ok());
    let mut preferences = lines.flat_map(|line| line.split(',')).filter_map(|preference| {
        let preference = preference.split(';').next().unwrap_or_default();
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"'))
    });
    let seconds = preferences.next()?.parse::<u32>().ok().filter(|seconds| *seconds > 0)?;
    Some(at_most.min(Duration::from_secs(seconds.into())))
}

/// What `Preference-Applied` says of a wait, in whole seconds.
pub(crate) fn applied(wait: Duration) -> HeaderValue {
    HeaderValue::from_str(&format!("wait={}", wait.as_secs())).unwrap_or(HeaderValue::from_static("wait"))
}

/// What the operation is, for people: `POST /charges`, and with the host where the route is for one,
/// `POST pay.example/charges`. Without the query: secrets travel there.
pub(crate) fn label(settings: &Settings, method: &Method, uri: &Uri) -> Label {
    let host = settings.options.host.as_deref().unwrap_or_default();
    Label::new([method.as_str(), " ", host, uri.path()].concat())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::settings::Options;
    use http::Request;
    use semel::{OnUnknown, Policy};

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    fn post(uri: &str) -> http::request::Builder {
        Request::post(uri)
    }

    #[test]
    fn h8_the_wait_is_what_both_sides_agree_to() {
        let of = |lines: &[&'static str], at_most: u64| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(PREFER, HeaderValue::from_static(line));
            }
            wait(&headers, Duration::from_secs(at_most)).map(|wait| wait.as_secs())
        };
        assert_eq!(of(&["wait=10"], 30), Some(10));
        assert_eq!(of(&["wait=10"], 5), Some(5));
        assert_eq!(of(&["respond-async, Wait=\"3\"; x=1", "wait=9"], 30), Some(3));
        for none in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=0", "waiting=3", "wait=99999999999"] {
            assert_eq!(of(&[none], 30), None, "{none}");
        }
        assert_eq!(of(&["wait=10"], 0), None);
        assert_eq!(applied(Duration::from_millis(2_500)), "wait=2");
    }

    #[test]
    fn guarded_are_the_listed_methods_without_grpc() {
        let methods = [Method::POST, Method::PATCH];
        let is = |request| is_guarded(&methods, &parts(request));
        assert!(is(post("/")));
        assert!(is(Request::patch("/")));
        assert!(is(post("/").header("connection", "upgrade").header("upgrade", "websocket")));
        assert!(is(post("/").header(CONTENT_TYPE, "application/json")));
        for passes in [
            Request::get("/"),
            Request::head("/"),
            Request::options("/"),
            Request::put("/"),
            Request::delete("/"),
        ] {
            assert!(!is(passes));
        }
        for grpc in ["application/grpc", "application/grpc+proto", "Application/gRPC-Web"] {
            assert!(!is(post("/").header(CONTENT_TYPE, grpc)));
        }
    }

    #[test]
    fn a_label_shows_no_query() {
        let label = |host: Option<&str>| {
            let mut options = Options::new(Arc::new(Policy::new(OnUnknown::Park)));
            options.host = host.map(str::to_owned);
            let uri = Uri::from_static("/charges?token=s");
            label(&Settings::new(options).unwrap(), &Method::POST, &uri).as_str().to_owned()
        };
        assert_eq!(label(None), "POST /charges");
        assert_eq!(label(Some("pay.example")), "POST pay.example/charges");
    }
}
