//! A service: what runs on this node and where its health, memory and host cache can be seen.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hyper::Uri;

use program::units;

/// How long a start may take before a failing probe counts, unless told otherwise: weights of big
/// models are read for minutes.
const START_UP: Duration = Duration::from_secs(600);

/// Something that runs on this node. Every part but the name is optional.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Value of the label `service`.
    pub name: String,
    /// Unit of systemd, with its suffix.
    pub unit: Option<String>,
    /// Control group below the root of control groups; where there is a unit: its own.
    pub cgroup: Option<PathBuf>,
    /// Answers 2xx while the service is well.
    pub health_url: Option<Url>,
    /// Its metrics page.
    pub metrics_url: Option<Url>,
    /// What it wrote when it started.
    pub log: Option<LogSource>,
    /// What `sightline-server plan --format json` said of it.
    pub plan: Option<PathBuf>,
    /// Bytes of host cache that the operator wants.
    pub target: Option<u64>,
    /// Host pages as a multiple of device pages, where neither its page nor its log says so.
    pub ratio: Option<f64>,
    /// NUMA node that its host cache is meant for.
    pub numa_node: Option<u32>,
    /// How long a start may take before a failing probe counts.
    pub start_up: Duration,
}

/// Where a service's log is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    /// A file, as the host names it.
    File(PathBuf),
    /// The journal of a unit.
    Journal(String),
}

/// An `http` or `https` address with a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url(Uri);

impl Url {
    /// The address.
    #[must_use]
    pub const fn uri(&self) -> &Uri {
        &self.0
    }

    /// Name or address of the host; without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// The port, also where it is not written.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Whether it is encrypted.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write http://127.0.0.1:8000/health";
        let uri: Uri = text.parse().map_err(|error| format!("{text:?}: {error}; {example}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(format!("{text:?} begins with neither http:// nor https://; {example}"));
        }
        match uri.authority() {
            Some(authority) if authority.as_str().contains('@') => {
                Err(format!("{text:?} holds a user; probes send none"))
            }
            Some(authority) if !authority.host().is_empty() => Ok(Self(uri)),
            Some(_) | None => Err(format!("{text:?} names no host; {example}")),
        }
    }
}

/// The keys of a service, in the order of the help.
pub(crate) const KEYS: [&str; 10] =
    ["unit", "cgroup", "url", "metrics", "log", "plan", "target", "ratio", "node", "start-up"];

impl FromStr for Service {
    type Err = String;

    /// Reads `NAME,KEY=VALUE,...`; a comma within a value is written `\,`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = split(text).into_iter();
        let name = parts.next().unwrap_or_default();
        let mut service = Self::named(&name)?;
        let mut given = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                format!("service {name}: {part:?} is not KEY=VALUE; keys are {}", KEYS.join(", "))
            })?;
            if value.is_empty() {
                return Err(format!(
                    "service {name}: {key} is empty; leave it out or give a value"
                ));
            }
            if given.contains(&key.to_owned()) {
                return Err(format!("service {name}: {key} is given twice; give it once"));
            }
            service
                .set(key, value)
                .map_err(|reason| format!("service {name}: {key}={value}: {reason}"))?;
            given.push(key.to_owned());
        }
        service.complete()
    }
}

impl Service {
    fn named(name: &str) -> Result<Self, String> {
        let valid = |c: char| c.is_ascii_alphanumeric() || "_-.:/@".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(valid) {
            return Err(format!(
                "{name:?} cannot name a service: use 1 to 64 letters, digits or _ - . : / @, as in \
                 prefill-0,unit=sglang-prefill@0.service"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            unit: None,
            cgroup: None,
            health_url: None,
            metrics_url: None,
            log: None,
            plan: None,
            target: None,
            ratio: None,
            numa_node: None,
            start_up: START_UP,
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "unit" => self.unit = Some(unit(value)?),
            "cgroup" => self.cgroup = Some(below(value)?),
            "url" => self.health_url = Some(value.parse()?),
            "metrics" => self.metrics_url = Some(value.parse()?),
            "log" => self.log = Some(log(value)?),
            "plan" => self.plan = Some(absolute(value)?),
            "target" => self.target = Some(units::bytes(value)?),
            "ratio" => {
                let ratio =
                    value.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0);
                self.ratio = Some(ratio.ok_or("a ratio is a number above 0, for example 2.0")?);
            }
            "node" => {
                let node = value.parse().map_err(|_| "a NUMA node is a number, for example 0")?;
                self.numa_node = Some(node);
            }
            "start-up" => self.start_up = units::span(value)?,
            _ => return Err(format!("no such key; keys are {}", KEYS.join(", "))),
        }
        Ok(())
    }

    /// What only makes sense together.
    fn complete(mut self) -> Result<Self, String> {
        if self.log == Some(LogSource::Journal(String::new())) {
            let unit = self.unit.clone().ok_or_else(|| {
                format!(
                    "service {}: log=journal needs a unit; add unit=NAME.service or write \
                     log=journal:NAME.service",
                    self.name
                )
            })?;
            self.log = Some(LogSource::Journal(unit));
        }
        Ok(self)
    }
}

fn split(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut escaped) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            ',' if !escaped => parts.push(std::mem::take(&mut part)),
            _ => {
                if escaped && c != ',' && c != '\\' {
                    part.push('\\');
                }
                part.push(c);
                escaped = false;
            }
        }
    }
    if escaped {
        part.push('\\');
    }
    parts.push(part);
    parts
}

/// Writes a value so that [`Service`] reads it back.
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn unit(value: &str) -> Result<String, String> {
    let suffixes = [".service", ".scope", ".slice", ".socket", ".target"];
    if value.contains('/') || !suffixes.iter().any(|suffix| value.ends_with(suffix)) {
        return Err(format!("not the full name of a unit; write {value}.service"));
    }
    Ok(value.to_owned())
}

fn below(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value.trim_start_matches('/'));
    if path.components().any(|part| part.as_os_str() == "..") || path.as_os_str().is_empty() {
        return Err("not below the root of control groups; write system.slice/NAME.service".into());
    }
    Ok(path)
}

fn absolute(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err(format!("not absolute; write /{value}")) }
}

fn log(value: &str) -> Result<LogSource, String> {
    match value.strip_prefix("journal") {
        Some("") => Ok(LogSource::Journal(String::new())),
        Some(rest) if rest.starts_with(':') => unit(&rest[1..]).map(LogSource::Journal),
        Some(_) | None if value.starts_with('/') => Ok(LogSource::File(value.into())),
        Some(_) | None => {
            Err("neither journal, journal:NAME.service nor an absolute path".to_owned())
        }
    }
}
