//! Which answers are kept: H11.
//!
//! 1. The application may say so itself: `Semel-Outcome: keep`, `release` or `unknown` wins over the status. A
//!    value that is none of these, or more than one line, is not guessed at: the status decides, with a warning.
//! 2. Else the lists decide; a status stands in one of them at most.
//! 3. A status in no list goes by its class. 2xx, 3xx and 4xx are final: they say something about the request. A
//!    5xx is unknown, as a proxy in between may have made it; 500, 501 and 503 are in the list of the released,
//!    since an application that answers them has failed and rolled back. That is a promise of the application's:
//!    for one that does not keep it there is [`Statuses::cautious`].
//! 4. 1xx is no answer to a guarded request, and 600 and above no answer at all, so an attempt that ends in one is
//!    unknown.
//! 5. 401 and 403 also unbind the fingerprint, so that a caller who is not let in binds nothing.
//!
//! Released are 401, 403, 407, 408, 409, 421, 423, 425, 429: asked again later, or by somebody else, the same
//! request may well succeed, so a technical refusal is never pinned to a key (case C93).

use http::{HeaderMap, StatusCode};
use semel::Cause;

use crate::headers::SEMEL_OUTCOME;

/// Statuses that are not judged by their class alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses {
    /// Kept and replayed.
    pub kept: Vec<StatusCode>,
    /// Without effect: the key may be tried again.
    pub released: Vec<StatusCode>,
    /// With an effect or without: nobody can tell.
    pub unknown: Vec<StatusCode>,
}

/// What an answer means for its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// It is the outcome.
    Keep,
    /// It took no effect.
    Release,
    /// Nobody can tell.
    Unknown(Cause),
}

const RELEASED_4XX: [StatusCode; 9] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::CONFLICT,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::LOCKED,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
];

const RELEASED_5XX: [StatusCode; 3] =
    [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_IMPLEMENTED, StatusCode::SERVICE_UNAVAILABLE];

const UNKNOWN: [StatusCode; 2] = [StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses {
            kept: Vec::new(),
            released: [&RELEASED_4XX[..], &RELEASED_5XX].concat(),
            unknown: UNKNOWN.to_vec(),
        }
    }
}

impl Statuses {
    /// For an application whose 5xx prove nothing: every 5xx is unknown unless `Semel-Outcome` says otherwise.
    #[must_use]
    pub fn cautious() -> Statuses {
        Statuses { released: RELEASED_4XX.to_vec(), ..Statuses::default() }
    }

    /// The first status that stands in two lists.
    #[must_use]
    pub fn twice(&self) -> Option<StatusCode> {
        let both = |one: &[StatusCode], other: &[StatusCode]| one.iter().find(|s| other.contains(s)).copied();
        both(&self.kept, &self.released)
            .or_else(|| both(&self.kept, &self.unknown))
            .or_else(|| both(&self.released, &self.unknown))
    }

    /// What an answer with that head means for its key.
    #[must_use]
    pub fn judge(&self, status: StatusCode, headers: &HeaderMap) -> Meaning {
        said(headers).unwrap_or_else(|| self.by_status(status))
    }

    /// Whether an answer of that status is kept and replayed, where the application does not say otherwise.
    #[must_use]
    pub fn keeps(&self, status: StatusCode) -> bool {
        self.by_status(status) == Meaning::Keep
    }

    fn by_status(&self, status: StatusCode) -> Meaning {
        if self.kept.contains(&status) {
            return Meaning::Keep;
        }
        if self.released.contains(&status) {
            return Meaning::Release;
        }
        if self.unknown.contains(&status) || !(200..=499).contains(&status.as_u16()) {
            return Meaning::Unknown(cause(status));
        }
        Meaning::Keep
    }
}

/// Whether a release with that status forgets what was asked for.
pub(crate) fn unbinds(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// What the application says itself.
fn said(headers: &HeaderMap) -> Option<Meaning> {
    let mut lines = headers.get_all(SEMEL_OUTCOME).iter();
    let line = lines.next()?;
    let word = line.as_bytes().trim_ascii();
    let meaning = match lines.next() {
        None if word.eq_ignore_ascii_case(b"keep") => Some(Meaning::Keep),
        None if word.eq_ignore_ascii_case(b"release") => Some(Meaning::Release),
        None if word.eq_ignore_ascii_case(b"unknown") => Some(Meaning::Unknown(Cause::SAID)),
        _ => None,
    };
    if meaning.is_none() {
        tracing::warn!(value = ?line, "Semel-Outcome is none of keep, release, unknown: the status decides");
    }
    meaning
}

/// Why an answer of that status is unknown, or released its key.
pub(crate) fn cause(status: StatusCode) -> Cause {
    Cause::new(["status-", status.as_str()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn by(statuses: &Statuses, status: u16) -> Meaning {
        statuses.judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new())
    }

    fn unknown(status: u16) -> Meaning {
        Meaning::Unknown(Cause::new(format!("status-{status}")))
    }

    fn saying(lines: &[&'static str], status: u16) -> Meaning {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(SEMEL_OUTCOME, HeaderValue::from_static(line));
        }
        Statuses::default().judge(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn h11_the_default_lists() {
        let default = Statuses::default();
        for status in [200, 201, 202, 204, 205, 226, 301, 303, 304, 400, 402, 404, 406, 410, 413, 422, 451] {
            assert_eq!(by(&default, status), Meaning::Keep, "{status}");
            assert!(default.keeps(StatusCode::from_u16(status).unwrap()));
        }
        for status in [401, 403, 407, 408, 409, 421, 423, 425, 429, 500, 501, 503] {
            assert_eq!(by(&default, status), Meaning::Release, "{status}");
            assert!(!default.keeps(StatusCode::from_u16(status).unwrap()));
        }
        for status in [101, 502, 504, 505, 507, 520, 524, 599, 600, 999] {
            assert_eq!(by(&default, status), unknown(status));
        }
    }

    #[test]
    fn cautious_takes_no_5xx_for_a_failure() {
        for status in 500..=599 {
            assert_eq!(by(&Statuses::cautious(), status), unknown(status));
        }
        assert_eq!(by(&Statuses::cautious(), 409), Meaning::Release);
    }

    #[test]
    fn a_list_wins_over_the_class() {
        let five_hundred = StatusCode::INTERNAL_SERVER_ERROR;
        let kept = Statuses { kept: vec![five_hundred], ..Statuses::cautious() };
        assert_eq!(by(&kept, 500), Meaning::Keep);
        assert_eq!(kept.twice(), None);
        let twice = Statuses { kept: vec![five_hundred], ..Statuses::default() };
        assert_eq!(twice.twice(), Some(five_hundred));
    }

    #[test]
    fn the_application_wins_over_the_status() {
        assert_eq!(saying(&["keep"], 502), Meaning::Keep);
        assert_eq!(saying(&[" Release "], 201), Meaning::Release);
        assert_eq!(saying(&["unknown"], 200), Meaning::Unknown(Cause::SAID));
    }

    #[test]
    fn an_unclear_word_is_not_guessed_at() {
        assert_eq!(saying(&["kept"], 201), Meaning::Keep);
        assert_eq!(saying(&["kept"], 500), Meaning::Release);
        assert_eq!(saying(&["keep", "keep"], 500), Meaning::Release);
        assert_eq!(saying(&[""], 502), unknown(502));
    }
}
