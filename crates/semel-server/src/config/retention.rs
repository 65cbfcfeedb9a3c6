//! How long an operator's word is kept: as long as the gateway's own would be.

use std::time::Duration;

use semel::{Label, OnUnknown, Policy};
use semel_http::Pattern;

use super::{Settings, contract};

/// How long an outcome is replayed, and how long its key is remembered.
pub type Retention = (Duration, Duration);

impl Settings {
    /// What the route of a record says, by the record's label (K4): its method, the host of its route and its path.
    ///
    /// A label that may have been cut does not tell the route: the longest of all holds, since a key that is forgotten
    /// too early may run again.
    pub fn retention(&self, label: &str) -> Retention {
        let defaults = Policy::new(OnUnknown::Park);
        let own = |route: &Settings| {
            let replay_for = route.replay_for.or(self.replay_for).map_or(defaults.replay_for, |span| span.0);
            let remember_for = route.remember_for.or(self.remember_for);
            (replay_for, remember_for.map_or(defaults.remember_for, |span| span.0))
        };
        let mut routes = self.route.iter().flatten();
        if label.len() >= Label::BYTES_MAX {
            let longer = |one: Retention, other: Retention| (one.0.max(other.0), one.1.max(other.1));
            return routes.map(own).fold(own(self), longer);
        }
        own(routes.find(|route| route.is_of(label)).unwrap_or(self))
    }

    fn is_of(&self, label: &str) -> bool {
        let Some((method, target)) = label.split_once(' ') else { return false };
        let path = target.strip_prefix(self.host.as_deref().unwrap_or_default());
        let pattern = self.pattern.as_deref().and_then(|text| text.parse::<Pattern>().ok());
        let methods = contract::methods(self.methods.as_ref());
        methods.iter().any(|guarded| guarded.as_str() == method)
            && pattern.zip(path).is_some_and(|(pattern, path)| pattern.matches(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k4_a_record_has_the_retention_of_its_route() {
        let settings = Settings::parse(
            "remember_for = '2d'\nmethods = ['POST', 'PUT']\n\
             [[route]]\nmatch = '/charges/{id}'\nmethods = ['POST']\nremember_for = 'forever'\n\
             [[route]]\nmatch = '/charges/*'\nhost = 'pay.example'\nreplay_for = '1h'\nremember_for = '3d'\n",
        )
        .unwrap();
        let of = |label| settings.retention(label);
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        assert_eq!(of("POST /charges/7"), (hours(24), semel::FOREVER));
        assert_eq!(of("POST pay.example/charges/7/x"), (hours(1), hours(3 * 24)));
        assert_eq!(of("POST /charges/7/x"), (hours(24), hours(2 * 24)), "another host's");
        assert_eq!(of("PUT /charges/7"), (hours(24), hours(2 * 24)), "not its method");
        assert_eq!(of(""), (hours(24), hours(2 * 24)));
        let cut = Label::new(format!("POST /{}", "x".repeat(300)));
        assert_eq!(of(cut.as_str()), (hours(24), semel::FOREVER), "whichever it was");
        assert_eq!(Settings::default().retention("POST /").1, hours(30 * 24));
    }
}
