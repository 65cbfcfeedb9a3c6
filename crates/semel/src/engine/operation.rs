//! One operation, as a surface names it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Probe;
use crate::fingerprint::{Algorithm, Fingerprint};
use crate::key::{Key, Scope};
use crate::observe::Meters;
use crate::policy::Policy;
use crate::store::Label;

/// One operation, as a surface names it.
#[derive(Clone)]
pub struct Operation {
    pub(super) scope: Scope,
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) older: Option<Older>,
    pub(super) label: Label,
    pub(super) input: Option<Bytes>,
    pub(super) policy: Arc<Policy>,
    pub(super) probe: Option<Arc<dyn Probe>>,
    pub(super) wait: Duration,
    pub(super) meters: Option<Arc<Meters>>,
    /// The key is too old, or too far ahead, to begin anything with.
    pub(super) never_new: bool,
}

type Older = Arc<dyn Fn(Algorithm) -> Option<Fingerprint> + Send + Sync>;

impl Operation {
    /// An operation without a label and without input, which waits for nobody.
    #[must_use]
    pub fn new(scope: Scope, key: Key, fingerprint: Fingerprint, policy: Arc<Policy>) -> Operation {
        Operation {
            scope,
            key,
            fingerprint,
            older: None,
            label: Label::default(),
            input: None,
            policy,
            probe: None,
            wait: Duration::ZERO,
            meters: None,
            never_new: false,
        }
    }

    /// What it is, for people.
    #[must_use]
    pub fn label(self, label: Label) -> Operation {
        Operation { label, ..self }
    }

    /// What a completer needs to run it again.
    #[must_use]
    pub fn input(self, input: Bytes) -> Operation {
        Operation { input: Some(input), ..self }
    }

    /// How to make the fingerprint by another algorithm, for records that an earlier version made.
    #[must_use]
    pub fn fingerprint_by(
        self,
        older: impl Fn(Algorithm) -> Option<Fingerprint> + Send + Sync + 'static,
    ) -> Operation {
        Operation { older: Some(Arc::new(older)), ..self }
    }

    /// Whom to ask when an earlier attempt is unknown. Without it [`OnUnknown::Probe`](crate::OnUnknown::Probe)
    /// waits like `Park`.
    #[must_use]
    pub fn probe(self, probe: Arc<dyn Probe>) -> Operation {
        Operation { probe: Some(probe), ..self }
    }

    /// How long to wait for another attempt that is in flight, before that is the answer. Zero, the default: not
    /// at all.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Operation {
        Operation { wait, ..self }
    }

    /// Where it is counted: by its surface and route. Without, under the surface `engine`.
    #[must_use]
    pub fn meters(self, meters: Arc<Meters>) -> Operation {
        Operation { meters: Some(meters), ..self }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("scope", &self.scope)
            .field("key", &self.key)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
