//! What is wrong with a setting, and what would be right.

use std::fmt;

use kv_cache::{HostTierPlan, PlanInput};

use program::exit::Exit;

/// Whose fault it is, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The settings contradict each other or the model: the same everywhere.
    Configuration,
    /// This host is too small.
    Host,
    /// It may work later: a port is in use.
    Temporary,
    /// A server that was asked is of another kind or version.
    Peer,
    /// The system refuses: a privileged port, an unreadable file.
    Permission,
    /// Nobody's: it works, but not as somebody may think. Stops nothing.
    Advice,
}

impl Class {
    /// `error`, or `warning` for what stops nothing.
    #[must_use]
    pub const fn severity(self) -> &'static str {
        match self {
            Self::Configuration | Self::Host | Self::Temporary | Self::Peer | Self::Permission => {
                "error"
            }
            Self::Advice => "warning",
        }
    }

    /// The exit code of a process that stops for it.
    #[must_use]
    pub const fn exit(self) -> Exit {
        match self {
            Self::Configuration => Exit::Configuration,
            Self::Host => Exit::Host,
            Self::Temporary => Exit::Temporary,
            Self::Peer => Exit::Peer,
            Self::Permission => Exit::Permission,
            Self::Advice => Exit::Ok,
        }
    }
}

/// One setting that cannot work, or not as one may think.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A stable name for documents and tests.
    pub id: &'static str,
    /// Whose fault it is.
    pub class: Class,
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// The value it has, given or default.
    pub value: String,
    /// Why it cannot work, without a full stop.
    pub reason: String,
    /// What would work, without a full stop.
    pub fix: String,
}

impl fmt::Display for Finding {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, flag, value, reason, fix, .. } = self;
        write!(f, "{} {id}: {flag} {value}: {reason}; try {fix}", self.class.severity())
    }
}

/// All findings of one check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    list: Vec<Finding>,
    /// The host tier that does not fit, for those who print tables.
    tier: Option<Box<HostTierPlan>>,
    /// What that was planned from, where no memory was touched yet.
    input: Option<Box<PlanInput>>,
}

impl Findings {
    /// One more.
    pub fn add(&mut self, finding: Finding) {
        self.list.push(finding);
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether something cannot work; advice alone is none.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|finding| finding.class != Class::Advice)
    }

    /// Keeps the host tier that was found not to fit.
    pub fn refuse_tier(&mut self, plan: HostTierPlan) {
        self.tier = Some(Box::new(plan));
    }

    /// Keeps what the host tier that does not fit was planned from.
    pub(super) fn planned_from(&mut self, input: PlanInput) {
        self.input = Some(Box::new(input));
    }

    /// The host tier that does not fit, with what it was planned from.
    pub(crate) fn planned(&self) -> Option<(&PlanInput, &HostTierPlan)> {
        self.input.as_deref().zip(self.tier())
    }

    /// The host tier that does not fit, where that is what was found.
    #[must_use]
    pub fn tier(&self) -> Option<&HostTierPlan> {
        self.tier.as_deref()
    }

    /// Adds all of `others`.
    pub fn append(&mut self, others: Self) {
        self.list.extend(others.list);
    }

    /// The findings in the order they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.list.iter()
    }

    /// The exit code: what can only be repaired by hand comes before what a host or time may
    /// repair. `Exit::Ok` when nothing was found but advice.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let errors = self.list.iter().filter(|finding| finding.class != Class::Advice);
        let exits = errors.map(|finding| finding.class.exit());
        exits.max_by_key(|exit| *exit == Exit::Configuration).unwrap_or(Exit::Ok)
    }
}

impl From<Finding> for Findings {
    fn from(finding: Finding) -> Self {
        Self { list: vec![finding], ..Self::default() }
    }
}

impl fmt::Display for Findings {
    /// One line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            finding.fmt(f)?;
        }
        Ok(())
    }
}
