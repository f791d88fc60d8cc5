//! TLS for links that leave the host: certificates from PEM files, version 1.3 alone.
//!
//! There is no store of well-known authorities: the two ends of a link belong to one operator, who
//! gives both the certificate of the authority that signed the other's.

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName, pem};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Files of one end of a link, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Own certificate and its chain, own first.
    pub cert: Option<PathBuf>,
    /// The key of `cert`.
    pub key: Option<PathBuf>,
    /// The authority that must have signed the other end's certificate.
    pub ca: Option<PathBuf>,
}

/// Why the files do not make a configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds nothing of what it should.
    #[error("{path}: no {what} in PEM can be read from it: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong.
        error: pem::Error,
    },
    /// The certificate and the key do not belong together, or are of no supported kind.
    #[error("{path}: the certificate cannot be used with its key: {error}")]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        error: rustls::Error,
    },
    /// The authority's certificate is no authority's.
    #[error("{path}: this is no certificate of an authority: {error}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: String,
    },
    /// A file is missing that this end needs.
    #[error("{given} is given without {missing}: {why}")]
    Incomplete {
        /// What was given.
        given: &'static str,
        /// What is missing.
        missing: &'static str,
        /// Why it is needed.
        why: &'static str,
    },
}

const CERT: &str = "--pd-tls-cert";
const KEY: &str = "--pd-tls-key";
const CA: &str = "--pd-tls-ca";

impl TlsFiles {
    /// What a listener (a prefill worker) does with these files; `None` where none is given. With
    /// `ca`, dialers must show a certificate signed by it.
    ///
    /// # Errors
    /// Files that cannot be used, or `ca` without `cert` and `key`.
    pub fn acceptor(&self) -> Result<Option<TlsAcceptor>, TlsError> {
        let Some((path, chain, key)) = self.identity()? else {
            let why = "a listener shows a certificate of its own";
            return match self.ca {
                Some(_) => Err(TlsError::Incomplete { given: CA, missing: CERT, why }),
                None => Ok(None),
            };
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has the suites of TLS 1.3");
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(authority(ca)?);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                builder
                    .with_client_cert_verifier(verifier.map_err(|error| not_authority(ca, error))?)
            }
        };
        let config = builder
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::Identity { path, error })?;
        Ok(Some(Arc::new(config).into()))
    }

    /// What a dialer (a decode worker) does with these files; `None` where none is given. Shows
    /// `cert` where the listener asks for one.
    ///
    /// # Errors
    /// Files that cannot be used, or `cert` without `ca`: a dialer that checks nobody would hand
    /// its prompts to whoever answers.
    pub fn connector(&self) -> Result<Option<TlsConnector>, TlsError> {
        let identity = self.identity()?;
        let Some(ca) = &self.ca else {
            let why = "a dialer checks who answers";
            return match identity {
                Some(_) => Err(TlsError::Incomplete { given: CERT, missing: CA, why }),
                None => Ok(None),
            };
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has the suites of TLS 1.3")
            .with_root_certificates(authority(ca)?);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((path, chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::Identity { path, error })?,
        };
        Ok(Some(Arc::new(config).into()))
    }

    /// Own certificate and key, both or neither.
    fn identity(
        &self,
    ) -> Result<Option<(PathBuf, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, TlsError>
    {
        let why = "a certificate and its key work together";
        let (cert, key) = match (&self.cert, &self.key) {
            (None, None) => return Ok(None),
            (Some(_), None) => {
                return Err(TlsError::Incomplete { given: CERT, missing: KEY, why });
            }
            (None, Some(_)) => {
                return Err(TlsError::Incomplete { given: KEY, missing: CERT, why });
            }
            (Some(cert), Some(key)) => (cert, key),
        };
        let chain = certificates(cert)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
            path: key.clone(),
            what: "private key",
            error,
        })?;
        Ok(Some((cert.clone(), chain, key)))
    }
}

/// The name a listener's certificate must carry: the host of the configured peer.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// At least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::File { path: path.into(), what: "certificate", error };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(failed)?;
    if chain.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(chain) }
}

fn authority(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| not_authority(path, error))?;
    }
    Ok(roots)
}

fn not_authority(path: &Path, error: impl ToString) -> TlsError {
    TlsError::Authority { path: path.into(), error: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Option<PathBuf> {
        Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name))
    }

    #[test]
    fn files_that_do_not_work_together_are_named() {
        let only_cert = TlsFiles { cert: file("worker.pem"), ..TlsFiles::default() };
        let only_key = TlsFiles { key: file("worker.key"), ..TlsFiles::default() };
        let only_ca = TlsFiles { ca: file("authority.pem"), ..TlsFiles::default() };
        let swapped =
            TlsFiles { cert: file("worker.key"), key: file("worker.pem"), ..TlsFiles::default() };
        let stranger = TlsFiles {
            cert: file("worker.pem"),
            key: file("stranger.key"),
            ca: file("authority.pem"),
        };
        let no_ca =
            TlsFiles { cert: file("worker.pem"), key: file("worker.key"), ..TlsFiles::default() };
        for (files, expected) in [
            (only_cert, "--pd-tls-cert is given without --pd-tls-key"),
            (only_key, "--pd-tls-key is given without --pd-tls-cert"),
            (swapped, "worker.key: no certificate in PEM"),
            (stranger, "worker.pem: the certificate cannot be used with its key"),
        ] {
            for error in [files.acceptor().err(), files.connector().err()] {
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                assert!(error.contains(expected), "{error}");
            }
        }
        let error = only_ca.acceptor().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("--pd-tls-ca is given without --pd-tls-cert"), "{error}");
        let error = no_ca.connector().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("--pd-tls-cert is given without --pd-tls-ca"), "{error}");
    }

    #[test]
    fn no_files_mean_no_tls() {
        let none = TlsFiles::default();
        assert!(none.acceptor().unwrap().is_none());
        assert!(none.connector().unwrap().is_none());
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        assert!(matches!(server_name("prefill-0.example"), Ok(ServerName::DnsName(_))));
        assert!(matches!(server_name("127.0.0.1"), Ok(ServerName::IpAddress(_))));
        assert!(matches!(server_name("[::1]"), Ok(ServerName::IpAddress(_))));
        assert!(server_name("no host").is_err());
    }
}
