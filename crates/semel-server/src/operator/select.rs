//! Which records a command means: by state, cause, age, route, scope and the beginning of the key, all together.
//!
//! 1. Records are read in pages, so a command needs the same memory for ten records as for ten million.
//! 2. **Older than** counts from when a record became what it is, as the column SINCE and the alerts do: an operator
//!    asks how long something has waited, not how long ago its client began. A lapsed one waits since its lease ended.
//! 3. **A route** is a pattern as in `match`, compared with the record's label. A label that may have been cut does not
//!    show the end of its path, so it fits only patterns that leave the end open.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;
use std::time::Duration;

use semel::{Cursor, Entry, Filter, Label, StateName, StoreError};
use semel_http::Pattern;
use semel_store::Connected;

use super::cause;
use crate::values::nearest;

/// How many records are read at a time. Each comes with its outcome, which may be large.
pub const PAGE: u32 = 50;

/// What is counted apart; the rest is one number. Causes are few, unless a service makes up its own.
const GROUPS_MAX: usize = 100;

/// The causes that the gateway gives; `status-502` and the like are the others.
pub const CAUSES: [&str; 7] = ["lapsed", "timeout", "cut", "panic", "shutdown", "said", "attempts-exhausted"];

/// What must fit.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// What the store looks at.
    pub filter: Filter,
    /// Why it waits.
    pub cause: Option<String>,
    /// In its state for at least so long.
    pub older_than: Option<Duration>,
    /// What it is.
    pub route: Option<RoutePattern>,
}

impl Selection {
    fn fits(&self, entry: &Entry) -> bool {
        let is_its_cause = |wanted: &String| cause(entry).is_some_and(|cause| cause.as_str() == wanted);
        self.cause.as_ref().is_none_or(is_its_cause)
            && self.older_than.is_none_or(|least| entry.since >= least)
            && self.route.as_ref().is_none_or(|route| route.fits(&entry.label))
    }

    /// The cause that was most likely meant, where nothing has the given one. Causes are open, so a strange one is no
    /// mistake by itself.
    pub fn meant(&self) -> Option<&'static str> {
        let given = self.cause.as_deref().filter(|given| !CAUSES.contains(given))?;
        nearest(given, CAUSES).filter(|_| !given.starts_with("status-"))
    }
}

/// Paths, with a method and a host where they are given: `POST /charges/{id}`, `/charges/*`, `POST pay.example/*`.
#[derive(Debug, Clone)]
pub struct RoutePattern {
    method: Option<String>,
    host: String,
    path: Pattern,
}

impl RoutePattern {
    fn fits(&self, label: &Label) -> bool {
        let Some((method, host, path)) = parts(label) else { return false };
        let is_whole = label.as_str().len() + 3 < Label::BYTES_MAX || self.path.as_str().ends_with("/*");
        is_whole
            && self.method.as_ref().is_none_or(|wanted| wanted == method)
            && (self.host.is_empty() || self.host == host)
            && self.path.matches(path)
    }
}

impl FromStr for RoutePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<RoutePattern, String> {
        let (method, target) = match text.split_once(' ') {
            Some((method, target)) => (Some(method), target.trim_start()),
            None => (None, text),
        };
        if let Some(method) = method.filter(|method| !method.bytes().all(|byte| byte.is_ascii_uppercase())) {
            let meant = method.to_ascii_uppercase();
            return Err(format!("a method is written in capitals; did you mean '{meant} {target}'?"));
        }
        let slash = target.find('/').ok_or_else(|| no_path(method, target))?;
        let (host, path) = target.split_at(slash);
        let path = path.parse().map_err(|error| format!("{error}"))?;
        Ok(RoutePattern { method: method.map(str::to_owned), host: host.to_ascii_lowercase(), path })
    }
}

fn no_path(method: Option<&str>, target: &str) -> String {
    let method = method.map(|method| format!("{method} ")).unwrap_or_default();
    format!("a route is written \"POST /charges/{{id}}\" or /charges/*; did you mean '{method}/{target}'?")
}

/// The method, the host of the route if it has one, and the path.
pub fn parts(label: &Label) -> Option<(&str, &str, &str)> {
    let (method, target) = label.as_str().split_once(' ')?;
    let (host, path) = target.split_at(target.find('/')?);
    Some((method, host, path))
}

/// The records that fit, page by page.
pub struct Pages<'a> {
    store: &'a Connected,
    selection: &'a Selection,
    after: Option<Cursor>,
    read: VecDeque<Entry>,
    ended: bool,
}

impl<'a> Pages<'a> {
    pub fn new(store: &'a Connected, selection: &'a Selection) -> Pages<'a> {
        Pages { store, selection, after: None, read: VecDeque::new(), ended: false }
    }

    /// The next record that fits; `None` at the end.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    pub async fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            if let Some(entry) = self.read.pop_front() {
                return Ok(Some(entry));
            }
            if self.ended {
                return Ok(None);
            }
            let page = self.store.inspect.list(&self.selection.filter, self.after.as_ref(), PAGE).await?;
            self.ended = page.is_empty();
            self.after = page.last().map(|last| last.cursor.clone()).or(self.after.take());
            self.read.extend(page.into_iter().filter(|entry| self.selection.fits(entry)));
        }
    }
}

/// How many there are, by state and cause.
#[derive(Debug, Default)]
pub struct Counts {
    pub by: BTreeMap<(String, String), u64>,
    pub total: u64,
}

impl Counts {
    pub fn count(&mut self, entry: &Entry) {
        let cause = cause(entry).map(|cause| cause.as_str().to_owned()).unwrap_or_default();
        let mut group = (entry.view.name().to_owned(), cause);
        if self.by.len() >= GROUPS_MAX && !self.by.contains_key(&group) {
            "other".clone_into(&mut group.1);
        }
        *self.by.entry(group).or_default() += 1;
        self.total += 1;
    }
}

/// What is open: unknown and dead, and what runs where that is taken too.
pub fn open_states(force: bool) -> impl Iterator<Item = StateName> {
    [StateName::Unknown, StateName::Dead].into_iter().chain(force.then_some(StateName::Running))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, label: &str) -> bool {
        pattern.parse::<RoutePattern>().unwrap().fits(&Label::new(label))
    }

    #[test]
    fn a_route_fits_by_method_host_and_path() {
        assert!(fits("POST /charges/{id}", "POST /charges/7"));
        assert!(fits("/charges/{id}", "PATCH /charges/7"));
        assert!(fits("/charges/*", "POST pay.example/charges/7/refunds"));
        assert!(fits("POST pay.example/charges/{id}", "POST pay.example/charges/7"));
        for (pattern, label) in [
            ("POST /charges/{id}", "PATCH /charges/7"),
            ("/charges/{id}", "POST /charges/7/refunds"),
            ("POST pay.example/*", "POST /charges"),
            ("/charges", ""),
        ] {
            assert!(!fits(pattern, label), "{pattern} {label}");
        }
    }

    /// Its last segment may be a part of it, and others may have stood behind it.
    #[test]
    fn a_label_that_was_cut_fits_only_what_leaves_the_end_open() {
        let cut = format!("POST /charges/{}/refunds", "x".repeat(Label::BYTES_MAX));
        assert!(!fits("/charges/{id}", &cut));
        assert!(fits("/charges/*", &cut));
    }

    #[test]
    fn a_bad_route_names_the_nearest_one() {
        for (typo, meant) in [("post /charges", "'POST /charges'"), ("POST charges", "'POST /charges'")] {
            let error = typo.parse::<RoutePattern>().unwrap_err();
            assert!(error.contains(meant), "{typo}: {error}");
        }
        assert!("/charges?x".parse::<RoutePattern>().is_err());
    }

    #[test]
    fn a_cause_that_nothing_has_may_be_a_mistake() {
        let meant = |cause: &str| Selection { cause: Some(cause.into()), ..Selection::default() }.meant();
        assert_eq!(meant("timeot"), Some("timeout"));
        assert_eq!(meant("timeout"), None);
        assert_eq!(meant("status-599"), None);
    }
}
