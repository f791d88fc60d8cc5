//! What an engine says at its own address. Everything here is asked by GET.

use hyper::Method;
use metric_catalog::engines::{Engine, signals};
use metric_catalog::target::Target;
use serde::Serialize;
use serde_json::Value;

use crate::client::{Http, address::form};

/// What an engine said.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// Its address, without credentials.
    pub url: String,
    /// Which engine; none where its answers do not tell.
    #[serde(serialize_with = "word")]
    pub target: Option<Target>,
    /// Its version.
    pub version: Option<String>,
    /// What it serves of its scrape jobs: name, and whether.
    pub jobs: Vec<(String, bool)>,
    /// Why it did not answer; empty when it did.
    pub error: String,
}

fn word<S: serde::Serializer>(target: &Option<Target>, serializer: S) -> Result<S::Ok, S::Error> {
    match target {
        Some(target) => serializer.serialize_some(target.as_str()),
        None => serializer.serialize_none(),
    }
}

/// Asks who it is, and whether its pages are served.
pub(super) async fn ask(http: &Http) -> Seen {
    let mut seen = Seen {
        url: http.address().to_string(),
        target: None,
        version: None,
        jobs: Vec::new(),
        error: String::new(),
    };
    let page = match http.send(Method::GET, "/metrics", None).await {
        Ok(answer) => answer,
        Err(error) => {
            seen.error = error.to_string();
            return seen;
        }
    };
    let text = String::from_utf8_lossy(&page.body);
    let by_page = Target::ALL.iter().copied().find(|target| {
        let starts = [format!("{target}:"), format!("{target}_")];
        text.lines().any(|line| starts.iter().any(|start| line.starts_with(start)))
    });
    // SGLang's has the version among many things, vLLM's nothing else.
    let of_sglang = match version(http, "/server_info").await {
        Some(version) => Some(version),
        None => version(http, "/get_server_info").await,
    };
    let of_vllm = version(http, "/version").await;
    seen.target = by_page.or(match (&of_sglang, &of_vllm) {
        (Some(_), _) => Some(Target::Engine(Engine::Sglang)),
        (None, Some(_)) => Some(Target::Engine(Engine::Vllm)),
        (None, None) => None,
    });
    seen.version = of_sglang.or(of_vllm);
    if let Some(Target::Engine(engine)) = seen.target {
        for (name, job) in &signals::of(engine).jobs {
            let pairs = job.params.iter().flat_map(|(key, values)| {
                values.iter().map(move |value| (key.as_str(), value.as_str()))
            });
            let query = form(&pairs.collect::<Vec<_>>());
            let path =
                if query.is_empty() { job.path.clone() } else { format!("{}?{query}", job.path) };
            let answer = http.send(Method::GET, &path, None).await;
            let served = answer.is_ok_and(|answer| {
                let samples = String::from_utf8_lossy(&answer.body);
                answer.status == 200
                    && samples.lines().any(|line| line.starts_with(engine.as_str()))
            });
            seen.jobs.push((name.clone(), served));
        }
    }
    seen
}

async fn version(http: &Http, path: &str) -> Option<String> {
    let answer = http.send(Method::GET, path, None).await.ok()?;
    let said: Value = serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == 200)?;
    Some(said["version"].as_str()?.to_owned())
}
