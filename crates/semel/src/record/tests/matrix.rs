//! Two tables: every state against every claim, and every end of an attempt against every further write.

use super::Life;
use crate::record::Unfit;
use crate::store::{Claim, Fence, Lease, Was};
use crate::testing::sample::{
    self, LEASE, REMEMBER, REPLAY, bury, complete, forcing, park, release, release_for, rerun, run,
    run_at_most, run_for, settling,
};

const KEY: &str = "k";

/// A life whose attempt 1 has brought it into the state, and that attempt's lease.
fn in_state(state: &str) -> (Life, Option<Lease>) {
    let mut life = Life::new();
    if state == "absent" {
        return (life, None);
    }
    let lease = life.acquire(&run(KEY, 1));
    let end = match state {
        "running" | "lapsed" => None,
        "released" => Some(release()),
        "waiting" => Some(release_for(LEASE)),
        "completed" | "forgotten" | "expired" => Some(complete("done")),
        "unknown" | "settling" => Some(park()),
        "dead" => Some(bury()),
        other => panic!("no such state: {other}"),
    };
    if let Some(end) = end {
        life.settle(&lease, &end).unwrap();
    }
    match state {
        "lapsed" => life.wait(LEASE),
        "forgotten" => life.wait(REPLAY),
        "expired" => life.wait(REMEMBER),
        "settling" => drop(life.acquire(&settling(KEY, 9, lease.fence))),
        _ => {}
    }
    (life, Some(lease))
}

fn claimed(state: &str, column: usize) -> (Claim, bool) {
    let (mut life, _) = in_state(state);
    let (seen, before) = (life.fence(), life.record.clone());
    let request = match column {
        0 => run(KEY, 2),
        1 => rerun(KEY, 2),
        2 => run_for(KEY, 2, "other"),
        3 => rerun(KEY, 1),
        4 => run_at_most(KEY, 2, 1),
        5 => settling(KEY, 2, seen),
        6 => forcing(KEY, 2, seen),
        7 => forcing(KEY, 2, Fence(seen.0 + 1)),
        _ => unreachable!("eight columns"),
    };
    let answer = life.claim(&request);
    (answer, life.record != before)
}

#[test]
fn every_claim_in_every_state() {
    //  state        run         rerun       another     attempt 1   the second  settles     by force    another
    //                                       request     again       of one                              fence
    let table = "
        absent       acquired    acquired    acquired    acquired    acquired    moved       moved       moved
        running      in-flight   in-flight   mismatch    acquired    in-flight   moved       acquired    moved
        lapsed       unknown     acquired    mismatch    acquired    dead        acquired    acquired    moved
        released     acquired    acquired    mismatch    in-flight   dead        moved       moved       moved
        waiting      in-flight   in-flight   mismatch    in-flight   in-flight   moved       moved       moved
        completed    completed   completed   mismatch    completed   completed   moved       moved       moved
        forgotten    forgotten   forgotten   mismatch    forgotten   forgotten   moved       moved       moved
        expired      acquired    acquired    acquired    acquired    acquired    moved       moved       moved
        unknown      unknown     acquired    mismatch    unknown     dead        acquired    acquired    moved
        dead         dead        dead        mismatch    dead        dead        acquired    acquired    moved
        settling     in-flight   in-flight   mismatch    in-flight   in-flight   moved       acquired    moved";
    for row in table.trim().lines() {
        let cells: Vec<_> = row.split_whitespace().collect();
        for (column, expected) in cells[1..].iter().enumerate() {
            let (answer, _) = claimed(cells[0], column);
            assert_eq!(sample::name(&answer), *expected, "{}, column {column}", cells[0]);
        }
        assert_eq!(cells.len(), 9, "{row}");
    }
}

#[test]
fn only_a_granted_claim_and_a_death_are_written() {
    let states = "absent running lapsed released waiting completed forgotten expired unknown dead settling";
    for state in states.split_whitespace() {
        for column in 0..8 {
            let (answer, changed) = claimed(state, column);
            let dies = state != "dead" && matches!(answer, Claim::Dead { .. });
            let writes = matches!(answer, Claim::Acquired(_)) && (state, column) != ("running", 3);
            // The holder's own repetition writes its lease anew, which is the same at the same instant.
            assert_eq!(changed, writes || dies, "{state}, column {column}: {answer:?}");
        }
    }
}

#[test]
fn a_lease_says_what_the_record_was() {
    let table = [
        ("absent", 0, Was::New),
        ("expired", 0, Was::New),
        ("released", 0, Was::Released),
        ("lapsed", 1, Was::Lapsed),
        ("unknown", 1, Was::Unknown),
        ("lapsed", 5, Was::Lapsed),
        ("unknown", 5, Was::Unknown),
        ("dead", 5, Was::Dead),
        ("running", 6, Was::Running),
    ];
    for (state, column, was) in table {
        let (answer, _) = claimed(state, column);
        assert_eq!(sample::lease(answer).was, was, "{state}, column {column}");
    }
}

#[test]
fn every_further_write_after_every_end() {
    //  state        complete    otherwise   release     park        bury        renew
    let table = "
        absent       lost        lost        lost        lost        lost        lost
        running      ok          ok          ok          ok          ok          ok
        lapsed       ok          ok          ok          ok          ok          ok
        released     settled     settled     ok          settled     settled     lost
        waiting      settled     settled     ok          settled     settled     lost
        completed    ok          settled     settled     settled     settled     lost
        forgotten    ok          ok          settled     settled     settled     lost
        expired      lost        lost        lost        lost        lost        lost
        unknown      ok          ok          ok          ok          settled     lost
        dead         settled     settled     settled     settled     ok          lost
        settling     lost        lost        lost        lost        lost        lost";
    for row in table.trim().lines() {
        let cells: Vec<_> = row.split_whitespace().collect();
        for (column, expected) in cells[1..].iter().enumerate() {
            assert_eq!(written(cells[0], column), *expected, "{}, column {column}", cells[0]);
        }
        assert_eq!(cells.len(), 7, "{row}");
    }
}

fn written(state: &str, column: usize) -> &'static str {
    let (mut life, lease) = in_state(state);
    let lease = lease.unwrap_or_else(|| Life::new().acquire(&run(KEY, 1)));
    let settlement = match column {
        0 => complete("done"),
        1 => complete("otherwise"),
        2 => release(),
        3 => park(),
        4 => bury(),
        _ => return named(life.renew(&lease, LEASE)),
    };
    named(life.settle(&lease, &settlement))
}

fn named(result: Result<(), Unfit>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(Unfit::LeaseLost) => "lost",
        Err(Unfit::Settled) => "settled",
    }
}
