//! Which series an expression selects, found by scanning its text: without a parser, and for any
//! metric names.
//!
//! Takes what Prometheus takes but for names in quotes. Checks nothing: of a malformed text it
//! finds what looks like a selector.

use std::fmt;

/// A vector selector of an expression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    /// Name of the metric; empty where only conditions select.
    pub name: String,
    /// Conditions, in the order of the text.
    pub matchers: Vec<Matcher>,
}

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Matcher {
    /// Label.
    pub label: String,
    /// `=`, `!=`, `=~` or `!~`.
    pub op: String,
    /// Value as it is written, in its quotes.
    pub value: String,
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.label, self.op, self.value)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.matchers.is_empty() {
            return Ok(());
        }
        let matchers: Vec<String> = self.matchers.iter().map(Matcher::to_string).collect();
        write!(f, "{{{}}}", matchers.join(","))
    }
}

impl Matcher {
    /// Whether it holds of a series that lacks the label, as `=~".*"` does.
    #[must_use]
    pub fn takes_absent(&self) -> bool {
        let inner = self.value.get(1..self.value.len().saturating_sub(1)).unwrap_or_default();
        // Alternatives, one of them empty; no other pattern that takes nothing is written here.
        let empty = |pattern: &str| pattern.split('|').any(|part| matches!(part, "" | ".*"));
        match self.op.as_str() {
            "=" => inner.is_empty(),
            "!=" => !inner.is_empty(),
            "=~" => empty(inner),
            _ => !empty(inner),
        }
    }
}

/// A word of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    at: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Quoted,
    Sign,
}

/// Words after which labels stand in parentheses.
const BEFORE_LABELS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words that are neither a function nor a series.
const KEYWORDS: &[&str] = &["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"];
/// Longest first.
const SIGNS: &[&str] = &["==", "!=", ">=", "<=", "=~", "!~", ">", "<", "="];
const COMPARISONS: &[&str] = &["==", "!=", ">=", "<=", ">", "<"];

fn is(token: Option<&Token<'_>>, text: &str) -> bool {
    token.is_some_and(|token| token.kind != Kind::Quoted && token.text.eq_ignore_ascii_case(text))
}

fn any(token: &Token<'_>, words: &[&str]) -> bool {
    token.kind == Kind::Word && words.iter().any(|word| token.text.eq_ignore_ascii_case(word))
}

/// Where the bracket closes that opens at `open`; the end where none does.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "{" | "[" if token.kind == Kind::Sign => depth += 1,
            ")" | "}" | "]" if token.kind == Kind::Sign => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The selectors of an expression, in order, each once.
#[must_use]
pub fn selectors(expr: &str) -> Vec<Selector> {
    let tokens = tokens(expr);
    let mut found: Vec<Selector> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1);
        let (name, braces) = match token {
            token if any(token, BEFORE_LABELS) => {
                at = if is(next, "(") { closing(&tokens, at + 1) + 1 } else { at + 1 };
                continue;
            }
            token if any(token, KEYWORDS) => {
                at += 1;
                continue;
            }
            Token { text: "[", kind: Kind::Sign, .. } => {
                at = closing(&tokens, at) + 1;
                continue;
            }
            Token { text: "{", kind: Kind::Sign, .. } => ("", Some(at)),
            // A function or an aggregation; a series may stand before `on`, but not before `by`.
            Token { kind: Kind::Word, .. }
                if is(next, "(") || is(next, "by") || is(next, "without") =>
            {
                at += 1;
                continue;
            }
            Token { kind: Kind::Word, text, .. } => (*text, is(next, "{").then_some(at + 1)),
            Token { .. } => {
                at += 1;
                continue;
            }
        };
        let matchers = braces.map(|open| matchers(&tokens[open + 1..closing(&tokens, open)]));
        let selector = Selector { name: name.to_owned(), matchers: matchers.unwrap_or_default() };
        if !found.contains(&selector) {
            found.push(selector);
        }
        at = braces.map_or(at, |open| closing(&tokens, open)) + 1;
    }
    found
}

fn matchers(inside: &[Token<'_>]) -> Vec<Matcher> {
    let one = |part: &[Token<'_>]| match part {
        [label, op, value] if value.kind == Kind::Quoted => Some(Matcher {
            label: label.text.to_owned(),
            op: op.text.to_owned(),
            value: value.text.to_owned(),
        }),
        _ => None,
    };
    inside.split(|token| is(Some(token), ",")).filter_map(one).collect()
}

/// The expression with every comparison made to yield 0 or 1 instead of leaving series out. None
/// where that says nothing about what the expression leaves out: it has no comparison, or leaves
/// out by `unless` or `absent` too.
#[must_use]
pub fn relaxed(expr: &str) -> Option<String> {
    let tokens = tokens(expr);
    let exclusive = ["unless", "absent", "absent_over_time"];
    if tokens.iter().any(|token| any(token, &exclusive)) {
        return None;
    }
    let (mut text, mut from, mut depth) = (String::new(), 0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" if token.kind == Kind::Sign => depth += 1,
            "}" if token.kind == Kind::Sign => depth = depth.saturating_sub(1),
            sign if depth == 0 && token.kind == Kind::Sign && COMPARISONS.contains(&sign) => {
                let end = token.at + sign.len();
                if !is(tokens.get(at + 1), "bool") {
                    text.push_str(&expr[from..end]);
                    text.push_str(" bool");
                    from = end;
                }
            }
            _ => {}
        }
    }
    if from == 0 {
        return None;
    }
    text.push_str(&expr[from..]);
    Some(text)
}

fn tokens(expr: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = expr[at..].chars().next() {
        let rest = &expr[at..];
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let run = |take: &dyn Fn(char) -> bool| rest.find(|c| !take(c)).unwrap_or(rest.len());
        let (kind, length) = match first {
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            '#' => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '"' | '\'' | '`' => (Kind::Quoted, quoted(rest, first)),
            // A variable that is not filled in stands for a number or a part of a text.
            '$' => (Kind::Number, 1 + rest[1..].find(|c| !word(c)).unwrap_or(rest.len() - 1)),
            _ if first.is_ascii_digit() || first == '.' => {
                (Kind::Number, run(&|c| word(c) && c != ':' || c == '.'))
            }
            _ if word(first) && first != ':' => (Kind::Word, run(&word)),
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                (Kind::Sign, sign.map_or(first.len_utf8(), |sign| sign.len()))
            }
        };
        tokens.push(Token { text: &rest[..length], at, kind });
        at += length;
    }
    tokens
}

/// Length of the quoted text at the start, quotes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        if char == quote && !escaped {
            return at + 1;
        }
        escaped = quote != '`' && char == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(expr: &str) -> Vec<String> {
        selectors(expr).iter().map(Selector::to_string).collect()
    }

    #[test]
    fn selectors_are_found_wherever_they_stand() {
        for (expr, expected) in [
            ("up", vec!["up"]),
            (
                "sum by (job, le) (rate(a_total{x=\"1\", y!~'b}c'}[5m])) / on (job) b offset 5m",
                vec!["a_total{x=\"1\",y!~'b}c'}", "b"],
            ),
            (
                "sum(a) by (job) > bool 3 or -b{} and c @ end() unless d @ 1.5",
                vec!["a", "b", "c", "d"],
            ),
            ("{__name__=~\"a|b\",job=\"x\"}", vec!["{__name__=~\"a|b\",job=\"x\"}"]),
            (
                "histogram_quantile(0.9, sum by (le) (rate(x:y_bucket[$__rate_interval])))",
                vec!["x:y_bucket"],
            ),
            ("max_over_time((a - b)[1h:30s]) * 1e3 + inf + vector(0)", vec!["a", "b"]),
            ("a on (x) group_left (y) b", vec!["a", "b"]),
            ("a # or b\n+ a", vec!["a"]),
            ("label_replace(a, \"x\", \"$1\", \"y\", \"(.*)\")", vec!["a"]),
            ("count_values(\"v\", a) + topk without (x) (3, b)", vec!["a", "b"]),
            ("", vec![]),
            ("a{", vec!["a"]),
        ] {
            assert_eq!(shown(expr), expected, "{expr}");
        }
    }

    #[test]
    fn comparisons_are_relaxed() {
        for (expr, expected) in [
            ("a > 0", Some("a > bool 0")),
            ("a{x!=\"1\"} >= bool 0", None),
            ("(a{x!=\"1\"} != b) / (c>1)", Some("(a{x!=\"1\"} != bool b) / (c> bool1)")),
            ("a unless b > 0", None),
            ("absent(a == 1)", None),
            ("a", None),
        ] {
            assert_eq!(relaxed(expr).as_deref(), expected, "{expr}");
        }
    }

    #[test]
    fn some_conditions_hold_of_series_without_the_label() {
        for (expr, expected) in [
            ("a{b=~\".*\"}", true),
            ("a{b=~\"x|\"}", true),
            ("a{b=\"\"}", true),
            ("a{b!=\"x\"}", true),
            ("a{b!~\"x|y\"}", true),
            ("a{b=\"x\"}", false),
            ("a{b=~\"x|y\"}", false),
            ("a{b!=\"\"}", false),
            ("a{b!~\".*\"}", false),
        ] {
            assert_eq!(selectors(expr)[0].matchers[0].takes_absent(), expected, "{expr}");
        }
    }

    #[cfg(feature = "lint")]
    #[test]
    fn a_parser_finds_the_same_in_every_board_and_rule() {
        use promql_parser::parser::{self, Expr};

        fn walk(expr: &Expr, found: &mut Vec<String>) {
            match expr {
                Expr::VectorSelector(selector) => {
                    found.push(selector.name.clone().unwrap_or_default());
                }
                Expr::MatrixSelector(selector) => {
                    found.push(selector.vs.name.clone().unwrap_or_default());
                }
                Expr::Aggregate(aggregate) => {
                    aggregate.param.iter().for_each(|param| walk(param, found));
                    walk(&aggregate.expr, found);
                }
                Expr::Unary(unary) => walk(&unary.expr, found),
                Expr::Binary(binary) => {
                    walk(&binary.lhs, found);
                    walk(&binary.rhs, found);
                }
                Expr::Paren(paren) => walk(&paren.expr, found),
                Expr::Subquery(subquery) => walk(&subquery.expr, found),
                Expr::Call(call) => call.args.args.iter().for_each(|arg| walk(arg, found)),
                Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
            }
        }
        let boards = crate::boards::all();
        let panels = boards.iter().flat_map(|board| board.panels());
        let queries = panels.flat_map(|(_, panel)| panel.queries.iter().map(|q| q.expr.clone()));
        let groups = metric_catalog::alerts::groups();
        let alerts = groups.iter().flat_map(|group| group.alerts.iter().map(|a| &a.expr));
        let recorded = groups.iter().flat_map(|group| group.recordings.iter().map(|r| &r.expr));
        let rules = alerts.chain(recorded).map(ToString::to_string);
        let mut count = 0;
        for expr in queries.chain(rules) {
            let filled = crate::variables::fill_in(&expr);
            let parsed = parser::parse(&filled).expect("boards and rules parse");
            let mut expected = Vec::new();
            walk(&parsed, &mut expected);
            let mut found: Vec<String> = selectors(&filled).into_iter().map(|s| s.name).collect();
            count += found.len();
            for names in [&mut expected, &mut found] {
                names.sort();
                names.dedup();
            }
            assert_eq!(found, expected, "{expr}");
            if let Some(relaxed) = relaxed(&filled) {
                parser::parse(&relaxed).unwrap_or_else(|e| panic!("{relaxed}: {e}"));
            }
        }
        assert!(count > 300, "only {count} selectors");
    }
}
