//! Talks to servers that exist: the HTTP API of a Prometheus, and plain HTTP below it for others.
//!
//! Asynchronous and without state but for kept connections; [`block_on`] runs it where no runtime
//! is. Reads only: nothing here changes what the server holds, but for [`http`], which sends what
//! it is told to.

pub mod address;
pub mod answer;
pub mod duration;
pub mod error;
pub mod http;
pub mod options;

#[cfg(test)]
pub(crate) mod mock;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hyper::Method;
use serde::de::DeserializeOwned;

pub use address::{Access, Address};
pub use answer::{
    BuildInfo, Labels, Metadata, Range, RuleGroup, RuleInfo, Sample, Series, Target, Targets,
};
pub use error::ClientError;
pub use http::{Body, Bounds, Http};

use address::{encoded, form};
use answer::{Data, Envelope, Groups};

/// Characters of a foreign body that a message shows.
const SHOWN: usize = 200;

/// Runs a future to its end on a runtime of its own.
///
/// # Errors
/// The system gives no runtime.
///
/// # Panics
/// Inside of a runtime.
pub fn block_on<F: Future>(future: F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}

/// A Prometheus, or what answers as one does: Thanos, Mimir, VictoriaMetrics, `sightline up`.
#[derive(Debug)]
pub struct Prometheus {
    http: Http,
}

impl Prometheus {
    /// A client of the Prometheus at `url`, without credentials but those in the URL, with the
    /// default bounds. Connects to nothing yet.
    ///
    /// # Errors
    /// The address is wrong.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        Self::with(url, &Access::default(), Bounds::default())
    }

    /// As [`new`](Self::new), with credentials and bounds.
    ///
    /// # Errors
    /// The address or a file is wrong.
    pub fn with(url: &str, access: &Access, bounds: Bounds) -> Result<Self, ClientError> {
        Ok(Self { http: Http::new(url, access, bounds)? })
    }

    /// Where it asks.
    #[must_use]
    pub const fn address(&self) -> &Address {
        self.http.address()
    }

    /// What it asks with, for questions of other kinds.
    #[must_use]
    pub const fn http(&self) -> &Http {
        &self.http
    }

    /// Why an answer to a question for `path` is none of a Prometheus, and what would work.
    #[must_use]
    pub fn refusal(&self, path: &str, answer: &http::Answer) -> ClientError {
        if answer.status == 200 {
            return self.odd(path, "it has no status and data".to_owned(), &answer.body);
        }
        self.status(path, answer)
    }

    /// Version of the server.
    ///
    /// # Errors
    /// As all questions: no answer within the bounds, or the answer says no.
    pub async fn build_info(&self) -> Result<BuildInfo, ClientError> {
        self.get("/api/v1/status/buildinfo", &[]).await
    }

    /// Value of an expression at `at` (Unix seconds), by default now. A scalar is one sample
    /// without labels; NaN and infinities are values.
    ///
    /// # Errors
    /// As all questions; the expression is wrong, or its value is a text.
    pub async fn query(&self, expr: &str, at: Option<f64>) -> Result<Vec<Sample>, ClientError> {
        let time = at.map(number);
        let mut pairs = vec![("query", expr)];
        pairs.extend(time.as_deref().map(|time| ("time", time)));
        let path = "/api/v1/query";
        let data: Data = self.post(path, &pairs).await?;
        data.samples().map_err(|why| self.odd(path, why, expr.as_bytes()))
    }

    /// Values of an expression at each step of a range, by series.
    ///
    /// # Errors
    /// As all questions; the expression is wrong, or the range has more steps than the server
    /// takes (11,000).
    pub async fn query_range(&self, expr: &str, range: Range) -> Result<Vec<Series>, ClientError> {
        let (start, end) = (number(range.start), number(range.end));
        let step = number(range.step);
        let path = "/api/v1/query_range";
        let pairs = [("query", expr), ("start", &*start), ("end", &*end), ("step", &*step)];
        let data: Data = self.post(path, &pairs).await?;
        data.series().map_err(|why| self.odd(path, why, expr.as_bytes()))
    }

    /// Labels of the series that any of the selectors matches and that have a sample between
    /// `start` and `end` (Unix seconds).
    ///
    /// # Errors
    /// As all questions; a selector is wrong.
    pub async fn series(
        &self,
        matchers: &[&str],
        start: f64,
        end: f64,
    ) -> Result<Vec<Labels>, ClientError> {
        let (start, end) = (number(start), number(end));
        let mut pairs = vec![("start", &*start), ("end", &*end)];
        pairs.extend(matchers.iter().map(|matcher| ("match[]", *matcher)));
        self.post("/api/v1/series", &pairs).await
    }

    /// Values of a label, sorted, of the series that any of the selectors matches (of all without
    /// one) and that have a sample between `start` and `end` (Unix seconds).
    ///
    /// # Errors
    /// As all questions; a selector is wrong.
    pub async fn label_values(
        &self,
        label: &str,
        matchers: &[&str],
        start: f64,
        end: f64,
    ) -> Result<Vec<String>, ClientError> {
        let (start, end) = (number(start), number(end));
        let mut pairs = vec![("start", &*start), ("end", &*end)];
        pairs.extend(matchers.iter().map(|matcher| ("match[]", *matcher)));
        self.get(&format!("/api/v1/label/{}/values", encoded(label)), &pairs).await
    }

    /// What the scraped pages say of their metrics, by name.
    ///
    /// # Errors
    /// As all questions.
    pub async fn metadata(&self) -> Result<BTreeMap<String, Vec<Metadata>>, ClientError> {
        self.get("/api/v1/metadata", &[]).await
    }

    /// What is scraped. Behind a proxy or another store this is often missing: see
    /// [`ClientError::is_missing`].
    ///
    /// # Errors
    /// As all questions.
    pub async fn targets(&self) -> Result<Targets, ClientError> {
        self.get("/api/v1/targets", &[("state", "active")]).await
    }

    /// The groups of rules that are evaluated.
    ///
    /// # Errors
    /// As all questions.
    pub async fn rules(&self) -> Result<Vec<RuleGroup>, ClientError> {
        let groups: Groups = self.get("/api/v1/rules", &[]).await?;
        Ok(groups.groups)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        pairs: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let query = form(pairs);
        let whole = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let answer = self.http.send(Method::GET, &whole, None).await?;
        self.read(path, &answer)
    }

    /// Posts, because expressions are long; gets where only that is let through.
    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        pairs: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let content_type = "application/x-www-form-urlencoded";
        let body = Body { content_type, bytes: form(pairs).into() };
        let answer = self.http.send(Method::POST, path, Some(body)).await?;
        if answer.status == 405 {
            return self.get(path, pairs).await;
        }
        self.read(path, &answer)
    }

    fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        answer: &http::Answer,
    ) -> Result<T, ClientError> {
        let envelope: Result<Envelope<T>, _> = serde_json::from_slice(&answer.body);
        match envelope {
            Ok(Envelope { data: Some(data), error: None, .. }) if answer.status == 200 => Ok(data),
            Ok(Envelope { error: Some(message), error_type, .. }) => Err(ClientError::Refused {
                url: self.http.url(path),
                kind: error_type.unwrap_or_else(|| format!("HTTP {}", answer.status)),
                message,
            }),
            Ok(_) if answer.status == 200 => {
                Err(self.odd(path, "no data in it".to_owned(), &answer.body))
            }
            Err(error) if answer.status == 200 => {
                Err(self.odd(path, error.to_string(), &answer.body))
            }
            Ok(_) | Err(_) => Err(self.status(path, answer)),
        }
    }

    fn odd(&self, path: &str, why: String, body: &[u8]) -> ClientError {
        ClientError::NotUnderstood {
            url: self.http.url(path),
            expected: "Prometheus",
            why,
            start: error::shortened(body, SHOWN),
        }
    }

    fn status(&self, path: &str, answer: &http::Answer) -> ClientError {
        let advice = match answer.status {
            301..=308 => format!(
                "it points to {}: give that address",
                answer.location.as_deref().unwrap_or("nowhere")
            ),
            401 => "it asks who you are: give --user with --password-file, or --token-file".into(),
            403 => "these credentials may not read it: give others, or let them".into(),
            404 => format!(
                "no Prometheus answers below {}: give the address below which /api/v1/query does",
                self.address()
            ),
            429 | 502..=504 => {
                "what is in front of it is busy or cannot reach it: try again".into()
            }
            _ => "look at its log".to_owned(),
        };
        ClientError::Status {
            url: self.http.url(path),
            status: answer.status,
            said: error::shortened(&answer.body, SHOWN),
            advice,
        }
    }
}

/// A number as the API reads it: milliseconds are the finest that it stores.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
