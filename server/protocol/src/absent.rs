//! Paths that clients ask for and nobody here has: what there is instead.

/// Beginnings of paths, what this server lacks, and what to do.
const ABSENT: [(&[&str], &str, &str); 8] = [
    (
        &["/embeddings", "/pooling"],
        "this server has no embedding model",
        "it generates text, at /v1/completions and /v1/chat/completions",
    ),
    (&["/responses"], "this server has no responses API", "use /v1/chat/completions"),
    (
        &["/audio", "/realtime"],
        "this server has no speech model",
        "it generates text, at /v1/completions and /v1/chat/completions",
    ),
    (
        &["/images", "/videos"],
        "this server has no image model",
        "it generates text, at /v1/completions and /v1/chat/completions",
    ),
    (
        &["/moderations", "/classify"],
        "this server has no moderation model",
        "it generates text, at /v1/completions and /v1/chat/completions",
    ),
    (
        &["/rerank", "/score"],
        "this server has no ranking model",
        "log-probabilities come from /v1/completions with echo and logprobs",
    ),
    (
        &["/files", "/uploads", "/batches", "/fine_tuning", "/vector_stores"],
        "this server stores no files",
        "send each request by itself",
    ),
    (
        &["/assistants", "/threads", "/conversations"],
        "this server keeps no conversations",
        "send all messages with each request to /v1/chat/completions",
    ),
];

/// Why there is no such path, where it is known.
pub(crate) fn reason(path: &str) -> Option<String> {
    let bare = path.strip_prefix("/v1").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let is = |start: &&str| {
        bare.strip_prefix(*start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let known = ABSENT.iter().find(|(starts, ..)| starts.iter().any(is));
    if let Some((_, lacks, instead)) = known {
        return Some(format!("{lacks}; {instead}"));
    }
    let ours = ["/completions", "/chat/completions", "/models"];
    let doubled = bare.strip_prefix("/v1").is_some_and(|rest| ours.contains(&rest));
    if doubled {
        Some("/v1 is there twice: clients that add it want a base address without it".to_owned())
    } else if ours.contains(&path) {
        Some(format!("the path is /v1{path}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::ApiError;

    #[test]
    fn absent_endpoints_say_why() {
        let message = |path: &str| {
            let error = ApiError::unknown_path(path);
            assert_eq!((error.status, error.code), (404, Some("not_found")));
            error.message
        };
        for path in ["/v1/embeddings", "/embeddings", "/v1/embeddings/"] {
            assert!(message(path).contains("this server has no embedding model"), "{path}");
        }
        assert!(message("/v1/responses/resp_1").contains("no responses API; use /v1/chat"));
        assert!(message("/v1/audio/speech").contains("no speech model"));
        assert!(message("/v1/fine_tuning/jobs").contains("stores no files"));
        assert!(message("/chat/completions").contains("the path is /v1/chat/completions"));
        assert!(message("/v1/v1/completions").contains("/v1 is there twice"));
        for path in ["/v1/nothing", "/v1/embeddingsx", "/v1", "/", "/v1/completions2"] {
            assert_eq!(message(path), format!("Unknown path {path}"));
        }
    }
}
