//! Planned work: a file says until when, so that alerts about what is missing keep quiet.

/// Planned work on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance {}
