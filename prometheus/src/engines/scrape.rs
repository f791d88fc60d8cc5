//! Scrape jobs for processes of other engines.
//!
//! What matters is in the relabelling. Both jobs of SGLang give one process the same `instance` and
//! `cluster`, because what `/v1/loads` says is joined with the page by these two. The role of a
//! vLLM process becomes `engine_role`; SGLang exports its own as `engine_type`, and a target label
//! of that name would hide it. Nothing here sets `model_name`: both engines export it.

use std::fmt::Write as _;

use super::Engine;

/// A process to scrape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address as `host:port`; becomes the `instance`.
    pub address: String,
    /// Cluster that it is of.
    pub cluster: String,
    /// Host that it runs on, where known.
    pub node: Option<String>,
    /// `prefill`, `decode` or `unified`, where known.
    pub role: Option<String>,
}

impl Endpoint {
    fn new(address: &str, node: &str, role: &str) -> Self {
        Self {
            address: address.to_owned(),
            cluster: "local".to_owned(),
            node: Some(node.to_owned()),
            role: Some(role.to_owned()),
        }
    }

    /// One entry of a `static_configs` list.
    fn entry(&self) -> String {
        let mut labels = vec![format!("cluster: {:?}", self.cluster)];
        labels.extend(self.node.as_ref().map(|node| format!("node: {node:?}")));
        labels.extend(self.role.as_ref().map(|role| format!("role: {role:?}")));
        format!("      - {{targets: [{:?}], labels: {{{}}}}}", self.address, labels.join(", "))
    }
}

/// Name of the scrape job for the pages of an engine.
pub const fn job(engine: Engine) -> &'static str {
    engine.as_str()
}

/// Name of the scrape job for `/v1/loads` of SGLang.
pub const LOADS_JOB: &str = "sglang-loads";

/// The entries of `scrape_configs` for these processes.
pub fn jobs(engine: Engine, endpoints: &[Endpoint]) -> String {
    let targets = endpoints.iter().map(Endpoint::entry).collect::<Vec<_>>().join("\n");
    let mut text = String::new();
    let mut add = |name: &str, path: &str, role: &str| {
        write!(
            text,
            "  - job_name: {name}\n    metrics_path: {path}\n    static_configs:\n{targets}\n    \
             relabel_configs:\n      - {{source_labels: [__address__], target_label: instance}}\n\
             {role}      - {{regex: role, action: labeldrop}}\n"
        )
        .expect("writing to a String cannot fail");
    };
    match engine {
        Engine::Sglang => {
            add(job(engine), "/metrics", "");
            add(LOADS_JOB, "/v1/loads\n    params: {format: [prometheus]}", "");
        }
        Engine::Vllm => {
            let role = "      - {source_labels: [role], target_label: engine_role}\n";
            add(job(engine), "/metrics", role);
        }
    }
    text
}

/// A whole configuration to take the jobs from, with one process of each role.
pub fn example(engine: Engine) -> String {
    let (title, port) = match engine {
        Engine::Sglang => ("SGLang", 30_000),
        Engine::Vllm => ("vLLM", 8000),
    };
    let needs = match engine {
        Engine::Sglang => {
            "# Start the servers with --enable-metrics. `/v1/loads` is a job of \
             its own: it alone says how many tokens wait. Both\n\
             # jobs must give a process the same `instance` and `cluster`; never set \
             `engine_type` or `model_name`, the server does.\n"
        }
        Engine::Vllm => {
            "# vLLM exports no role: `role` of a target becomes `engine_role`. Never set \
             `model_name`, the server does.\n"
        }
    };
    let endpoints = ["prefill", "decode", "unified"]
        .map(|role| Endpoint::new(&format!("{role}-0:{port}"), &format!("{role}-0"), role));
    format!(
        "# Scrape jobs for {title}. Made by `sightline-dashboards generate`; copy it and \
         write your own targets.\n\
         {needs}\
         # `cluster` is on every target; `node` is the host, the same as for its exporter.\n\
         global:\n  scrape_interval: 5s\n  scrape_timeout: 4s\n\n\
         rule_files:\n  - rules/{engine}.yml\n\n\
         scrape_configs:\n{}",
        jobs(engine, &endpoints),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_jobs_of_a_process_have_its_instance() {
        let text = jobs(Engine::Sglang, &[Endpoint::new("p:1", "host \"a\"", "prefill")]);
        let targets = r#"{targets: ["p:1"], labels: {cluster: "local", node: "host \"a\"", "#;
        assert_eq!(text.matches(targets).count(), 2, "{text}");
        let instance = "{source_labels: [__address__], target_label: instance}";
        assert_eq!(text.matches(instance).count(), 2, "{text}");
        assert!(text.contains("job_name: sglang-loads\n    metrics_path: /v1/loads\n"), "{text}");
        assert!(!text.contains("engine_type") && !text.contains("model_name"), "{text}");
    }

    #[test]
    fn the_role_of_vllm_is_a_target_label() {
        let text = jobs(Engine::Vllm, &[]);
        assert!(text.contains("{source_labels: [role], target_label: engine_role}"), "{text}");
    }
}
