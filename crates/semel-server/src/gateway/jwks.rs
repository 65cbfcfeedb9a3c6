//! Fetching the keys of tokens: from a file or a URL of the configuration.
//!
//! 1. They are read before the first request, and every ten minutes from then on: a file that is replaced needs no
//!    restart. A file that cannot be read refuses the start. A URL that does not answer does not: the gateway starts,
//!    `/readyz` says why it is not ready, every token is answered with 503, and it is asked again, later each time.
//! 2. A token that names a key which is not here has the keys fetched out of turn, so that a new one is taken at once; but
//!    only every thirty seconds, whatever number of such tokens somebody makes up.
//! 3. What cannot be fetched or read changes nothing: the keys that were there stay, and it is said in the log.
//!    A set that holds no key that can be used is taken at its word, and every token is refused: the issuer has
//!    withdrawn them.
//! 4. One GET, no redirect, five seconds, one mebibyte.

use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use semel::BoxError;
use semel_http::{Body, KeySet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::place::Place;
use crate::config::{KeySource, Tokens};

/// How often the keys are fetched.
const EVERY: Duration = Duration::from_secs(10 * 60);

/// How often a token can have them fetched.
const ON_DEMAND_EVERY: Duration = Duration::from_secs(30);

/// How long after a first failure they are fetched again, while there are none yet. It doubles up to `ON_DEMAND_EVERY`.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long one fetch may take.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// The longest set.
const BYTES_MAX: usize = 1 << 20;

/// Where keys come from, and who uses them.
#[derive(Debug)]
pub struct Fetching {
    tokens: Tokens,
    /// Where they are fetched from a URL.
    place: Option<Place>,
}

impl Fetching {
    /// Fetches them for the first time.
    ///
    /// # Errors
    ///
    /// One line, where they stand in a file that cannot be used, or nothing can be fetched from such a URL.
    pub async fn start(tokens: Tokens, idle_for: Duration) -> Result<Fetching, String> {
        let source = tokens.source.clone();
        let named = |error: &dyn std::fmt::Display| format!("--jwks {source}: {error}");
        let place = match &tokens.source {
            KeySource::Url(location) => {
                Some(Place::new(location, None, idle_for).map_err(|error| format!("--jwks {error}"))?)
            }
            KeySource::File(_) => None,
        };
        if let KeySource::Url(location) = &source
            && !location.upstream.secure
            && !is_of_this_machine(&location.upstream.host)
        {
            tracing::warn!(%source, "the keys of tokens are fetched without TLS: whoever is on the way can be anybody");
        }
        let fetching = Fetching { place, tokens };
        match (fetching.fetch().await, &fetching.place) {
            (Ok(keys), None) if keys.is_empty() => {
                return Err(named(&"it holds no public key that a token could be verified with"));
            }
            (Ok(keys), _) => fetching.used(keys),
            (Err(error), None) => return Err(named(&error)),
            (Err(error), Some(_)) => fetching.failed(&error),
        }
        Ok(fetching)
    }

    /// Fetches them for ever.
    pub async fn run(self) {
        let (verifier, mut schedule) = (&self.tokens.verifier, Schedule::default());
        loop {
            schedule.next(verifier.has_keys(), verifier.keys_wanted()).await;
            match self.fetch().await {
                Ok(keys) => self.used(keys),
                Err(error) => self.failed(&error),
            }
        }
    }

    fn used(&self, keys: KeySet) {
        let (usable, passed_over) = (keys.len(), keys.passed_over());
        let source = &self.tokens.source;
        if keys.is_empty() {
            tracing::warn!(%source, passed_over, "there is no key that can be used: every token is refused");
        } else {
            tracing::debug!(%source, usable, passed_over, "the keys of tokens were fetched");
        }
        self.tokens.verifier.use_keys(keys);
    }

    fn failed(&self, error: &BoxError) {
        let so_far =
            if self.tokens.verifier.has_keys() { "those from before stay" } else { "there are none yet" };
        tracing::warn!(source = %self.tokens.source, %error, "the keys of tokens could not be fetched: {so_far}");
    }

    async fn fetch(&self) -> Result<KeySet, BoxError> {
        let bytes = match (&self.tokens.source, &self.place) {
            (KeySource::File(path), _) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read(&path)).await??
            }
            (KeySource::Url(_), Some(place)) => timeout(FETCH_MAX, get(place))
                .await
                .map_err(|_| format!("no answer within {FETCH_MAX:?}"))??,
            (KeySource::Url(_), None) => return Err("nobody is asked".into()),
        };
        Ok(std::str::from_utf8(&bytes)?.parse::<KeySet>()?)
    }
}

/// When keys are fetched.
#[derive(Debug)]
struct Schedule {
    /// The last time that somebody had them fetched.
    demanded: Option<Instant>,
    retry_after: Duration,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { demanded: None, retry_after: RETRY_AFTER }
    }
}

impl Schedule {
    /// Waits until they are due: in turn, or because they are wanted and nobody has had them fetched for a while.
    async fn next(&mut self, have_keys: bool, wanted: impl Future<Output = ()>) {
        let in_turn = if have_keys { EVERY } else { self.retry_after };
        self.retry_after = (self.retry_after * 2).min(ON_DEMAND_EVERY);
        let not_before = self.demanded.map(|demanded| demanded + ON_DEMAND_EVERY);
        let demand = async {
            if let Some(not_before) = not_before {
                sleep_until(not_before).await;
            }
            wanted.await;
        };
        tokio::select! {
            () = sleep(in_turn) => {}
            () = demand => self.demanded = Some(Instant::now()),
        }
    }
}

fn is_of_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn read(path: &Path) -> Result<Vec<u8>, BoxError> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > BYTES_MAX {
        return Err(format!("it is longer than {BYTES_MAX} bytes").into());
    }
    Ok(bytes)
}

async fn get(place: &Place) -> Result<Vec<u8>, BoxError> {
    let answer = place.ask(|| question(place)).await?;
    if answer.status() != StatusCode::OK {
        return Err(format!("it answered {}", answer.status()).into());
    }
    Ok(Limited::new(answer.into_body(), BYTES_MAX).collect().await?.to_bytes().into())
}

fn question(place: &Place) -> Request<Body> {
    let mut question = place.question();
    let headers = question.headers_mut();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
    headers
        .insert(header::USER_AGENT, HeaderValue::from_static(concat!("semel/", env!("CARGO_PKG_VERSION"))));
    question
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    /// When they were fetched, in seconds, while `during` went on.
    async fn fetched(wanted: &Notify, succeeds: bool, during: impl Future<Output = ()>) -> Vec<u64> {
        let (begun, mut times, mut schedule) = (Instant::now(), Vec::new(), Schedule::default());
        let fetching = async {
            loop {
                let have_keys = succeeds && !times.is_empty();
                schedule.next(have_keys, wanted.notified()).await;
                times.push(begun.elapsed().as_secs());
            }
        };
        tokio::select! {
            () = fetching => {}
            () = during => {}
        }
        times
    }

    #[tokio::test(start_paused = true)]
    async fn h5_keys_are_fetched_in_turn() {
        let times = fetched(&Notify::new(), true, sleep(Duration::from_secs(1300))).await;
        assert_eq!(times, [1, 601, 1201]);
    }

    #[tokio::test(start_paused = true)]
    async fn h5_without_keys_they_are_asked_for_again_and_again_but_later_each_time() {
        let times = fetched(&Notify::new(), false, sleep(Duration::from_secs(100))).await;
        assert_eq!(times, [1, 3, 7, 15, 31, 61, 91]);
    }

    #[tokio::test(start_paused = true)]
    async fn h5_a_flood_of_unknown_keys_has_them_fetched_every_thirty_seconds_at_most() {
        let wanted = Notify::new();
        let flood = async {
            sleep(Duration::from_secs(5)).await;
            for _ in 0..6_000 {
                wanted.notify_one();
                sleep(Duration::from_millis(10)).await;
            }
            sleep(Duration::from_secs(500)).await;
        };
        let times = fetched(&wanted, true, flood).await;
        // In turn; at once for the first of the flood, then for all that came meanwhile.
        assert_eq!(times, [1, 5, 35, 65]);
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jwks.json");
        assert!(read(&path).is_err());
        std::fs::write(&path, vec![b' '; BYTES_MAX]).unwrap();
        assert_eq!(read(&path).unwrap().len(), BYTES_MAX);
        std::fs::write(&path, vec![b' '; BYTES_MAX + 1]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("longer"));
    }
}
