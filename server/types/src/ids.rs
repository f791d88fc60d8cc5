//! Identifiers. Each is an index into something different, hence a type each.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A row of the model's embedding table.
    TokenId(u32)
}
id! {
    /// A request inside one process; never reused while the process lives.
    RequestId(u64)
}
id! {
    /// A page of a KV pool: `0 .. capacity` of that pool.
    PageId(u32)
}
id! {
    /// A KV pool of a model, in the order the model declares them.
    PoolId(u16)
}

impl TokenId {
    /// The id as an index into a table of `vocab` rows.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl PageId {
    /// The id as an index into a pool.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
