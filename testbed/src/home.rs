//! The folder of one server, and its keeper.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::program::{self, User};

/// Reads process ids, until the test process is gone or has no more use for the server. Then it ends the last one
/// that was named, if that still is the server of this folder, and removes the folder. `CONT`, because what is
/// stopped ends at no other signal than KILL; KILL only in the end, because PostgreSQL would leave memory behind.
const KEEPER: &str = r#"
home=$1 end=$2 last=
while read -r pid; do last=$pid; done
ours() { [ -n "$last" ] && grep -qs -- "$home" "/proc/$last/cmdline"; }
ours && kill -s "$end" "$last" && kill -s CONT "$last"
tries=0
while ours && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
ours && kill -s KILL "$last"
tries=0
while ! rm -rf "$home" && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
"#;

/// A folder that is gone when the test process is.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    keeper: Child,
    pids: Option<ChildStdin>,
}

impl Home {
    /// Makes it, for the user, inside a folder or the system's own for temporary files. `end` is the signal that ends
    /// the server.
    pub(crate) fn new(server: &str, user: Option<User>, inside: Option<&Path>, end: &str) -> Home {
        let inside = inside.map_or_else(std::env::temp_dir, Path::to_owned);
        let prefix = format!("semel-{}-", server.to_lowercase());
        let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(inside).expect("a temporary folder");
        let path = made.keep();
        if let Some((uid, gid)) = user.and_then(program::ids) {
            chown(&path, Some(uid), Some(gid)).expect("the folder goes to the server's user");
        }
        // A process group of its own: a Ctrl-C in the terminal must not end the keeper first.
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .args([path.as_os_str(), end.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh");
        let pids = keeper.stdin.take();
        Home { path, keeper, pids }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file that the server's user may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.join(name);
        std::fs::write(&file, text).expect("a file of the server");
        file
    }

    /// Where the server's output goes.
    pub(crate) fn log(&self) -> File {
        File::options().create(true).append(true).open(self.join("log")).expect("the server's log")
    }

    /// The end of what the server said.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read(self.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(3000)..]).into_owned()
    }

    /// Names the process that must not outlive this one.
    pub(crate) fn keep(&mut self, pid: u32) {
        if let Some(pids) = &mut self.pids {
            writeln!(pids, "{pid}").expect("the keeper listens");
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.pids = None;
        let _ = self.keeper.wait();
    }
}

/// A file system of a few megabytes, for what happens when a disk is full. Unmounted when it is dropped.
///
/// Declare it before the server that lives on it: what is declared last is dropped first.
#[derive(Debug)]
pub struct SmallDisk {
    home: Home,
}

impl SmallDisk {
    /// Mounts it.
    ///
    /// # Panics
    ///
    /// When this process may not mount: the test needs root.
    pub async fn of_megabytes(size: u32) -> SmallDisk {
        crate::blocking(move || {
            let home = Home::new("disk", None, None, "KILL");
            let mut mount = Command::new(program::find("mount", "mount"));
            mount
                .args(["-t", "tmpfs", "-o", &format!("size={size}m,mode=1777"), "semel-test"])
                .arg(home.path());
            let output = program::output(&mut mount);
            assert!(
                output.status.success(),
                "a small disk could not be mounted ({}): run this test as root",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            SmallDisk { home }
        })
        .await
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// Fills it to the last byte with a file, until the file is removed.
    pub async fn fill(&self) -> Filler {
        let path = self.home.join("filler");
        crate::blocking(move || {
            let mut file = File::create(&path).expect("a file on the small disk");
            let block = [0_u8; 4096];
            while file.write_all(&block).is_ok() {}
            Filler { path }
        })
        .await
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that still dies there does not hold it.
        let _ = Command::new("umount").arg("-l").arg(self.home.path()).status();
    }
}

/// What fills a [`SmallDisk`]. Room is made when it is dropped.
#[derive(Debug)]
pub struct Filler {
    path: PathBuf,
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
