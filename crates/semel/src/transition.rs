//! Operations that need no key table: an optimistic version, and a state machine (X5). Data and pure rules.
//!
//! A change that says from where to where it goes can be repeated without harm: the second time it finds that it is
//! already there. Both helpers read what the database holds and say what that means. The database makes the step
//! atomic, in one of two ways:
//!
//! - **under a row lock**: `SELECT … FOR UPDATE` reads, the guard decides, `UPDATE` writes, in one transaction. The
//!   row cannot change in between.
//! - **compare and set**: `UPDATE … WHERE id = $1 AND version = $2` (or `AND state = ANY($2)`) writes, and only where
//!   it wrote no row is the row read and asked about. What was read may have changed by then, so the answer
//!   explains; it never decides that something runs.
//!
//! 1. **Already there is not refused.** A retry finds the state that its first try reached, and is told so. The
//!    caller answers as it did the first time.
//! 2. **Who brought it there matters where others can too.** [`Versioned::of`] compares the operation's key with the
//!    one that the row was last changed by: the same version reached by another operation is a conflict.
//! 3. **A version counts up by one** with every change, and never comes back. A time stamp or a hash does not do: two
//!    changes may share one.
//!
//! An upsert of a whole value (`INSERT … ON CONFLICT (id) DO UPDATE SET value = excluded.value`) needs neither, unless
//! two of them may overtake each other: then give it a version.

/// What an optimistic write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Versioned {
    /// The row was as expected: write it, or, under compare and set, it was written.
    Applied,
    /// This very operation has already been applied.
    AlreadyApplied,
    /// Somebody else came first: read anew, and decide anew.
    Conflict {
        /// The version that is there.
        found: u64,
    },
    /// There is no such row.
    Absent,
}

impl Versioned {
    /// What it means that the row has this version, and was last changed by that operation. `found` is `None` where
    /// there is no row.
    #[must_use]
    pub fn of<K: PartialEq + ?Sized>(
        expected: u64,
        operation: &K,
        found: Option<(u64, Option<&K>)>,
    ) -> Versioned {
        match found {
            None => Versioned::Absent,
            Some((version, _)) if version == expected => Versioned::Applied,
            Some((version, Some(by))) if version == expected.wrapping_add(1) && by == operation => {
                Versioned::AlreadyApplied
            }
            Some((found, _)) => Versioned::Conflict { found },
        }
    }
}

/// The legal moves of a state machine.
#[derive(Debug, Clone, Copy)]
pub struct Machine<S: 'static> {
    moves: &'static [(S, S)],
}

/// What a move came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moved<S> {
    /// It is legal from here: write it, or, under compare and set, it was written.
    Applied,
    /// It is there already: answer as the first time.
    AlreadyThere,
    /// There is no such move from where it is.
    Refused {
        /// Where it is.
        found: S,
    },
    /// There is no such row.
    Absent,
}

impl<S: Copy + PartialEq> Machine<S> {
    /// A machine with these moves, each from the first to the second.
    #[must_use]
    pub const fn new(moves: &'static [(S, S)]) -> Machine<S> {
        Machine { moves }
    }

    /// What it means to move there from what was found. To where it is already is no move, unless the machine has one
    /// from a state to itself.
    #[must_use]
    pub fn guard(&self, found: Option<S>, to: S) -> Moved<S> {
        match found {
            None => Moved::Absent,
            Some(found) if self.moves.contains(&(found, to)) => Moved::Applied,
            Some(found) if found == to => Moved::AlreadyThere,
            Some(found) => Moved::Refused { found },
        }
    }

    /// The states from which there is a move there: what compare and set names in its `WHERE`.
    pub fn sources(&self, to: S) -> impl Iterator<Item = S> + use<S> {
        self.moves.iter().filter(move |(_, target)| *target == to).map(|(source, _)| *source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Order {
        New,
        Paid,
        Sent,
        Cancelled,
    }

    const ORDER: Machine<Order> = Machine::new(&[
        (Order::New, Order::Paid),
        (Order::Paid, Order::Sent),
        (Order::New, Order::Cancelled),
        (Order::Paid, Order::Cancelled),
    ]);

    #[test]
    fn x5_a_version_is_applied_once_and_a_retry_is_told_so() {
        let of = |found| Versioned::of(4, "key-1", found);
        assert_eq!(of(Some((4, Some("key-0")))), Versioned::Applied);
        assert_eq!(of(Some((5, Some("key-1")))), Versioned::AlreadyApplied);
        assert_eq!(of(None), Versioned::Absent);
    }

    #[test]
    fn x5_the_same_version_by_another_operation_is_a_conflict() {
        let of = |found| Versioned::of(4, "key-1", found);
        assert_eq!(of(Some((5, Some("key-2")))), Versioned::Conflict { found: 5 });
        assert_eq!(of(Some((5, None))), Versioned::Conflict { found: 5 });
        assert_eq!(of(Some((6, Some("key-1")))), Versioned::Conflict { found: 6 }, "another came on top");
        assert_eq!(of(Some((3, None))), Versioned::Conflict { found: 3 });
        let first = Versioned::of(u64::MAX, "key-1", Some((0, Some("key-1"))));
        assert_eq!(first, Versioned::AlreadyApplied, "the last version is followed by the first");
    }

    #[test]
    fn x5_a_move_is_applied_already_there_or_refused() {
        assert_eq!(ORDER.guard(Some(Order::New), Order::Paid), Moved::Applied);
        assert_eq!(ORDER.guard(Some(Order::Paid), Order::Paid), Moved::AlreadyThere);
        assert_eq!(ORDER.guard(Some(Order::Sent), Order::Cancelled), Moved::Refused { found: Order::Sent });
        assert_eq!(ORDER.guard(None, Order::Paid), Moved::Absent);
    }

    #[test]
    fn x5_compare_and_set_names_every_source_and_no_other() {
        assert_eq!(ORDER.sources(Order::Cancelled).collect::<Vec<_>>(), [Order::New, Order::Paid]);
        assert_eq!(ORDER.sources(Order::New).count(), 0);
        for to in [Order::New, Order::Paid, Order::Sent, Order::Cancelled] {
            for from in [Order::New, Order::Paid, Order::Sent, Order::Cancelled] {
                let is_source = ORDER.sources(to).any(|source| source == from);
                assert_eq!(is_source, ORDER.guard(Some(from), to) == Moved::Applied);
            }
        }
    }
}
