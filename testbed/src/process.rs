//! One running server: how it is started so that it cannot outlive this process, and the signals it gets.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A child process. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a command that [`command_as`](crate::program::command_as) made; `end` is the signal that the kernel
    /// sends it when this process is gone. What it says goes to `log`.
    pub(crate) fn start(command: &Command, end: &str, log: File) -> std::io::Result<Process> {
        let mut started = Command::new(command.get_program());
        started.arg(format!("--pdeathsig={end}")).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => started.env(name, value),
                None => started.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            started.current_dir(folder);
        }
        started.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Process { child: spawn(started)? })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// Sends a signal to it and to its children: a server of several processes pauses and dies as a whole.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        for child in children(self.id()) {
            send(child, signal);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.id(), signal);
    }

    /// Ends it with a signal, and waits.
    ///
    /// # Panics
    ///
    /// When it does not end in time.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        let started = Instant::now();
        while self.ended().is_none() {
            if started.elapsed() > crate::DEADLINE {
                self.signal_all(Signal::KILL);
                panic!("process {} did not end at {signal:?}", self.id());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// As when the machine loses its power, but for the disk's cache. Its children get the signal while it is
    /// stopped, so that it can neither replace nor mourn them.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::STOP);
        let children = children(self.id());
        for child in &children {
            send(*child, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let started = Instant::now();
        while children.iter().any(|child| alive(*child)) && started.elapsed() < crate::DEADLINE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| state(*id).is_some_and(|(_, of)| of == parent)).collect()
}

fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|(state, _)| state != 'Z')
}

/// The state of a process and its parent. The name before them may hold spaces and brackets, so from its end.
fn state(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

type Order = (Command, Sender<std::io::Result<Child>>);

/// From a thread that lasts as long as the process: the kernel's signal is sent when the *thread* that started a
/// child ends, and the threads of tests end before those that share their server.
fn spawn(command: Command) -> std::io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        let serve = move || {
            for (mut command, answer) in orders {
                let _ = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("testbed-spawner".to_owned()).spawn(serve).expect("a thread");
        Mutex::new(sender)
    });
    let (answer, started) = channel();
    let order = (command, answer);
    spawner.lock().expect("not poisoned").send(order).expect("the spawner lives");
    started.recv().expect("the spawner answers")
}
