//! `/v1/models`.

use serde::Serialize;

/// The answer of `/v1/models`.
#[derive(Debug, Clone, Serialize)]
pub struct ModelList {
    /// Always `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelCard>,
}

impl ModelList {
    /// A list of these models.
    #[must_use]
    pub fn new(data: Vec<ModelCard>) -> Self {
        Self { object: "list", data }
    }
}

/// One model; also the answer of `/v1/models/{id}`.
#[derive(Debug, Clone, Serialize)]
pub struct ModelCard {
    /// The served name.
    pub id: String,
    /// Always `model`.
    pub object: &'static str,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// Always `sightline`.
    pub owned_by: &'static str,
    /// Prompt and answer together have at most this many tokens.
    pub max_model_len: usize,
}

impl ModelCard {
    /// The card of a served model.
    #[must_use]
    pub fn new(id: String, created: u64, max_model_len: usize) -> Self {
        Self { id, object: "model", created, owned_by: "sightline", max_model_len }
    }
}
