//! Into how many ranks a model can be shared out, known from its configuration alone.

use crate::config::ModelConfig;

/// What of a model ranks share out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TpLimits {
    /// Of these every rank has as many: the field of the configuration, and the number.
    pub even: (&'static str, usize),
    /// Of these every rank has as many, or as many ranks have the same one: the field, and the
    /// number.
    pub held: Option<(&'static str, usize)>,
    /// Of these every rank has at least one.
    pub each: Vec<(&'static str, usize)>,
}

/// Ranks that a model cannot be shared out to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{ranks} ranks: {what}; {works} would work")]
pub struct TpError {
    /// What was asked for.
    pub ranks: usize,
    /// The field, its value, and why that does not do.
    pub what: String,
    /// The most ranks below that the configuration allows.
    pub works: usize,
}

impl TpLimits {
    /// Those of a model. Weights in blocks of several values may set narrower ones.
    #[must_use]
    pub fn of(config: &ModelConfig) -> Self {
        let ModelConfig { heads, kv_heads, intermediate, hidden, vocab, .. } = *config;
        match &config.deepseek_v4 {
            None => Self {
                even: ("num_attention_heads", heads),
                held: Some(("num_key_value_heads", kv_heads)),
                each: vec![("intermediate_size", intermediate), ("vocab_size", vocab)],
            },
            // A group has whole heads, so groups of equal number have them too.
            Some(v4) => Self {
                even: ("o_groups", v4.output_groups),
                held: None,
                each: vec![
                    ("n_routed_experts", v4.experts),
                    ("moe_intermediate_size", intermediate),
                    ("hidden_size", hidden),
                    ("vocab_size", vocab),
                ],
            },
        }
    }

    /// Whether `ranks` ranks can share the model out.
    ///
    /// # Errors
    /// [`TpError`] names the first field that stands against it.
    pub fn check(&self, ranks: usize) -> Result<(), TpError> {
        let Some(what) = self.refusal(ranks) else { return Ok(()) };
        // More than there are do not divide them.
        let mut fewer = (1..ranks.min(self.even.1.saturating_add(1))).rev();
        let works = fewer.find(|ranks| self.refusal(*ranks).is_none()).unwrap_or(1);
        Err(TpError { ranks, what, works })
    }

    fn refusal(&self, ranks: usize) -> Option<String> {
        let (field, count) = self.even;
        if ranks == 0 || !count.is_multiple_of(ranks) {
            return Some(format!("{field} is {count}, which they cannot share out evenly"));
        }
        let fits = |count: usize| count.is_multiple_of(ranks) || ranks.is_multiple_of(count);
        if let Some((field, count)) = self.held.filter(|(_, count)| !fits(*count)) {
            let why = "which they can neither share out evenly nor hold equally often";
            return Some(format!("{field} is {count}, {why}"));
        }
        let (field, count) = self.each.iter().find(|(_, count)| *count < ranks)?;
        Some(format!("{field} is {count}, too few for each to have one"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_against_it_is_named_with_ranks_that_would_do() {
        let each = vec![("n_routed_experts", 5)];
        let limits = TpLimits { even: ("o_groups", 12), held: None, each };
        let check = |ranks| limits.check(ranks).map_err(|error| error.to_string());
        for ranks in [1, 2, 3, 4] {
            assert_eq!(check(ranks), Ok(()));
        }
        let uneven = |ranks, works| {
            let why = "o_groups is 12, which they cannot share out evenly";
            Err(format!("{ranks} ranks: {why}; {works} would work"))
        };
        assert_eq!(check(5), uneven(5, 4));
        assert_eq!(check(0), uneven(0, 1));
        assert_eq!(check(usize::MAX), uneven(usize::MAX, 4));
        let few = "6 ranks: n_routed_experts is 5, too few for each to have one; 4 would work";
        assert_eq!(check(6), Err(few.to_owned()));
    }

    #[test]
    fn what_is_held_more_than_once_is_held_equally_often() {
        let held = Some(("num_key_value_heads", 6));
        let limits = TpLimits { even: ("num_attention_heads", 36), held, each: Vec::new() };
        for ranks in [1, 2, 3, 6, 12, 18, 36] {
            assert_eq!(limits.check(ranks), Ok(()));
        }
        let error = limits.check(9).map_err(|error| error.to_string());
        let why = "which they can neither share out evenly nor hold equally often";
        assert_eq!(error, Err(format!("9 ranks: num_key_value_heads is 6, {why}; 6 would work")));
    }
}
