//! The command line of an SGLang server, from a shell line, a script, a process or the server's own
//! answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::known;

/// Longest text that is read as a command line.
pub(super) const TEXT_MAX: u64 = 4 << 20;

/// Flags by their name without dashes, with `-` for `_`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// A flag without a value has an empty one.
    values: BTreeMap<String, String>,
    /// The nodes that `numactl` before the command binds memory to.
    pub(super) membind: Vec<u32>,
    /// Whether a running server has told its values, and not somebody who may err.
    pub(super) answered: bool,
    /// Names of a command line that are no known flag's.
    unknown: BTreeSet<String>,
}

impl Flags {
    /// Reads a command line, a script with one, NUL-separated arguments, or JSON.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            return Self::of_json(text);
        }
        let words = if text.contains('\0') {
            text.split('\0').map(str::to_owned).collect()
        } else {
            split(text)?
        };
        Ok(Self::of_words(&words))
    }

    fn of_words(words: &[String]) -> Self {
        let is_server = |word: &String| word.contains("sglang") && !word.starts_with('-');
        let launch =
            |word: &String| word == "sglang.launch_server" || word.ends_with("launch_server.py");
        // `python -m sglang.launch_server`, else `sglang serve`, else arguments alone.
        let head = words.iter().position(launch).or_else(|| {
            let serve = words.iter().position(|word| word == "serve")?;
            (serve > 0 && is_server(&words[serve - 1])).then_some(serve)
        });
        let (before, after) = match head {
            Some(head) => (&words[..head], &words[head + 1..]),
            None => (&words[..0], words),
        };
        let mut flags = Self { membind: membind(before), ..Self::default() };
        let mut words = after.iter().peekable();
        while let Some(word) = words.next() {
            // The next command of a script is none of ours.
            if ["&", "&&", ";", "|", "||"].contains(&word.as_str()) {
                break;
            }
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (flag, value(&mut words)),
            };
            flags.set(name, value);
        }
        flags
    }

    /// The answer of `/get_server_info`: every setting, and what the server measured.
    fn of_json(text: &str) -> Result<Self, String> {
        let json: Value =
            serde_json::from_str(text).map_err(|error| format!("no whole JSON: {error}"))?;
        let mut flags = Self { answered: true, ..Self::default() };
        let inner = json.get("server_args").filter(|inner| inner.is_object());
        for fields in [Some(&json), inner].into_iter().flatten() {
            for (name, value) in fields.as_object().into_iter().flatten() {
                let value = match value {
                    Value::Bool(true) => String::new(),
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    Value::Array(list) if list.iter().all(Value::is_u64) => {
                        list.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")
                    }
                    // Not given.
                    Value::Bool(false) | Value::Null | Value::Array(_) | Value::Object(_) => {
                        continue;
                    }
                };
                flags.set(name, value);
            }
        }
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: String) {
        let name = name.replace('_', "-");
        match known::usual(&name) {
            // A server tells more than its flags, each by its whole name.
            _ if self.answered => self.values.insert(name, value),
            Some(usual) => self.values.insert(usual.to_owned(), value),
            None => {
                self.unknown.insert(name.clone());
                self.values.insert(name, value)
            }
        };
    }

    /// Names of a command line that are no known flag's, in order.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }

    /// The value of a flag.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !["false", "False", "0"].contains(&value))
    }

    /// The number that a flag has.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.parse().map(Some);
        number.map_err(|_| format!("--{name} is {value:?}, which is no such number"))
    }
}

/// The values that follow a flag, joined by blanks.
fn value(words: &mut std::iter::Peekable<std::slice::Iter<'_, String>>) -> String {
    let mut values = Vec::new();
    let ends = |word: &str| word.starts_with("--") || ["&", "&&", ";", "|", "||"].contains(&word);
    while let Some(word) = words.next_if(|word| !ends(word)) {
        values.push(word.as_str());
    }
    values.join(" ").trim().to_owned()
}

/// What `numactl --membind=0`, `-m 0` or `--membind 0` says.
fn membind(words: &[String]) -> Vec<u32> {
    let mut nodes = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = || words.get(at + 1).map(String::as_str);
        let list = match word.strip_prefix("--membind") {
            Some("") => next(),
            Some(rest) => rest.strip_prefix('='),
            // Python has an `-m` too, with a module behind it.
            None if word == "-m" => next(),
            None => None,
        };
        let list = list.filter(|list| list.starts_with(|c: char| c.is_ascii_digit()));
        nodes.extend(list.into_iter().flat_map(node_info::list));
    }
    nodes
}

/// Splits a line, or the lines of a script, as a shell does: quotes, backslashes, comments. What a
/// shell would put in (`$NAME`) stays as it is.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        None => return Err(format!("a {letter} is not closed")),
                        Some(end) if end == letter => break,
                        Some('\\') if letter == '"' => match letters.next() {
                            Some(next @ ('"' | '\\' | '$' | '`')) => word.push(next),
                            Some('\n') => {}
                            Some(next) => word.extend(['\\', next]),
                            None => return Err("a \" is not closed".to_owned()),
                        },
                        Some(inner) => word.push(inner),
                    }
                }
            }
            '\\' => match letters.next() {
                // A line goes on in the next.
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            '#' if word.is_none() => {
                letters.by_ref().find(|letter| *letter == '\n');
            }
            _ if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_by_a_shell() {
        let words = |text: &str| split(text).expect(text);
        assert_eq!(words("a 'b c'  \"d \\\"e\\\"\" f\\ g"), ["a", "b c", "d \"e\"", "f g"]);
        assert_eq!(words("a \\\n  b # no\nc''"), ["a", "b", "c"]);
        assert_eq!(words("--x='' ''"), ["--x=", ""]);
        assert!(split("a 'b").is_err() && split("a \"b").is_err());
        assert_eq!(words(""), Vec::<String>::new());
    }

    #[test]
    fn flags_are_found_behind_the_command_that_launches() {
        let script = "#!/bin/bash\nexport A=1\nexec numactl --membind=0 --cpunodebind 0 \\\n  \
                      python3 -m sglang.launch_server --model \"/models/V4 Flash\" --tp 4 \\\n  \
                      --hicache_ratio=2.5 --enable-hicache --numa-node 0 0 1 1 && echo x";
        let flags = Flags::read(script).expect("a script");
        assert_eq!(flags.get("model-path"), Some("/models/V4 Flash"));
        assert_eq!(flags.number("tp-size"), Ok(Some(4)));
        assert_eq!(flags.number("hicache-ratio"), Ok(Some(2.5)));
        assert!(flags.is_on("enable-hierarchical-cache"));
        assert_eq!(flags.get("numa-node"), Some("0 0 1 1"));
        assert_eq!(flags.membind, [0]);
        assert!(flags.number::<usize>("model-path").is_err());

        let process = "numactl\0-m\u{0}1\0python\0-m\0sglang.launch_server\0--tp-size\u{0}2\0";
        let flags = Flags::read(process).expect("a process");
        assert_eq!((flags.get("tp-size"), flags.membind.as_slice()), (Some("2"), &[1][..]));
        let plain = Flags::read("--tp 8 --hicache-size 40").expect("arguments alone");
        assert_eq!((plain.get("tp-size"), plain.get("hicache-size")), (Some("8"), Some("40")));
        let serve = Flags::read("sglang serve --tp 2").expect("the other command");
        assert_eq!(serve.get("tp-size"), Some("2"));
    }

    #[test]
    fn the_answer_of_a_server_is_read_too() {
        let json = "{\"tp_size\": 4, \"enable_hierarchical_cache\": true, \"hicache_size\": 0, \
                    \"disable_radix_cache\": false, \"max_total_num_tokens\": 213760, \
                    \"model_path\": \"x\", \"page_size\": null}";
        let flags = Flags::read(json).expect("JSON");
        assert_eq!(flags.number("max-total-num-tokens"), Ok(Some(213_760)));
        assert!(flags.is_on("enable-hierarchical-cache") && !flags.is_on("disable-radix-cache"));
        assert_eq!(flags.get("page-size"), None);
        assert!(Flags::read("{\"a\": ").is_err());
    }
}
