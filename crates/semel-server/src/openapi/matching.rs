//! Which settings hold for an operation of a document.
//!
//! 1. The routes are asked, with a request that the operation describes: its method, the base path of its server and its
//!    own path, and the server's host.
//! 2. A template, `{id}`, stands for one segment, or a part of one, that no route names: `/charges/{id}` has the settings
//!    of the route `/charges/{any}`, not those of `/charges/export`. Where such a route would hold for some value of the
//!    template, and the document has no path for it, that is said.
//! 3. The servers of the operation count, else those of its path, else those of the document, else `/` (OpenAPI 3.1,
//!    section 4.8.10). Variables have their defaults. Where several servers lead to different settings, those of the
//!    first one are published, and that is said.

use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use http::{Method, Request};
use semel_http::{Routes, Settings};

use super::document::Node;

/// What a template stands for. No pattern names it, or somebody has wanted it.
const ANY: &str = "any-value-of-a-template";

/// An operation of the document.
pub struct Operation<'a> {
    pub method: Method,
    pub path: &'a str,
    /// In the order in which they count.
    pub servers: [Option<&'a Node>; 3],
    /// Every path of the document.
    pub paths: &'a [&'a str],
}

/// What holds for it, where something does.
#[derive(Debug)]
pub struct Found {
    /// `None`: nothing guards it.
    pub settings: Option<Arc<Settings>>,
    /// What its reader should know.
    pub notes: Vec<String>,
}

/// The host and the base path of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Base {
    host: Option<String>,
    path: String,
}

impl Operation<'_> {
    /// Asks the routes.
    pub fn find(&self, routes: &Routes) -> Found {
        let mut notes = Vec::new();
        let mut found: Vec<Option<Arc<Settings>>> = Vec::new();
        for base in &self.bases() {
            let Some(parts) = self.parts(base, self.path) else {
                notes.push(format!("{}: this is no path that a request can have", self.path));
                continue;
            };
            let settings = guarding(routes, &parts);
            notes.extend(self.particular(base, routes, settings.as_ref()));
            found.push(settings);
        }
        if found.iter().any(|other| !is_same(other.as_ref(), found[0].as_ref())) {
            let (method, path) = (&self.method, self.path);
            notes.push(format!(
                "{method} {path}: its servers have different settings; those of the first count"
            ));
        }
        // Two servers may say the same.
        notes.sort();
        notes.dedup();
        Found { settings: found.into_iter().next().flatten(), notes }
    }

    fn bases(&self) -> Vec<Base> {
        let servers = self.servers.iter().flatten().find(|servers| servers.items().next().is_some());
        let bases: Vec<_> = servers.into_iter().flat_map(|servers| servers.items()).map(base).collect();
        if bases.is_empty() { vec![Base { host: None, path: String::new() }] } else { bases }
    }

    fn parts(&self, base: &Base, path: &str) -> Option<Parts> {
        let path = path.split('/').map(any).collect::<Vec<_>>().join("/");
        let request = Request::builder().method(&self.method).uri(format!("{}{path}", base.path));
        let request = match &base.host {
            Some(host) => request.header(HOST, host),
            None => request,
        };
        request.body(()).ok().map(|request| request.into_parts().0)
    }

    /// Routes for some values of the templates only.
    fn particular(&self, base: &Base, routes: &Routes, general: Option<&Arc<Settings>>) -> Vec<String> {
        let notes = routes.routes().iter().filter_map(|route| {
            let whole = format!("{}{}", base.path, self.path);
            let value = concrete(route.options().pattern.as_str(), &whole)?;
            let value = value.strip_prefix(&base.path)?;
            let parts = self.parts(base, value)?;
            let known = value == self.path || self.paths.contains(&value);
            if known || is_same(guarding(routes, &parts).as_ref(), general) {
                return None;
            }
            let (method, path) = (&self.method, self.path);
            Some(format!(
                "{method} {path}: {method} {value} has a route of its own, and the document no path for it"
            ))
        });
        notes.collect()
    }
}

/// The settings that guard a request, if any do.
fn guarding(routes: &Routes, parts: &Parts) -> Option<Arc<Settings>> {
    let settings = routes.of(parts);
    (settings.guards(parts) && !settings.options().observe).then(|| Arc::clone(settings))
}

fn is_same(one: Option<&Arc<Settings>>, other: Option<&Arc<Settings>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

/// A segment with something for each of its templates.
fn any(segment: &str) -> String {
    let mut out = String::new();
    let mut rest = segment;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((_, after)) = after.split_once('}') else { break };
        out += before;
        out += ANY;
        rest = after;
    }
    out + rest
}

/// The path with the segments that the pattern names, where the pattern can match it so.
fn concrete(pattern: &str, path: &str) -> Option<String> {
    let (mut patterns, mut out) = (pattern.split('/'), Vec::new());
    let mut open = false;
    for segment in path.split('/') {
        let wanted = if open { None } else { Some(patterns.next()?) };
        open |= wanted == Some("*");
        out.push(match wanted {
            Some(literal) if !literal.contains(['{', '*']) && literal != segment => {
                // Only a template can be what the pattern names.
                (segment.starts_with('{') && segment.ends_with('}')).then_some(literal)?
            }
            _ => segment,
        });
    }
    (open || patterns.next().is_none()).then(|| out.join("/"))
}

/// A server's URL, with the defaults of its variables.
fn base(server: &Node) -> Base {
    let mut url = server.text_of("url").unwrap_or_default().to_owned();
    for variable in server.get("variables").map(Node::members).unwrap_or_default() {
        let default = variable.value.text_of("default").unwrap_or_default();
        url = url.replace(&format!("{{{}}}", variable.name), default);
    }
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let after_scheme = url.split_once("://").map(|(_, rest)| rest).or_else(|| url.strip_prefix("//"));
    let (host, path) = match after_scheme {
        Some(rest) => match rest.split_once('/') {
            Some((host, path)) => (Some(host), path),
            None => (Some(rest), ""),
        },
        // Relative to where the document stands, which nobody knows here.
        None => (None, url.trim_start_matches("./").trim_start_matches('/')),
    };
    let path = path.trim_end_matches('/');
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    Base { host: host.map(str::to_owned), path }
}

#[cfg(test)]
mod tests {
    use super::super::document::{Document, Format};
    use super::*;

    fn server(text: &str) -> Base {
        base(&Document::parse(text.to_owned(), Format::Yaml).unwrap().root())
    }

    #[test]
    fn a_server_is_a_host_and_a_base_path() {
        let of =
            |host: Option<&str>, path: &str| Base { host: host.map(str::to_owned), path: path.to_owned() };
        for (text, expected) in [
            ("url: /", of(None, "")),
            ("url: /v1/", of(None, "/v1")),
            ("url: v1", of(None, "/v1")),
            ("url: https://pay.example", of(Some("pay.example"), "")),
            ("url: https://pay.example:8443/a/b/", of(Some("pay.example:8443"), "/a/b")),
            ("url: //pay.example/a?x=1", of(Some("pay.example"), "/a")),
            (
                "url: https://{tenant}.example/{base}\nvariables: {tenant: {default: eu}, base: {default: v2}}",
                of(Some("eu.example"), "/v2"),
            ),
        ] {
            assert_eq!(server(text), expected, "{text}");
        }
    }

    #[test]
    fn a_template_can_be_what_a_pattern_names() {
        for (pattern, path, expected) in [
            ("/charges/export", "/charges/{id}", Some("/charges/export")),
            ("/charges/{any}", "/charges/{id}", Some("/charges/{id}")),
            ("/charges/*", "/charges/{id}/refunds", Some("/charges/{id}/refunds")),
            ("/charges", "/charges/{id}", None),
            ("/charges/export", "/charges/x-{id}", None),
            ("/charges/{id}/a", "/charges/{id}", None),
        ] {
            assert_eq!(concrete(pattern, path).as_deref(), expected, "{pattern} {path}");
        }
        assert_eq!(any("{a}-{b}.json"), format!("{ANY}-{ANY}.json"));
        assert_eq!(any("a{b"), "a{b");
    }
}
