//! What a service has received and what took effect there: the truth that a test holds answers against.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use super::DEADLINE;

/// A request as it reached the service: header lines in order, names in lower case.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// How many requests this key had before this one.
    pub(crate) earlier: usize,
    /// The how many-th connection to the service it came on.
    pub(crate) connection: usize,
}

/// Everything that happened.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Books {
    received: Vec<Received>,
    by_key: HashMap<String, usize>,
    /// The body of each effect, by key.
    effects: HashMap<String, Vec<Vec<u8>>>,
    effects_count: usize,
    /// Requests that are being worked on.
    open: usize,
    connections: usize,
    connections_closed: usize,
}

impl Received {
    /// The first line of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(line, _)| line == name).map(|(_, value)| value.as_str())
    }

    /// All lines of that name.
    pub(crate) fn header_lines(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(line, _)| line == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The key without its quotes; empty where there is none.
    pub(crate) fn key(&self) -> &str {
        self.header("idempotency-key").unwrap_or_default().trim_matches('"')
    }
}

impl Ledger {
    /// A request has come in: how many its key had before.
    pub(super) fn receive(&self, mut received: Received) -> Received {
        self.change(|books| {
            let seen = books.by_key.entry(received.key().to_owned()).or_default();
            received.earlier = *seen;
            *seen += 1;
            books.open += 1;
            books.received.push(received.clone());
        });
        received
    }

    /// It has been dealt with, one way or another.
    pub(super) fn end(&self) {
        self.change(|books| books.open -= 1);
    }

    /// It takes effect: gives the effect's number, from 1.
    pub(super) fn effect(&self, received: &Received) -> usize {
        let mut number = 0;
        self.change(|books| {
            books.effects.entry(received.key().to_owned()).or_default().push(received.body.clone());
            books.effects_count += 1;
            number = books.effects_count;
        });
        number
    }

    /// A connection was accepted: gives its number, from 1.
    pub(super) fn connected(&self) -> usize {
        let mut number = 0;
        self.change(|books| {
            books.connections += 1;
            number = books.connections;
        });
        number
    }

    pub(super) fn disconnected(&self) {
        self.change(|books| books.connections_closed += 1);
    }

    /// How often the key took effect.
    pub(crate) fn effects(&self, key: &str) -> usize {
        self.books.lock().unwrap().effects.get(key).map_or(0, Vec::len)
    }

    /// The bodies with which it did.
    pub(crate) fn bodies(&self, key: &str) -> Vec<Vec<u8>> {
        self.books.lock().unwrap().effects.get(key).cloned().unwrap_or_default()
    }

    /// All effects of all keys.
    pub(crate) fn effects_count(&self) -> usize {
        self.books.lock().unwrap().effects_count
    }

    /// The keys that took effect more than once.
    pub(crate) fn twice(&self) -> Vec<(String, usize)> {
        let books = self.books.lock().unwrap();
        let twice = books.effects.iter().filter(|(_, bodies)| bodies.len() > 1);
        twice.map(|(key, bodies)| (key.clone(), bodies.len())).collect()
    }

    /// All requests, in order of arrival.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.books.lock().unwrap().received.clone()
    }

    pub(crate) fn received_count(&self) -> usize {
        self.books.lock().unwrap().received.len()
    }

    /// The last request.
    ///
    /// # Panics
    ///
    /// When there was none.
    pub(crate) fn last(&self) -> Received {
        self.books.lock().unwrap().received.last().cloned().expect("a request")
    }

    pub(crate) fn connections(&self) -> usize {
        self.books.lock().unwrap().connections
    }

    /// Waits until so many requests have come in.
    #[track_caller]
    pub(crate) fn wait_received(&self, count: usize) {
        self.wait(&format!("{count} requests at the service"), |books| books.received.len() >= count);
    }

    /// Waits until so many effects have taken place.
    #[track_caller]
    pub(crate) fn wait_effects(&self, count: usize) {
        self.wait(&format!("{count} effects"), |books| books.effects_count >= count);
    }

    /// Waits until the service works on nothing.
    #[track_caller]
    pub(crate) fn wait_idle(&self) {
        self.wait("an idle service", |books| books.open == 0);
    }

    /// Waits until the service has closed all its connections.
    #[track_caller]
    pub(crate) fn wait_disconnected(&self) {
        self.wait("no connection to the service", |books| books.connections_closed == books.connections);
    }

    fn change(&self, change: impl FnOnce(&mut Books)) {
        change(&mut self.books.lock().unwrap());
        self.changed.notify_all();
    }

    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&Books) -> bool) {
        let end = Instant::now() + DEADLINE;
        let mut books = self.books.lock().unwrap();
        while !is_so(&books) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(books);
                panic!("not within {DEADLINE:?}: {what}");
            }
            books = self.changed.wait_timeout(books, left).unwrap().0;
        }
    }
}
