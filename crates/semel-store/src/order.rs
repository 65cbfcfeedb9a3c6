//! The order in which several claims of one transaction are made: by their keys, whatever order they are asked in, so
//! that two transactions which share keys wait for one another and not in a circle.

use semel::{Claim, ClaimRequest};

/// Where the requests stand, in the order of their keys.
pub(crate) fn by_key(requests: &[ClaimRequest]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|at| (requests[*at].key.as_str(), requests[*at].scope.as_str()));
    order
}

/// The answers as they were asked for, of those that know where their request stands.
pub(crate) fn as_asked(mut claims: Vec<(usize, Claim)>) -> Vec<Claim> {
    claims.sort_by_key(|(at, _)| *at);
    claims.into_iter().map(|(_, claim)| claim).collect()
}
