//! What it answers over HTTP.
