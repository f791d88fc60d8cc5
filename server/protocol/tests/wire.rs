//! The wire format as clients see it: golden JSON of responses, and what is made of requests.

#[path = "wire/requests.rs"]
mod requests;
#[path = "wire/responses.rs"]
mod responses;
#[path = "wire/sampling.rs"]
mod sampling;
#[path = "wire/tools.rs"]
mod tools;
