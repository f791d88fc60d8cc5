//! How much a request matters against others.

use std::fmt;

/// The priority of a request: larger is more important, 0 is everybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(i32);

/// Priorities in the three classes that metrics tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// Above 0.
    High,
    /// 0.
    Normal,
    /// Below 0.
    Low,
}

/// A number outside of the range of priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityOutOfRange(pub i64);

impl Priority {
    /// The least important.
    pub const MIN: Self = Self(-100);
    /// What a request has that says nothing.
    pub const NORMAL: Self = Self(0);
    /// The most important.
    pub const MAX: Self = Self(100);

    /// The priority `level`, from -100 to 100.
    ///
    /// # Errors
    /// A level outside of the range.
    pub fn new(level: i64) -> Result<Self, PriorityOutOfRange> {
        let narrow = i32::try_from(level).map_err(|_| PriorityOutOfRange(level))?;
        let priority = Self(narrow);
        if (Self::MIN..=Self::MAX).contains(&priority) {
            Ok(priority)
        } else {
            Err(PriorityOutOfRange(level))
        }
    }

    /// The number, from -100 to 100.
    #[must_use]
    pub const fn level(self) -> i32 {
        self.0
    }

    /// The class of this priority.
    #[must_use]
    pub const fn class(self) -> PriorityClass {
        match self.0 {
            1.. => PriorityClass::High,
            0 => PriorityClass::Normal,
            i32::MIN..=-1 => PriorityClass::Low,
        }
    }
}

impl std::ops::Neg for Priority {
    type Output = Self;

    /// The same distance from 0 on the other side; the range is symmetric.
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PriorityClass {
    /// Every class, in declaration order.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The label value of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for PriorityOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, least, most) = (self.0, Priority::MIN, Priority::MAX);
        write!(f, "{value} is no priority: it goes from {least} to {most}")
    }
}

impl std::error::Error for PriorityOutOfRange {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_closed_and_symmetric() {
        let level = |level| Priority::new(level).map(Priority::level);
        assert_eq!((level(-100), level(0), level(100)), (Ok(-100), Ok(0), Ok(100)));
        for wrong in [-101, 101, i64::MAX, i64::MIN] {
            assert_eq!(level(wrong), Err(PriorityOutOfRange(wrong)));
        }
        assert_eq!(-Priority::MIN, Priority::MAX);
        assert!(PriorityOutOfRange(101).to_string().contains("101 is no priority: it goes from"));
    }

    #[test]
    fn classes_follow_the_sign() {
        let class = |level| Priority::new(level).map(Priority::class);
        assert_eq!(class(7), Ok(PriorityClass::High));
        assert_eq!(class(0), Ok(PriorityClass::Normal));
        assert_eq!(class(-1), Ok(PriorityClass::Low));
    }
}
