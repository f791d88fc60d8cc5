//! What boards, rules and scrape jobs are generated for.

use std::fmt;
use std::str::FromStr;

use crate::engines::Engine;

/// Our own processes, or a cluster of another engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Our own processes.
    Sightline,
    /// Another engine.
    Engine(Engine),
}

impl Target {
    /// All of them; ours first.
    pub const ALL: &'static [Self] =
        &[Self::Sightline, Self::Engine(Engine::Sglang), Self::Engine(Engine::Vllm)];

    /// The word for it, on the command line and in names of files and boards.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sightline => "sightline",
            Self::Engine(engine) => engine.as_str(),
        }
    }

    /// The target whose boards have such a uid: `sglang-overview` is SGLang's. None for a uid
    /// without the prefix of any.
    pub fn of_uid(uid: &str) -> Option<Self> {
        let (prefix, _) = uid.split_once('-')?;
        Self::ALL.iter().copied().find(|target| target.as_str() == prefix)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTarget(pub String);

impl fmt::Display for UnknownTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Target::ALL.iter().map(|target| target.as_str()).collect();
        write!(f, "no target is called {:?}; there are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownTarget {}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Self, UnknownTarget> {
        let known = Self::ALL.iter().copied().find(|target| target.as_str() == text);
        known.ok_or_else(|| UnknownTarget(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for target in Target::ALL {
            assert_eq!(target.to_string().parse(), Ok(*target));
            assert_eq!(Target::of_uid(&format!("{target}-overview")), Some(*target));
        }
        let problem = "SGLang".parse::<Target>().expect_err("words are lower case");
        let text = "no target is called \"SGLang\"; there are sightline, sglang, vllm";
        assert_eq!(problem.to_string(), text);
        assert_eq!(Target::of_uid("node-health"), None);
    }
}
