//! The programs of Debian's packages: where they are, and as whom they run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A user whose id a server runs under.
pub(crate) type User = &'static str;

/// Where a program is.
///
/// # Panics
///
/// When it is nowhere: names the package that has it.
pub(crate) fn find(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = [postgres_folder(), Some("/usr/lib/rabbitmq/bin".into()), Some("/usr/sbin".into())];
    known
        .into_iter()
        .flatten()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!("{name} is missing: install Debian's package {package} (apt-get install {package})")
        })
}

/// Of the newest version that is installed.
fn postgres_folder() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let version = |entry: &Path| entry.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.flatten().map(|entry| entry.path()).max_by_key(|path| version(path))?;
    Some(newest.join("bin"))
}

/// A command that runs as the user, if this process is root and there is such a user: some servers refuse root.
pub(crate) fn command_as(user: Option<User>, program: &Path) -> Command {
    let mut command = Command::new(find("setpriv", "util-linux"));
    if let Some((uid, gid)) = user.and_then(ids) {
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
    }
    command.arg("--").arg(program);
    command.current_dir("/");
    command
}

/// The ids of the user, where this process may take them on.
pub(crate) fn ids(user: User) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields[0] == user);
    let ids = found.and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
    Some(ids.unwrap_or_else(|| panic!("there is no user {user}: the server's package makes it")))
}

/// Runs a command to its end; gives what it printed.
///
/// # Panics
///
/// When it fails: shows what it said.
pub(crate) fn run(command: &mut Command) -> String {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{:?} failed, {}:\n{said}{printed}",
        command.get_program(),
        output.status
    );
    printed.into_owned()
}

pub(crate) fn output(command: &mut Command) -> Output {
    let program = command.get_program().to_owned();
    command.output().unwrap_or_else(|failed| panic!("{program:?} could not be run: {failed}"))
}
