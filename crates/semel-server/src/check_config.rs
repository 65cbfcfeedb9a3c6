//! `semel check-config`: what a configuration file comes to, before a gateway is started with it.
//!
//! 1. The file is checked as `semel gateway` checks it, in the same place and with the same words: settings, routes and
//!    conditions across them. Nothing is opened: no store, no address.
//! 2. Flags and `SEMEL_…` variables count as they do for the gateway.
//! 3. For a request it asks the routes themselves, so the answer is the gateway's own. What it prints is TOML that
//!    comes to the same settings when it is pasted back.

use std::io::{self, Write, stdout};
use std::sync::Arc;

use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, header};
use semel_http::Routes;
use serde_json::{Value, json};

use crate::Failure;
use crate::cli::CheckConfig;
use crate::config::{Config, Effective, RouteConfig, Settings, layered};
use crate::gateway;
use crate::values::nearest;

/// `semel check-config`.
pub fn run(args: CheckConfig) -> Result<(), Failure> {
    let CheckConfig { file, method, path, host, json, settings: beside } = args;
    let request = method.zip(path).map(|(method, path)| Asked::new(&method, &path, host.as_deref()));
    let asked = request.transpose().map_err(Failure::Usage)?;
    let settings = layered(beside.clone(), Some(&file)).map_err(Failure::Usage)?;
    let gateway::Checked { config, routes, .. } = gateway::checked(settings.clone())?;
    let written = match asked {
        None if json => write_json(&whole(&config)),
        None => list(&file.display().to_string(), &config),
        Some(asked) => {
            let found = Found::new(&asked, &config, &routes, &settings, &beside);
            if json { write_json(&found.json()) } else { found.write(&asked) }
        }
    };
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Failed(format!("standard output: {error}")),
    })
}

/// The request whose settings are asked for.
struct Asked {
    parts: Parts,
    has_host: bool,
}

impl Asked {
    fn new(method: &str, path: &str, host: Option<&str>) -> Result<Asked, String> {
        let mut request = Request::builder().method(known_method(method)?).uri(target(path)?);
        if let Some(host) = host {
            let fits = host.parse::<Authority>().is_ok() && !host.contains('@');
            if !fits {
                return Err(format!("--host '{host}': a host is a name or an address, perhaps with a port"));
            }
            request = request.header(header::HOST, host);
        }
        let request = request.body(()).map_err(|error| error.to_string())?;
        Ok(Asked { parts: request.into_parts().0, has_host: host.is_some() })
    }
}

/// An extension method is fine; a misspelt common one is not.
fn known_method(text: &str) -> Result<Method, String> {
    const KNOWN: [&str; 8] = ["POST", "PATCH", "PUT", "DELETE", "GET", "HEAD", "OPTIONS", "TRACE"];
    let method = Method::from_bytes(text.as_bytes()).ok();
    match (method, nearest(&text.to_ascii_uppercase(), KNOWN)) {
        (Some(method), near) if near.is_none_or(|near| near == text) => Ok(method),
        (_, Some(near)) => Err(format!("unknown method '{text}'; did you mean '{near}'?")),
        _ => Err(format!("'{text}' is no method")),
    }
}

fn target(path: &str) -> Result<PathAndQuery, String> {
    if let Ok(url) = url::Url::parse(path)
        && let Some(host) = url.host_str()
    {
        return Err(format!("'{path}' is a URL; did you mean '{}' with --host {host}?", url.path()));
    }
    if !path.starts_with('/') {
        return Err(format!("a path begins with a slash; did you mean '/{path}'?"));
    }
    let no_path = || format!("'{path}' is no path: what is not visible ASCII is percent-encoded");
    if path.contains('#') {
        return Err(format!("'{path}' is no path: '#' and what follows it is never sent"));
    }
    path.parse().map_err(|_| no_path())
}

/// What holds for a request.
struct Found<'a> {
    route: Option<&'a RouteConfig>,
    /// Why it is not guarded; `None` if it is.
    passes: Option<&'static str>,
    /// Settings in the order in which they are described, with where each comes from.
    settings: Vec<(&'static str, Value, &'static str)>,
    /// A route that only its host kept from being asked.
    with_host: Option<&'a RouteConfig>,
}

impl<'a> Found<'a> {
    fn new(
        asked: &Asked,
        config: &'a Config,
        routes: &Routes,
        settings: &Settings,
        beside: &Settings,
    ) -> Found<'a> {
        let holds = routes.of(&asked.parts);
        let at = routes.routes().iter().position(|route| Arc::ptr_eq(route, holds));
        let route = at.and_then(|at| config.routes.get(at));
        let own = at.and_then(|at| settings.route.as_ref()?.get(at));
        let mut effective = route.map_or_else(|| config.otherwise.effective(), RouteConfig::effective);
        let is_set = |settings: &Settings, name| settings.names().contains(&(name, true));
        let by_preset = |name| matches!(name, "kept" | "released" | "unknown" | "mismatch_status");
        let origin = |name| match own {
            Some(own) if is_set(own, name) => "this route",
            Some(own) if by_preset(name) && is_set(own, "preset") => "this route's preset",
            _ if is_set(beside, name) => "a flag or a variable",
            _ if is_set(settings, name) => "the file",
            _ if by_preset(name) && is_set(settings, "preset") => "the preset",
            _ => "the default",
        };
        let in_order = settings.names().into_iter().filter_map(|(name, _)| {
            let value = effective.remove(name)?;
            Some((name, value, origin(name)))
        });
        let hidden = |route: &&RouteConfig| {
            !asked.has_host && route.host.is_some() && route.pattern.matches(asked.parts.uri.path())
        };
        Found {
            route,
            passes: passes(holds, &asked.parts),
            settings: in_order.collect(),
            with_host: config.routes.iter().find(hidden),
        }
    }

    fn write(&self, asked: &Asked) -> io::Result<()> {
        let mut out = stdout().lock();
        let Parts { method, uri, .. } = &asked.parts;
        let guarded = self.passes.unwrap_or("guarded");
        match self.route {
            Some(route) => writeln!(out, "# {method} {uri}: {guarded}. Its route is {}", route.name())?,
            None => writeln!(
                out,
                "# {method} {uri}: {guarded}. No route matches it as written: the settings for everything else hold"
            )?,
        }
        if let Some(route) = self.with_host {
            writeln!(out, "# With --host another route may hold: {}", route.name())?;
        }
        if self.route.is_some() {
            writeln!(out, "[[route]]")?;
        }
        let lines: Vec<_> =
            self.settings.iter().map(|(name, value, from)| (toml_line(name, value), from)).collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).filter(|width| *width <= 40).max();
        for (line, from) in lines {
            writeln!(out, "{line:<width$}  # {from}", width = width.unwrap_or_default())?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let settings: Effective =
            self.settings.iter().map(|(name, value, _)| (*name, value.clone())).collect();
        let from: Effective = self.settings.iter().map(|(name, _, from)| (*name, json!(from))).collect();
        json!({
            "route": self.route.map(|route| route.name().to_string()),
            "guarded": self.passes.is_none(),
            "settings": settings,
            "from": from,
        })
    }
}

fn passes(holds: &semel_http::Settings, parts: &Parts) -> Option<&'static str> {
    let options = holds.options();
    if !options.methods.contains(&parts.method) {
        Some("passes by, since its method is not guarded")
    } else if !holds.guards(parts) {
        Some("passes by, with a key too, since its key is 'natural'")
    } else if options.observe {
        Some("is watched and passes by, since 'observe' is set")
    } else {
        None
    }
}

fn toml_line(name: &str, value: &Value) -> String {
    let value = toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string());
    format!("{name} = {value}")
}

/// The whole configuration.
fn whole(config: &Config) -> Value {
    json!({
        "settings": config.effective(),
        "routes": config.routes.iter().map(RouteConfig::effective).collect::<Vec<_>>(),
        "otherwise": config.otherwise.effective(),
    })
}

fn write_json(value: &Value) -> io::Result<()> {
    writeln!(stdout(), "{value:#}")
}

/// That it is fine, and the routes.
fn list(file: &str, config: &Config) -> io::Result<()> {
    let mut out = stdout().lock();
    writeln!(
        out,
        "{file} is fine. The first route holds whose host and path match and that guards the method:\n"
    )?;
    let row = |host: &str, path: &str, contract: &crate::config::Contract| {
        let methods = contract.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(",");
        [host.to_owned(), path.to_owned(), methods, contract.key.to_string(), contract.upstream.to_string()]
    };
    let routes = config
        .routes
        .iter()
        .map(|route| row(route.host.as_deref().unwrap_or("any"), route.pattern.as_str(), &route.contract));
    let head = ["HOST", "PATH", "METHODS", "KEY", "UPSTREAM"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head)
        .chain(routes)
        .chain([row("any", "everything else", &config.otherwise)])
        .collect();
    let widths: Vec<usize> =
        (0..4).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for [host, path, methods, key, upstream] in &rows {
        writeln!(
            out,
            "{host:<0$}  {path:<1$}  {methods:<2$}  {key:<3$}  {upstream}",
            widths[0], widths[1], widths[2], widths[3]
        )?;
    }
    Ok(())
}
