//! One number of a dashboard, written the same way everywhere.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A finite number. Whole values are written without a decimal point, so that bytes do not depend
/// on whether a threshold was computed as an integer or as a float.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Number(f64);

/// Below this, every whole f64 is exact as an i64.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Number {
    /// The number as a float.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl From<f64> for Number {
    /// Panics on NaN and infinities: JSON has neither, and a threshold is neither.
    fn from(value: f64) -> Self {
        assert!(value.is_finite(), "a dashboard number must be finite, not {value}");
        Self(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self(f64::from(value))
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_point() {
        let text = |value: f64| serde_json::to_string(&Number::from(value)).expect("finite");
        assert_eq!(text(30.0), "30");
        assert_eq!(text(-2.0), "-2");
        assert_eq!(text(0.95), "0.95");
        assert_eq!(
            serde_json::from_str::<Number>("30").expect("number").get().to_bits(),
            30f64.to_bits()
        );
    }

    #[test]
    fn nan_is_a_programmer_error() {
        let caught = std::panic::catch_unwind(|| Number::from(f64::NAN));
        assert!(caught.is_err());
    }
}
