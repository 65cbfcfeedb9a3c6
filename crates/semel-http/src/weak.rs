//! Keys that two callers may choose alike: H4.
//!
//! A key is a name for one operation of one caller, so it should be one that nobody else comes upon: a UUID, or the
//! caller's own order number. Weak are keys of fewer than eight bytes, and those that are nothing but the present time
//! in digits: two requests of one moment share them. They work as any key does. They are counted, and the first one
//! is warned about; which request it was says its decision line.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel::Key;

/// Shorter keys are weak.
const BYTES_MIN: usize = 8;

/// How far from now a number still is the present time.
const PRESENT: Duration = Duration::from_secs(24 * 60 * 60);

/// Notices weak keys.
#[derive(Debug, Default)]
pub(crate) struct Weak {
    warned: AtomicBool,
}

impl Weak {
    pub(crate) fn notice(&self, key: &Key) {
        let elapsed = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if !is_weak(key.as_str(), elapsed) {
            return;
        }
        metrics::counter!("semel_weak_keys_total").increment(1);
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a key is short, or only the time: two callers may choose the same; see semel_weak_keys_total"
            );
        }
    }
}

fn is_weak(key: &str, now: impl FnOnce() -> Duration) -> bool {
    key.len() < BYTES_MIN || (key.bytes().all(|byte| byte.is_ascii_digit()) && is_present(key, now()))
}

/// Seconds, and their thousandths down to nanoseconds.
fn is_present(digits: &str, now: Duration) -> bool {
    let Ok(number) = digits.parse::<u128>() else { return false };
    [1_000_000_000, 1_000_000, 1_000, 1].iter().any(|nanos: &u128| {
        number.checked_mul(*nanos).is_some_and(|number| number.abs_diff(now.as_nanos()) < PRESENT.as_nanos())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weak(key: &str) -> bool {
        is_weak(key, || Duration::from_secs(1_790_000_000))
    }

    #[test]
    fn h4_short_keys_and_the_present_time_are_weak() {
        for key in
            ["1", "abc", "1234567", "1790000000", "1790000123456", "1790003600000000", "1790000000000000001"]
        {
            assert!(weak(key), "{key}");
        }
    }

    #[test]
    fn h4_other_keys_are_not() {
        for key in
            ["order-77", "12345678", "1690000000", "8e03978e-40d5-43dd-bc93-6894a57f9324", &"9".repeat(60)]
        {
            assert!(!weak(key), "{key}");
        }
    }
}
