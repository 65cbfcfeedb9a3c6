//! Places where a test makes this process kill itself, as `kill -9` would. Compiled in only with the feature
//! `failpoints`; otherwise every function here does nothing.
//!
//! `SEMEL_FAILPOINT=NAME:N` kills at the N-th time that NAME is reached. The names: `claim-committed`, `sent`,
//! `answered`, `settle-begins`, `settle-committed`.

use std::sync::Arc;

use semel::Store;

#[cfg(not(feature = "failpoints"))]
mod off {
    use super::*;

    /// The store, untouched.
    pub fn around(store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }

    /// Waits for the answer.
    pub async fn while_sent<T>(answer: impl Future<Output = T>) -> T {
        answer.await
    }
}

#[cfg(not(feature = "failpoints"))]
pub use off::*;

#[cfg(feature = "failpoints")]
mod on {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use semel::{
        Claim, ClaimRequest, Cursor, Entry, Key, Lease, Purpose, Scope, Settlement, StoreError, Swept,
    };

    use super::*;

    struct Armed {
        name: String,
        left: AtomicU32,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let set = std::env::var("SEMEL_FAILPOINT").ok()?;
        let (name, count) = set.split_once(':').expect("SEMEL_FAILPOINT is NAME:N");
        let left = AtomicU32::new(count.parse().expect("SEMEL_FAILPOINT is NAME:N"));
        Some(Armed { name: name.to_owned(), left })
    });

    fn is_armed(name: &str) -> bool {
        ARMED.as_ref().is_some_and(|armed| armed.name == name)
    }

    fn reach(name: &str) {
        let Some(armed) = ARMED.as_ref().filter(|armed| armed.name == name) else { return };
        if armed.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            eprintln!("failpoint {name}");
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }

    /// The store, with the places before and after its commits.
    pub fn around(store: Arc<dyn Store>) -> Arc<dyn Store> {
        if ARMED.is_some() { Arc::new(Failing(store)) } else { store }
    }

    /// Waits for the answer. The request is on the wire some milliseconds before any answer of a service that
    /// works on it for longer; that is where `sent` is.
    pub async fn while_sent<T>(answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        if is_armed("sent") {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = tokio::time::sleep(Duration::from_millis(5)) => reach("sent"),
            }
        }
        let answer = answer.await;
        reach("answered");
        answer
    }

    #[derive(Debug)]
    struct Failing(Arc<dyn Store>);

    #[async_trait]
    impl Store for Failing {
        async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
            let claimed = self.0.claim(request).await;
            if matches!((&claimed, request.purpose), (Ok(Claim::Acquired(_)), Purpose::Run { .. })) {
                reach("claim-committed");
            }
            claimed
        }

        async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
            self.0.renew(lease, lease_for).await
        }

        async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
            reach("settle-begins");
            let settled = self.0.settle(lease, settlement).await;
            reach("settle-committed");
            settled
        }

        async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
            self.0.find(scope, key).await
        }

        async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
            self.0.unsettled(after, limit).await
        }

        async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
            self.0.sweep(limit).await
        }
    }
}

#[cfg(feature = "failpoints")]
pub use on::*;
