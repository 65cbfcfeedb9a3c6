//! Who may begin: one message of a lane at a time, in the order in which they came; of other lanes nobody waits (M7).
//!
//! A message without a lane waits for nobody. A lane is remembered only while something of it is here.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

/// The lanes of which something is here.
#[derive(Debug)]
pub(super) struct Lanes<T, L = Arc<str>> {
    busy: HashMap<L, VecDeque<T>>,
    waiting: usize,
}

impl<T, L: Eq + Hash + Clone> Lanes<T, L> {
    pub(super) fn new() -> Lanes<T, L> {
        Lanes { busy: HashMap::new(), waiting: 0 }
    }

    /// Comes in. Gives it back if it may begin; otherwise it waits for its lane.
    pub(super) fn enter(&mut self, lane: Option<&L>, item: T) -> Option<T> {
        let Some(lane) = lane else { return Some(item) };
        match self.busy.get_mut(lane) {
            Some(behind) => {
                behind.push_back(item);
                self.waiting += 1;
                None
            }
            None => {
                self.busy.insert(lane.clone(), VecDeque::new());
                Some(item)
            }
        }
    }

    /// One of the lane has ended: the next one that may begin.
    pub(super) fn leave(&mut self, lane: Option<&L>) -> Option<T> {
        let lane = lane?;
        let next = self.busy.get_mut(lane)?.pop_front();
        match &next {
            Some(_) => self.waiting -= 1,
            None => drop(self.busy.remove(lane)),
        }
        next
    }

    /// How many wait for their lane.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Lets go of everything that waits.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.waiting = 0;
        self.busy.values_mut().flat_map(std::mem::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m7_a_message_waits_for_its_own_lane_only() {
        let mut lanes: Lanes<u32, &str> = Lanes::new();
        assert_eq!(lanes.enter(Some(&"a"), 1), Some(1));
        assert_eq!(lanes.enter(Some(&"a"), 2), None);
        assert_eq!(lanes.enter(Some(&"b"), 3), Some(3));
        assert_eq!(lanes.enter(None, 4), Some(4));
        assert_eq!(lanes.enter(Some(&"a"), 5), None);
        assert_eq!(lanes.waiting(), 2);
        assert_eq!(lanes.leave(Some(&"a")), Some(2));
        assert_eq!(lanes.leave(Some(&"a")), Some(5));
        assert_eq!((lanes.leave(Some(&"a")), lanes.leave(None)), (None, None));
        assert_eq!(lanes.enter(Some(&"a"), 6), Some(6), "an empty lane is forgotten");
    }

    #[test]
    fn what_waits_can_be_let_go() {
        let mut lanes: Lanes<u32, &str> = Lanes::new();
        assert_eq!(lanes.enter(Some(&"a"), 1), Some(1));
        assert_eq!(lanes.enter(Some(&"a"), 2), None);
        assert_eq!((lanes.clear(), lanes.waiting()), (vec![2], 0));
        assert_eq!(lanes.leave(Some(&"a")), None);
    }
}
