//! Folders and S3-compatible services, by `opendal`.

use super::{Backend, BackendError, Listed, Work};
use bytes::Bytes;
use futures_util::TryStreamExt;
use opendal::{ErrorKind, Operator};
use std::time::{SystemTime, UNIX_EPOCH};

/// An `opendal` operator as a backend.
#[derive(Debug)]
pub(crate) struct OperatorBackend {
    operator: Operator,
}

/// Unfinished writes of a folder: beside the objects, so that a rename is atomic.
#[cfg(feature = "fs")]
const UNFINISHED: &str = "unfinished";

impl OperatorBackend {
    /// Objects in a folder, which is made where it is missing.
    ///
    /// An object is written to a file of its own under `unfinished/`, flushed to the disk, and
    /// renamed into its place.
    ///
    /// # Errors
    /// The folder cannot be made or opened.
    #[cfg(feature = "fs")]
    pub(crate) fn folder(folder: &std::path::Path) -> Result<Self, BackendError> {
        let text = |path: &std::path::Path| match path.to_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(BackendError::Failed(format!("{} is not UTF-8", path.display()))),
        };
        let service = opendal::services::Fs::default()
            .root(&text(folder)?)
            .atomic_write_dir(&text(&folder.join(UNFINISHED))?);
        Ok(Self { operator: Operator::new(service).map_err(failed)? })
    }

    /// Objects in a bucket, addressed as `ENDPOINT/BUCKET/PREFIX/...` and signed by version 4.
    ///
    /// Nothing but the arguments is read: no profile, no metadata service.
    ///
    /// # Errors
    /// The arguments do not make an address.
    #[cfg(feature = "s3")]
    pub(crate) fn bucket(
        bucket: &str,
        prefix: &str,
        endpoint: Option<&str>,
        region: &str,
        credentials: &crate::Credentials,
        timeout: std::time::Duration,
    ) -> Result<Self, BackendError> {
        let mut service = opendal::services::S3::default()
            .bucket(bucket)
            .root(&format!("/{prefix}"))
            .region(region)
            .access_key_id(&credentials.access_key_id)
            .secret_access_key(&credentials.secret_access_key)
            .disable_config_load()
            .disable_ec2_metadata();
        if let Some(token) = &credentials.session_token {
            service = service.session_token(token);
        }
        if let Some(endpoint) = endpoint {
            service = service.endpoint(endpoint);
        }
        let operator = Operator::new(service).map_err(failed)?;
        // One provider of cryptography per process; an equal one may be there already.
        let installed = rustls::crypto::ring::default_provider().install_default();
        drop(installed);
        let client = reqwest::Client::builder()
            .connect_timeout(timeout)
            .build()
            .map_err(|error| BackendError::Failed(error.to_string()))?;
        let transport = opendal_http_transport_reqwest::ReqwestTransport::new(client);
        let context = operator.context().clone();
        let context = context.with_http_transport(opendal::HttpTransporter::new(transport));
        Ok(Self { operator: operator.with_context(context) })
    }

    /// Deletes unfinished writes that began before `before`: their writers are gone.
    ///
    /// # Errors
    /// A failure; some may be deleted.
    #[cfg(feature = "fs")]
    pub(crate) async fn delete_unfinished(&self, before: SystemTime) -> Result<(), BackendError> {
        let folder = format!("{UNFINISHED}/");
        let list = self.operator.list_with(&folder).recursive(true).await.map_err(failed)?;
        for entry in list {
            let modified = entry.metadata().last_modified().map(SystemTime::from);
            if entry.metadata().is_file() && modified.is_some_and(|modified| modified < before) {
                self.operator.delete(entry.path()).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// One line, without the layers' lists of context.
fn failed(error: opendal::Error) -> BackendError {
    if error.kind() == ErrorKind::NotFound {
        return BackendError::Absent;
    }
    let mut text = format!("{}: {}", error.kind().into_static(), error.message());
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    BackendError::Failed(text.replace('\n', " "))
}

impl Backend for OperatorBackend {
    fn read<'a>(&'a self, path: &'a str, max_bytes: u64) -> Work<'a, Bytes> {
        Box::pin(async move {
            let reader = self.operator.reader(path).await.map_err(failed)?;
            let mut stream = reader.into_stream(..).await.map_err(failed)?;
            let mut pieces = Vec::new();
            let mut length = 0;
            while let Some(buffer) = stream.try_next().await.map_err(failed)? {
                length += buffer.len() as u64;
                if length > max_bytes {
                    return Err(BackendError::TooLong(max_bytes));
                }
                pieces.extend(buffer);
            }
            Ok(match pieces.len() {
                1 => pieces.remove(0),
                _ => pieces.concat().into(),
            })
        })
    }

    fn write<'a>(&'a self, path: &'a str, pieces: Vec<Bytes>) -> Work<'a, ()> {
        Box::pin(async move {
            self.operator.write(path, pieces).await.map_err(failed)?;
            Ok(())
        })
    }

    fn size<'a>(&'a self, path: &'a str) -> Work<'a, Option<u64>> {
        Box::pin(async move {
            match self.operator.stat(path).await {
                Ok(found) => Ok(Some(found.content_length())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed(error)),
            }
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Work<'a, ()> {
        Box::pin(async move { self.operator.delete(path).await.map_err(failed) })
    }

    fn list<'a>(&'a self, each: &'a mut (dyn FnMut(Listed) + Send)) -> Work<'a, ()> {
        Box::pin(async move {
            let lister = self.operator.lister_with("").recursive(true);
            let mut entries = lister.await.map_err(failed)?;
            while let Some(entry) = entries.try_next().await.map_err(failed)? {
                let (path, metadata) = entry.into_parts();
                if !metadata.is_file() {
                    continue;
                }
                let modified = metadata.last_modified().map(SystemTime::from);
                let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let modified = since.map_or(0, crate::stats::nanos);
                each(Listed { path, bytes: metadata.content_length(), modified });
            }
            Ok(())
        })
    }
}
