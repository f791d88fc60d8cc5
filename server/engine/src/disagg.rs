//! Prefill/decode disaggregation: prompts that are computed elsewhere, and for somebody else.
//!
//! One engine does all of it; a worker's role is decided by what is submitted. Here is what the
//! rest of the scheduler does not know of it: [`decode`](self::decode) gives pages to requests
//! whose KV comes from a prefill worker, [`prefill`](self::prefill) hands computed pages to links,
//! and [`held`](self::held) keeps pages that a link may still use. What links have to say comes in
//! as news, with the other events.

mod decode;
mod held;
mod line;
mod news;
mod prefill;

pub(crate) use decode::Lands;
#[cfg(test)]
pub(crate) use decode::PATIENCE;
pub(crate) use held::Held;
pub(crate) use line::Line;
