//! Where a record is: its names in the server, and the bucket that holds them.
//!
//! 1. A record, its history and the three sorted sets that lead to it have names with one hash tag, so that they lie in
//!    one slot and one script may touch them all: `{semel:17}:r:…`.
//! 2. The tag names a bucket, not the record: what is open, due or listed is looked up in a sorted set, and a set and
//!    its records must share a slot. A cluster has [`CLUSTER_BUCKETS`] buckets; a single server, which has no slots, has
//!    one.
//! 3. The bucket follows from the key alone, so that a key is looked for in one bucket whatever its scopes.
//! 4. An id is the key, NUL and the scope; neither holds a control character. As bytes, ids are in the order of keys and
//!    then of scopes.

use std::sync::Arc;

use semel::{Key, Scope, StoreError};

/// So many places in a cluster. A node has some of them, so up to some tens of nodes are loaded evenly; what is listed
/// or swept asks each of them once. Part of the layout: another number is another store.
pub(super) const CLUSTER_BUCKETS: u32 = 128;

/// The names of everything under one prefix.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    prefix: String,
    /// Open, due and index of each bucket.
    sets: Vec<Arc<[Vec<u8>; 3]>>,
}

/// One bucket's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket(pub(super) u32);

impl Layout {
    pub(super) fn new(prefix: &str, is_cluster: bool) -> Layout {
        let buckets = if is_cluster { CLUSTER_BUCKETS } else { 1 };
        let mut layout = Layout { prefix: prefix.to_owned(), sets: Vec::new() };
        let sets = |bucket| Arc::new(["open", "due", "index"].map(|set| layout.name(bucket, set, b"")));
        layout.sets = (0..buckets).map(|number| sets(Bucket(number))).collect();
        layout
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> + use<> {
        (0..self.count()).map(Bucket)
    }

    pub(super) fn bucket(&self, key: &Key) -> Bucket {
        Bucket(u32::try_from(hash(key.as_str()) % u64::from(self.count())).unwrap_or_default())
    }

    /// What the verbs of a bucket share: open, due, index.
    pub(super) fn sets(&self, Bucket(number): Bucket) -> &Arc<[Vec<u8>; 3]> {
        &self.sets[number as usize]
    }

    /// A record's own: itself and its history.
    pub(super) fn own(&self, bucket: Bucket, id: &[u8]) -> [Vec<u8>; 2] {
        [self.record(bucket, id), self.history(bucket, id)]
    }

    pub(super) fn record(&self, bucket: Bucket, id: &[u8]) -> Vec<u8> {
        self.name(bucket, "r:", id)
    }

    pub(super) fn history(&self, bucket: Bucket, id: &[u8]) -> Vec<u8> {
        self.name(bucket, "h:", id)
    }

    /// What is open, by the time from which it waits.
    pub(super) fn open(&self, bucket: Bucket) -> Vec<u8> {
        self.sets(bucket)[0].clone()
    }

    /// What a sweep has to do with, by the time of that.
    pub(super) fn due(&self, bucket: Bucket) -> Vec<u8> {
        self.sets(bucket)[1].clone()
    }

    /// Every record, by its id.
    pub(super) fn index(&self, bucket: Bucket) -> Vec<u8> {
        self.sets(bucket)[2].clone()
    }

    /// What a probe may write on.
    pub(super) fn probe(&self, bucket: Bucket) -> [Vec<u8>; 3] {
        ["text", "set", "list"].map(|kind| self.name(bucket, "probe:", kind.as_bytes()))
    }

    fn count(&self) -> u32 {
        u32::try_from(self.sets.len()).unwrap_or(1)
    }

    fn name(&self, Bucket(number): Bucket, kind: &str, id: &[u8]) -> Vec<u8> {
        let mut name = format!("{{{}:{number}}}:{kind}", self.prefix).into_bytes();
        name.extend_from_slice(id);
        name
    }
}

pub(super) fn id(scope: &Scope, key: &Key) -> Vec<u8> {
    [key.as_str(), "\0", scope.as_str()].concat().into_bytes()
}

/// The key and the scope of an id.
pub(super) fn parse_id(id: &[u8]) -> Result<(Scope, Key), StoreError> {
    let parts = std::str::from_utf8(id).ok().and_then(|id| id.split_once('\0'));
    parts
        .and_then(|(key, scope)| Some((Scope::new(scope).ok()?, Key::new(key).ok()?)))
        .ok_or_else(|| StoreError::Corrupt("an id in an index is none of Semel's".into()))
}

/// FNV-1a with 64 bits: the same for ever, on every machine.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn all_names_of_a_record_have_one_hash_tag() {
        let layout = Layout::new("semel", true);
        let scope = Scope::new("a{b}").unwrap();
        for text in ["k", "}", "{", "{}", "{x}"] {
            let (bucket, id) = (layout.bucket(&key(text)), id(&scope, &key(text)));
            let tags: Vec<_> = layout
                .own(bucket, &id)
                .iter()
                .chain(layout.sets(bucket).iter())
                .map(|name| name.split(|byte| *byte == b'}').next().unwrap().to_vec())
                .collect();
            assert!(tags.iter().all(|tag| *tag == tags[0] && tag.starts_with(b"{semel:")), "{text}");
        }
    }

    #[test]
    fn a_bucket_is_the_same_for_ever() {
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c, "of FNV's own test vectors");
        let layout = Layout::new("semel", true);
        assert_eq!(layout.bucket(&key("order-77")), layout.bucket(&key("order-77")));
        let mut counts = vec![0; CLUSTER_BUCKETS as usize];
        for number in 0..12_800 {
            counts[layout.bucket(&key(&format!("order-{number}"))).0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
        assert_eq!(Layout::new("semel", false).buckets().count(), 1);
    }

    #[test]
    fn an_id_is_read_back() {
        let scope = Scope::new("s").unwrap();
        assert_eq!(parse_id(&id(&scope, &key("k"))).unwrap(), (scope, key("k")));
        assert!(parse_id(b"nothing").is_err());
    }
}
