//! What a consumer holds: the turns that go on, and what waits for its lane.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::keep::Kept;
use super::lanes::Lanes;
use super::shared::Shared;
use super::turn::Turn;
use crate::observe::Result as Counted;
use crate::source::Delivery;

type Lane = Arc<str>;

/// Everything received and not settled.
pub(super) struct Held {
    shared: Arc<Shared>,
    held_max: usize,
    lanes: Lanes<Waiting, Lane>,
    turns: JoinSet<()>,
    /// The lane of each turn.
    of: HashMap<Id, Option<Lane>>,
}

struct Waiting {
    delivery: Delivery,
    since: Instant,
    kept: Kept,
}

impl Held {
    pub(super) fn new(shared: Arc<Shared>, held_max: u32) -> Held {
        let (lanes, turns, of) = (Lanes::new(), JoinSet::new(), HashMap::new());
        Held { shared, held_max: held_max as usize, lanes, turns, of }
    }

    pub(super) fn has_place(&self) -> bool {
        self.turns.len() + self.lanes.waiting() < self.held_max
    }

    pub(super) fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Begins the delivery's turn, or lets it wait for its lane.
    pub(super) fn accept(&mut self, delivery: Delivery) {
        if delivery.redelivered {
            self.shared.meters.redelivered();
        }
        let lane = self.shared.lane.as_ref().and_then(|lane| lane.of(&delivery.message)).map(Lane::from);
        let waiting = Waiting { kept: Kept::new(&delivery), delivery, since: Instant::now() };
        if let Some(first) = self.lanes.enter(lane.as_ref(), waiting) {
            self.begin(lane, first);
        }
        self.show();
    }

    /// Waits until a turn has ended, and begins the next of its lane.
    pub(super) async fn one_ends(&mut self) {
        let Some(ended) = self.turns.join_next_with_id().await else { return };
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                // A fault of this crate: the message is not settled, and comes again with the next connection.
                tracing::error!(consumer = %self.shared.name, %error, "a turn broke");
                error.id()
            }
        };
        let lane = self.of.remove(&id).flatten();
        if let Some(next) = self.lanes.leave(lane.as_ref()) {
            self.begin(lane, next);
        }
        self.show();
    }

    /// Waits until there is none left.
    pub(super) async fn all_end(&mut self) {
        while self.has_turns() {
            self.one_ends().await;
        }
    }

    /// Lets go of what has not begun.
    pub(super) fn let_go(&mut self) {
        for _ in self.lanes.clear() {
            self.shared.meters.ended(Counted::Left);
        }
    }

    fn begin(&mut self, lane: Option<Lane>, first: Waiting) {
        let Waiting { delivery, since, kept } = first;
        self.shared.meters.waited(since.elapsed());
        let turn = Turn::new(self.shared.clone(), delivery, lane.is_some());
        let turn = self.turns.spawn(async move {
            turn.take().await;
            drop(kept);
        });
        self.of.insert(turn.id(), lane);
    }

    fn show(&self) {
        let waiting = self.lanes.waiting();
        self.shared.meters.holds(self.turns.len() + waiting, waiting);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.meters.holds(0, 0);
    }
}
