//! Errors as OpenAI clients read them: a status and a body `{"error": {...}}`.

use serde::Serialize;

/// A refused or failed request: what goes into the status line and the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status, 4xx or 5xx.
    pub status: u16,
    /// One sentence for a person.
    pub message: String,
    /// The class, `type` on the wire.
    pub kind: &'static str,
    /// The field the error is about, as a path.
    pub param: Option<String>,
    /// What programs may branch on.
    pub code: Option<&'static str>,
    /// Whole seconds for the `Retry-After` header.
    pub retry_after: Option<u64>,
}

impl ApiError {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None, retry_after: None }
    }

    /// 400: the request is not valid. `param` is the field's path.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let error = Self::new(400, "invalid_request_error", message);
        Self { param: Some(param.into()), code: Some("invalid_value"), ..error }
    }

    /// 400: the body as a whole is not a request.
    pub fn malformed(message: impl Into<String>) -> Self {
        let error = Self::new(400, "invalid_request_error", message);
        Self { code: Some("invalid_json"), ..error }
    }

    /// 400: valid for OpenAI, but not offered here.
    pub fn unsupported(param: &str, why: &str) -> Self {
        let error = Self::new(400, "invalid_request_error", format!("{param}: {why}"));
        Self { param: Some(param.to_owned()), code: Some("unsupported_parameter"), ..error }
    }

    /// 400: prompt and answer do not fit. Clients find this by its code and by its first words.
    #[must_use]
    pub fn context_length(message: String) -> Self {
        let error = Self::new(400, "invalid_request_error", message);
        Self { code: Some("context_length_exceeded"), ..error }
    }

    /// 404: no such model.
    #[must_use]
    pub fn unknown_model(model: &str) -> Self {
        let shown: String = model.chars().take(100).collect();
        let message = format!("The model `{shown}` does not exist.");
        let error = Self::new(404, "invalid_request_error", message);
        Self { param: Some("model".to_owned()), code: Some("model_not_found"), ..error }
    }

    /// 404: no such path, with the reason where it is known.
    #[must_use]
    pub fn unknown_path(path: &str) -> Self {
        let shown: String = path.chars().take(100).collect();
        let why = crate::absent::reason(path).map(|reason| format!(": {reason}."));
        let message = format!("Unknown path {shown}{}", why.unwrap_or_default());
        let error = Self::new(404, "invalid_request_error", message);
        Self { code: Some("not_found"), ..error }
    }

    /// 405: the path exists, but not for this method.
    #[must_use]
    pub fn method_not_allowed(method: &str, path: &str) -> Self {
        let message = format!("{method} is not allowed on {path}");
        let error = Self::new(405, "invalid_request_error", message);
        Self { code: Some("method_not_allowed"), ..error }
    }

    /// 413: the body is larger than `limit_bytes`.
    #[must_use]
    pub fn body_too_large(limit_bytes: u64) -> Self {
        let message = format!("The request body is larger than {limit_bytes} bytes.");
        let error = Self::new(413, "invalid_request_error", message);
        Self { code: Some("request_too_large"), ..error }
    }

    /// 415: the body is not declared as JSON.
    #[must_use]
    pub fn media_type(found: &str) -> Self {
        let shown: String = found.chars().take(100).collect();
        let message = format!("Content-Type must be application/json, found {shown:?}");
        let error = Self::new(415, "invalid_request_error", message);
        Self { code: Some("unsupported_media_type"), ..error }
    }

    /// 429: full. `code` says which limit.
    #[must_use]
    pub fn overloaded(code: &'static str, message: String, retry_after: u64) -> Self {
        let error = Self::new(429, "rate_limit_error", message);
        Self { code: Some(code), retry_after: Some(retry_after), ..error }
    }

    /// 503: not serving now, such as while draining.
    #[must_use]
    pub fn unavailable(code: &'static str, message: String, retry_after: u64) -> Self {
        let error = Self::new(503, "service_unavailable_error", message);
        Self { code: Some(code), retry_after: Some(retry_after), ..error }
    }

    /// 500: the fault is ours.
    pub fn internal(message: impl Into<String>) -> Self {
        let error = Self::new(500, "server_error", message);
        Self { code: Some("internal_error"), ..error }
    }

    /// The body; also the data of an error event inside a stream.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: self.message.clone(),
                kind: self.kind,
                param: self.param.clone(),
                code: self.code,
            },
        }
    }
}

/// `{"error": {"message", "type", "param", "code"}}`; absent values are null.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// The inside of [`ErrorBody`].
#[derive(Debug, Clone, Serialize)]
pub struct ErrorDetail {
    /// One sentence for a person.
    pub message: String,
    /// The class of error.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field's path.
    pub param: Option<String>,
    /// What programs may branch on.
    pub code: Option<&'static str>,
}
