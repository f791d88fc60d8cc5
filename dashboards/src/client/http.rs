//! HTTP/1.1 to one server, over TCP or TLS: connections are kept and used again, every exchange has
//! a deadline and every body a bound.
//!
//! No redirect is followed: credentials go to the server that was named, to no other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::address::{Access, Address, read};
use super::error::ClientError;

/// Idle connections that are kept.
const IDLE_MAX: usize = 8;

/// Bounds of every exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// From the look-up of the name to the last byte.
    pub timeout: Duration,
    /// Bytes of a body that are read.
    pub bytes_max: usize,
}

impl Default for Bounds {
    /// 30 seconds and 64 MiB.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), bytes_max: 64 << 20 }
    }
}

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Where a redirect points to.
    pub location: Option<String>,
    /// Whole body.
    pub body: Bytes,
}

/// What is sent along.
#[derive(Debug, Clone)]
pub struct Body {
    /// Its type.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: Bytes,
}

type Sender = SendRequest<Full<Bytes>>;

/// A connection that carries one request at a time; closed when dropped.
struct Connection {
    sender: Sender,
    _driver: AbortOnDropHandle<()>,
}

/// Asks one server.
pub struct Http {
    address: Address,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    tls: Option<TlsConnector>,
    bounds: Bounds,
    idle: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Http {
    /// A client of the server at `url`; reads the files of `access`, connects to nothing yet.
    ///
    /// # Errors
    /// The address or a file is wrong.
    pub fn new(url: &str, access: &Access, bounds: Bounds) -> Result<Self, ClientError> {
        let address = Address::parse(url)?;
        let wrong = |why: &str| ClientError::Url { shown: address.to_string(), why: why.into() };
        let host = HeaderValue::try_from(address.authority()).map_err(|_| wrong("the host"))?;
        let authorization = match address.authorization(access)? {
            None => None,
            Some(text) => {
                let mut value = HeaderValue::try_from(text).map_err(|_| wrong("the password"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let tls = if address.is_https() { Some(connector(&address, access)?) } else { None };
        Ok(Self { address, host, authorization, tls, bounds, idle: Mutex::default() })
    }

    /// Where it asks.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// The address of `path` for messages: without credentials and query.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}{}", self.address, path.split('?').next().unwrap_or_default())
    }

    /// Sends a request and reads the answer whole. `path` begins with `/` and may have a query;
    /// the address's own path comes before it. Needs a runtime.
    ///
    /// # Errors
    /// There is no whole answer within the bounds. A status that says no is an answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Body>,
    ) -> Result<Answer, ClientError> {
        let exchange = self.exchange(method, path, body);
        match tokio::time::timeout(self.bounds.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::Timeout { url: self.url(path), limit: self.bounds.timeout }),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Body>,
    ) -> Result<Answer, ClientError> {
        let request = self.request(method, path, body)?;
        let (connection, response) = self.converse(request, path).await?;
        let status = response.status().as_u16();
        let location = response.headers().get(header::LOCATION);
        let location = location.and_then(|value| Some(value.to_str().ok()?.to_owned()));
        let body = Limited::new(response.into_body(), self.bounds.bytes_max).collect().await;
        let body = body.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                let advice = "ask for less: a shorter range or a longer step";
                let (url, bytes_max) = (self.url(path), self.bounds.bytes_max);
                return ClientError::TooLarge { url, bytes_max, advice };
            }
            ClientError::Http { url: self.url(path), why: error.to_string() }
        })?;
        self.keep(connection);
        Ok(Answer { status, location, body: body.to_bytes() })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Body>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let agent = concat!("sightline-dashboards/", env!("CARGO_PKG_VERSION"));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address.prefix()))
            .header(header::HOST, self.host.clone())
            .header(header::USER_AGENT, agent);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = &body {
            request = request.header(header::CONTENT_TYPE, body.content_type);
        }
        let bytes = body.map(|body| body.bytes).unwrap_or_default();
        let why = |error: hyper::http::Error| ClientError::Url {
            shown: self.url(path),
            why: error.to_string(),
        };
        request.body(Full::new(bytes)).map_err(why)
    }

    /// Sends on a kept connection, or on a new one when that turns out to be closed.
    async fn converse(
        &self,
        mut request: Request<Full<Bytes>>,
        path: &str,
    ) -> Result<(Connection, hyper::Response<hyper::body::Incoming>), ClientError> {
        let broken = |error: &hyper::Error| ClientError::Http {
            url: self.url(path),
            why: with_cause(error),
        };
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut connection) = idle
            && connection.sender.ready().await.is_ok()
        {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok((connection, response)),
                // Not a byte was sent: the server has not seen the request.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(broken(error.error())),
                },
            }
        }
        let mut connection = self.connect(path).await?;
        match connection.sender.send_request(request).await {
            Ok(response) => Ok((connection, response)),
            Err(error) => Err(broken(&error)),
        }
    }

    async fn connect(&self, path: &str) -> Result<Connection, ClientError> {
        let fail = |source| ClientError::Connect { url: self.url(path), source };
        let place = (self.address.host(), self.address.port());
        let stream = TcpStream::connect(place).await.map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        let Some(tls) = &self.tls else { return self.handshake(stream, path).await };
        let wrong = |why: String| ClientError::Tls { url: self.url(path), why };
        let name = ServerName::try_from(self.address.host().to_owned());
        let name = name.map_err(|error| wrong(error.to_string()))?;
        let stream = tls.connect(name, stream).await.map_err(|error| wrong(error.to_string()))?;
        self.handshake(stream, path).await
    }

    #[expect(clippy::disallowed_methods, reason = "the driver task is owned by the connection")]
    async fn handshake(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        path: &str,
    ) -> Result<Connection, ClientError> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ClientError::Http { url: self.url(path), why: with_cause(&error) })?;
        let driver = tokio::spawn(async move {
            // An error here is also the error of the request or of its body.
            drop(driver.await);
        });
        Ok(Connection { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }
}

/// An error with what caused it: hyper keeps that apart.
fn with_cause(error: &hyper::Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Trusts the authorities of the file, else those of this host.
fn connector(address: &Address, access: &Access) -> Result<TlsConnector, ClientError> {
    let mut authorities = rustls::RootCertStore::empty();
    match &access.ca_file {
        Some(path) => {
            let wrong = |why: String| ClientError::File { path: path.display().to_string(), why };
            for certificate in CertificateDer::pem_slice_iter(&read(path)?) {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                authorities.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            if authorities.is_empty() {
                return Err(wrong("no certificate in it; it takes PEM".to_owned()));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            authorities.add_parsable_certificates(found.certs);
        }
    }
    let wrong = |why: &str| ClientError::Tls { url: address.to_string(), why: why.to_owned() };
    if authorities.is_empty() {
        return Err(wrong("this host knows no certificate authority"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error.to_string()))?;
    let config = config.with_root_certificates(authorities).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
