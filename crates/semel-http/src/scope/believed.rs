//! Headers that say who calls are taken off whatever no trusted proxy has sent.
//!
//! On every request, and not only on those whose route has the header in its list: to the service behind, the header
//! means the same everywhere, and it may well take `//charges`, which matches no route, for `/charges`.

use std::sync::atomic::{AtomicBool, Ordering};

use http::header::HeaderName;
use http::request::Parts;

use super::TrustedProxies;
use crate::peer::Peer;
use crate::principal::Principal;
use crate::settings::Options;

/// The headers that say who calls somewhere, and whose word counts there.
#[derive(Debug, Default)]
pub(crate) struct Believed {
    headers: Vec<(HeaderName, Vec<TrustedProxies>)>,
    /// Whether somebody else has sent one: said once.
    warned: AtomicBool,
}

impl Believed {
    /// Those of all routes. What is only observed changes nothing (H18).
    pub(crate) fn of<'a>(options: impl Iterator<Item = &'a Options>) -> Believed {
        let mut headers: Vec<(HeaderName, Vec<TrustedProxies>)> = Vec::new();
        for options in options.filter(|options| !options.observe) {
            for principal in &options.principals {
                let Principal::Header(name) = principal else { continue };
                let proxies = options.trusted_proxies.clone();
                match headers.iter_mut().find(|(other, _)| other == name) {
                    Some((_, trusted)) => trusted.push(proxies),
                    None => headers.push((name.clone(), vec![proxies])),
                }
            }
        }
        Believed { headers, warned: AtomicBool::new(false) }
    }

    /// Takes them off, unless a proxy sent them that is trusted with that header on some route, or nobody knows who did.
    pub(crate) fn remove_untrusted(&self, parts: &mut Parts) {
        if self.headers.is_empty() {
            return;
        }
        let Some(Peer(address)) = parts.extensions.get().copied() else { return };
        for (name, trusted) in &self.headers {
            let is_trusted = || trusted.iter().any(|proxies| proxies.contains(address));
            if !parts.headers.contains_key(name) || is_trusted() {
                continue;
            }
            parts.headers.remove(name);
            metrics::counter!("semel_untrusted_headers_total").increment(1);
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    header = %name, peer = %address,
                    "a header that says who calls came from an address that is no trusted proxy, and was taken off; \
                     said once, counted always"
                );
            }
        }
    }
}
