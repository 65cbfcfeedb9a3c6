//! What a request is: H3 and H6.
//!
//! **Guarded** (H3): the methods that the settings list, POST and PATCH by default. `application/grpc*` passes
//! by: its outcome stands in trailers, and its clients do not send this header. An `Upgrade` header does not let
//! a guarded method by: a server may ignore it (RFC 9110, section 7.8), and would then run the request unguarded.
//!
//! **Fingerprint** (H6): SHA-256 over method, host, path, query, content type and body, as they were sent.
//!
//! 1. The host is the authority of the target if it has one, else `Host` (RFC 9112, section 3.2.2), in lower
//!    case: host names have no case (RFC 3986, section 3.2.2). A port counts as written.
//! 2. Path and query count as written. `/a` and `/%61` are two requests: which resource they name is the
//!    service's to say.
//! 3. An absent query is not an empty one, an absent content type not an empty one. An absent body **is** an
//!    empty one: clients and proxies add and drop `Content-Length: 0`.
//! 4. Further lines of `Content-Type` or `Host`, which no sound client sends, are added at the end, so that they
//!    count too.
//! 5. Nothing is parsed, so numbers are never compared through a float (case C24). Members in another order
//!    (C97) and another multipart boundary (C16) are another request in this algorithm.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};
use semel::{Algorithm, Fingerprint, Label};

/// Whether the contract applies to a request with this head.
pub(crate) fn is_guarded(methods: &[Method], parts: &Parts) -> bool {
    methods.contains(&parts.method) && !is_grpc(&parts.headers)
}

fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let head = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().get(..GRPC.len()));
    head.is_some_and(|head| head.eq_ignore_ascii_case(GRPC))
}

/// What the request asks for.
pub(crate) fn fingerprint(parts: &Parts, body: &Bytes) -> Fingerprint {
    let mut types = parts.headers.get_all(CONTENT_TYPE).iter();
    let mut hosts = parts.headers.get_all(HOST).iter();
    let once = Fingerprint::builder(Algorithm::EXACT)
        .part(parts.method.as_str().as_bytes())
        .part(&host(&parts.uri, hosts.next()))
        .part(parts.uri.path().as_bytes())
        .optional(parts.uri.query().map(str::as_bytes))
        .optional(types.next().map(HeaderValue::as_bytes))
        .part(body);
    let types = types.fold(once, |builder, line| builder.part(line.as_bytes()));
    // Something that no line can be, so that a second type is not a second host.
    hosts.fold(types.optional(None), |builder, line| builder.part(line.as_bytes())).finish()
}

fn host<'a>(uri: &'a Uri, host: Option<&'a HeaderValue>) -> Cow<'a, [u8]> {
    let host = match uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => host.map_or(&b""[..], HeaderValue::as_bytes),
    };
    if host.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// What the operation is, for people. Without the query: secrets travel there.
pub(crate) fn label(method: &Method, uri: &Uri) -> Label {
    Label::new([method.as_str(), " ", uri.path()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    fn post(uri: &str) -> http::request::Builder {
        Request::post(uri)
    }

    fn of(request: http::request::Builder, body: &'static [u8]) -> Fingerprint {
        fingerprint(&parts(request), &Bytes::from_static(body))
    }

    #[test]
    fn every_part_counts() {
        let base = || post("/a?x=1").header(HOST, "h").header(CONTENT_TYPE, "t");
        let others = [
            of(base().method(Method::PATCH), b"b"),
            of(base().uri("/b?x=1"), b"b"),
            of(base().uri("/a?x=2"), b"b"),
            of(base().uri("/a?"), b"b"),
            of(base().uri("/a"), b"b"),
            of(post("/a?x=1").header(HOST, "i").header(CONTENT_TYPE, "t"), b"b"),
            of(post("/a?x=1").header(HOST, "h").header(CONTENT_TYPE, ""), b"b"),
            of(post("/a?x=1").header(HOST, "h"), b"b"),
            of(base().header(CONTENT_TYPE, "u"), b"b"),
            of(base().header(HOST, "u"), b"b"),
            of(base(), b"c"),
            of(base(), b""),
        ];
        let mut all = vec![of(base(), b"b")];
        all.extend(others);
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one), "number {at} is not alone");
        }
        assert_eq!(of(base(), b"b"), all[0]);
    }

    #[test]
    fn the_host_has_no_case_and_the_target_wins_over_the_header() {
        assert_eq!(
            of(post("/a").header(HOST, "Shop.Example"), b""),
            of(post("/a").header(HOST, "shop.example"), b"")
        );
        assert_eq!(
            of(post("http://shop.example/a").header(HOST, "x"), b""),
            of(post("http://SHOP.example/a").header(HOST, "x"), b""),
        );
        assert_ne!(
            of(post("http://a/p").header(HOST, "x"), b""),
            of(post("http://b/p").header(HOST, "x"), b"")
        );
        assert_eq!(of(post("http://h/p"), b""), of(post("/p").header(HOST, "h"), b""));
    }

    #[test]
    fn c24_large_numbers_are_compared_as_written() {
        assert_ne!(of(post("/"), b"9007199254740992"), of(post("/"), b"9007199254740993"));
        assert_ne!(of(post("/"), b"0.1"), of(post("/"), b"0.10000000000000001"));
        assert_ne!(of(post("/"), b"1e400"), of(post("/"), b"1e401"));
        assert_ne!(of(post("/"), br#"{"a":1,"a":2}"#), of(post("/"), br#"{"a":2}"#));
    }

    #[test]
    fn c96_every_byte_of_the_body_is_significant() {
        for (one, other) in
            [("[1,2]", "[2,1]"), ("{\"a\":null}", "{}"), ("\"1\"", "1"), ("e\u{301}", "\u{e9}")]
        {
            assert_ne!(of(post("/"), one.as_bytes()), of(post("/"), other.as_bytes()));
        }
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
        assert_eq!(label(&Method::POST, &Uri::from_static("/charges?token=s")).as_str(), "POST /charges");
    }
}
