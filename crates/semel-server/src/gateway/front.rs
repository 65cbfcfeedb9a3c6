//! What a proxy does to every message that passes, guarded or not: one framing, one host, no hop-by-hop headers,
//! and where it came from (RFC 9110 §7, RFC 9112 §3 and §6).

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Method, StatusCode, Uri, Version};
use semel_http::{ClientCertificate, Peer, remove_hop_by_hop};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Caller {
    pub peer: IpAddr,
    /// The same, as it is told the service.
    address: HeaderValue,
    /// Whether it speaks TLS.
    pub secure: bool,
    /// What it has proved to hold.
    pub certificate: Option<ClientCertificate>,
}

impl Caller {
    pub fn new(peer: IpAddr, secure: bool) -> Caller {
        let address = HeaderValue::from_str(&peer.to_string()).expect("an address is visible ASCII");
        Caller { peer, address, secure, certificate: None }
    }
}

/// Why a request goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The reason, for a person.
    pub reason: &'static str,
}

/// Checks a request and makes it the one that goes on to the service: addressed by path, with one Host. Whatever it
/// came by, from here on it is one of HTTP/1.1.
///
/// # Errors
///
/// A [`Refusal`]; an HTTP/1 connection must then be closed, since its two ends may not agree where the request ends.
pub fn admit(parts: &mut Parts, caller: &Caller) -> Result<(), Refusal> {
    framing(parts)?;
    let host = host(parts)?;
    parts.uri = addressed_by_path(&parts.uri);
    let (websocket, trailers) = (asks_for_websocket(parts), takes_trailers(parts));
    remove_hop_by_hop(&mut parts.headers);
    if websocket {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, WEBSOCKET);
    }
    if trailers {
        parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(&mut parts.headers);
    }
    forwarded(&mut parts.headers, caller, &host);
    parts.headers.insert(header::HOST, host);
    parts.version = Version::HTTP_11;
    parts.extensions.insert(Peer(caller.peer));
    if let Some(certificate) = caller.certificate {
        parts.extensions.insert(certificate);
    }
    Ok(())
}

/// Of all protocols that a request may ask for, WebSocket is the one that goes on, and only where the request is
/// nothing but that question: a GET without a body. `h2c` would carry requests past the guard.
fn asks_for_websocket(parts: &Parts) -> bool {
    let Some(protocol) = parts.headers.get(header::UPGRADE) else { return false };
    let is_one = parts.headers.get_all(header::UPGRADE).iter().count() == 1;
    let lines = parts.headers.get_all(header::CONNECTION).iter();
    let mut tokens = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let has_body = parts.headers.contains_key(header::TRANSFER_ENCODING)
        || parts.headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    is_one
        && protocol.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes())
        && tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        && parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && !has_body
}

/// gRPC asks for trailers, and servers of it want to be asked. In HTTP/1.1 they do not pass.
fn takes_trailers(parts: &Parts) -> bool {
    parts.version == Version::HTTP_2
        && parts.headers.get(header::TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// HTTP/2 may cut a Cookie into several lines, which mean one (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(header::COOKIE).iter();
    if lines.next().is_none() || lines.next().is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(line) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(header::COOKIE, line);
    }
}

/// One framing. Of two in a head hyper drops one, so [`framing`](super::framing) has refused them before; here they
/// would be refused if it had not (RFC 9112 §6.1, §11.2).
///
/// Of the codings only `chunked` is undone here. Another one below it would pass as if it were the body.
fn framing(parts: &Parts) -> Result<(), Refusal> {
    let lengths = parts.headers.get_all(header::CONTENT_LENGTH).iter().count();
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    let (coding, more) = (codings.next(), codings.next().is_some());
    if lengths > 1 || more || (lengths == 1 && coding.is_some()) {
        return Err(refused("two framings: more than one of Content-Length and Transfer-Encoding"));
    }
    if coding.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Err(refused("a Transfer-Encoding other than chunked"));
    }
    if coding.is_some() && parts.version < Version::HTTP_11 {
        return Err(refused("Transfer-Encoding in a request older than HTTP/1.1"));
    }
    if parts.method == Method::CONNECT {
        return Err(Refusal { status: StatusCode::NOT_IMPLEMENTED, reason: "CONNECT is not served here" });
    }
    Ok(())
}

/// The host that the request names: in its target, else in its one Host line (RFC 9112 §3.2). In HTTP/2 the target is
/// `:authority`, and a Host beside it names the same (RFC 9113 §8.3.1).
fn host(parts: &Parts) -> Result<HeaderValue, Refusal> {
    let mut lines = parts.headers.get_all(header::HOST).iter();
    let (first, more) = (lines.next(), lines.next().is_some());
    if more {
        return Err(refused("more than one Host"));
    }
    let authority = parts.uri.authority();
    let is_http2 = parts.version == Version::HTTP_2;
    let named = authority.map(|authority| HeaderValue::from_str(authority.as_str())).transpose();
    let named = named.map_err(|_| refused("the target's host is none"))?;
    if first.is_none() && parts.version >= Version::HTTP_11 && (named.is_none() || !is_http2) {
        return Err(refused("no Host"));
    }
    if [first, named.as_ref()].into_iter().flatten().any(|host| !is_host(host))
        || (parts.uri.scheme().is_none() && authority.is_some())
    {
        return Err(refused("a Host or a target that names no host"));
    }
    if let (true, Some(first), Some(named)) = (is_http2, first, &named)
        && !first.as_bytes().eq_ignore_ascii_case(named.as_bytes())
    {
        return Err(refused("a Host other than the authority"));
    }
    // HTTP/1.0 may name none; then it is this one.
    Ok(named.or_else(|| first.cloned()).unwrap_or_else(|| HeaderValue::from_static("localhost")))
}

/// A host and perhaps a port, or nothing (RFC 9110 §7.2): never a user, a path or a list, which the service might
/// read otherwise.
fn is_host(value: &HeaderValue) -> bool {
    value.is_empty() || (!value.as_bytes().contains(&b'@') && Authority::try_from(value.as_bytes()).is_ok())
}

fn addressed_by_path(target: &Uri) -> Uri {
    if target.scheme().is_none() && target.authority().is_none() {
        return target.clone();
    }
    let path = target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(path)
}

fn forwarded(headers: &mut HeaderMap, caller: &Caller, host: &HeaderValue) {
    append(headers, FORWARDED_FOR, &caller.address);
    append(headers, FORWARDED_HOST, host);
    append(headers, FORWARDED_PROTO, &HeaderValue::from_static(if caller.secure { "https" } else { "http" }));
}

/// Behind what earlier proxies wrote, on one line.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    if !headers.contains_key(&name) {
        headers.insert(name, value.clone());
        return;
    }
    let mut line: Vec<u8> = headers.get_all(&name).iter().fold(Vec::new(), |mut line, earlier| {
        line.extend_from_slice(earlier.as_bytes());
        line.extend_from_slice(b", ");
        line
    });
    line.extend_from_slice(value.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&line) {
        headers.insert(name, value);
    }
}

fn refused(reason: &'static str) -> Refusal {
    Refusal { status: StatusCode::BAD_REQUEST, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    fn caller() -> Caller {
        Caller::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), false)
    }

    fn admitted(request: http::request::Builder) -> Result<Parts, Refusal> {
        let mut parts = parts(request);
        admit(&mut parts, &caller()).map(|()| parts)
    }

    fn post() -> http::request::Builder {
        http::Request::post("/charge").header("host", "shop.example")
    }

    #[test]
    fn two_framings_are_refused() {
        assert!(admitted(post().header("content-length", "5")).is_ok());
        assert!(admitted(post().header("transfer-encoding", "chunked")).is_ok());
        for (name, value) in [("content-length", "5"), ("transfer-encoding", "chunked")] {
            assert!(admitted(post().header("content-length", "5").header(name, value)).is_err());
        }
        for coding in ["gzip, chunked", "identity, chunked", "chunked, chunked"] {
            assert!(admitted(post().header("transfer-encoding", coding)).is_err());
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        let with = |host: &str| admitted(http::Request::post("/").header("host", host));
        for host in ["", "shop.example", "127.0.0.1:8080", "[::1]:8080", "localhost"] {
            assert!(with(host).is_ok(), "{host}");
        }
        for host in ["a b", "a/b", "a, b", "user@shop.example", "a:port:80"] {
            assert!(with(host).is_err(), "{host}");
        }
        assert!(admitted(post().uri("shop.example:80")).is_err());
        assert!(admitted(post().uri("http://user@shop.example/")).is_err());
    }

    #[test]
    fn there_is_exactly_one_host() {
        assert!(admitted(http::Request::post("/")).is_err());
        assert!(admitted(post().header("host", "other.example")).is_err());
        let parts = admitted(post().uri("http://target.example/charge?a=1")).unwrap();
        assert_eq!(parts.headers[header::HOST], "target.example");
        assert_eq!(parts.uri, "/charge?a=1");
    }

    #[test]
    fn hop_by_hop_headers_stay_behind_and_the_key_does_not() {
        let request = post().header("connection", "x-secret, idempotency-key").header("x-secret", "1");
        let parts = admitted(request.header("idempotency-key", "k").header("te", "gzip")).unwrap();
        assert!(!parts.headers.contains_key("x-secret") && !parts.headers.contains_key("te"));
        assert!(parts.headers.contains_key("idempotency-key"));
    }

    #[test]
    fn where_it_came_from_is_appended() {
        let parts = admitted(post().header("x-forwarded-for", "192.0.2.7")).unwrap();
        assert_eq!(parts.headers["x-forwarded-for"], "192.0.2.7, 10.0.0.1");
        assert_eq!(parts.headers["x-forwarded-host"], "shop.example");
        assert_eq!(parts.headers["x-forwarded-proto"], "http");
        let mut parts = self::parts(post());
        let certificate = Some(ClientCertificate([7; 32]));
        admit(&mut parts, &Caller { secure: true, certificate, ..caller() }).unwrap();
        assert_eq!(parts.headers["x-forwarded-proto"], "https");
        assert_eq!(parts.extensions.get(), Some(&Peer(caller().peer)));
        assert_eq!(parts.extensions.get(), certificate.as_ref());
    }

    fn post_by_http2(target: &str) -> http::request::Builder {
        http::Request::post(target).version(Version::HTTP_2)
    }

    #[test]
    fn in_http2_the_authority_is_the_host() {
        let parts = admitted(post_by_http2("https://shop.example/charge?a=1")).unwrap();
        assert_eq!(
            (&parts.headers[header::HOST], &parts.uri),
            (&"shop.example".parse().unwrap(), &"/charge?a=1".parse().unwrap())
        );
        assert_eq!(parts.version, Version::HTTP_11);
        assert!(admitted(post_by_http2("https://shop.example/").header("host", "SHOP.example")).is_ok());
        assert!(admitted(post_by_http2("/charge").header("host", "shop.example")).is_ok());
        for refused in [
            post_by_http2("https://shop.example/").header("host", "other.example"),
            post_by_http2("https://user@shop.example/"),
            post_by_http2("/charge"),
        ] {
            assert!(admitted(refused).is_err());
        }
    }

    #[test]
    fn the_crumbs_of_a_cookie_are_one_cookie() {
        let crumbs = || post_by_http2("https://h/").header("cookie", "a=1").header("cookie", "b=2");
        let parts = admitted(crumbs().header("te", "trailers")).unwrap();
        assert_eq!(parts.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert_eq!(parts.headers["te"], "trailers");
    }

    #[test]
    fn websocket_goes_on_and_no_other_protocol() {
        let asking = |protocol: &str| {
            http::Request::get("/ws")
                .header("host", "h")
                .header("connection", "keep-alive, Upgrade")
                .header("upgrade", protocol)
        };
        let asks = |request| admitted(request).unwrap().headers.contains_key(header::UPGRADE);
        let parts = admitted(asking("WebSocket").header("connection", "x-hop").header("x-hop", "1")).unwrap();
        assert_eq!(
            (&parts.headers["upgrade"], &parts.headers["connection"]),
            (&WEBSOCKET, &HeaderValue::from_static("upgrade"))
        );
        assert!(!parts.headers.contains_key("x-hop"));
        assert!(asks(asking("websocket").header("content-length", "0")));
        for other in [
            asking("h2c"),
            asking("websocket, h2c"),
            asking("websocket").header("upgrade", "h2c"),
            asking("websocket").method(Method::POST),
            asking("websocket").version(Version::HTTP_10),
            asking("websocket").header("content-length", "5"),
            asking("websocket").header("transfer-encoding", "chunked"),
            http::Request::get("/").header("host", "h").header("upgrade", "websocket"),
        ] {
            assert!(!asks(other));
        }
    }
}
