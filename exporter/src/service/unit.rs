//! Units of systemd, over D-Bus.
//!
//! Every unit is asked on its own and has a second to answer; a connection on which one did not is
//! given up, and the next collection makes a new one. No unit is loaded or started by asking.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::{Duration, SystemTime};

use metric_catalog::labels::ServiceState;
use tokio::task::JoinSet;
use zbus::{Connection, Variant};

use super::restarts::Restarts;
use crate::slot::{CollectError, ErrorKind, Now};

/// How long the bus may take: to connect, and for all of one unit.
pub const DEADLINE: Duration = Duration::from_secs(1);

const MANAGER: &str = "org.freedesktop.systemd1";
const UNIT: &str = "org.freedesktop.systemd1.Unit";

/// What the service manager says of one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Its state, folded: one that reloads is active. `Unknown` where there is no such unit.
    pub state: ServiceState,
    /// The finer state of its kind: `running`, `auto-restart`, `dead`.
    pub sub_state: String,
    /// How it ended last: `success`, `exit-code`, `oom-kill`, `timeout`. Services only.
    pub result: Option<String>,
    /// Automatic restarts since somebody started it. Services only.
    pub restarts: Option<u32>,
    /// Its main process, if it has one now.
    pub main_pid: Option<u32>,
    /// Exit code or signal of the main process that ended last. Services only.
    pub exit_status: Option<i32>,
    /// When it became active last; of one that is activating, when that began.
    pub started: Option<SystemTime>,
    /// Path of its control group, from the root of groups, if it has one now.
    pub group: Option<String>,
    /// Id of this start, as the journal tags what it writes.
    pub invocation: Option<String>,
}

impl Unit {
    /// Whether processes of it may hold memory.
    #[must_use]
    pub fn is_running(&self) -> Option<bool> {
        match self.state {
            ServiceState::Active | ServiceState::Deactivating => Some(true),
            // Between two tries nothing runs.
            ServiceState::Activating => Some(!self.sub_state.starts_with("auto-restart")),
            ServiceState::Inactive | ServiceState::Failed => Some(false),
            ServiceState::Unknown => None,
        }
    }
}

/// Units by the name of their service.
#[derive(Debug, Clone, Default)]
pub struct UnitFacts {
    /// Each on its own.
    pub units: BTreeMap<String, Result<Unit, CollectError>>,
    /// What is remembered of their restarts.
    pub restarts: BTreeMap<String, Restarts>,
}

impl UnitFacts {
    /// What is known of the unit of a service.
    #[must_use]
    pub fn unit(&self, service: &str) -> Option<&Unit> {
        self.units.get(service)?.as_ref().ok()
    }

    /// Why others are not known.
    pub fn problems(&self) -> impl Iterator<Item = &CollectError> {
        self.units.values().filter_map(|unit| unit.as_ref().err())
    }
}

/// The connection to the system bus, made when it is needed.
#[derive(Debug, Default)]
pub struct Bus {
    /// `None`: where this system has it.
    address: Option<String>,
    /// Whether there ever was one.
    seen: bool,
    connection: Option<Connection>,
    restarts: BTreeMap<String, Restarts>,
}

impl Bus {
    /// The bus at an address of D-Bus, instead of the one of this system.
    #[must_use]
    pub fn at(address: String) -> Self {
        Self { address: Some(address), ..Self::default() }
    }

    /// Asks for all units; `units` are names of services and units.
    ///
    /// # Errors
    /// There is no bus, nobody answers on it, or no unit could be read. Unsupported where there is
    /// no socket of a bus, and where no service has a unit.
    pub async fn collect(&mut self, units: &[(String, String)]) -> Result<UnitFacts, CollectError> {
        if units.is_empty() {
            return Err(CollectError::unsupported("no service has a unit"));
        }
        let connection = match &self.connection {
            Some(connection) if !connection.is_closed() => connection.clone(),
            Some(_) | None => {
                let fresh = connect(self.address.as_deref(), !self.seen).await?;
                self.seen = true;
                self.connection.insert(fresh).clone()
            }
        };
        let mut asked = JoinSet::new();
        for (service, unit) in units.iter().cloned() {
            let connection = connection.clone();
            asked.spawn(async move {
                let found = in_time(read(&connection, &unit), &unit).await;
                (service, found)
            });
        }
        let mut found = BTreeMap::new();
        while let Some(result) = asked.join_next().await {
            let (service, unit) = result.map_err(|error| {
                CollectError::new(ErrorKind::Internal, format!("a task that asks: {error}"))
            })?;
            found.insert(service, unit);
        }
        let broken = |error: &CollectError| match error {
            CollectError::Failed { kind, .. } => {
                matches!(kind, ErrorKind::Timeout | ErrorKind::Gone)
            }
            CollectError::Unsupported(_) => false,
        };
        if found.values().any(|unit| unit.as_ref().is_err_and(broken)) {
            self.connection = None;
        }
        let none = found.values().all(Result::is_err);
        match found.values().find_map(|unit| unit.as_ref().err()) {
            Some(first) if none => Err(first.clone()),
            Some(_) | None => Ok(self.remember(found)),
        }
    }

    fn remember(&mut self, units: BTreeMap<String, Result<Unit, CollectError>>) -> UnitFacts {
        let now = Now::read();
        for (service, unit) in &units {
            let count = unit.as_ref().ok().and_then(|unit| unit.restarts);
            if let Some(count) = count {
                self.restarts.entry(service.clone()).or_default().told(u64::from(count), now);
            }
        }
        UnitFacts { units, restarts: self.restarts.clone() }
    }
}

/// A connection; on a node that has shown no bus yet, one that is missing is no failure.
async fn connect(address: Option<&str>, is_first: bool) -> Result<Connection, CollectError> {
    let builder = match address {
        Some(address) => zbus::connection::Builder::address(address),
        None => zbus::connection::Builder::system(),
    };
    let connecting = builder.build();
    match tokio::time::timeout(DEADLINE, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) if is_first && is_missing(&error) => {
            Err(CollectError::unsupported("no system bus: its socket does not exist"))
        }
        Ok(Err(error)) => Err(failed("the system bus", &error)),
        Err(_) => Err(late("the system bus")),
    }
}

async fn in_time(
    reading: impl Future<Output = zbus::Result<Unit>>,
    unit: &str,
) -> Result<Unit, CollectError> {
    match tokio::time::timeout(DEADLINE, reading).await {
        Ok(result) => result.map_err(|error| failed(unit, &error)),
        Err(_) => Err(late(unit)),
    }
}

fn late(what: &str) -> CollectError {
    CollectError::new(ErrorKind::Timeout, format!("{what}: no answer within {DEADLINE:?}"))
}

/// What the system said, where the connection failed.
fn system(error: &zbus::Error) -> Option<&io::Error> {
    if let zbus::Error::InputOutput(error) | zbus::Error::Connection(error, _) = error {
        Some(error)
    } else {
        None
    }
}

fn is_missing(error: &zbus::Error) -> bool {
    system(error).is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn failed(what: &str, error: &zbus::Error) -> CollectError {
    use zbus::fdo::Error as Told;
    let told = if let zbus::Error::FDO(told) = error { Some(&**told) } else { None };
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let kind = if system(error).is_some_and(refused) {
        ErrorKind::Permission
    } else if system(error).is_some() || matches!(told, Some(Told::Disconnected(_))) {
        ErrorKind::Gone
    } else if matches!(told, Some(Told::AccessDenied(_) | Told::AuthFailed(_))) {
        ErrorKind::Permission
    } else if matches!(told, Some(Told::ServiceUnknown(_) | Told::NameHasNoOwner(_))) {
        ErrorKind::Missing
    } else if matches!(told, Some(Told::NoReply(_) | Told::Timeout(_) | Told::TimedOut(_))) {
        ErrorKind::Timeout
    } else {
        ErrorKind::Protocol
    };
    CollectError::new(kind, format!("{what}: {error}"))
}

/// Path of the object of a unit.
fn object(unit: &str) -> String {
    let mut path = "/org/freedesktop/systemd1/unit/".to_owned();
    for (at, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

/// Reads properties of one object.
struct Properties<'a> {
    connection: &'a Connection,
    object: String,
}

impl Properties<'_> {
    /// A property that every unit has.
    async fn get<T>(&self, interface: &str, name: &str) -> zbus::Result<T>
    where
        T: for<'v> TryFrom<Variant<'v>>,
    {
        const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
        let place = (Some(MANAGER), self.object.as_str(), Some(PROPERTIES));
        let asked = (interface, name);
        let reply = self.connection.call_method(place.0, place.1, place.2, "Get", &asked).await?;
        let body = reply.body();
        let value: Variant<'_> = body.deserialize()?;
        T::try_from(value).map_err(|_| zbus::Error::IncorrectType)
    }

    /// One that older managers, or other kinds of units, lack.
    async fn find<T>(&self, interface: &str, name: &str) -> zbus::Result<Option<T>>
    where
        T: for<'v> TryFrom<Variant<'v>>,
    {
        match self.get(interface, name).await {
            Ok(value) => Ok(Some(value)),
            Err(zbus::Error::FDO(error)) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One of the interface of a kind of units.
    async fn own<T>(&self, interface: Option<&str>, name: &str) -> zbus::Result<Option<T>>
    where
        T: for<'v> TryFrom<Variant<'v>>,
    {
        match interface {
            Some(interface) => self.find(interface, name).await,
            None => Ok(None),
        }
    }
}

fn is_absent(error: &zbus::fdo::Error) -> bool {
    use zbus::fdo::Error;
    matches!(error, Error::UnknownProperty(_) | Error::UnknownInterface(_))
}

async fn read(connection: &Connection, unit: &str) -> zbus::Result<Unit> {
    let properties = Properties { connection, object: object(unit) };
    let service = unit.ends_with(".service").then_some("org.freedesktop.systemd1.Service");
    let grouped = match unit.rsplit('.').next() {
        Some("scope") => Some("org.freedesktop.systemd1.Scope"),
        Some("slice") => Some("org.freedesktop.systemd1.Slice"),
        Some("socket") => Some("org.freedesktop.systemd1.Socket"),
        _ => service,
    };
    let of = &properties;
    let (load, active, sub_state, entered, left, invocation) = tokio::try_join!(
        of.get::<String>(UNIT, "LoadState"),
        of.get::<String>(UNIT, "ActiveState"),
        of.get::<String>(UNIT, "SubState"),
        of.get::<u64>(UNIT, "ActiveEnterTimestamp"),
        of.find::<u64>(UNIT, "InactiveExitTimestamp"),
        of.find::<Vec<u8>>(UNIT, "InvocationID"),
    )?;
    let (result, restarts, main_pid, exit_status, group) = tokio::try_join!(
        of.own::<String>(service, "Result"),
        of.own::<u32>(service, "NRestarts"),
        of.own::<u32>(service, "MainPID"),
        of.own::<i32>(service, "ExecMainStatus"),
        of.own::<String>(grouped, "ControlGroup"),
    )?;
    let hex = |id: Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let state = if load == "not-found" { ServiceState::Unknown } else { state(&active) };
    // One that tells when it is ready was active last before it was started again.
    let began = left.filter(|_| state == ServiceState::Activating).unwrap_or(entered);
    Ok(Unit {
        state,
        sub_state,
        result,
        restarts,
        main_pid: main_pid.filter(|pid| *pid > 0),
        exit_status,
        // Microseconds; 0 for never.
        started: Some(began)
            .filter(|time| *time > 0)
            .and_then(|time| SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(time))),
        group: group.filter(|group| !group.is_empty()),
        invocation: invocation.filter(|id| id.len() == 16).map(hex),
    })
}

/// The states of systemd, folded into those that matter here.
fn state(active: &str) -> ServiceState {
    match active {
        "active" | "reloading" | "refreshing" => ServiceState::Active,
        "activating" => ServiceState::Activating,
        "deactivating" => ServiceState::Deactivating,
        "inactive" | "maintenance" => ServiceState::Inactive,
        "failed" => ServiceState::Failed,
        _ => ServiceState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_systemd_names_them() {
        let path = |unit: &str| object(unit).rsplit('/').next().expect("a name").to_owned();
        assert_eq!(path("sglang-prefill@0.service"), "sglang_2dprefill_400_2eservice");
        assert_eq!(path("9p.service"), "_39p_2eservice");
        assert_eq!(path("dbus.service"), "dbus_2eservice");
    }

    #[test]
    fn states_are_folded() {
        for (active, folded) in [
            ("active", ServiceState::Active),
            ("reloading", ServiceState::Active),
            ("maintenance", ServiceState::Inactive),
            ("failed", ServiceState::Failed),
            ("something new", ServiceState::Unknown),
        ] {
            assert_eq!(state(active), folded);
        }
    }

    #[test]
    fn between_two_tries_nothing_runs() {
        let unit = |state, sub_state: &str| Unit {
            state,
            sub_state: sub_state.to_owned(),
            result: None,
            restarts: None,
            main_pid: None,
            exit_status: None,
            started: None,
            group: None,
            invocation: None,
        };
        assert_eq!(unit(ServiceState::Activating, "auto-restart").is_running(), Some(false));
        let queued = unit(ServiceState::Activating, "auto-restart-queued");
        assert_eq!(queued.is_running(), Some(false));
        assert_eq!(unit(ServiceState::Activating, "start").is_running(), Some(true));
        assert_eq!(unit(ServiceState::Failed, "failed").is_running(), Some(false));
        assert_eq!(unit(ServiceState::Unknown, "dead").is_running(), None);
    }
}
