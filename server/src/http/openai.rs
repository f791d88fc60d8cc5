//! `/v1/models`, `/v1/completions`, `/v1/chat/completions`: the front door of generation.
//!
//! Order is everything here: a place in the queue before any work, the whole prompt charged before
//! anything is generated, and all refusals before a header is sent.

use std::sync::Arc;

use admission::{QueuePermit, RejectReason, Rejected};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use engine::Namespace;
use model::SamplingParams;
use protocol::internal::PROMPT_TOKENS_HEADER;
use protocol::{ApiError, Envelope, Limits, MAX_PROMPT_LOGPROBS, ModelCard, ModelList};
use transfer::PeerName;
use types::{Priority, PriorityClass, Time};

use super::error::{Failure, not_taken};
use super::prompt::{Ask, AtTheDoor, Echo, Endpoint, Prepared, Tokenized};
use super::record::Arrival;
use super::remote::{Asked, Remote};
use super::respond::{self, Accepted};
use super::tenant::{self, mentions_priority};
use super::usage::Tally;
use super::{Api, Serving, body, json};
use crate::cli::PrefixCacheScope;
use crate::generate::{Common, Generation, Planned};
use crate::pd::offer::Taken;

/// `/v1/models`.
pub(super) async fn models(State(api): State<Arc<Api>>) -> Response {
    json(StatusCode::OK, &ModelList::new(vec![api.card()]))
}

/// `/v1/models/{model}`.
pub(super) async fn model(
    State(api): State<Arc<Api>>,
    uri: Uri,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Failure> {
    // A name that is not UTF-8 is no model's.
    let Path(name) = name.map_err(|_| ApiError::unknown_path(uri.path()))?;
    api.check_model(Some(&name))?;
    Ok(json(StatusCode::OK, &api.card()))
}

/// `/v1/completions`.
pub(super) async fn completions(State(api): State<Arc<Api>>, request: Request) -> Response {
    infer(&api, request, Endpoint::Completions).await
}

/// `/v1/chat/completions`.
pub(super) async fn chat(State(api): State<Arc<Api>>, request: Request) -> Response {
    infer(&api, request, Endpoint::Chat).await
}

/// A request that is not taken, and how many answers it asked for.
struct Denied {
    failure: Failure,
    choices: usize,
    priority: PriorityClass,
    /// Of its prompts, where they are counted.
    tokens: Option<u64>,
}

impl Denied {
    /// With the tokens of its prompts.
    fn counted(self, prompts: &[Tokenized]) -> Self {
        let tokens: usize = prompts.iter().map(|prompt| prompt.tokens.len()).sum();
        Self { tokens: Some(tokens as u64), ..self }
    }
}

impl<E: Into<Failure>> From<E> for Denied {
    fn from(error: E) -> Self {
        let (failure, priority) = (error.into(), PriorityClass::Normal);
        Self { failure, choices: 1, priority, tokens: None }
    }
}

async fn infer(api: &Arc<Api>, request: Request, endpoint: Endpoint) -> Response {
    let arrival = request.extensions().get::<Arrival>().cloned();
    let arrival = arrival.unwrap_or_else(|| Arrival::now(api.clock.now()));
    match accept(api, request, endpoint, &arrival).await {
        Ok(accepted) => {
            let tokens = accepted.tally.prompt_tokens();
            counted(respond::respond(accepted).await, Some(tokens))
        }
        Err(denied) => {
            api.count(&denied);
            counted(denied.failure.into_response(), denied.tokens)
        }
    }
}

/// Tells routers how long the prompts are.
fn counted(mut response: Response, tokens: Option<u64>) -> Response {
    if let Some(tokens) = tokens {
        let name = HeaderName::from_static(PROMPT_TOKENS_HEADER);
        response.headers_mut().insert(name, HeaderValue::from(tokens));
    }
    response
}

/// Steps 1 to 4 of a request's path: read, admit, tokenise, charge, hand over.
async fn accept(
    api: &Arc<Api>,
    request: Request,
    endpoint: Endpoint,
    arrival: &Arrival,
) -> Result<Accepted, Denied> {
    api.check_drain(request.headers())?;
    let route = api.route(request.headers(), arrival)?;
    let serving = api.serving().ok_or_else(Failure::loading)?;
    let tenant = tenant::of_header(request.headers(), &api.tenant_header)?;
    let body = body::read(request, api.body).await?;
    // Who would not get a place whatever the body says is refused before it is parsed.
    let most = if mentions_priority(&body) { Priority::MAX } else { Priority::NORMAL };
    serving.admission.check(most, 1, api.clock.now())?;
    let limits = api.limits(serving);
    let ask = Ask::parse(endpoint, &body, &limits)?;
    drop(body);
    api.check_model(Some(&ask.model))?;
    let (choices, prompts) = (ask.choices(), ask.prompts());
    let priority = api.priority_order.read(ask.generation.priority);
    let class = priority.class();
    let denied = |failure| Denied { failure, choices, priority: class, tokens: None };
    let permits = api.admit(serving, priority, prompts, choices).map_err(denied)?;
    let Ask { input, generation, echo, structure, .. } = ask;
    let tenant = tenant.or_else(|| generation.user.as_deref().map(Arc::from));
    let namespace = api.namespace(tenant.as_deref(), generation.cache_salt.as_deref());
    let door = api.at_the_door(serving, echo, &namespace, &permits);
    let prepared = api.prepare(serving, input, echo, structure, door).await.map_err(denied)?;
    let Prepared { prompts, compiled, calls } = prepared;
    let stops = stop_tokens(serving, &generation, compiled.is_some()).map_err(denied)?;
    let tokenized = api.clock.now();
    let budgets = budgets(&generation, &prompts, &limits).map_err(|error| denied(error.into()))?;
    let asked = Asked { route: &route, namespace: &namespace, tenant: tenant.as_deref(), priority };
    let placed = api.place(serving, &asked, &generation, &prompts, permits, &budgets).await;
    let (peer, planned) = placed.map_err(|failure| denied(failure).counted(&prompts))?;
    let lengths: Vec<usize> = planned.iter().map(|planned| planned.prompt.len()).collect();
    let id = planned.first().map_or(0, |planned| planned.id.0);
    let common = Common {
        stop_tokens: stops,
        stops: generation.stop.clone(),
        min_tokens: generation.min_tokens,
        // Evaluation tools count on an entry for each token of a completion; chats have entries
        // for the tokens of their content only.
        stop_logprob: endpoint == Endpoint::Completions,
        compiled,
        calls,
        tenant,
        namespace,
        streaming: generation.stream,
        arrived: arrival.at,
        tokenized,
    };
    let (engine, tokenizer) = (&serving.engine, &serving.tokenizer);
    let events = Generation::start(engine, tokenizer, api.max_unsent, &common, planned)
        .map_err(|error| denied(not_taken(&error)))?;
    lengths.into_iter().for_each(|tokens| api.requests.admitted(tokens, class));
    Ok(Accepted {
        events,
        endpoint,
        envelope: api.envelope(endpoint, id, arrival.at),
        tally: Tally::new(prompts.iter().map(|prompt| prompt.tokens.len()), generation.n),
        echoes: echoes(prompts, generation.n),
        stream: generation.stream,
        include_usage: generation.include_usage,
        status: arrival.status.clone(),
        peer,
    })
}

impl Api {
    /// What requests are checked against.
    pub(super) fn limits(&self, serving: &Serving) -> Limits {
        let vocab = serving.tokenizer.vocab_size().min(serving.spec.vocab);
        Limits { vocab, max_context: self.max_context }
    }

    fn card(&self) -> ModelCard {
        ModelCard::new(self.model_name.clone(), self.created, self.max_context)
    }

    fn envelope(&self, endpoint: Endpoint, id: u64, arrived: Time) -> Envelope {
        let prefix = match endpoint {
            Endpoint::Completions => "cmpl",
            Endpoint::Chat => "chatcmpl",
        };
        Envelope {
            id: format!("{prefix}-{:016x}{id:08x}", self.nonce()),
            created: self.clock.unix_seconds(arrived) as u64,
            model: self.model_name.clone(),
        }
    }

    /// With whom a request of `tenant` with `salt` shares cached pages.
    fn namespace(&self, tenant: Option<&str>, salt: Option<&str>) -> Namespace {
        match self.cache_scope {
            PrefixCacheScope::Tenant => Namespace::new(tenant, salt),
            PrefixCacheScope::Server => Namespace::new(None, salt),
        }
    }

    /// How the first of these permits is told of its prompt before that is tokenised. One that is
    /// scored is computed whole, and looked at when its tokens are known.
    fn at_the_door(
        &self,
        serving: &Serving,
        echo: Echo,
        namespace: &Namespace,
        permits: &[QueuePermit],
    ) -> AtTheDoor {
        let glance = self.glance(serving, namespace).filter(|_| echo != Echo::Scored);
        glance.zip(permits.first().map(QueuePermit::outlook))
    }

    /// A place in the queue for each answer, or for none of them.
    fn admit(
        &self,
        serving: &Serving,
        priority: Priority,
        prompts: usize,
        choices: usize,
    ) -> Result<Vec<QueuePermit>, Failure> {
        let together = self.max_together();
        if choices > together {
            return Err(never_fits(prompts, choices, together).into());
        }
        Ok(serving.admission.try_admit_family(priority, choices, self.clock.now())?)
    }

    /// Finds out who computes each prompt, and charges those that are computed here.
    async fn place(
        &self,
        serving: &Serving,
        asked: &Asked<'_>,
        generation: &protocol::Generation,
        prompts: &[Tokenized],
        permits: Vec<QueuePermit>,
        budgets: &[usize],
    ) -> Result<(Option<PeerName>, Vec<Planned>), Failure> {
        let Remote { peer, choices } = self.offer(serving, asked, prompts, generation.n).await?;
        let named = asked.namespace;
        let planned = self.plan(serving, generation, named, prompts, permits, budgets, choices);
        let class = asked.priority.class();
        let planned = planned.inspect_err(|failure| {
            self.count_evicted(failure, prompts, generation.n, class);
        })?;
        Ok((peer, planned))
    }

    /// Charges every prompt. One that is computed elsewhere counts as a request, not in tokens:
    /// those are counted where they are computed.
    #[expect(clippy::too_many_arguments, reason = "what the steps before have found out")]
    fn plan(
        &self,
        serving: &Serving,
        generation: &protocol::Generation,
        namespace: &Namespace,
        prompts: &[Tokenized],
        permits: Vec<QueuePermit>,
        budgets: &[usize],
        remote: Vec<Option<Taken>>,
    ) -> Result<Vec<Planned>, Failure> {
        let now = self.clock.now();
        let mut planned = Vec::with_capacity(permits.len());
        let choices = permits.into_iter().zip(remote).enumerate();
        for (choice, (permit, taken)) in choices {
            let Tokenized { tokens, scored_echo, .. } = &prompts[choice / generation.n];
            let cached = match (&taken, scored_echo) {
                (Some(_), _) => tokens.len(),
                // A prompt that is scored is computed whole.
                (None, Some(_)) => 0,
                (None, None) => serving.engine.cached_prefix(namespace, tokens),
            };
            let permit = permit.charge_cached(tokens.len() as u64, cached as u64, now)?;
            let (id, remote) = match taken {
                Some(Taken { id, offered }) => (id, Some(offered)),
                None => (self.next_id(), None),
            };
            planned.push(Planned {
                id,
                permit,
                prompt: tokens.clone(),
                sampling: sampling(generation, choice),
                max_tokens: budgets[choice / generation.n],
                echo: scored_echo.clone(),
                remote,
            });
        }
        Ok(planned)
    }

    /// An evicted request had its place in the queue: it was admitted before it was refused.
    fn count_evicted(
        &self,
        failure: &Failure,
        prompts: &[Tokenized],
        n: usize,
        priority: PriorityClass,
    ) {
        let evicted = |refusal: &Rejected| match refusal.reason {
            RejectReason::PriorityEvicted | RejectReason::QueueTimeout => true,
            RejectReason::QueueRequestsFull
            | RejectReason::QueueTokensFull
            | RejectReason::DrainTime
            | RejectReason::Draining
            | RejectReason::Unhealthy => false,
        };
        if matches!(failure, Failure::Refused(refusal) if evicted(refusal)) {
            for prompt in prompts {
                for _ in 0..n {
                    self.requests.admitted(prompt.tokens.len(), priority);
                }
            }
        }
    }

    fn count(&self, denied: &Denied) {
        let (choices, priority) = (denied.choices, denied.priority);
        match &denied.failure {
            Failure::Refused(refusal) => self.requests.rejected(refusal, choices, priority),
            Failure::Pair(failure) => match failure.refusal() {
                Some(refusal) => self.requests.rejected(&refusal, choices, priority),
                None => self.requests.invalid(choices, priority),
            },
            Failure::Api(error) if error.status < 500 => self.requests.invalid(choices, priority),
            Failure::Api(_) => {}
        }
    }
}

/// What each answer may take, in tokens.
fn budgets(
    generation: &protocol::Generation,
    prompts: &[Tokenized],
    limits: &Limits,
) -> Result<Vec<usize>, ApiError> {
    let budget = |prompt: &Tokenized| generation.budget(prompt.tokens.len(), limits);
    let budgets = prompts.iter().map(budget).collect::<Result<_, _>>()?;
    bound_prompt_logprobs(generation, prompts)?;
    Ok(budgets)
}

/// How the tokens of one answer are chosen.
fn sampling(generation: &protocol::Generation, choice: usize) -> SamplingParams {
    SamplingParams {
        temperature: generation.temperature,
        top_k: generation.top_k,
        top_p: generation.top_p,
        min_p: generation.min_p,
        repetition_penalty: generation.repetition_penalty,
        presence_penalty: generation.presence_penalty,
        frequency_penalty: generation.frequency_penalty,
        logit_bias: generation.logit_bias.clone(),
        min_tokens: generation.min_tokens,
        seed: generation.seed_of(choice),
        logprobs: generation.logprobs,
    }
}

/// More answers than the batch and the queue ever have places for: the client must ask for fewer,
/// not come back later.
fn never_fits(prompts: usize, choices: usize, places: usize) -> ApiError {
    let n = choices / prompts.max(1);
    let queue = format!(
        "never fit into {places} places (--max-running-requests and --max-queued-requests)"
    );
    if prompts <= 1 {
        let message = format!("n: {choices} answers {queue}; ask for at most {places}");
        return ApiError::invalid("n", message);
    }
    let each = if n == 1 { String::new() } else { format!(" with n = {n}") };
    let fix = match places / n {
        0 => format!("ask for n = {places} or fewer"),
        most => format!("send at most {most} in one list"),
    };
    let message = format!("prompt: the answers to {prompts} prompts{each} {queue}; {fix}");
    ApiError::invalid("prompt", message)
}

/// Log-probabilities of prompts are held until the whole prompt is scored.
fn bound_prompt_logprobs(
    generation: &protocol::Generation,
    prompts: &[Tokenized],
) -> Result<(), ApiError> {
    let scored = prompts.iter().filter(|prompt| prompt.scored_echo.is_some());
    let tokens: usize = scored.map(|prompt| prompt.tokens.len()).sum();
    let each = usize::from(generation.logprobs.unwrap_or(0)) + 1;
    let wanted = tokens.saturating_mul(each).saturating_mul(generation.n);
    if wanted <= MAX_PROMPT_LOGPROBS {
        return Ok(());
    }
    let message = format!(
        "echo: {tokens} prompt tokens with logprobs = {} and n = {} are {wanted} \
         log-probabilities; at most {MAX_PROMPT_LOGPROBS} in one request. Send fewer prompts at a \
         time, or ask for fewer alternatives.",
        each - 1,
        generation.n
    );
    Err(ApiError::invalid("echo", message))
}

/// The model's own end tokens, unless they are to be ignored, and the request's. An answer of a
/// given form is over when it is complete, so there they are never ignored.
fn stop_tokens(
    serving: &Serving,
    generation: &protocol::Generation,
    formed: bool,
) -> Result<Vec<types::TokenId>, Failure> {
    let named = serving.tokenizer.special().eos.as_ref().and_then(|eos| eos.id);
    let own = serving.spec.eos.iter().copied().chain(named);
    let mut tokens = generation.stop_token_ids.clone();
    if !formed {
        if !generation.ignore_eos {
            tokens.extend(own);
        }
        return Ok(tokens);
    }
    let own: Vec<_> = own.collect();
    match (tokens.is_empty(), own.is_empty()) {
        (true, false) => Ok(own),
        // The form needs some end, and this model has none.
        (false, true) => Ok(tokens),
        (true, true) => {
            let why = "the model has no end token; give stop_token_ids";
            Err(ApiError::unsupported("stop_token_ids", why).into())
        }
        (false, false) => {
            let message = "stop_token_ids: an answer that has a form ends where its form does; \
                           leave them out";
            Err(ApiError::invalid("stop_token_ids", message).into())
        }
    }
}

/// What each answer begins with.
fn echoes(prompts: Vec<Tokenized>, n: usize) -> Vec<String> {
    prompts.into_iter().flat_map(|prompt| std::iter::repeat_n(prompt.echo, n)).collect()
}
