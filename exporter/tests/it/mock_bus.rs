//! A system bus with a service manager on it, as far as the exporter asks: it answers, fails, hangs
//! and restarts as it is told. Speaks the protocol on a socket of its own.
#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each user needs some")]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread;

use zbus::export::futures_core::Stream;
use zbus::message::{Header, Type};
use zbus::{Connection, Guid, Message, MessageStream, Variant};

const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";

/// What the bus does with a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mood {
    /// Answers.
    #[default]
    Well,
    /// Reads, and never answers. New connections do not get past their first question either.
    Hung,
    /// Answers with this error.
    Fails(&'static str),
    /// Closes the connection at the first question about a unit.
    Closes,
}

/// A unit as the manager shows it.
#[derive(Debug, Clone)]
pub struct Unit {
    /// `ActiveState`.
    pub active: &'static str,
    /// `SubState`.
    pub sub: &'static str,
    /// `Result`.
    pub result: &'static str,
    /// `NRestarts`; `None` for a manager that does not know it.
    pub restarts: Option<u32>,
    /// `MainPID`.
    pub pid: u32,
    /// `ExecMainStatus`.
    pub status: i32,
    /// `ActiveEnterTimestamp`, in microseconds.
    pub entered: u64,
    /// `InactiveExitTimestamp`, in microseconds.
    pub left: u64,
    /// `ControlGroup`.
    pub group: &'static str,
    /// Every byte of `InvocationID`.
    pub invocation: u8,
    /// Whether questions about it are never answered.
    pub hung: bool,
    /// Whether `ActiveState` is a number.
    pub garbled: bool,
}

impl Unit {
    /// One that runs.
    pub fn running(pid: u32, group: &'static str) -> Self {
        Self {
            active: "active",
            sub: "running",
            result: "success",
            restarts: Some(0),
            pid,
            status: 0,
            entered: 1_700_000_000_250_000,
            left: 1_700_000_000_000_000,
            group,
            invocation: 0xab,
            hung: false,
            garbled: false,
        }
    }

    /// One that failed and is not tried again.
    pub fn failed() -> Self {
        Self {
            active: "failed",
            sub: "failed",
            result: "exit-code",
            restarts: Some(5),
            status: 1,
            ..Self::running(0, "")
        }
    }

    fn property(&self, interface: &str, name: &str) -> Option<Variant<'static>> {
        let unit = interface == UNIT;
        let service = interface == SERVICE;
        Some(match name {
            "LoadState" if unit => Variant::from("loaded"),
            "ActiveState" if unit && self.garbled => Variant::from(7_u32),
            "ActiveState" if unit => Variant::from(self.active),
            "SubState" if unit => Variant::from(self.sub),
            "ActiveEnterTimestamp" if unit => Variant::from(self.entered),
            "InactiveExitTimestamp" if unit => Variant::from(self.left),
            "InvocationID" if unit => Variant::from(vec![self.invocation; 16]),
            "Result" if service => Variant::from(self.result),
            "NRestarts" if service => Variant::from(self.restarts?),
            "MainPID" if service => Variant::from(self.pid),
            "ExecMainStatus" if service => Variant::from(self.status),
            "ControlGroup" if service => Variant::from(self.group),
            _ => return None,
        })
    }
}

#[derive(Debug, Default)]
struct Script {
    mood: Mood,
    units: BTreeMap<String, Unit>,
    connections: usize,
    ended: bool,
}

/// A running bus; its socket goes with the value.
#[derive(Debug)]
pub struct Bus {
    script: Arc<Mutex<Script>>,
    path: PathBuf,
}

impl Bus {
    /// One that listens at `path`.
    pub fn start(path: PathBuf) -> Self {
        let listener = UnixListener::bind(&path).expect("the folder is writable");
        let script = Arc::<Mutex<Script>>::default();
        let shared = Arc::clone(&script);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.lock().expect("no test panics while it holds it").ended {
                    return;
                }
                let (stream, shared) = (stream.expect("a connection"), Arc::clone(&shared));
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { script, path }
    }

    /// Value of `DBUS_SYSTEM_BUS_ADDRESS`.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.path.display())
    }

    /// Replaces a unit.
    pub fn set(&self, name: &str, unit: Unit) {
        self.script().units.insert(name.to_owned(), unit);
    }

    /// Changes what it does.
    pub fn mood(&self, mood: Mood) {
        self.script().mood = mood;
    }

    /// Takes its socket away.
    pub fn remove(&self) {
        drop(std::fs::remove_file(&self.path));
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.script().connections
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().expect("no test panics while it holds it")
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.script().ended = true;
        drop(UnixStream::connect(&self.path));
        drop(std::fs::remove_file(&self.path));
    }
}

/// One connection, to its end.
fn serve(stream: UnixStream, script: &Mutex<Script>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async move {
        let server = zbus::connection::Builder::unix_stream(stream).server(Guid::generate()).p2p();
        // Whoever gives up while it says hello is gone.
        let Ok(mut messages) = server.build_message_stream().await else { return };
        let connection = Connection::from(&messages);
        while let Some(message) = next(&mut messages).await {
            if message.message_type() == Type::MethodCall {
                let open = answer(&connection, &message, script).await;
                if !open {
                    drop(connection.close().await);
                    return;
                }
            }
        }
    });
}

async fn next(messages: &mut MessageStream) -> Option<Message> {
    poll_fn(|context| Pin::new(&mut *messages).poll_next(context)).await?.ok()
}

/// Answers, or not; false to close the connection.
async fn answer(connection: &Connection, message: &Message, script: &Mutex<Script>) -> bool {
    let call = message.header();
    let (mood, is_hello) = {
        let mut script = script.lock().expect("no test panics while it holds it");
        let is_hello = call.member().is_some_and(|member| member == "Hello");
        script.connections += usize::from(is_hello);
        (script.mood.clone(), is_hello)
    };
    match mood {
        Mood::Hung => {}
        _ if is_hello => drop(connection.reply(&call, &(":1.1",)).await),
        Mood::Closes => return false,
        Mood::Fails(name) => drop(connection.reply_error(&call, name, &("as told",)).await),
        Mood::Well => property(connection, message, &call, script).await,
    }
    true
}

async fn property(
    connection: &Connection,
    message: &Message,
    call: &Header<'_>,
    script: &Mutex<Script>,
) {
    let body = message.body();
    let asked: zbus::Result<(String, String)> = body.deserialize();
    let path = call.path().map(ToString::to_string).unwrap_or_default();
    let name = unit_of(&path);
    let known = script.lock().expect("no test panics while it holds it").units.get(&name).cloned();
    let fault = |name: &'static str| connection.reply_error(call, name, &("no such thing",));
    let (Ok((interface, property)), true) = (asked, call.member().is_some_and(|m| m == "Get"))
    else {
        drop(fault("org.freedesktop.DBus.Error.UnknownMethod").await);
        return;
    };
    let found = match &known {
        Some(unit) if unit.hung => return,
        Some(unit) => unit.property(&interface, &property),
        // A manager makes up an object for any unit that it does not have.
        None => match property.as_str() {
            "LoadState" => Some(Variant::from("not-found")),
            "ActiveState" => Some(Variant::from("inactive")),
            "SubState" => Some(Variant::from("dead")),
            "ActiveEnterTimestamp" | "InactiveExitTimestamp" => Some(Variant::from(0_u64)),
            _ => None,
        },
    };
    match found {
        Some(value) => drop(connection.reply(call, &value).await),
        None => drop(fault("org.freedesktop.DBus.Error.UnknownProperty").await),
    }
}

/// The unit that an object stands for.
fn unit_of(path: &str) -> String {
    let name = path.strip_prefix("/org/freedesktop/systemd1/unit/").unwrap_or_default();
    let (mut unit, mut rest) = (String::new(), name);
    while let Some(c) = rest.chars().next() {
        if c == '_' {
            let code = u8::from_str_radix(&rest[1..3], 16).expect("two hexadecimal digits");
            unit.push(char::from(code));
            rest = &rest[3..];
        } else {
            unit.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    unit
}
