//! Opening: what is there, what is not, what belongs to somebody else; and migrating.

use rusqlite::Connection;
use semel_store::{Migrate, connect, migrations};

use super::child::{Process, command};
use super::*;

fn schema(place: &Place) -> std::sync::Arc<dyn Migrate> {
    migrations(&format!("sqlite://{}", place.file().display())).expect("a schema")
}

#[tokio::test]
async fn a_missing_file_is_not_made_unless_told() {
    let place = Place::new();
    let url = format!("sqlite://{}", place.file().display());
    let absent = connect(&url, &Options::default()).await.expect_err("there is none");
    assert!(matches!(absent, ConnectError::Absent { .. }), "{absent}");
    assert!(
        absent.to_string().contains("semel.db") && absent.to_string().contains("semel migrate"),
        "{absent}"
    );
    assert_eq!(schema(&place).pending().await.expect("everything").len(), 3);
    assert!(!place.file().exists());

    let made = connect(&url, &Options { migrate: true, ..Options::default() }).await.expect("it is made");
    assert!(!made.shared, "a file protects one machine");
    complete(made.store.as_ref(), "k", 1).await;
    assert_eq!(made.inspect.find_key(&sample::key("k"), 10).await.expect("a list").len(), 1);
    drop(made);
    assert_eq!(schema(&place).pending().await.expect("nothing"), []);
    open_as_it_is(&place.file()).expect("it is there now");
}

#[cfg(unix)]
#[test]
fn a_new_file_and_its_companions_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let _store = place.store();
    let files = std::fs::read_dir(place.0.path()).expect("files").map(|file| file.expect("a file").path());
    let modes: Vec<_> =
        files.map(|file| file.metadata().expect("a file").permissions().mode() & 0o777).collect();
    assert_eq!(modes, [0o600; 3], "the file, its WAL and its shared memory");
}

#[tokio::test]
async fn an_empty_file_has_its_schema_pending() {
    let place = Place::new();
    std::fs::write(place.file(), "").expect("a file");
    let behind = open_as_it_is(&place.file()).expect_err("it has no schema");
    let ConnectError::Behind { pending, .. } = &behind else { panic!("{behind}") };
    assert_eq!(pending.len(), 3);
    assert_eq!(schema(&place).migrate().await.expect("it migrates"), *pending);
    assert_eq!(schema(&place).migrate().await.expect("nothing is left"), []);
    open_as_it_is(&place.file()).expect("it has its schema");
}

#[test]
fn what_cannot_be_a_store_is_said_by_its_name() {
    let place = Place::new();
    let directory = place.0.path();
    let missing = directory.join("missing").join("semel.db");
    for (path, wants) in [(directory, "directory"), (missing.as_path(), "o such file or directory")] {
        for error in [open(path), open_as_it_is(path)].map(|opened| opened.expect_err("no store")) {
            let text = error.to_string();
            assert!(text.contains(&path.display().to_string()), "{text}");
            assert!(text.contains(wants) || matches!(error, ConnectError::Absent { .. }), "{text}");
        }
    }
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let place = Place::new();
    drop(place.store());
    Connection::open(place.file()).expect("a file").pragma_update(None, "user_version", 7).expect("a number");
    for opened in [open(&place.file()), open_as_it_is(&place.file())] {
        let newer = opened.expect_err("it is newer");
        assert!(matches!(newer, ConnectError::Newer { found: 7, known: 3, .. }), "{newer}");
        assert!(newer.to_string().contains("use a newer program"), "{newer}");
    }
}

#[test]
fn another_programs_database_is_refused_and_not_touched() {
    for sql in ["CREATE TABLE theirs (x)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"] {
        let place = Place::new();
        Connection::open(place.file())
            .expect("a file")
            .execute_batch(&format!("{sql}; VACUUM"))
            .expect("a database");
        let before = std::fs::read(place.file()).expect("bytes");
        for opened in [open(&place.file()), open_as_it_is(&place.file())] {
            assert!(matches!(opened, Err(ConnectError::Foreign { .. })), "{sql}: {opened:?}");
        }
        assert_eq!(std::fs::read(place.file()).expect("bytes"), before, "{sql}");
    }
}

/// The printed text, run by hand, makes what `migrate` makes.
#[test]
fn the_printed_schema_is_the_schema() {
    let place = Place::new();
    let by_hand = Connection::open(place.file()).expect("a file");
    by_hand.execute_batch(&schema(&place).print()).expect("it runs");
    let objects = |connection: &Connection| -> Vec<(String, Option<String>)> {
        let mut all =
            connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").expect("a statement");
        all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("rows")
            .map(|row| row.expect("a row"))
            .collect()
    };
    let migrated = Place::new();
    drop(migrated.store());
    let migrated = Connection::open(migrated.file()).expect("a file");
    assert_eq!(objects(&by_hand), objects(&migrated));
    assert!(objects(&by_hand).len() >= 6);
    open_as_it_is(&place.file()).expect("it is up to date");
}

/// Three processes and three threads of this one: one of them applies it, the others find nothing left.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn migrating_at_the_same_time_applies_each_step_once() {
    let place = Place::new();
    let mut processes: Vec<_> = (0..3).map(|_| Process::start(command("migrate", &place.file()))).collect();
    for process in &mut processes {
        assert_eq!(process.says().as_deref(), Some("ready"));
    }
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let schema = schema(&place);
            tokio::spawn(async move { schema.migrate().await.expect("it migrates").len() })
        })
        .collect();
    processes.iter_mut().for_each(Process::go);
    let mut applied = Vec::new();
    for process in &mut processes {
        applied.push(process.says().expect("a number").parse::<usize>().expect("a number"));
    }
    for task in tasks {
        applied.push(task.await.expect("it ends"));
    }
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, 0, 0, 3]);
    processes.into_iter().for_each(Process::ends_well);
}

/// As root nothing is read-only, so another user tries.
#[cfg(unix)]
#[test]
fn a_read_only_file_or_directory_is_said() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    const NOBODY: u32 = 65_534;
    let mode =
        |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    let place = Place::new();
    drop(place.store());
    mode(place.0.path(), 0o755);
    mode(&place.file(), 0o444);
    let opened = || {
        let mut command = command("open", &place.file());
        if std::fs::metadata(place.file()).is_ok_and(|file| std::os::unix::fs::MetadataExt::uid(&file) == 0) {
            command.uid(NOBODY).current_dir("/");
        }
        let mut process = Process::start(command);
        let said = process.says().expect("an error");
        process.ends_well();
        said
    };
    let said = opened();
    assert!(said.contains("semel.db: it is read-only"), "{said}");
    mode(&place.file(), 0o666);
    mode(place.0.path(), 0o555);
    let said = opened();
    assert!(said.contains("semel.db") && said.contains("directory"), "{said}");
    mode(place.0.path(), 0o777);
    assert_eq!(opened(), "opened");
}
