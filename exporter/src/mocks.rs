//! What tests of this crate and of its program share.

#[path = "../tests/it/mock_bus.rs"]
pub(crate) mod bus;
#[path = "../tests/it/mock_http.rs"]
pub(crate) mod http;
#[path = "../tests/it/sglang_log.rs"]
pub(crate) mod sglang_log;
