//! Which computed pages keep their part in a window pool.

/// The pages of a request whose part in a window pool stays cached once its window has passed
/// them. A prefix can be reused only where the window before its end is there, so this decides
/// where later requests may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// Every page.
    All,
    /// The last whole page of the prompt.
    Tail,
    /// The last one, and each page that ends at a multiple of so many tokens.
    TailEvery(usize),
    /// The last one, and the page where the match of the pools that keep everything ended: the
    /// point where this request left what others have in common.
    #[default]
    TailBranch,
}
