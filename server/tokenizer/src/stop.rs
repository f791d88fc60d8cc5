//! Stop strings: finds them across piece borders and holds back what could become one.
//!
//! Works on text, not on tokens, and does not decide how a request ends.

/// Searches a growing text for several stop strings at once.
///
/// Reading from the left, the text is cut at the first position where any stop string is
/// complete; of several that are complete there, the longest counts. The text before its start
/// is kept, the stop string itself is not. Held back is the longest tail of the text that is a
/// beginning of a stop string, and nothing more. One step per byte and stop string.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    /// Text that may turn out to be a stop string.
    held: String,
    stopped: bool,
}

#[derive(Debug, Clone)]
struct Pattern {
    bytes: Vec<u8>,
    /// `fallback[n]`: the longest proper prefix of the first `n + 1` bytes that ends them too.
    fallback: Vec<usize>,
    /// How many bytes of the pattern the text ends with.
    matched: usize,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut fallback = vec![0; bytes.len()];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = fallback[length - 1];
            }
            if bytes[at] == bytes[length] {
                length += 1;
            }
            fallback[at] = length;
        }
        Self { bytes, fallback, matched: 0 }
    }

    /// Takes the next byte of the text; true where it completes the pattern.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        if self.bytes[self.matched] == byte {
            self.matched += 1;
        }
        self.matched == self.bytes.len()
    }
}

impl StopMatcher {
    /// A matcher for `stops`. Empty strings never match.
    #[must_use]
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Self {
        let stops = stops.iter().map(AsRef::as_ref).filter(|stop| !stop.is_empty());
        Self { patterns: stops.map(Pattern::new).collect(), held: String::new(), stopped: false }
    }

    /// Takes the next part of the text and returns what may be shown of everything held so far,
    /// and whether a stop string was completed. After that every push returns nothing.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.stopped {
            return (String::new(), true);
        }
        if self.patterns.is_empty() {
            return (text.to_owned(), false);
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (at, byte) in text.bytes().enumerate() {
            let mut longest = 0;
            for pattern in &mut self.patterns {
                if pattern.step(byte) {
                    longest = longest.max(pattern.bytes.len());
                }
            }
            if longest > 0 {
                self.stopped = true;
                let mut shown = std::mem::take(&mut self.held);
                shown.truncate(before + at + 1 - longest);
                return (shown, true);
            }
        }
        let tail = self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - tail);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Ends the text: what was held back is no stop string.
    pub fn flush(&mut self) -> String {
        for pattern in &mut self.patterns {
            pattern.matched = 0;
        }
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests;
