//! Reads the cards of a node through NVIDIA's management library and says what it read, line by
//! line, to the process that supervises it.
//!
//! It runs in a process of its own: a call that hangs in the driver, or a crash in the library,
//! costs this process and nothing else.
