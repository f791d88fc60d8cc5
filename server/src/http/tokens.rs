//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use protocol::{
    ApiError, DetokenizeParams, DetokenizeResponse, TokenizeInput, TokenizeParams,
    TokenizeResponse, Tools,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Failure;
use super::prompt::{self, Conversation};
use super::{Api, body, json};

/// When to come back to a full house: each of these requests takes milliseconds.
const RETRY_SECONDS: u64 = 1;

/// The bound on requests that want tokens and no answer. They hold no place in the queue, have one
/// thread of their own, and never wait for a prompt that is to be answered, nor it for them.
#[derive(Debug)]
pub(super) struct Aside {
    most: usize,
    places: Arc<Semaphore>,
    thread: Arc<Semaphore>,
}

impl Aside {
    /// Room for `most` requests, one of them computing.
    pub(super) fn new(most: usize) -> Self {
        Self { most, places: Arc::new(Semaphore::new(most)), thread: Arc::new(Semaphore::new(1)) }
    }

    /// A place, before the body is read; it is free again when the answer is made.
    fn enter(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let message = format!(
                "{} requests to /tokenize and /detokenize are being answered, which is the limit \
                 (--max-tokenize-requests); try again in {RETRY_SECONDS} s.",
                self.most
            );
            ApiError::overloaded("tokenize_requests_full", message, RETRY_SECONDS).into()
        })
    }
}

/// Text or a conversation to tokens.
pub(super) async fn tokenize(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Failure> {
    let serving = api.serving().ok_or_else(Failure::loading)?;
    let _place = api.aside.enter()?;
    let body = body::read(request, api.body).await?;
    let params = TokenizeParams::parse(&body)?;
    api.check_model(params.model.as_deref())?;
    let (now_unix, context) = (api.clock.unix_seconds(api.clock.now()), api.max_context);
    let answer = prompt::tokenize(&api.aside.thread, serving, move |tokenizer| {
        let tokens = match params.input {
            TokenizeInput::Text(text) => {
                prompt::encode(tokenizer, &text, params.add_special_tokens, "prompt")?
            }
            TokenizeInput::Chat { messages, add_generation_prompt, template_kwargs } => {
                let tools = Tools::default();
                let conversation =
                    Conversation { messages, add_generation_prompt, tools, template_kwargs };
                prompt::chat(tokenizer, conversation, now_unix)?
            }
        };
        let texts = || tokens.iter().map(|token| tokenizer.token_text(*token)).collect();
        let texts = params.return_token_strs.then(texts);
        Ok(TokenizeResponse::new(&tokens, texts, context))
    });
    Ok(json(StatusCode::OK, &answer.await?))
}

/// Tokens to text.
pub(super) async fn detokenize(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Failure> {
    let serving = api.serving().ok_or_else(Failure::loading)?;
    let _place = api.aside.enter()?;
    let body = body::read(request, api.body).await?;
    let params = DetokenizeParams::parse(&body, &api.limits(serving))?;
    api.check_model(params.model.as_deref())?;
    let answer = prompt::tokenize(&api.aside.thread, serving, move |tokenizer| {
        let text = tokenizer.decode(&params.tokens, false);
        text.map_err(|error| prompt::wrong("tokens", &error))
    });
    Ok(json(StatusCode::OK, &DetokenizeResponse { prompt: answer.await? }))
}

impl Api {
    /// Whether the model is the one that is served; a request that names none means it.
    pub(super) fn check_model(&self, asked: Option<&str>) -> Result<(), Failure> {
        match asked {
            Some(asked) if asked != self.model_name => Err(ApiError::unknown_model(asked).into()),
            Some(_) | None => Ok(()),
        }
    }
}
