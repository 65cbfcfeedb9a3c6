//! The scripts, as files, and calls of them.

use std::sync::{Arc, LazyLock};

/// A script, and the hash under which a server that has seen it knows it.
#[derive(Debug)]
pub(super) struct Script {
    body: String,
    hash: String,
}

/// With its flags before it. Without flags a script runs in the older manner: where the server is full or its disk is,
/// it runs up to its first write, so a replay is still answered. `allow-oom`: also where it is full. `no-writes`: a
/// reader.
macro_rules! script {
    ($name:ident, $file:literal $(, $flags:literal)?) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                $("#!lua flags=", $flags, "\n",)?
                include_str!("record.lua"),
                include_str!($file),
            ))
        });
    };
}

script!(CLAIM, "claim.lua");
// What runs already may end, and a sweep may make room: a full server takes no new claims, and that bounds it.
script!(RENEW, "renew.lua", "allow-oom");
script!(SETTLE, "settle.lua", "allow-oom");
script!(SWEEP, "sweep.lua", "allow-oom");
script!(APPEND, "append.lua");
script!(READ, "read.lua", "no-writes");
script!(RIPE, "ripe.lua", "no-writes");
script!(HISTORY, "history.lua", "no-writes");
script!(PROBE, "probe.lua", "allow-oom");

impl Script {
    fn new(body: &str) -> Script {
        Script { body: body.to_owned(), hash: redis::Script::new(body).get_hash().to_owned() }
    }

    /// A call of it.
    pub(super) fn call(&'static self) -> Call {
        Call { script: self, sets: None, keys: Vec::new(), arguments: Vec::new() }
    }
}

/// A script with what it is given.
#[derive(Debug, Clone)]
pub(super) struct Call {
    script: &'static Script,
    /// Those keys that all calls of its bucket have: they stand before the others.
    sets: Option<Arc<[Vec<u8>; 3]>>,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

/// Calls that are [alike](Call::is_like), by the script's hash: some bytes in place of thousands.
pub(super) fn by_hash(calls: &[&Call]) -> redis::Cmd {
    command(calls, "EVALSHA", |script| &script.hash)
}

/// The same in full, by which the server also learns it.
pub(super) fn in_full(calls: &[&Call]) -> redis::Cmd {
    command(calls, "EVAL", |script| &script.body)
}

/// The sets once, then the keys of each, then the arguments of each.
fn command(calls: &[&Call], name: &str, named: impl Fn(&Script) -> &str) -> redis::Cmd {
    let mut command = redis::cmd(name);
    let Some(first) = calls.first() else { return command };
    let sets = first.sets.as_deref().map_or(&[][..], |sets| &sets[..]);
    let keys = sets.len() + calls.iter().map(|call| call.keys.len()).sum::<usize>();
    command.arg(named(first.script)).arg(keys).arg(sets);
    calls.iter().for_each(|call| {
        command.arg(&call.keys[..]);
    });
    calls.iter().for_each(|call| {
        command.arg(&call.arguments[..]);
    });
    command
}

impl Call {
    pub(super) fn sets(mut self, sets: &Arc<[Vec<u8>; 3]>) -> Call {
        self.sets = Some(Arc::clone(sets));
        self
    }

    pub(super) fn keys(mut self, names: impl IntoIterator<Item = Vec<u8>>) -> Call {
        self.keys.extend(names);
        self
    }

    pub(super) fn bytes(mut self, argument: impl Into<Vec<u8>>) -> Call {
        self.arguments.push(argument.into());
        self
    }

    pub(super) fn number(self, argument: impl Into<u64>) -> Call {
        self.bytes(argument.into().to_string())
    }

    pub(super) fn nothing(self, times: usize) -> Call {
        (0..times).fold(self, |call, _| call.bytes(&[][..]))
    }

    pub(super) fn flag(self, argument: bool) -> Call {
        self.number(argument)
    }

    /// What may be missing: behind a `+`, so that nothing is not an empty text.
    pub(super) fn maybe(self, argument: Option<&[u8]>) -> Call {
        self.bytes(argument.map_or(Vec::new(), |argument| [b"+", argument].concat()))
    }

    /// Whether one command can make both.
    pub(super) fn is_like(&self, other: &Call) -> bool {
        std::ptr::eq(self.script, other.script) && self.sets == other.sets
    }

    /// About how many bytes it adds to a command.
    pub(super) fn bytes_len(&self) -> usize {
        self.keys.iter().chain(&self.arguments).map(Vec::len).sum()
    }
}
