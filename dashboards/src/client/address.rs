//! Addresses of servers, and who asks: passwords and tokens come from files, never from a command
//! line that others can list.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::ClientError;

/// A password, a token or a bundle of certificates is shorter.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// How a server is asked: who asks, and whom to trust.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Name for basic authentication; wins over one in the URL.
    pub user: Option<String>,
    /// File with the password of `user` in its first line.
    pub password_file: Option<PathBuf>,
    /// File with a bearer token in its first line.
    pub token_file: Option<PathBuf>,
    /// File with certificates of authorities (PEM), in place of those that this host trusts.
    pub ca_file: Option<PathBuf>,
}

/// Where a server is: scheme, host, port and the path below which it answers.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    https: bool,
    host: String,
    port: u16,
    /// Empty, or begins with `/` and ends without.
    prefix: String,
    /// Name and password, where the URL has them.
    credentials: Option<(String, String)>,
}

impl fmt::Display for Address {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Address {
    /// Reads `http://HOST:PORT/PREFIX` or `https://..`, with `USER:PASSWORD@` before the host if
    /// need be.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let wrong = |why: &str| ClientError::Url {
            shown: text.rsplit_once('@').map_or(text, |(_, after)| after).to_owned(),
            why: why.to_owned(),
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("only http and https are spoken")),
        };
        if rest.contains(['?', '#']) || rest.contains(char::is_whitespace) {
            return Err(wrong("it has a query, a fragment or a space"));
        }
        let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, place) = match place.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, place),
        };
        let credentials = match user {
            None => None,
            Some(user) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let decoded = |part| decoded(part).ok_or_else(|| wrong("bad %XX before the @"));
                Some((decoded(name)?, decoded(password)?))
            }
        };
        let (host, port) = split_port(place).ok_or_else(|| wrong("the host or port is wrong"))?;
        Ok(Self {
            https,
            host: host.to_owned(),
            port: port.unwrap_or(if https { 443 } else { 80 }),
            prefix: path.trim_end_matches('/').to_owned(),
            credentials,
        })
    }

    /// Whether it is asked over TLS.
    #[must_use]
    pub const fn is_https(&self) -> bool {
        self.https
    }

    /// The host, an IPv6 address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The path below which the server answers: empty, or begins with `/` and ends without.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// `HOST:PORT`, as the `Host` header has it: without the port that the scheme implies.
    #[must_use]
    pub fn authority(&self) -> String {
        let implied = if self.https { 443 } else { 80 };
        if self.port == implied {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The value of the `Authorization` header, if one is to be sent.
    ///
    /// # Errors
    /// A file cannot be read, or options contradict each other.
    pub fn authorization(&self, access: &Access) -> Result<Option<String>, ClientError> {
        let wrong = |why: &str| ClientError::Url { shown: self.to_string(), why: why.to_owned() };
        let named = access.user.is_some() || self.credentials.is_some();
        if let Some(file) = &access.token_file {
            if named || access.password_file.is_some() {
                return Err(wrong("a token and a user with a password cannot both be sent"));
            }
            let token = secret(file)?;
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                let why = "the first line is no token: it has a space or an unusual character";
                return Err(ClientError::File { path: shown(file), why: why.to_owned() });
            }
            return Ok(Some(format!("Bearer {token}")));
        }
        let in_url = self.credentials.as_ref();
        let Some(user) = access.user.as_ref().or(in_url.map(|(name, _)| name)) else {
            if access.password_file.is_some() {
                return Err(wrong("a password without a name: give --user"));
            }
            return Ok(None);
        };
        if user.contains(':') {
            return Err(wrong("the name of a user has no colon"));
        }
        let password = match &access.password_file {
            Some(file) => secret(file)?,
            None if access.user.is_some() => {
                return Err(wrong("a user without a password: give --password-file"));
            }
            None => in_url.map(|(_, password)| password.clone()).unwrap_or_default(),
        };
        Ok(Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
    }
}

/// Host and port; the host of an IPv6 address keeps its brackets.
fn split_port(place: &str) -> Option<(&str, Option<u16>)> {
    let colon = match place.rfind(']') {
        Some(end) if place.starts_with('[') => place[end..].find(':').map(|at| at + end),
        Some(_) => return None,
        None => place.find(':'),
    };
    let (host, port) = match colon {
        Some(at) => (&place[..at], Some(place[at + 1..].parse().ok().filter(|port| *port > 0)?)),
        None => (place, None),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._[]:%".contains(c);
    (!host.is_empty() && host.chars().all(allowed)).then_some((host, port))
}

/// A text with `%XX` resolved; none where that is malformed.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// A text as part of a query or of a form: everything but letters, digits and `-._~` is escaped.
#[must_use]
pub fn encoded(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            result.push(char::from(byte));
        } else {
            result.push_str(&format!("%{byte:02X}"));
        }
    }
    result
}

/// Pairs as a query or a form.
#[must_use]
pub fn form(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A whole file, bounded.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ClientError> {
    let wrong = |why: String| ClientError::File { path: shown(path), why };
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// The first line of a file.
fn secret(path: &Path) -> Result<String, ClientError> {
    let wrong = |why: &str| ClientError::File { path: shown(path), why: why.to_owned() };
    let text = String::from_utf8(read(path)?).map_err(|_| wrong("it is no text"))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        Some(_) | None => Err(wrong("its first line is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        Address::parse(text).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_read_and_shown_without_credentials() {
        for (text, shown, host, port, prefix) in [
            ("http://prom:9090", "http://prom:9090", "prom", 9090, ""),
            ("HTTPS://prom.example/", "https://prom.example", "prom.example", 443, ""),
            ("http://u:p@[::1]:90/a/b/", "http://[::1]:90/a/b", "::1", 90, "/a/b"),
            ("http://127.0.0.1:80/x", "http://127.0.0.1/x", "127.0.0.1", 80, "/x"),
        ] {
            let address = parse(text).expect(text);
            let parts = (address.host(), address.port(), address.prefix());
            assert_eq!((address.to_string().as_str(), parts), (shown, (host, port, prefix)));
        }
    }

    #[test]
    fn what_is_no_address_is_told_without_its_password() {
        for (text, why) in [
            ("prom:9090", "no scheme"),
            ("ftp://prom", "only http and https"),
            ("http://prom/?x=1", "a query"),
            ("http://:9090", "host or port"),
            ("http://prom:99999", "host or port"),
            ("http://u:se%cret@prom", "bad %XX"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{error}");
            assert!(error.contains("http://HOST:PORT") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn credentials_come_from_the_url_or_from_files() {
        let folder = std::env::temp_dir().join(format!("access-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("it can be written");
            path
        };
        let plain = parse("http://prom").expect("valid");
        let named = parse("http://op%40x:a%3Ab@prom").expect("valid");
        let header = |address: &Address, access: Access| {
            address.authorization(&access).map_err(|error| error.to_string())
        };
        assert_eq!(header(&plain, Access::default()), Ok(None));
        let basic = |text: &str| Ok(Some(format!("Basic {}", STANDARD.encode(text))));
        assert_eq!(header(&named, Access::default()), basic("op@x:a:b"));
        let password_file = Some(file("password", "long word\nsecond line\n"));
        let user = Some("me".to_owned());
        let both = Access {
            user: user.clone(),
            password_file: password_file.clone(),
            ..Access::default()
        };
        assert_eq!(header(&named, both), basic("me:long word"));
        let token_file = Some(file("token", "abc.def\n"));
        let token = Access { token_file: token_file.clone(), ..Access::default() };
        assert_eq!(header(&plain, token.clone()), Ok(Some("Bearer abc.def".to_owned())));
        for (address, access, why) in [
            (&named, token, "cannot both"),
            (&plain, Access { user, ..Access::default() }, "--password-file"),
            (&plain, Access { password_file, ..Access::default() }, "--user"),
            (
                &plain,
                Access { token_file: Some(file("two", "a b\n")), ..Access::default() },
                "no token",
            ),
            (
                &plain,
                Access { token_file: Some(file("empty", "\n")), ..Access::default() },
                "empty",
            ),
            (
                &plain,
                Access { token_file: Some(folder.join("none")), ..Access::default() },
                "none: ",
            ),
        ] {
            let error = header(address, access).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }

    #[test]
    fn forms_escape_what_is_not_plain() {
        assert_eq!(
            form(&[("match[]", "a{b=~\"c|d\"}"), ("x", "1 ü")]),
            "match%5B%5D=a%7Bb%3D~%22c%7Cd%22%7D&x=1%20%C3%BC"
        );
    }
}
