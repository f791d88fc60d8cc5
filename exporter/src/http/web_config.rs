//! The file of `--web.config.file`: TLS, passwords and headers, as Prometheus' own exporters read
//! them.
//!
//! Nothing in it is ignored: a key that is unknown, or known but not to be had here, is an error
//! that says what to do. Paths in it are relative to its folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use bcrypt::HashParts;
use hyper::header::{HeaderName, HeaderValue};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, crypto};
use serde::Deserialize;

/// Users at most: the cache of successful checks holds one entry each.
const USERS_MAX: usize = 256;

/// What an answer costs an attacker is what it costs us; Prometheus' tools write 10 to 14.
const COST_MAX: u32 = 16;

/// Headers that may be set: those that browsers understand.
const HEADERS: [&str; 5] = [
    "content-security-policy",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
    "x-xss-protection",
];

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    /// It, or a file that it names, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not YAML, or has a key or type that is unknown.
    #[error("{0}")]
    Syntax(String),
    /// A value cannot work.
    #[error("{key}: {reason}")]
    Value {
        /// The key, with its parents.
        key: String,
        /// What is wrong with it.
        reason: String,
        /// What would work.
        fix: String,
    },
}

impl WebConfigError {
    fn value(key: &str, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Value { key: key.to_owned(), reason: reason.into(), fix: fix.into() }
    }

    /// What would work.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Read { .. } => "name a file that this user may read".to_owned(),
            Self::Syntax(_) => "keys are tls_server_config, http_server_config and \
                                basic_auth_users, as for Prometheus"
                .to_owned(),
            Self::Value { fix, .. } => fix.clone(),
        }
    }
}

/// What the file asks for, checked.
#[derive(Debug, Clone, Default)]
pub struct WebConfig {
    /// How connections are encrypted; `None`: they are not.
    pub tls: Option<Arc<ServerConfig>>,
    /// Names and hashes; empty: nobody is asked.
    pub users: BTreeMap<String, String>,
    /// Sent with every answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The files that were read, with the time each was changed.
    pub files: Vec<(PathBuf, Option<SystemTime>)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    tls_server_config: Option<RawTls>,
    #[serde(default)]
    http_server_config: Option<RawHttp>,
    #[serde(default)]
    basic_auth_users: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawTls {
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    cert: Option<String>,
    key: Option<String>,
    client_auth_type: Option<String>,
    client_ca_file: Option<PathBuf>,
    client_ca: Option<String>,
    client_allowed_sans: Option<Vec<String>>,
    min_version: Option<String>,
    max_version: Option<String>,
    cipher_suites: Option<Vec<String>>,
    curve_preferences: Option<Vec<String>>,
    prefer_server_cipher_suites: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHttp {
    http2: Option<bool>,
    headers: BTreeMap<String, String>,
}

impl WebConfig {
    /// Reads and checks the file, and the files that it names.
    ///
    /// # Errors
    /// The first thing in it that cannot work.
    pub fn read(path: &Path) -> Result<Self, WebConfigError> {
        let mut files = Files { folder: path.parent().map(PathBuf::from), read: Vec::new() };
        let text = files.text(path)?;
        let raw = if text.trim().is_empty() {
            Raw::default()
        } else {
            let raw = serde_saphyr::from_str::<Option<Raw>>(&text);
            raw.map_err(|error| WebConfigError::Syntax(first_line(&error.to_string())))?
                .unwrap_or_default()
        };
        let tls = raw.tls_server_config.map(|tls| tls.build(&mut files)).transpose()?.flatten();
        let http = raw.http_server_config.unwrap_or_default();
        if http.http2 == Some(true) {
            tracing::debug!("HTTP/2 is not spoken here; clients agree on HTTP/1.1.");
        }
        Ok(Self {
            tls,
            users: users(raw.basic_auth_users.unwrap_or_default())?,
            headers: headers(http.headers)?,
            files: files.read,
        })
    }

    /// Whether a file that it was made from has changed since.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.files.iter().any(|(path, read)| changed(path) != *read)
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// Errors of the parser end with a picture of the text, which may hold hashes.
fn first_line(error: &str) -> String {
    error.lines().next().unwrap_or_default().to_owned()
}

/// The files that are read on the way, with their times taken before they are.
struct Files {
    folder: Option<PathBuf>,
    read: Vec<(PathBuf, Option<SystemTime>)>,
}

impl Files {
    fn text(&mut self, path: &Path) -> Result<String, WebConfigError> {
        self.read.push((path.to_owned(), changed(path)));
        std::fs::read_to_string(path)
            .map_err(|source| WebConfigError::Read { path: path.to_owned(), source })
    }

    /// The text of a file that is named relative to the folder of the first.
    fn named(&mut self, path: &Path) -> Result<String, WebConfigError> {
        let path = self.folder.as_ref().map_or_else(|| path.to_owned(), |f| f.join(path));
        self.text(&path)
    }
}

impl RawTls {
    fn build(self, files: &mut Files) -> Result<Option<Arc<ServerConfig>>, WebConfigError> {
        self.refuse_what_is_not_to_be_had()?;
        let cert = pem_of("cert", self.cert_file.as_deref(), self.cert.as_deref(), files)?;
        let key = pem_of("key", self.key_file.as_deref(), self.key.as_deref(), files)?;
        let client_ca =
            pem_of("client_ca", self.client_ca_file.as_deref(), self.client_ca.as_deref(), files)?;
        let (cert, key) = match (cert, key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) if client_ca.is_none() && self.client_auth_type.is_none() => {
                return Ok(None);
            }
            (Some(_) | None, _) => {
                let reason = "a certificate needs its key, and both are needed for TLS";
                let fix = "give cert_file and key_file, or leave tls_server_config out";
                return Err(WebConfigError::value("tls_server_config", reason, fix));
            }
        };
        let certificates = certificates("cert_file", &cert)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| {
            let fix = "name an unencrypted PEM file (PKCS#8, PKCS#1 or SEC1)";
            WebConfigError::value("tls_server_config.key_file", pem_reason(&error), fix)
        })?;
        let verifier = self.verifier(client_ca.as_deref())?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions()?)
            .map_err(|error| {
                WebConfigError::value("tls_server_config", error.to_string(), "use TLS13")
            })?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates, key)
            .map_err(|error| {
                let fix = "name the key that belongs to the first certificate of cert_file";
                WebConfigError::value("tls_server_config.key_file", error.to_string(), fix)
            })?;
        Ok(Some(Arc::new(config)))
    }

    fn refuse_what_is_not_to_be_had(&self) -> Result<(), WebConfigError> {
        for (key, given, fix) in [
            ("cipher_suites", self.cipher_suites.is_some(), "only safe suites are spoken here"),
            ("curve_preferences", self.curve_preferences.is_some(), "only safe curves are spoken"),
            ("client_allowed_sans", self.client_allowed_sans.is_some(), "use a CA of its own"),
        ] {
            if given {
                let key = format!("tls_server_config.{key}");
                return Err(WebConfigError::value(
                    &key,
                    "cannot be chosen here",
                    format!("leave it out: {fix}"),
                ));
            }
        }
        if self.prefer_server_cipher_suites == Some(false) {
            let key = "tls_server_config.prefer_server_cipher_suites";
            return Err(WebConfigError::value(key, "the server chooses", "leave it out"));
        }
        Ok(())
    }

    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, WebConfigError> {
        let version = |key: &str, text: Option<&str>, default: u8| match text {
            None => Ok(default),
            Some("TLS12") => Ok(2),
            Some("TLS13") => Ok(3),
            Some(other) => Err(WebConfigError::value(
                &format!("tls_server_config.{key}"),
                format!("{other:?} is not spoken here"),
                "write TLS12 or TLS13",
            )),
        };
        let least = version("min_version", self.min_version.as_deref(), 2)?;
        let most = version("max_version", self.max_version.as_deref(), 3)?;
        if least > most {
            return Err(WebConfigError::value(
                "tls_server_config.min_version",
                "newer than max_version",
                "leave max_version out",
            ));
        }
        let all = [(2, &rustls::version::TLS12), (3, &rustls::version::TLS13)];
        Ok(all.into_iter().filter(|(v, _)| (least..=most).contains(v)).map(|(_, v)| v).collect())
    }

    fn verifier(
        &self,
        client_ca: Option<&str>,
    ) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, WebConfigError> {
        const KEY: &str = "tls_server_config.client_auth_type";
        let kind = self.client_auth_type.as_deref().unwrap_or("NoClientCert");
        let required = match kind {
            "NoClientCert" | "" => {
                return match client_ca {
                    None => Ok(WebPkiClientVerifier::no_client_auth()),
                    Some(_) => Err(WebConfigError::value(
                        "tls_server_config.client_ca_file",
                        "nobody is asked for a certificate",
                        "add client_auth_type: RequireAndVerifyClientCert",
                    )),
                };
            }
            "VerifyClientCertIfGiven" => false,
            "RequireAndVerifyClientCert" => true,
            "RequestClientCert" | "RequireAnyClientCert" => {
                let reason = format!("{kind} would let in whoever has any certificate");
                let fix = "use RequireAndVerifyClientCert or VerifyClientCertIfGiven";
                return Err(WebConfigError::value(KEY, reason, fix));
            }
            _ => {
                let reason = format!("there is no {kind:?}");
                let fix = "use NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert";
                return Err(WebConfigError::value(KEY, reason, fix));
            }
        };
        let Some(ca) = client_ca else {
            let fix = "add client_ca_file";
            return Err(WebConfigError::value(KEY, format!("{kind} needs a CA"), fix));
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates("client_ca_file", ca)? {
            roots.add(certificate).map_err(|error| {
                let key = "tls_server_config.client_ca_file";
                WebConfigError::value(key, error.to_string(), "name the certificate of a CA")
            })?;
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if required { builder } else { builder.allow_unauthenticated() };
        builder.build().map_err(|error| {
            WebConfigError::value(KEY, error.to_string(), "name a CA in client_ca_file")
        })
    }
}

fn pem_of(
    key: &str,
    file: Option<&Path>,
    inline: Option<&str>,
    files: &mut Files,
) -> Result<Option<String>, WebConfigError> {
    match (file, inline) {
        (Some(_), Some(_)) => {
            let key = format!("tls_server_config.{key}");
            Err(WebConfigError::value(&key, "given twice", "give the file or the text"))
        }
        (Some(file), None) => files.named(file).map(Some),
        (None, Some(text)) => Ok(Some(text.to_owned())),
        (None, None) => Ok(None),
    }
}

fn certificates(key: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, WebConfigError> {
    let key = format!("tls_server_config.{key}");
    let fix = "name a PEM file of certificates, the server's own first";
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let read = read.map_err(|error| WebConfigError::value(&key, pem_reason(&error), fix))?;
    if read.is_empty() {
        return Err(WebConfigError::value(&key, "holds no certificate", fix));
    }
    Ok(read)
}

/// What is wrong with a PEM file, without any of its text.
fn pem_reason(error: &pem::Error) -> String {
    let empty = matches!(error, pem::Error::NoItemsFound);
    if empty { "holds no such item".to_owned() } else { "is not PEM".to_owned() }
}

fn users(given: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, WebConfigError> {
    const FIX: &str = "write the output of `htpasswd -nBC 10 USER` behind the colon";
    if given.len() > USERS_MAX {
        let reason = format!("{} users, more than {USERS_MAX}", given.len());
        return Err(WebConfigError::value("basic_auth_users", reason, "use certificates"));
    }
    for (name, hash) in &given {
        let key = format!("basic_auth_users.{name}");
        if name.is_empty() || name.contains(':') {
            return Err(WebConfigError::value(&key, "a name has no colon", "choose another"));
        }
        let parts = HashParts::from_str(hash)
            .map_err(|_| WebConfigError::value(&key, "is no bcrypt hash", FIX))?;
        if !(4..=COST_MAX).contains(&parts.get_cost()) {
            let reason = format!("cost {} takes too long for each scrape", parts.get_cost());
            return Err(WebConfigError::value(&key, reason, "use a cost of 10 to 14"));
        }
    }
    Ok(given)
}

fn headers(
    given: BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, WebConfigError> {
    let mut headers = Vec::new();
    for (name, value) in given {
        let key = format!("http_server_config.headers.{name}");
        if !HEADERS.contains(&name.to_lowercase().as_str()) {
            let fix = format!("these can be: {}", HEADERS.join(", "));
            return Err(WebConfigError::value(&key, "cannot be set", fix));
        }
        match (HeaderName::from_str(&name), HeaderValue::from_str(&value)) {
            (Ok(name), Ok(value)) => headers.push((name, value)),
            (Err(_), _) | (_, Err(_)) => {
                return Err(WebConfigError::value(&key, "is no header", "use printable ASCII"));
            }
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
