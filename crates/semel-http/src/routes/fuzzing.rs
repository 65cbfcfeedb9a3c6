//! The properties of patterns and routes, for any bytes. See `crate::fuzzing`.

use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Request};
use semel::{OnUnknown, Policy};

use super::{Pattern, Routes};
use crate::settings::{Options, Settings};

/// More than these say nothing new.
const ROUTES_MAX: usize = 8;

/// A line for each route, and the last one for the request: `POST pay.example/charges/{id}`, method and host left out
/// where they do not matter.
pub fn routes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines: Vec<Line<'_>> = text.split('\n').map(Line::read).collect();
    let Some((request, routes)) = lines.split_last() else { return };
    let routes: Vec<(Line<'_>, Pattern)> =
        routes.iter().take(ROUTES_MAX).filter_map(|line| Some((*line, pattern(line.path)?))).collect();
    for spelling in spellings(request.path) {
        let Some(parts) = request.parts(&spelling) else { continue };
        for (_, pattern) in &routes {
            is_matched_as_written(pattern, parts.uri.path());
        }
        the_first_one_holds(&routes, &parts);
    }
}

/// One of the lines.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    method: Option<&'a str>,
    host: Option<&'a str>,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Line<'a> {
        let (method, rest) = line.split_once(' ').map_or((None, line), |(method, rest)| (Some(method), rest));
        // What has no slash shall reach the parser of patterns too.
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(0));
        // Without a port, and without the colon before an empty one.
        let is_host = host.parse::<Authority>().is_ok_and(|authority| authority.host() == host);
        Line { method, host: is_host.then_some(host), path }
    }

    fn method(&self) -> Method {
        self.method.and_then(|method| method.parse().ok()).unwrap_or(Method::POST)
    }

    /// The request with this path. `None` where no request has it, and where its target names a user.
    fn parts(&self, path: &str) -> Option<Parts> {
        let request = Request::builder().method(self.method()).uri(path);
        let host = HeaderValue::from_str(self.host.unwrap_or("shop.example")).ok()?;
        let parts = request.header(HOST, host).body(()).ok()?.into_parts().0;
        let user = parts.uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        (!user).then_some(parts)
    }

    /// Whether a request is for the host of this route: the target's counts before the `Host` line's.
    fn is_for_host_of(&self, parts: &Parts) -> bool {
        let line = || parts.headers.get(HOST).and_then(|line| line.to_str().ok());
        let named = parts.uri.host().or_else(line);
        self.host.is_none_or(|host| named.is_some_and(|named| host.eq_ignore_ascii_case(named)))
    }
}

/// A pattern, after it was held against what patterns are.
fn pattern(text: &str) -> Option<Pattern> {
    let pattern: Pattern = text.parse().ok()?;
    assert_eq!((pattern.as_str(), &*pattern.to_string()), (text, text), "it is written as it was");
    assert_eq!(text.parse(), Ok(pattern.clone()), "and read as it is written");
    if pattern.names().next().is_none() && !text.ends_with("/*") {
        assert!(pattern.matches(text), "a path without variables is itself");
        for other in spellings(text).into_iter().filter(|other| other != text) {
            assert!(!pattern.matches(&other), "{text} is not {other}");
        }
    }
    Some(pattern)
}

/// The path, and what some services take for the same one: with one byte changed, for each of its bytes, percent-encoded,
/// in the other case, and with a slash or a dot more.
fn spellings(path: &str) -> Vec<String> {
    let mut spellings = vec![path.to_owned(), format!("/{path}"), format!("{path}/"), format!("/.{path}")];
    let characters = path.char_indices().take(64);
    for (at, character) in characters.filter(|(_, character)| character.is_ascii_graphic()) {
        let (before, after) = (&path[..at], &path[at + 1..]);
        let byte = character as u8;
        let case = if character.is_ascii_uppercase() {
            byte.to_ascii_lowercase()
        } else {
            byte.to_ascii_uppercase()
        };
        let others = [case, byte ^ 1, b'/'].map(char::from);
        spellings.extend(others.iter().map(|other| format!("{before}{other}{after}")));
        spellings.push(format!("{before}%{byte:02x}{after}"));
        spellings.push(format!("{before}{after}"));
    }
    spellings
}

/// The pattern with its variables filled in is the path, and nothing else is matched.
fn is_matched_as_written(pattern: &Pattern, path: &str) {
    let text = pattern.as_str();
    let (fixed, is_open) = text.strip_suffix('*').map_or((text, false), |fixed| (fixed, true));
    let variables: Vec<(&str, &str)> = pattern.variables(path).collect();
    if !pattern.matches(path) {
        assert!(variables.is_empty(), "a path that is not matched has no variables");
        // Filled in from the path all the same, it would be matched.
        let value = path.split('/').find(|segment| !segment.is_empty()).unwrap_or("x");
        let filled = filled(fixed, &mut std::iter::repeat(value));
        assert!(pattern.matches(&filled), "{text} does not match {filled}");
        assert_ne!(filled, path);
        assert!(!is_open || !path.starts_with(&filled), "{text} does not match {path}");
        return;
    }
    assert!(variables.iter().map(|(name, _)| *name).eq(pattern.names()), "each variable has a value");
    assert!(variables.iter().all(|(_, value)| !value.is_empty() && !value.contains('/')), "of one segment");
    let filled = filled(fixed, &mut variables.iter().map(|(_, value)| *value));
    match is_open {
        true => assert!(path.starts_with(&filled), "{text} matched {path}"),
        false => assert_eq!(filled, path, "{text} matched {path}"),
    }
}

/// The pattern's text with these in the places of its variables.
fn filled<'a>(text: &'a str, values: &mut impl Iterator<Item = &'a str>) -> String {
    let segments = text.split('/').map(|segment| match segment.starts_with('{') {
        true => values.next().expect("a value for each variable"),
        false => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

fn the_first_one_holds(lines: &[(Line<'_>, Pattern)], parts: &Parts) {
    let settings: Vec<Arc<Settings>> = lines.iter().map(|(line, pattern)| of_line(line, pattern)).collect();
    let otherwise = Arc::new(Settings::new(options()).expect("the defaults fit"));
    let routes = Routes::new(settings.clone(), otherwise.clone());
    let holds = routes.of(parts);
    let path = parts.uri.path();
    let mut fitting = settings
        .iter()
        .zip(lines)
        .filter(|(_, (line, pattern))| line.is_for_host_of(parts) && pattern.matches(path));
    let Some((first, _)) = fitting.clone().next() else {
        assert!(Arc::ptr_eq(holds, &otherwise), "{path} is matched by none");
        assert_eq!(
            holds.guards(parts),
            [Method::POST, Method::PATCH].contains(&parts.method),
            "it is guarded"
        );
        return;
    };
    let guarding = fitting.find(|(_, (line, _))| line.method() == parts.method);
    let expected = guarding.as_ref().map_or(first, |(guarding, _)| guarding);
    assert!(Arc::ptr_eq(holds, expected), "{path} belongs to the first that fits");
    assert_eq!(holds.guards(parts), expected.options().methods.contains(&parts.method));
    if guarding.is_some() {
        let more = settings.iter().chain([&otherwise]).cloned().collect();
        let again = Routes::new(more, otherwise.clone());
        assert!(Arc::ptr_eq(again.of(parts), expected), "whatever comes after it");
    }
}

fn of_line(line: &Line<'_>, pattern: &Pattern) -> Arc<Settings> {
    let host = line.host.map(str::to_owned);
    let options = Options { pattern: pattern.clone(), host, methods: vec![line.method()], ..options() };
    Arc::new(Settings::new(options).expect("a route's place fits the defaults"))
}

fn options() -> Options {
    Options::new(Policy::new(OnUnknown::Park))
}
