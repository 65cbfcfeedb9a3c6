//! Bad days, on every store that has a server: what was promised holds, and what cannot be done is said.
//!
//! 1. One suite, for each server; [`place`] is all that is different between them.
//! 2. A fault is followed by a look at the store itself, past the fault: what is there decides.
//! 3. Time is real and short. `SEMEL_LONG=1` keeps the primary away for the 30 seconds.

mod child;
mod disk;
mod lost;
mod opening;
mod outage;
mod place;
mod processes;

/// The suite on one kind of server.
macro_rules! bad_days {
    ($module:ident, $kind:expr) => {
        mod $module {
            use semel_testbed::Kind;

            use crate::{disk, lost, opening, outage, processes};

            bad_days! { @tests $kind;
                lost::the_answer_of_a_claim_is_lost_and_the_repetition_gets_the_same_lease,
                lost::the_answer_of_a_settlement_is_lost_and_the_repetition_succeeds,
                lost::the_answer_of_a_renewal_is_lost_and_the_repetition_succeeds,
                lost::a_call_that_did_not_arrive_wrote_nothing,
                lost::answers_are_lost_at_random_and_no_key_has_two_owners,
                outage::k10_while_the_primary_is_gone_nothing_runs_and_nothing_becomes_unknown,
                outage::k10_a_run_that_ends_while_the_primary_is_gone_is_told_and_settled_later,
                outage::k10_a_claim_whose_answer_was_lost_with_the_primary_is_given_back,
                outage::a_server_that_is_killed_and_restarted_under_load_keeps_what_it_acknowledged,
                outage::a_network_that_swallows_everything_is_bounded_and_gets_better,
                outage::a_server_that_stands_still_is_waited_for_and_decides_once,
                outage::a_pool_that_is_exhausted_serves_everybody_in_turn,
                disk::on_a_full_disk_new_claims_fail_and_go_on_when_there_is_room,
                processes::a_process_that_slept_past_its_lease_is_refused_after_a_takeover,
                processes::a_process_that_slept_past_its_lease_is_accepted_without_a_takeover,
                processes::three_processes_that_migrate_at_once_make_one_schema,
                processes::a_clock_that_is_an_hour_off_changes_nothing,
                opening::a_wrong_password_is_said_at_once_and_not_shown,
                opening::an_unreachable_host_is_said_within_the_time,
                opening::a_host_that_takes_connections_and_is_silent_is_said_within_the_time,
                opening::a_server_that_has_no_connection_left_says_so_and_serves_those_that_it_has,
                opening::a_newer_schema_is_refused_and_left_alone,
            }
        }
    };
    (@tests $kind:expr; $($group:ident :: $name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                semel::testing::run($group::$name($kind));
            }
        )*
    };
}

bad_days!(postgres, Kind::Postgres);
bad_days!(mariadb, Kind::Mariadb);
bad_days!(redis, Kind::Redis);
