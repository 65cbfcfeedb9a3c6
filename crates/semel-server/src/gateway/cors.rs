//! What pages of other origins may call, and may read: H16, case C100.
//!
//! A browser lets a page send `Idempotency-Key` to another origin only after a preflight that allows it, and lets it
//! read an answer, a refusal or `Idempotent-Replayed` only where the answer says so (Fetch, section 3.3). The service
//! cannot say so for what the gateway answers itself. So, where `cors_origins` lists the origin that asks, or is `*`:
//!
//! 1. **Every answer** names that origin in `Access-Control-Allow-Origin`: the service's, a refusal, a replay, which
//!    may have been kept for another origin. The list decides, and not what the service says of the origin.
//! 2. It exposes [`EXPOSED`], beside what the service exposes.
//! 3. **Credentials** (cookies, client certificates) only where the service's own answer allows them to this very
//!    origin, or where `cors_credentials` allows them in its place: then on every answer, else a page that sends
//!    cookies could not read a refusal. Never together with `*`, which would hand every page the caller's session.
//! 4. **A preflight** goes to the service like every OPTIONS: it touches no key and no store. If its answer allows
//!    the origin, the key's names and `Prefer` are added to its headers, and nothing to its methods. Any other answer,
//!    or none, is replaced: 204, the method and the headers that were asked for.
//! 5. So a listed origin is trusted with everything behind the gateway: its pages may use any method and header, and
//!    read every answer. `*` is for what anybody who can reach the gateway may know.
//!
//! Without `cors_origins` nothing here touches anything. With it, a request of another origin, or of none, gets what
//! it would get without, and `Vary: Origin`: a cache may keep no answer for an origin that it was not made for
//! (Fetch, section 3.3.5). An answer that was kept names no origin of the gateway's, since all this happens outside
//! of what keeps it.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, LINK,
    ORIGIN, RETRY_AFTER, VARY,
};
use http::{Method, Request, Response, StatusCode};
use semel_http::{Body, IDEMPOTENT_REPLAYED, SEMEL_GUARDED, SEMEL_ORIGINAL_STATUS, SEMEL_RECORDED};

use crate::config::Config;
use crate::origin::Origin;

/// How long a page would wait (H8).
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// What a page may read beside the headers that it always may.
const EXPOSED: [HeaderName; 7] = [
    IDEMPOTENT_REPLAYED,
    RETRY_AFTER,
    LINK,
    HeaderName::from_static("preference-applied"),
    SEMEL_RECORDED,
    SEMEL_GUARDED,
    SEMEL_ORIGINAL_STATUS,
];

/// Seconds for which a browser need not ask again. Chromium takes at most two hours, Firefox a day.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

const ANY: HeaderValue = HeaderValue::from_static(Origin::ANY);
const TRUE: HeaderValue = HeaderValue::from_static("true");

/// Who may ask.
#[derive(Debug, Default)]
pub struct Cors {
    /// Empty: nobody, and nothing is touched.
    origins: Vec<HeaderValue>,
    credentials: bool,
    /// What a page may send: the key, by each of its names, and [`PREFER`].
    allowed: Vec<HeaderName>,
}

/// What a request asks for, kept while it is answered.
#[derive(Debug)]
pub enum Asked {
    /// Nobody may ask anything here.
    Off,
    /// Nothing that is allowed here.
    Nothing,
    /// To read the answer.
    Answer { origin: HeaderValue },
    /// To send a request.
    Preflight { origin: HeaderValue, method: HeaderValue, headers: Vec<HeaderValue> },
}

impl Cors {
    pub fn of(config: &Config) -> Cors {
        let contracts =
            std::iter::once(&config.otherwise).chain(config.routes.iter().map(|route| &route.contract));
        let names = contracts.flat_map(|contract| contract.key_names.iter().cloned());
        Cors::new(&config.cors_origins, config.cors_credentials, names)
    }

    fn new(origins: &[Origin], credentials: bool, key_names: impl Iterator<Item = HeaderName>) -> Cors {
        // An origin was read from a URL, so it is visible ASCII.
        let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(&origin.0).ok()).collect();
        let mut allowed = Vec::new();
        for name in key_names.chain([PREFER]) {
            if !allowed.contains(&name) {
                allowed.push(name);
            }
        }
        Cors { origins, credentials, allowed }
    }

    /// Reads what the request asks for, before it goes on.
    pub fn asked<B>(&self, request: &Request<B>) -> Asked {
        if self.origins.is_empty() {
            return Asked::Off;
        }
        let headers = request.headers();
        let Some(origin) = one(headers, &ORIGIN).filter(|origin| self.lists(origin)).cloned() else {
            return Asked::Nothing;
        };
        match one(headers, &ACCESS_CONTROL_REQUEST_METHOD) {
            Some(method) if request.method() == Method::OPTIONS => {
                let headers = headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().cloned().collect();
                Asked::Preflight { origin, method: method.clone(), headers }
            }
            _ => Asked::Answer { origin },
        }
    }

    /// The answer as it goes out.
    pub fn answer(&self, asked: Asked, mut response: Response<Body>) -> Response<Body> {
        match asked {
            Asked::Off => return response,
            Asked::Nothing => {}
            Asked::Answer { origin } => {
                self.allow(response.headers_mut(), origin);
                extend_list(response.headers_mut(), ACCESS_CONTROL_EXPOSE_HEADERS, &EXPOSED);
            }
            Asked::Preflight { origin, method, headers } => {
                if !allows(&response, &origin) {
                    response = permission(method, headers);
                }
                self.allow(response.headers_mut(), origin);
                extend_list(response.headers_mut(), ACCESS_CONTROL_ALLOW_HEADERS, &self.allowed);
            }
        }
        extend_list(response.headers_mut(), VARY, &[ORIGIN]);
        response
    }

    fn lists(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|listed| *listed == ANY || listed == origin)
    }

    /// Names the origin. What else the answer allows was meant for the origin that the service named: for another
    /// one its word about credentials does not count.
    fn allow(&self, headers: &mut HeaderMap, origin: HeaderValue) {
        if one(headers, &ACCESS_CONTROL_ALLOW_ORIGIN) != Some(&origin) {
            headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
            let named = if self.origins.contains(&ANY) { ANY } else { origin };
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, named);
        }
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
    }
}

/// Whether the service answered this preflight, and said yes to the origin.
fn allows(response: &Response<Body>, origin: &HeaderValue) -> bool {
    let named = one(response.headers(), &ACCESS_CONTROL_ALLOW_ORIGIN);
    // A browser takes no permission from another status (Fetch, section 4.9).
    response.status().is_success() && named.is_some_and(|named| named == origin || *named == ANY)
}

/// The gateway's own answer to a preflight.
fn permission(method: HeaderValue, asked: Vec<HeaderValue>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method);
    for line in asked {
        headers.append(ACCESS_CONTROL_ALLOW_HEADERS, line);
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    extend_list(headers, VARY, &[ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_REQUEST_HEADERS]);
    response
}

/// The value of a header that stands there once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    lines.next().filter(|_| lines.next().is_none())
}

/// Adds a line with those names that no line of the list has yet.
fn extend_list(headers: &mut HeaderMap, list: HeaderName, names: &[HeaderName]) {
    let has = |name: &HeaderName| {
        let lines = headers.get_all(&list).iter();
        let mut listed = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        listed.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
    };
    let missing: Vec<&str> = names.iter().filter(|name| !has(name)).map(HeaderName::as_str).collect();
    if let Ok(line) = HeaderValue::from_str(&missing.join(", "))
        && !missing.is_empty()
    {
        headers.append(list, line);
    }
}

#[cfg(test)]
mod tests {
    use semel_http::IDEMPOTENCY_KEY;

    use super::*;

    const SHOP: &str = "https://shop.example";
    const DESK: &str = "https://desk.example";

    fn cors(origins: &[&str], credentials: bool) -> Cors {
        let origins: Vec<Origin> = origins.iter().map(|origin| origin.parse().unwrap()).collect();
        let alias = HeaderName::from_static("x-key");
        let names = [IDEMPOTENCY_KEY, alias.clone(), IDEMPOTENCY_KEY, alias];
        Cors::new(&origins, credentials, names.into_iter())
    }

    fn request(method: Method, lines: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().method(method).uri("/charges");
        lines.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
    }

    fn from(origin: &str) -> Request<()> {
        request(Method::POST, &[("origin", origin)])
    }

    fn preflight(origin: &str) -> Request<()> {
        let asked = [
            ("origin", origin),
            ("access-control-request-method", "PATCH"),
            ("access-control-request-headers", "content-type,idempotency-key"),
        ];
        request(Method::OPTIONS, &asked)
    }

    /// What goes out where the service answers with this.
    fn answered(cors: &Cors, request: &Request<()>, status: u16, lines: &[(&str, &str)]) -> Response<Body> {
        let response = Response::builder().status(status);
        let response = lines.iter().fold(response, |response, (name, value)| response.header(*name, *value));
        cors.answer(cors.asked(request), response.body(Body::from("the service's")).unwrap())
    }

    fn lines<'a>(response: &'a Response<Body>, name: &str) -> Vec<&'a str> {
        response.headers().get_all(name).iter().map(|line| line.to_str().unwrap()).collect()
    }

    const NAMED: &str = "access-control-allow-origin";
    const CREDENTIALS: &str = "access-control-allow-credentials";
    const HEADERS: &str = "access-control-allow-headers";
    const METHODS: &str = "access-control-allow-methods";
    const SHOWN: &str = "access-control-expose-headers";

    #[test]
    fn h16_without_the_option_nothing_is_touched() {
        let said = [(NAMED, DESK), ("vary", "accept")];
        for request in [from(SHOP), preflight(SHOP)] {
            let answer = answered(&cors(&[], false), &request, 404, &said);
            assert_eq!(answer.status(), 404);
            assert_eq!((lines(&answer, NAMED), lines(&answer, "vary")), (vec![DESK], vec!["accept"]));
            assert_eq!(answer.headers().len(), 2);
        }
    }

    #[test]
    fn h16_another_origin_or_none_gets_vary_and_nothing_else() {
        let near = ["https://shop.example.evil", "http://shop.example", "https://shop.example:8443", "null"];
        let others = near.map(from).into_iter().chain(near.map(preflight));
        let two = request(Method::POST, &[("origin", SHOP), ("origin", SHOP)]);
        for request in others.chain([two, request(Method::POST, &[]), request(Method::OPTIONS, &[])]) {
            let answer = answered(&cors(&[SHOP], true), &request, 405, &[(NAMED, DESK)]);
            assert_eq!((answer.status().as_u16(), lines(&answer, NAMED)), (405, vec![DESK]));
            assert_eq!((lines(&answer, "vary"), answer.headers().len()), (vec!["origin"], 2));
        }
    }

    #[test]
    fn h16_an_answer_names_the_origin_that_asked_whoever_it_was_made_for() {
        let cors = cors(&[SHOP, DESK], false);
        for said in
            [&[][..], &[(NAMED, SHOP)], &[(NAMED, DESK)], &[(NAMED, "*")], &[(NAMED, SHOP), (NAMED, DESK)]]
        {
            for origin in [SHOP, DESK] {
                let answer = answered(&cors, &from(origin), 409, said);
                assert_eq!((lines(&answer, NAMED), lines(&answer, "vary")), (vec![origin], vec!["origin"]));
            }
        }
    }

    #[test]
    fn h16_what_is_exposed_is_added_to_what_the_service_exposes() {
        let cors = cors(&[SHOP], false);
        let answer = answered(&cors, &from(SHOP), 201, &[]);
        let ours = "idempotent-replayed, retry-after, link, preference-applied, semel-recorded, semel-guarded, \
                    semel-original-status";
        assert_eq!(lines(&answer, SHOWN), [ours]);
        let said = [(SHOWN, "x-total , LINK"), (SHOWN, "retry-after"), ("vary", "Accept, origin")];
        let answer = answered(&cors, &from(SHOP), 201, &said);
        let ours =
            "idempotent-replayed, preference-applied, semel-recorded, semel-guarded, semel-original-status";
        assert_eq!(lines(&answer, SHOWN), ["x-total , LINK", "retry-after", ours]);
        assert_eq!(lines(&answer, "vary"), ["Accept, origin"]);
    }

    #[test]
    fn h16_credentials_only_where_the_service_allows_them_to_this_origin() {
        let both = cors(&[SHOP, DESK], false);
        let says = |named| [(NAMED, named), (CREDENTIALS, "true")];
        assert_eq!(lines(&answered(&both, &from(SHOP), 201, &says(SHOP)), CREDENTIALS), ["true"]);
        for named in [DESK, "*", "null"] {
            let answer = answered(&both, &from(SHOP), 201, &says(named));
            assert_eq!(
                (lines(&answer, NAMED), lines(&answer, CREDENTIALS).len()),
                (vec![SHOP], 0),
                "{named}"
            );
        }
        assert!(lines(&answered(&both, &from(SHOP), 409, &[]), CREDENTIALS).is_empty());
        let told = cors(&[SHOP], true);
        assert_eq!(lines(&answered(&told, &from(SHOP), 409, &[]), CREDENTIALS), ["true"]);
        assert!(lines(&answered(&told, &from(DESK), 409, &[]), CREDENTIALS).is_empty());
    }

    #[test]
    fn h16_for_every_origin_no_caller_is_named_but_by_the_service() {
        let every = cors(&["*"], false);
        let answer = answered(&every, &from(SHOP), 201, &[(NAMED, DESK), (CREDENTIALS, "true")]);
        assert_eq!((lines(&answer, NAMED), lines(&answer, CREDENTIALS).len()), (vec!["*"], 0));
        let answer = answered(&every, &from(SHOP), 201, &[(NAMED, SHOP), (CREDENTIALS, "true")]);
        assert_eq!((lines(&answer, NAMED), lines(&answer, CREDENTIALS)), (vec![SHOP], vec!["true"]));
        assert_eq!(lines(&answered(&every, &preflight("null"), 404, &[]), NAMED), ["*"]);
    }

    #[test]
    fn h16_a_preflight_that_the_service_does_not_answer_is_answered() {
        let cors = cors(&[SHOP], false);
        for (status, said) in [
            (404, &[][..]),
            (204, &[]),
            (200, &[(NAMED, DESK), (METHODS, "GET")]),
            // A browser takes no permission from these, whatever they say.
            (405, &[(NAMED, SHOP), (METHODS, "GET")]),
            (502, &[]),
        ] {
            let answer = answered(&cors, &preflight(SHOP), status, said);
            assert_eq!((answer.status().as_u16(), lines(&answer, NAMED)), (204, vec![SHOP]));
            assert_eq!(lines(&answer, METHODS), ["PATCH"]);
            assert_eq!(lines(&answer, HEADERS), ["content-type,idempotency-key", "x-key, prefer"]);
            assert_eq!(lines(&answer, "access-control-max-age"), ["600"]);
            assert!(lines(&answer, "vary").contains(&"origin"));
        }
    }

    #[test]
    fn h16_a_preflight_that_the_service_answers_keeps_what_it_says() {
        let cors = cors(&[SHOP], false);
        let said = [(NAMED, SHOP), (METHODS, "GET"), (HEADERS, "Content-Type"), (CREDENTIALS, "true")];
        let answer = answered(&cors, &preflight(SHOP), 200, &said);
        assert_eq!((answer.status().as_u16(), lines(&answer, METHODS)), (200, vec!["GET"]));
        assert_eq!(lines(&answer, HEADERS), ["Content-Type", "idempotency-key, x-key, prefer"]);
        assert_eq!((lines(&answer, NAMED), lines(&answer, CREDENTIALS)), (vec![SHOP], vec!["true"]));
        assert!(lines(&answer, "access-control-max-age").is_empty());
    }

    #[test]
    fn h16_options_that_is_no_preflight_is_an_answer_like_others() {
        let options = request(Method::OPTIONS, &[("origin", SHOP)]);
        let answer = answered(&cors(&[SHOP], false), &options, 404, &[]);
        assert_eq!((answer.status().as_u16(), lines(&answer, NAMED)), (404, vec![SHOP]));
        assert!(lines(&answer, METHODS).is_empty());
    }
}
