//! Which settings hold for a request.
//!
//! 1. Routes are asked in their order. A request belongs to the first whose host and path match and that is for its
//!    method; where none is for the method, to the first whose host and path match, and it passes by. A route for what
//!    is idempotent by nature holds like any other, and what belongs to it passes by (H2).
//! 2. A path is matched **as written**: nothing is decoded, no slash is merged, no dot is resolved. What the service
//!    behind makes of `//charge` or `/%63harge` is its own affair, so
//! 3. what matches no route has the settings for everything else, and is guarded by them, never let by (H3).
//! 4. A pattern is a path in which a segment `{name}` stands for one segment that is not empty, and a last `*` for
//!    whatever is left. The query is no part of it.
//! 5. A host is compared without its port and its case (RFC 9110, section 4.2.3). Without one a route is for every
//!    host.
//!
//! A key is unique within its scope whatever the route: the same key on another route is a mismatch, since the path is
//! part of the fingerprint.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;

use crate::request;
use crate::scope::Believed;
use crate::settings::Settings;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

/// The settings of each route, and those of everything else. Clones share them.
#[derive(Debug, Clone)]
pub struct Routes(Arc<Table>);

#[derive(Debug)]
struct Table {
    routes: Vec<Arc<Settings>>,
    otherwise: Arc<Settings>,
    /// Whose word about callers counts.
    believed: Believed,
}

/// Which paths a route is for: `/charges`, `/charges/{id}/refunds`, `/v1/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Arc<str>,
    segments: Vec<Segment>,
    /// Whether it ends in `*`.
    open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Variable(Box<str>),
}

/// Why a text is no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A path begins with a slash.
    #[error("a pattern begins with '/', such as /charges, /charges/{{id}} or /v1/*")]
    NoSlash,
    /// A query or a fragment is never matched.
    #[error("a pattern is a path, without '?' and '#'")]
    NotAPath,
    /// A request's path holds none of these.
    #[error("a pattern holds visible ASCII only; what a path has beside that is percent-encoded")]
    NotAscii,
    /// `*` and braces stand for a whole segment.
    #[error("'{{name}}' stands for a whole segment, and '*' for whatever is left, at the end")]
    PartOfASegment,
    /// A variable needs a name.
    #[error("a variable's name has letters, digits and '_', and stands once in a pattern")]
    VariableName,
}

impl Routes {
    /// Routes in the order in which they are asked, each for the host and the paths of its own options, and the settings
    /// of what matches none.
    #[must_use]
    pub fn new(routes: Vec<Arc<Settings>>, otherwise: Arc<Settings>) -> Routes {
        let all = routes.iter().chain([&otherwise]);
        let believed = Believed::of(all.map(|settings| settings.options()));
        Routes(Arc::new(Table { routes, otherwise, believed }))
    }

    /// The settings that hold for a request with this head.
    #[must_use]
    pub fn of(&self, parts: &Parts) -> &Arc<Settings> {
        let Table { routes, otherwise, .. } = &*self.0;
        let fits = |route: &&Arc<Settings>| is_for(route, parts);
        let is_for_method = |route: &&Arc<Settings>| request::is_guarded(&route.options.methods, parts);
        let for_method = routes.iter().filter(fits).find(is_for_method);
        for_method.or_else(|| routes.iter().find(fits)).unwrap_or(otherwise)
    }

    /// Takes off what says who calls and cannot be believed, whatever the request's route.
    pub(crate) fn remove_untrusted(&self, parts: &mut Parts) {
        self.0.believed.remove_untrusted(parts);
    }

    /// Shows each route's metrics at nought, before its first request: with the recorder that is installed now.
    pub fn register_metrics(&self) {
        let Table { routes, otherwise, .. } = &*self.0;
        routes.iter().chain([otherwise]).for_each(|settings| settings.meters.register());
        for name in ["semel_unguarded_total", "semel_untrusted_headers_total", "semel_weak_keys_total"] {
            metrics::counter!(name).increment(0);
        }
    }

    /// The routes, in their order.
    #[must_use]
    pub fn routes(&self) -> &[Arc<Settings>] {
        &self.0.routes
    }

    /// What holds for everything else.
    #[must_use]
    pub fn otherwise(&self) -> &Arc<Settings> {
        &self.0.otherwise
    }
}

impl From<Settings> for Routes {
    /// The same settings for every request.
    fn from(settings: Settings) -> Routes {
        Routes::from(Arc::new(settings))
    }
}

impl From<Arc<Settings>> for Routes {
    /// The same settings for every request.
    fn from(settings: Arc<Settings>) -> Routes {
        Routes::new(Vec::new(), settings)
    }
}

fn is_for(route: &Settings, parts: &Parts) -> bool {
    let at_host = route.options.host.as_deref().is_none_or(|host| names(parts, host));
    at_host && route.options.pattern.matches(parts.uri.path())
}

/// Whether the request is for that host: the target's, or the `Host` line's where the target has none.
fn names(parts: &Parts, host: &str) -> bool {
    let line = || parts.headers.get(HOST).and_then(|line| line.to_str().ok());
    let named = parts.uri.authority().map(http::uri::Authority::as_str).or_else(line);
    named.is_some_and(|named| without_port(named).eq_ignore_ascii_case(host))
}

/// The colons of an address in brackets are not the port's.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

impl Pattern {
    /// Every path.
    #[must_use]
    pub fn any() -> Pattern {
        Pattern { text: "/*".into(), segments: Vec::new(), open: true }
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a path, as it was sent, is one of these.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.pairs(path).is_some()
    }

    /// Whether every path that is one of `other`'s is one of these too.
    #[must_use]
    pub fn covers(&self, other: &Pattern) -> bool {
        let (own, others) = (self.segments.len(), other.segments.len());
        let long_enough = match (self.open, other.open) {
            (true, true) => others >= own,
            // An open pattern has one segment more at least, which may be empty.
            (true, false) => others > own,
            (false, true) => false,
            (false, false) => own == others,
        };
        let fits = |(own, other): (&Segment, &Segment)| match (own, other) {
            (Segment::Variable(_), Segment::Literal(text)) => !text.is_empty(),
            (Segment::Variable(_), Segment::Variable(_)) => true,
            (Segment::Literal(own), Segment::Literal(other)) => own == other,
            (Segment::Literal(_), Segment::Variable(_)) => false,
        };
        long_enough && self.segments.iter().zip(&other.segments).all(fits)
    }

    /// The variables of a path that matches, with the segments that they stand for, as they were sent.
    pub fn variables<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.pairs(path).into_iter().flatten().filter_map(|(segment, text)| match segment {
            Segment::Literal(_) => None,
            Segment::Variable(name) => Some((&**name, text)),
        })
    }

    /// The names of its variables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Literal(_) => None,
            Segment::Variable(name) => Some(&**name),
        })
    }

    fn pairs<'a>(&'a self, path: &'a str) -> Option<impl Iterator<Item = (&'a Segment, &'a str)>> {
        let texts = || path.strip_prefix('/').into_iter().flat_map(|rest| rest.split('/'));
        let (count, wanted) = (texts().count(), self.segments.len());
        // `/v1/*` also stands for `/v1/`, whose last segment is empty, and not for `/v1`.
        let long_enough = if self.open { count > wanted } else { count == wanted };
        let pairs = move || self.segments.iter().zip(texts());
        let fits = |(segment, text): (&Segment, &str)| match segment {
            Segment::Literal(literal) => **literal == *text,
            Segment::Variable(_) => !text.is_empty(),
        };
        (long_enough && pairs().all(fits)).then(pairs)
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        let rest = text.strip_prefix('/').ok_or(PatternError::NoSlash)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(PatternError::NotAscii);
        }
        if text.contains(['?', '#']) {
            return Err(PatternError::NotAPath);
        }
        let mut texts: Vec<&str> = rest.split('/').collect();
        let open = texts.last() == Some(&"*");
        if open {
            texts.pop();
        }
        let segments = texts.into_iter().map(segment).collect::<Result<Vec<_>, _>>()?;
        let pattern = Pattern { text: text.into(), segments, open };
        let twice = |name: &str| pattern.names().filter(|other| *other == name).count() > 1;
        if pattern.names().any(twice) { Err(PatternError::VariableName) } else { Ok(pattern) }
    }
}

fn segment(text: &str) -> Result<Segment, PatternError> {
    let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    match name {
        Some("") => Err(PatternError::VariableName),
        Some(name) if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
            Ok(Segment::Variable(name.into()))
        }
        Some(_) => Err(PatternError::VariableName),
        None if text.contains(['{', '}', '*']) => Err(PatternError::PartOfASegment),
        None => Ok(Segment::Literal(text.into())),
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Options;
    use http::{Method, Request};
    use semel::{OnUnknown, Policy};

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    fn parts(method: Method, uri: &str, host: &str) -> Parts {
        Request::builder().method(method).uri(uri).header(HOST, host).body(()).unwrap().into_parts().0
    }

    fn settings(service: &str, path: &str, methods: &[Method]) -> Arc<Settings> {
        at(None, service, path, methods)
    }

    fn at(host: Option<&str>, service: &str, path: &str, methods: &[Method]) -> Arc<Settings> {
        let mut options = Options::new(Arc::new(Policy::new(OnUnknown::Park)));
        options.service = service.to_owned();
        options.pattern = pattern(path);
        options.host = host.map(str::to_owned);
        options.methods = methods.to_vec();
        Arc::new(Settings::new(options).unwrap())
    }

    #[test]
    fn a_pattern_matches_the_path_as_written() {
        for (text, path) in [
            ("/charges", "/charges"),
            ("/", "/"),
            ("/charges/{id}", "/charges/7"),
            ("/charges/{id}/refunds", "/charges/%2F/refunds"),
            ("/v1/*", "/v1/"),
            ("/v1/*", "/v1/a/b"),
            ("/*", "/"),
            ("/*", "//x"),
        ] {
            assert!(pattern(text).matches(path), "{text} {path}");
        }
        for (text, path) in [
            ("/charges", "//charges"),
            ("/charges", "/%63harges"),
            ("/charges", "/charges/"),
            ("/charges", "/Charges"),
            ("/charges", "/x/../charges"),
            ("/charges", "/charges;a=1"),
            ("/charges/{id}", "/charges/"),
            ("/charges/{id}", "/charges/7/"),
            ("/v1/*", "/v1"),
            ("/v1/*", "/v10/a"),
            ("/*", "*"),
        ] {
            assert!(!pattern(text).matches(path), "{text} {path}");
        }
        assert!(Pattern::any().matches("/") && Pattern::any().matches("//a/"));
    }

    #[test]
    fn a_pattern_covers_another_whose_paths_are_all_its_own() {
        let texts =
            ["/", "/*", "/a", "/a/", "/a/*", "/a/{x}", "/a/b", "/a/b/*", "/{x}", "/{y}", "/{x}/b", "/{x}/*"];
        // Each kind of segment that the patterns tell apart, to a length beyond theirs.
        let parts = ["", "a", "b", "c"];
        let mut paths: Vec<String> = parts.iter().map(|part| format!("/{part}")).collect();
        for at in 0.. {
            let longer = |path: &String| path.matches('/').count() < 4;
            let Some(path) = paths.get(at).cloned() else { break };
            paths.extend(parts.iter().filter(|_| longer(&path)).map(|part| format!("{path}/{part}")));
        }
        for (one, other) in texts.iter().flat_map(|one| texts.iter().map(move |other| (one, other))) {
            let (covers, of) = (pattern(one), pattern(other));
            let all = paths.iter().filter(|path| of.matches(path)).all(|path| covers.matches(path));
            assert_eq!(covers.covers(&of), all, "{one} {other}");
        }
    }

    #[test]
    fn a_variable_is_the_segment_as_sent() {
        let refunds = pattern("/{a}/x/{b_2}");
        let found: Vec<_> = refunds.variables("/1%20/x/2").collect();
        assert_eq!(found, [("a", "1%20"), ("b_2", "2")]);
        assert_eq!(refunds.variables("/1/y/2").count(), 0);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (text, error) in [
            ("charges", PatternError::NoSlash),
            ("", PatternError::NoSlash),
            ("/a?b", PatternError::NotAPath),
            ("/a b", PatternError::NotAscii),
            ("/ä", PatternError::NotAscii),
            ("/a*", PatternError::PartOfASegment),
            ("/*/a", PatternError::PartOfASegment),
            ("/a{b}", PatternError::PartOfASegment),
            ("/{}", PatternError::VariableName),
            ("/{a-b}", PatternError::VariableName),
            ("/{a}/{a}", PatternError::VariableName),
        ] {
            assert_eq!(text.parse::<Pattern>(), Err(error), "{text}");
        }
    }

    #[test]
    fn h3_what_matches_no_route_as_written_has_the_settings_of_everything_else() {
        let otherwise = settings("otherwise", "/*", &[Method::POST, Method::PATCH]);
        let charges = settings("charges", "/charge", &[Method::POST]);
        let routes = Routes::new(vec![charges], otherwise);
        for path in ["//charge", "/%63harge", "/charge/", "/other"] {
            let of = routes.of(&parts(Method::POST, path, "h"));
            assert_eq!(of.options().service, "otherwise", "{path}");
            assert!(of.guards(&parts(Method::POST, path, "h")));
        }
        assert_eq!(routes.of(&parts(Method::POST, "/charge?a", "h")).options().service, "charges");
    }

    #[test]
    fn the_first_route_that_guards_the_method_holds() {
        let otherwise = settings("otherwise", "/*", &[Method::POST]);
        let routes = Routes::new(
            vec![
                settings("post", "/a/{id}", &[Method::POST]),
                settings("put", "/a/*", &[Method::PUT]),
                settings("never", "/a/*", &[Method::POST]),
            ],
            otherwise,
        );
        let service = |method, path| routes.of(&parts(method, path, "h")).options().service.clone();
        assert_eq!(service(Method::POST, "/a/1"), "post");
        assert_eq!(service(Method::PUT, "/a/1"), "put");
        assert_eq!(service(Method::GET, "/a/1"), "post");
        assert_eq!(service(Method::GET, "/b"), "otherwise");
    }

    #[test]
    fn h2_a_route_for_what_is_natural_holds_before_a_wider_one() {
        let natural = settings("natural", "/a/status", &[Method::POST]);
        let natural = Options { key: crate::KeyPolicy::Natural, ..natural.options().clone() };
        let wide = settings("wide", "/a/*", &[Method::POST, Method::PUT]);
        let otherwise = settings("otherwise", "/*", &[Method::POST]);
        let routes = Routes::new(vec![Arc::new(Settings::new(natural).unwrap()), wide], otherwise);
        let of = |method: Method, path| {
            let parts = parts(method, path, "h");
            let holds = routes.of(&parts);
            (holds.options().service.clone(), holds.guards(&parts))
        };
        assert_eq!(of(Method::POST, "/a/status"), ("natural".into(), false));
        assert_eq!(of(Method::PUT, "/a/status"), ("wide".into(), true));
        assert_eq!(of(Method::POST, "/a/other"), ("wide".into(), true));
    }

    #[test]
    fn a_host_has_no_case_and_no_port() {
        let otherwise = settings("otherwise", "/*", &[Method::POST]);
        let pay = at(Some("pay.example"), "pay", "/*", &[Method::POST]);
        let six = at(Some("[::1]"), "six", "/*", &[Method::POST]);
        let routes = Routes::new(vec![pay, six], otherwise);
        let service = |uri, host| routes.of(&parts(Method::POST, uri, host)).options().service.clone();
        assert_eq!(service("/", "PAY.example:8080"), "pay");
        assert_eq!(service("/", "pay.example"), "pay");
        assert_eq!(service("http://pay.example/", "other"), "pay");
        assert_eq!(service("/", "[::1]:80"), "six");
        assert_eq!(service("/", "[::1]"), "six");
        assert_eq!(service("/", "pay.example.evil"), "otherwise");
        assert_eq!(service("http://other/", "pay.example"), "otherwise");
    }
}
