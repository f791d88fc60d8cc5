//! The pages of a model, known from its configuration alone.

use crate::arch::{deepseek_v4, pool_specs};
use crate::config::ModelConfig;
use crate::runner::PoolSpec;

/// Tokens of a KV page where nobody says otherwise.
const PAGE_TOKENS: usize = 16;
/// The same of DeepSeek-V4, as engines that it is published for use; rounded up where that is no
/// multiple of what the model needs.
const DEEPSEEK_V4_PAGE_TOKENS: usize = 256;

/// A number of tokens that pages of a model cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "pages of {page_tokens} tokens do not hold whole windows of a {architecture} model; \
     use a multiple of {multiple}, such as {works}"
)]
pub struct PageTokensError {
    /// What was asked for.
    pub page_tokens: usize,
    /// The architecture.
    pub architecture: String,
    /// Pages are a multiple of it.
    pub multiple: usize,
    /// The nearest number that is, upwards.
    pub works: usize,
}

/// Pages of this model hold a multiple of so many tokens.
#[must_use]
pub fn page_multiple(config: &ModelConfig) -> usize {
    config.deepseek_v4.as_ref().map_or(1, |v4| v4.page_multiple())
}

/// The KV pools of a model on one rank, known from its configuration alone, with pages of
/// `page_tokens` tokens; `None`: as [`LoadOptions::page_tokens`](super::LoadOptions::page_tokens).
///
/// # Errors
/// [`PageTokensError`] where pages of this model cannot hold so many.
pub fn pools_of(
    config: &ModelConfig,
    page_tokens: Option<usize>,
) -> Result<Vec<PoolSpec>, PageTokensError> {
    let Some(v4) = &config.deepseek_v4 else {
        return Ok(pool_specs(config, page_tokens.unwrap_or(PAGE_TOKENS).max(1), true));
    };
    let multiple = v4.page_multiple();
    let usual = DEEPSEEK_V4_PAGE_TOKENS.next_multiple_of(multiple);
    let page_tokens = page_tokens.unwrap_or(usual);
    if page_tokens == 0 || !page_tokens.is_multiple_of(multiple) {
        return Err(PageTokensError {
            page_tokens,
            architecture: config.architecture.to_string(),
            multiple,
            works: page_tokens.max(1).checked_next_multiple_of(multiple).unwrap_or(usual),
        });
    }
    Ok(deepseek_v4::specs(config, v4, page_tokens))
}
