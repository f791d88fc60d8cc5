//! One GET over a connection of its own, within a deadline and a bound.
//!
//! No redirect is followed: what answers must be what was configured. Nothing is sent but the
//! request, no cookie and no credential.

mod names;

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub use names::is_looked_up;

use self::names::Names;
use crate::config::{Service, Url};
use crate::slot::ErrorKind;

/// Longest head of an answer, in bytes.
const HEAD_MAX: usize = 32 << 10;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// The body, up to the bound.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub cut: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FetchError {
    /// Nothing, or not all of it, came in time.
    #[error("no whole answer within {0:?}")]
    Timeout(Duration),
    /// Nobody listens, or the name is not known.
    #[error("cannot connect: {0}")]
    Connect(Arc<std::io::Error>),
    /// It is not what the certificate says, or cannot speak TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// It closed the connection or does not speak HTTP.
    #[error("{0}")]
    Http(String),
}

impl FetchError {
    /// Its closed name.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout(_) => ErrorKind::Timeout,
            Self::Connect(_) => ErrorKind::Gone,
            Self::Tls(_) | Self::Http(_) => ErrorKind::Protocol,
        }
    }
}

/// Who fetches.
#[derive(Clone, Default)]
pub struct Client {
    /// For `https`; `None` where no certificate of an authority is known.
    tls: Option<TlsConnector>,
    names: Names,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl Client {
    /// One that trusts whom this host trusts, if any service is asked by `https`. Reads the host's
    /// certificates, so it is made before the process confines itself.
    #[must_use]
    pub fn of_host(services: &[Service]) -> Self {
        let urls = services.iter().flat_map(|service| [&service.health_url, &service.metrics_url]);
        if !urls.flatten().any(Url::is_https) {
            return Self::default();
        }
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "Certificates of this host cannot be read.");
        }
        let mut authorities = rustls::RootCertStore::empty();
        authorities.add_parsable_certificates(found.certs);
        Self::new(authorities)
    }

    /// One that trusts these authorities.
    #[must_use]
    pub fn new(authorities: rustls::RootCertStore) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions();
        let tls = config.ok().filter(|_| !authorities.is_empty()).map(|config| {
            let config = config.with_root_certificates(authorities).with_no_client_auth();
            TlsConnector::from(Arc::new(config))
        });
        Self { tls, names: Names::default() }
    }

    /// Asks for `url`; reads `most` bytes of the body.
    ///
    /// # Errors
    /// There is no whole answer within `deadline`.
    pub async fn get(
        &self,
        url: &Url,
        deadline: Duration,
        most: usize,
    ) -> Result<Answer, FetchError> {
        match tokio::time::timeout(deadline, self.exchange(url, most)).await {
            Ok(result) => result,
            Err(_) => Err(FetchError::Timeout(deadline)),
        }
    }

    async fn exchange(&self, url: &Url, most: usize) -> Result<Answer, FetchError> {
        let addresses = self.names.addresses(url.host()).await.map_err(FetchError::Connect)?;
        let with_port = |address: &_| SocketAddr::new(*address, url.port());
        let addresses: Vec<SocketAddr> = addresses.iter().map(with_port).collect();
        let stream = TcpStream::connect(&addresses[..]).await;
        let stream = stream.map_err(|error| FetchError::Connect(Arc::new(error)))?;
        if !url.is_https() {
            return answer(stream, url, most).await;
        }
        let tls = self.tls.as_ref().ok_or_else(|| {
            let why = "this host knows no certificate authority; install its CA certificates";
            FetchError::Tls(why.to_owned())
        })?;
        let wrong = |error: &dyn std::fmt::Display| FetchError::Tls(error.to_string());
        let name = ServerName::try_from(url.host().to_owned()).map_err(|error| wrong(&error))?;
        let stream = tls.connect(name, stream).await.map_err(|error| wrong(&error))?;
        answer(stream, url, most).await
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    url: &Url,
    most: usize,
) -> Result<Answer, FetchError> {
    let wrong = |error: hyper::Error| FetchError::Http(error.to_string());
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(wrong)?;
    let exchange = async {
        let response = sender.send_request(request(url)?).await.map_err(wrong)?;
        let status = response.status().as_u16();
        let mut incoming = response.into_body();
        let (mut body, mut cut) = (Vec::new(), false);
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(wrong)?.into_data() else { continue };
            let room = most - body.len();
            body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                cut = true;
                break;
            }
        }
        Ok(Answer { status, body, cut })
    };
    // The connection moves the bytes; how it ends, the exchange learns by itself.
    let driven = async {
        drop(connection.await);
        pending::<Infallible>().await
    };
    tokio::select! {
        done = exchange => done,
        never = driven => match never {},
    }
}

fn request(url: &Url) -> Result<Request<Empty<Bytes>>, FetchError> {
    let uri = url.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map(hyper::http::uri::Authority::as_str).unwrap_or_default();
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("sightline-exporter/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "text/plain, */*;q=0.5")
        .header(header::CONNECTION, "close");
    request.body(Empty::new()).map_err(|error| FetchError::Http(error.to_string()))
}
