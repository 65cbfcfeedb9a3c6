//! The inbox: key and effect in one transaction, on every database, and with the handler called in every way.

mod batches;
mod databases;
mod once;
mod world;

use databases::{OnMariadb, OnPostgres, OnSqlite};
use world::How;

/// Every test of the inbox, for one database: none can be left out.
macro_rules! suite {
    ($on:ident, $name:ident) => {
        mod $name {
            use super::*;

            suite!(@ $on, alone, How::Alone, once, [
                m3_key_and_effect_are_committed_together_and_a_duplicate_is_acknowledged,
                c88_what_fails_leaves_nothing_and_what_succeeds_at_last_is_there_once,
                m3_killed_between_commit_and_acknowledgement_it_is_acknowledged_the_next_time,
                a_database_that_is_away_is_no_attempt_and_buries_nothing,
                m4_the_same_id_with_another_payload_is_a_dead_letter,
                k8_a_message_that_breaks_its_handler_ends_among_the_dead,
            ]);
            suite!(@ $on, in_batches, How::Savepoints, once, [
                m3_key_and_effect_are_committed_together_and_a_duplicate_is_acknowledged,
                c88_what_fails_leaves_nothing_and_what_succeeds_at_last_is_there_once,
                m4_the_same_id_with_another_payload_is_a_dead_letter,
            ]);
            suite!(@ $on, set_wise, How::SetWise, once, [
                m3_key_and_effect_are_committed_together_and_a_duplicate_is_acknowledged,
                c88_what_fails_leaves_nothing_and_what_succeeds_at_last_is_there_once,
                m3_killed_between_commit_and_acknowledgement_it_is_acknowledged_the_next_time,
                a_database_that_is_away_is_no_attempt_and_buries_nothing,
                k8_a_message_that_breaks_its_handler_ends_among_the_dead,
            ]);
            suite!(@ $on, many_with_savepoints, How::Savepoints, batches, [
                c103_one_bad_message_does_not_take_the_others_with_it,
                the_same_id_twice_in_a_batch_runs_once,
                every_bad_message_of_a_batch_is_found,
            ]);
            suite!(@ $on, many_set_wise, How::SetWise, batches, [
                c103_one_bad_message_does_not_take_the_others_with_it,
                the_same_id_twice_in_a_batch_runs_once,
                every_bad_message_of_a_batch_is_found,
            ]);
        }
    };
    (@ $on:ident, $way:ident, $how:expr, $of:ident, [$($test:ident),* $(,)?]) => {
        mod $way {
            use super::*;

            $(
                #[tokio::test]
                async fn $test() {
                    $of::$test::<$on>($how).await;
                }
            )*
        }
    };
}

suite!(OnPostgres, on_postgres);
suite!(OnMariadb, on_mariadb);
suite!(OnSqlite, on_sqlite);
