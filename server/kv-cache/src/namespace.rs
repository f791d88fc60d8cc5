//! Who may share cached pages with whom.

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// Requests share cached pages exactly when their namespaces are equal. The default namespace is
/// that of requests without tenant and salt.
///
/// A hit is faster than a miss, so whoever shares a cache can find out by timing whether somebody
/// sent a prefix before. Hence a tenant, where the deployment has tenants, is part of the
/// namespace, and a client may put a secret salt on top. Namespaces are compared in full, never by
/// hash: no collision joins two of them.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Namespace(Option<Arc<[u8]>>);

impl Namespace {
    /// The default, for requests without tenant and salt.
    pub const SHARED: Self = Self(None);

    /// The namespace of `tenant` and `salt`. An absent one and an empty one differ; equal texts in
    /// different roles differ too.
    #[must_use]
    pub fn new(tenant: Option<&str>, salt: Option<&str>) -> Self {
        if tenant.is_none() && salt.is_none() {
            return Self::default();
        }
        let mut bytes = Vec::new();
        for part in [tenant, salt] {
            match part {
                // The length makes the encoding unambiguous.
                Some(text) => {
                    bytes.push(1);
                    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                }
                None => bytes.push(0),
            }
        }
        Self(Some(bytes.into()))
    }

    /// What tells it from every other namespace: the same in every process, empty for the default
    /// one alone. Holds the salt in the clear.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// The namespace with these [`bytes`](Self::bytes), as another process tells them.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }

    /// What the hash of a first page starts from.
    pub(crate) fn seed(&self) -> u64 {
        xxh3_64(self.bytes())
    }
}

/// A salt is a secret of its client: it is not shown.
impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Namespace(private)" } else { "Namespace(shared)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_and_salt_both_tell_namespaces_apart() {
        let all = [
            Namespace::default(),
            Namespace::new(None, Some("")),
            Namespace::new(None, Some("a")),
            Namespace::new(Some(""), None),
            Namespace::new(Some("a"), None),
            Namespace::new(Some("a"), Some("")),
            Namespace::new(Some("a"), Some("b")),
            Namespace::new(Some("ab"), Some("")),
            Namespace::new(Some(""), Some("ab")),
        ];
        for (i, one) in all.iter().enumerate() {
            assert_eq!(Namespace::from_bytes(one.bytes()), *one, "{i}");
            for (k, other) in all.iter().enumerate() {
                assert_eq!(one == other, i == k, "{i} and {k}");
                assert_eq!(one.seed() == other.seed(), i == k, "{i} and {k}");
                assert_eq!(one.bytes() == other.bytes(), i == k, "{i} and {k}");
            }
        }
        assert_eq!(Namespace::new(Some("a"), Some("b")), Namespace::new(Some("a"), Some("b")));
        assert_eq!(Namespace::new(None, None), Namespace::default());
        assert!(!format!("{:?}", Namespace::new(None, Some("hush"))).contains("hush"));
    }
}
