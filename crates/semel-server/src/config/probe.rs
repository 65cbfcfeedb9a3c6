//! Where a route asks whether an operation took effect.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use semel_http::Pattern;

use super::{List, Settings, Status, UnknownChoice};
use crate::values::{Span, Upstream};

/// Settings of a probe that fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeConfig {
    /// Where.
    pub template: Template,
    /// Statuses that mean that it took effect, where the answer does not say so itself.
    pub keep: Vec<StatusCode>,
    /// Statuses that mean that it took none.
    pub release: Vec<StatusCode>,
    /// `Authorization` of the question.
    pub authorization: Option<HeaderValue>,
    /// The file that its token is from.
    pub token_file: Option<PathBuf>,
}

/// `/charges?key={key}` at the route's upstream, or `http://ledger:9000/charges/{key}` at another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// Where it is not the route's own.
    pub upstream: Option<Upstream>,
    /// The path and the query.
    pub pieces: Vec<Piece>,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// The key, or a segment of the operation's path.
    Variable(String),
}

impl ProbeConfig {
    /// The probe of a route, if it has one.
    ///
    /// # Errors
    ///
    /// One line that says what does not fit.
    pub(crate) fn of(settings: &Settings, pattern: Option<&Pattern>) -> Result<Option<ProbeConfig>, String> {
        let is_chosen = settings.on_unknown == Some(UnknownChoice::Probe);
        let Some(template) = &settings.probe else {
            return match is_chosen {
                true => Err("--on-unknown probe needs --probe, such as /charges?key={key}".into()),
                false => Ok(None),
            };
        };
        if !is_chosen {
            return Err("--probe counts only with --on-unknown probe".into());
        }
        let template = template.0.clone();
        let mut names = pattern.into_iter().flat_map(Pattern::names);
        let unknown = template.variables().find(|name| *name != "key" && !names.any(|known| known == *name));
        if let Some(name) = unknown {
            return Err(format!(
                "--probe: there is no variable {{{name}}}: there is {{key}}, and what stands in 'match'"
            ));
        }
        let statuses = |list: &Option<List<Status>>| -> Vec<StatusCode> {
            list.iter().flat_map(|list| &list.0).map(|status| status.0).collect()
        };
        let (keep, release) = (statuses(&settings.probe_keep), statuses(&settings.probe_release));
        if let Some(twice) = keep.iter().find(|status| release.contains(status)) {
            return Err(format!("the status {twice} stands in probe-keep and in probe-release"));
        }
        let authorization = settings
            .probe_token_file
            .as_deref()
            .map(|file| bearer("--probe-token-file", file))
            .transpose()?;
        let token_file = settings.probe_token_file.clone();
        Ok(Some(ProbeConfig { template, keep, release, authorization, token_file }))
    }
}

/// `Authorization` with the token in a file.
///
/// # Errors
///
/// One line that names the setting and the file.
pub fn bearer(setting: &str, file: &Path) -> Result<HeaderValue, String> {
    let named = |reason: String| format!("{setting} {}: {reason}", file.display());
    let token = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|_| named("it holds no token".into()))?;
    if token.trim().is_empty() {
        return Err(named("it holds no token".into()));
    }
    value.set_sensitive(true);
    Ok(value)
}

/// How long after it became unknown an operation is asked about, and how long one question may take.
pub(super) fn times(settings: &Settings) -> (Option<Duration>, Option<Duration>) {
    let time = |span: Option<Span>| span.map(|span| span.0);
    (time(settings.probe_after), time(settings.probe_within))
}

impl Template {
    /// The names of its variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Template, String> {
        const FORM: &str = "a probe is written /charges?key={key} or http://127.0.0.1:9000/charges/{key}";
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('#') {
            return Err(FORM.into());
        }
        let (upstream, rest) = match text.find("://") {
            None => (None, text),
            Some(at) => {
                let path = text[at + 3..].find('/').ok_or(FORM)? + at + 3;
                if text[..path].contains(['{', '}']) {
                    return Err("a probe's host is fixed: it has no variables".into());
                }
                (Some(text[..path].parse()?), &text[path..])
            }
        };
        if !rest.starts_with('/') {
            return Err(FORM.into());
        }
        let pieces = pieces(rest).ok_or("a probe's variable is written {key}, or {name} as in 'match'")?;
        // Without one, every operation would get the same answer.
        let template = Template { text: text.to_owned(), upstream, pieces };
        if template.variables().next().is_none() {
            return Err("a probe needs a variable, such as {key}: it asks about one operation".into());
        }
        Ok(template)
    }
}

fn pieces(text: &str) -> Option<Vec<Piece>> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}')?;
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name || before.contains('}') {
            return None;
        }
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(Piece::Variable(name.to_owned()));
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    (!rest.contains('}')).then_some(pieces)
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g5_the_host_of_a_probe_is_fixed() {
        let template: Template = "http://127.0.0.1:9000/charges/{key}/x?a={id}".parse().unwrap();
        assert_eq!(template.upstream.as_ref().unwrap().port, 9000);
        assert!(template.variables().eq(["key", "id"]));
        for (text, part) in [
            ("http://{key}/a", "host is fixed"),
            ("http://127.0.0.1:{key}/a", "host is fixed"),
            ("/charges", "needs a variable"),
            ("charges/{key}", "is written"),
            ("http://127.0.0.1:9000", "is written"),
            ("/a/{key", "variable is written"),
            ("/a/{}", "variable is written"),
            ("/a/}{key}", "variable is written"),
            ("/a b/{key}", "is written"),
            ("/a/{key}#x", "is written"),
        ] {
            let error = text.parse::<Template>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
