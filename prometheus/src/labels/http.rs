//! What HTTP requests are told apart by.

use super::*;

closed! {
    /// Template of the path of an HTTP request.
    Route: "route" {
        /// Completions.
        Completions = "/v1/completions",
        /// Chat completions.
        ChatCompletions = "/v1/chat/completions",
        /// Models served.
        Models = "/v1/models",
        /// One of them.
        Model = "/v1/models/{model}",
        /// Text to tokens.
        Tokenize = "/tokenize",
        /// Tokens to text.
        Detokenize = "/detokenize",
        /// Metrics page.
        Metrics = "/metrics",
        /// Version.
        Version = "/version",
        /// Advice on the size of the host tier.
        Plan = "/internal/plan" of ENGINES,
        /// What there is to do, for routers.
        Load = "/internal/load" of ENGINES,
        /// What the router knows of its workers.
        Workers = "/internal/workers" of ROUTER,
        /// Settings that can change at run time.
        AdminConfig = "/admin/config",
        /// Refuses new requests, or takes them again.
        AdminDrain = "/admin/drain" of ENGINES,
        /// Sends no more requests to a worker, or does so again.
        AdminWorker = "/admin/workers/{worker}/drain" of ROUTER,
        /// Lists one more worker.
        AdminWorkers = "/admin/workers" of ROUTER,
        /// Drains a worker and lists it no more.
        AdminListed = "/admin/workers/{worker}" of ROUTER,
        /// Readiness, on the API port too.
        Health = "/health",
        /// Any other path.
        Other = "other",
    }
    /// Method of an HTTP request.
    Method: "method" {
        /// GET.
        Get = "GET",
        /// POST.
        Post = "POST",
        /// HEAD.
        Head = "HEAD",
        /// PUT.
        Put = "PUT",
        /// DELETE.
        Delete = "DELETE",
        /// PATCH.
        Patch = "PATCH",
        /// OPTIONS.
        Options = "OPTIONS",
        /// Any other.
        Other = "OTHER",
    }
    /// Final status of an HTTP request.
    StatusCode: "status_code" {
        /// OK.
        S200 = "200",
        /// Bad request.
        S400 = "400",
        /// Not from there, or not without a token.
        S403 = "403",
        /// Not found.
        S404 = "404",
        /// Method not allowed.
        S405 = "405",
        /// Body not received in time.
        S408 = "408",
        /// Something else has changed the settings meanwhile.
        S412 = "412",
        /// Body too large.
        S413 = "413",
        /// Not JSON.
        S415 = "415",
        /// Settings are not changed blindly.
        S428 = "428",
        /// Refused for lack of capacity.
        S429 = "429",
        /// The client left before the end.
        S499 = "499",
        /// Failed in the server.
        S500 = "500",
        /// The other end of a pair, or a worker, failed.
        S502 = "502" of RELAYING,
        /// Not ready, draining or failed.
        S503 = "503",
        /// A worker took too long.
        S504 = "504" of ROUTER,
    }
}
