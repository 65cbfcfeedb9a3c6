//! The contract suite: one named test for every clause of the [`Store`] contract.
//!
//! A store implements [`Harness`] and says, in a test file of its own,
//!
//! ```ignore
//! semel::contract_suite!(MyHarness::start().await);
//! semel::inspect_suite!(MyHarness::start().await);
//! semel::history_suite!(MyHarness::start().await);
//! ```
//!
//! which makes a test of each clause. There is no way to leave one out.
//!
//! The clauses use leases of a minute and more, and move the clock by [`Harness::advance`]. Nothing waits.

pub mod claim;
pub mod history;
pub mod inspect;
pub mod list;
pub mod race;
pub mod repeat;
pub mod retain;
pub mod settle;
pub mod value;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::history::History;
use crate::inspect::Inspect;
use crate::store::{Claim, ClaimRequest, Entry, Lease, Settlement, Store, StoreError};
use crate::testing::sample;

/// What a store's tests bring along.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A store with nothing in it.
    async fn open(&self) -> Arc<dyn Store>;

    /// Another handle on the data of the store opened last, as another process would have it: nothing that the
    /// first handle keeps in memory is known to it.
    async fn reopen(&self) -> Arc<dyn Store>;

    /// Moves the clock of every store opened here.
    async fn advance(&self, by: Duration);

    /// How far the store's clock may have run by itself during a clause. Zero for a clock that stands still.
    /// At most five seconds.
    fn tolerance(&self) -> Duration {
        Duration::ZERO
    }
}

/// What the tests of a store bring along that can list its records.
#[async_trait]
pub trait InspectHarness: Harness {
    /// A store with nothing in it.
    async fn open_inspect(&self) -> Arc<dyn Inspect>;
}

/// What the tests of a store bring along that keeps timelines.
#[async_trait]
pub trait HistoryHarness: Harness {
    /// A store with nothing in it.
    async fn open_history(&self) -> Arc<dyn History>;
}

/// One store under test. Every call that a clause does not expect to fail must succeed.
struct Trial<'a> {
    harness: &'a dyn Harness,
    store: Arc<dyn Store>,
}

impl<'a> Trial<'a> {
    async fn new(harness: &'a dyn Harness) -> Trial<'a> {
        Trial { harness, store: harness.open().await }
    }

    async fn claim(&self, request: &ClaimRequest) -> Claim {
        self.store.claim(request).await.expect("a claim is answered")
    }

    async fn acquire(&self, request: &ClaimRequest) -> Lease {
        sample::lease(self.claim(request).await)
    }

    /// Claims, and wants an answer of that name.
    async fn answers(&self, request: &ClaimRequest, name: &str) {
        let answer = self.claim(request).await;
        assert_eq!(sample::name(&answer), name, "{answer:?}");
    }

    async fn end(&self, lease: &Lease, settlement: &Settlement) {
        self.store.settle(lease, settlement).await.expect("the holder settles");
    }

    /// Claims and settles.
    async fn ended(&self, request: &ClaimRequest, settlement: &Settlement) -> Lease {
        let lease = self.acquire(request).await;
        self.end(&lease, settlement).await;
        lease
    }

    async fn find(&self, key: &str) -> Option<Entry> {
        self.store.find(&sample::scope(), &sample::key(key)).await.expect("a record is read")
    }

    /// The record, which must be there.
    async fn entry(&self, key: &str) -> Entry {
        self.find(key).await.expect("there is a record")
    }

    /// What the record reads as.
    async fn reads(&self, key: &str, name: &str) {
        let entry = self.find(key).await;
        assert_eq!(entry.as_ref().map_or("absent", |entry| entry.view.name()), name, "{entry:?}");
    }

    async fn advance(&self, by: Duration) {
        self.harness.advance(by).await;
    }

    /// Sweeps until nothing is left to free.
    async fn sweep(&self) {
        while self.store.sweep(100).await.expect("a sweep").total() > 0 {}
    }

    /// Whether a time since something is what it should be, on a clock that may have run by itself.
    #[track_caller]
    fn elapsed(&self, actual: Duration, expected: Duration) {
        let latest = expected + self.harness.tolerance();
        assert!(expected <= actual && actual <= latest, "{actual:?}, not {expected:?}");
    }

    /// Whether a time until something is what it should be, on a clock that may have run by itself.
    #[track_caller]
    fn remaining(&self, actual: Duration, expected: Duration) {
        let least = expected.saturating_sub(self.harness.tolerance());
        assert!(least <= actual && actual <= expected, "{actual:?}, not {expected:?}");
    }
}

#[track_caller]
fn is_lost<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::LeaseLost)), "expected a lost lease, got {result:?}");
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Refused(_))), "expected a refusal, got {result:?}");
}

/// Makes a test of each clause of the [`Store`](crate::Store) contract. The expression gives a
/// [`Harness`](crate::testing::Harness); it is evaluated anew for every clause, inside an async function.
#[macro_export]
macro_rules! contract_suite {
    ($harness:expr) => {
        $crate::contract_clauses!($harness, claim:
            a_first_claim_is_granted
            a_second_claim_is_in_flight
            k6_mismatch_is_said_before_in_flight
            k6_mismatch_is_said_in_every_state
            c106_a_claim_that_is_refused_overwrites_nothing
            a_lapsed_key_is_unknown
            a_rerun_takes_a_lapsed_key
            a_rerun_takes_a_parked_key
            a_lease_ends_at_its_instant
            c94_a_lease_of_no_length_has_lapsed_at_once
            a_released_key_is_granted_again
            a_backoff_reads_as_in_flight
            k8_attempts_run_out
            c58_c69_scopes_are_apart
            doubt_is_told
            settling_takes_what_was_seen
            settling_refuses_what_was_not_seen
            settling_takes_what_runs_only_by_force
            a_settler_may_park_again
            a_redrive_counts_anew
            a_redrive_that_died_is_repeated
            k5_c13_the_stores_clock_decides
        );
        $crate::contract_clauses!($harness, repeat:
            c03_the_holder_asking_again_gets_its_lease
            c03_another_attempt_in_between_is_told_in_flight
            the_holder_asking_again_revives_a_lapsed_lease
            a_settler_asking_again_gets_its_lease
            k2_an_attempt_that_is_over_never_claims_again
            k2_an_attempt_long_over_never_claims_again
            a_renewal_extends
            a_renewal_revives_a_lapsed_lease
            a_renewal_after_the_end_is_lost
            a_renewal_keeps_everything_else
            a_lease_of_nothing_is_lost
            c04_a_zombie_cannot_settle
            c04_a_zombie_cannot_renew
            c04_a_zombie_of_a_forgotten_record_cannot_settle
            fence_and_attempt_are_both_compared
        );
        $crate::contract_clauses!($harness, settle:
            a_completed_key_is_replayed
            a_repeated_completion_succeeds
            a_completed_outcome_never_changes
            a_repeated_end_succeeds
            another_end_is_refused
            k7_the_truth_may_follow_the_owners_own_park
            k7_the_truth_may_follow_a_lapse
            k7_the_truth_may_follow_exhaustion
            k7_nothing_follows_a_settler
            a_parked_key_says_why
            a_buried_key_says_why
            k8_an_attempt_under_which_nothing_ran_is_not_counted
            k6_unbinding_by_the_claim_that_bound
            k6_unbinding_by_no_other_claim
            k6_unbinding_after_a_park
        );
        $crate::contract_clauses!($harness, retain:
            an_outcome_is_replayed_for_its_time
            a_key_is_remembered_for_its_time
            a_released_key_is_remembered_for_its_time
            a_key_is_remembered_at_least_as_long_as_it_is_replayed
            for_ever_is_for_ever
            unknown_and_dead_never_expire
            c117_the_fingerprint_outlives_everything
            a_sweep_changes_no_answer
            a_sweep_changes_no_answer_to_a_settlement
            a_sweep_frees_what_has_expired
            a_sweep_is_bounded
            a_sweep_leaves_the_rest_alone
        );
        $crate::contract_clauses!($harness, list:
            nothing_is_found_where_nothing_is
            an_entry_shows_the_record
            an_entry_shows_every_state
            an_entry_counts_from_the_latest_claim
            reads_do_not_write
            unsettled_lists_what_is_open
            unsettled_is_in_the_order_of_time
            unsettled_comes_in_pages
            unsettled_can_be_settled_while_it_is_read
            an_unsettled_entry_can_be_resolved
        );
        $crate::contract_clauses!($harness, value:
            c89_long_keys_are_apart_in_their_last_byte
            keys_are_compared_byte_for_byte
            every_allowed_character_is_kept
            scopes_are_compared_byte_for_byte
            a_large_outcome_is_kept
            an_empty_outcome_is_kept
            every_byte_of_an_outcome_is_kept
            the_format_of_an_outcome_is_kept
            the_algorithm_of_a_fingerprint_is_kept
            label_and_input_are_kept
            a_cause_is_kept
            large_times_are_kept
            c117_another_handle_reads_the_same
        );
        $crate::contract_clauses!($harness, race:
            c83_fifty_claims_of_one_key_have_one_winner
            c83_fifty_reruns_of_a_lapsed_key_have_one_winner
            fifty_settlers_have_one_winner
            claims_of_different_keys_all_win
            a_race_through_two_handles_has_one_winner
            one_claim_repeated_at_once_has_one_lease
            one_of_two_ends_stands
            a_late_end_and_a_takeover_agree
        );
    };
}

/// Makes a test of each clause of the [`Inspect`](crate::Inspect) contract. The expression gives an
/// [`InspectHarness`](crate::testing::InspectHarness).
#[macro_export]
macro_rules! inspect_suite {
    ($harness:expr) => {
        $crate::contract_clauses!($harness, inspect:
            a_list_is_in_the_order_of_keys
            a_list_comes_in_pages
            a_list_is_filtered_by_state
            a_list_is_filtered_by_scope
            a_list_is_filtered_by_prefix
            a_prefix_is_no_pattern
            a_key_is_found_in_every_scope
        );
    };
}

/// Makes a test of each clause of the [`History`](crate::History) contract. The expression gives a
/// [`HistoryHarness`](crate::testing::HistoryHarness).
#[macro_export]
macro_rules! history_suite {
    ($harness:expr) => {
        $crate::contract_clauses!($harness, history:
            events_are_read_as_they_were_written_oldest_first
            an_event_written_again_is_one
            the_last_hundred_are_kept
            a_key_without_a_record_has_no_history
            the_history_goes_with_the_record
            a_key_that_is_made_anew_begins_with_none
            events_change_nothing_of_the_record
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! contract_clauses {
    ($harness:expr, $module:ident: $($clause:ident)*) => {
        mod $module {
            #[allow(unused_imports, reason = "the harness may be named by a path of the suite's own module")]
            use super::*;
            $(
                #[test]
                fn $clause() {
                    $crate::testing::run(async {
                        let harness = $harness;
                        $crate::testing::contract::$module::$clause(&harness).await;
                    });
                }
            )*
        }
    };
}
