//! Templates of labels and annotations: the part of Go's language that rules use.
//!
//! Text, `{{ pipeline }}`, comments, trimming, `if`/`else if`/`else`/`end`; `$labels`, `$value`,
//! `$externalLabels` (empty here) and the same as fields of the dot; literals, parentheses, and the
//! functions of `functions.rs`. Not here: `range`, `with`, own variables, `query` and what works on
//! its result. A name that is not known is an error when the file is read; what depends on values
//! (a bad pattern, an argument that does not fit) shows when an alert fires.

mod functions;
mod go;
mod parse;

use functions::Function;
pub(super) use go::exponent;

use crate::store::Labels;

/// A compiled template.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    Output(Pipeline),
    If { branches: Vec<(Pipeline, Vec<Node>)>, otherwise: Vec<Node> },
}

/// Commands, each given the result of the one before as its last argument.
#[derive(Debug, Clone, PartialEq)]
struct Pipeline(Vec<Command>);

#[derive(Debug, Clone, PartialEq)]
enum Command {
    Operand(Operand),
    Call { function: &'static Function, args: Vec<Operand> },
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Literal(Value),
    /// The value of the element.
    Sample,
    /// All labels of the element.
    Labels,
    /// One of them, empty when absent.
    Label(String),
    /// This program has no external labels.
    NoLabels,
    Inner(Pipeline),
}

/// What a pipeline yields.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Float(f64),
    Int(i64),
    Bool(bool),
    Labels(Labels),
}

impl Template {
    /// Compiles `text`; the error names what is wrong or not known.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { nodes: parse::template(text)? })
    }

    /// Fills in an element of the rule's result. A failure becomes the text, as in Prometheus.
    pub(super) fn expand(&self, labels: &Labels, value: f64) -> String {
        let mut out = String::new();
        match write(&self.nodes, &Element { labels, value }, &mut out) {
            Ok(()) => out,
            Err(error) => format!("<error expanding template: {error}>"),
        }
    }
}

struct Element<'a> {
    labels: &'a Labels,
    value: f64,
}

fn write(nodes: &[Node], element: &Element<'_>, out: &mut String) -> Result<(), String> {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Output(pipeline) => out.push_str(&pipeline.eval(element)?.to_text()),
            Node::If { branches, otherwise } => {
                let mut chosen = otherwise;
                for (condition, body) in branches {
                    if condition.eval(element)?.is_true() {
                        chosen = body;
                        break;
                    }
                }
                write(chosen, element, out)?;
            }
        }
    }
    Ok(())
}

impl Pipeline {
    fn eval(&self, element: &Element<'_>) -> Result<Value, String> {
        let mut last = None;
        for command in &self.0 {
            last = Some(match command {
                Command::Operand(operand) => operand.eval(element)?,
                Command::Call { function, args } => {
                    let own = args.iter().map(|arg| arg.eval(element));
                    let args: Vec<Value> = own.chain(last.map(Ok)).collect::<Result<_, _>>()?;
                    (function.call)(&args)
                        .map_err(|e| format!("error calling {}: {e}", function.name))?
                }
            });
        }
        last.ok_or_else(|| "missing value for command".to_owned())
    }
}

impl Operand {
    fn eval(&self, element: &Element<'_>) -> Result<Value, String> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Sample => Value::Float(element.value),
            Self::Labels => Value::Labels(element.labels.clone()),
            Self::Label(name) => Value::Text(element.labels.get(name).unwrap_or("").to_owned()),
            Self::NoLabels => Value::Labels(Labels::default()),
            Self::Inner(pipeline) => pipeline.eval(element)?,
        })
    }
}

impl Value {
    /// As Go prints it.
    fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Float(value) => go::general(*value, None),
            Self::Int(value) => value.to_string(),
            Self::Bool(value) => value.to_string(),
            Self::Labels(labels) => {
                let pairs: Vec<String> = labels.iter().map(|(n, v)| format!("{n}:{v}")).collect();
                format!("map[{}]", pairs.join(" "))
            }
        }
    }

    fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Float(value) => *value != 0.0,
            Self::Int(value) => *value != 0,
            Self::Bool(value) => *value,
            Self::Labels(labels) => labels.iter().next().is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, value: f64) -> String {
        let pairs = [("a", "b"), ("host", "h.example:80")];
        let labels = Labels::new(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
        Template::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).expand(&labels, value)
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (text, value, expected) in [
            ("{{ $value }}", 1.5, "1.5"),
            ("{{ $value }}", 1_234_567.0, "1.234567e+06"),
            ("{{ $value }}", 123_456.0, "123456"),
            ("{{ .Value }}", 0.000_01, "1e-05"),
            ("{{ $value | humanize }}", 1_234_567.0, "1.235M"),
            ("{{ $value | humanize }}", 0.001_234, "1.234m"),
            ("{{ $value | humanize }}", f64::INFINITY, "+Inf"),
            ("{{ $value | humanize1024 }}B", 1536.0, "1.5kiB"),
            ("{{ humanizePercentage $value }}", 0.1234, "12.34%"),
            ("{{ $value | humanizePercentage }}", 150.0, "1.5e+04%"),
            ("{{ $value | humanizeDuration }}", 3661.0, "1h 1m 1s"),
            ("{{ $value | humanizeDuration }}", 0.25, "250ms"),
            ("{{ $value | humanizeDuration }}", -90_061.5, "-1d 1h 1m 1s"),
            ("{{ $value | humanizeTimestamp }}", 1_435_065_584.128, TIMESTAMP),
            ("{{ $value | printf \"%.2f\" }}", 2.0, "2.00"),
            ("{{ printf \"%5.1f|%-4s|%q|%d|%%\" $value $labels.a \"x\" 7 }}", 2.0, PRINTED),
        ] {
            assert_eq!(expand(text, value), expected, "{text} of {value}");
        }
    }

    const TIMESTAMP: &str = "2015-06-23 13:19:44.128 +0000 UTC";
    const PRINTED: &str = "  2.0|b   |\"x\"|7|%";

    #[test]
    fn the_language_is_gos() {
        for (text, expected) in [
            ("{{ $labels.a }}-{{$labels.none}}-{{ .Labels.a }}", "b--b"),
            ("a {{- /* no */ -}} b {{- \" c\" }}", "ab c"),
            (
                "{{ if gt $value 1.0 }}high{{ else if eq $value 1.0 }}one{{ else }}low{{ end }}",
                "one",
            ),
            ("{{ if and $labels.a (not $labels.none) }}yes{{ end }}", "yes"),
            ("{{ if $externalLabels.x }}yes{{ else }}no{{ end }}", "no"),
            ("{{ $labels.host | stripPort | toUpper }}", "H.EXAMPLE"),
            ("{{ reReplaceAll \"(.*):.*\" `$1` $labels.host }}", "h.example"),
            ("{{ match \"^h\" $labels.host }} {{ title \"ab cd\" }}", "true Ab Cd"),
            ("{{ index $labels \"a\" }} {{ len $labels }} {{ $labels }}", LABELS),
            ("{{ print 1 2 \"x\" }}", "1 2x"),
            ("{{ \"}}\" }}", "}}"),
            ("}} {", "}} {"),
        ] {
            assert_eq!(expand(text, 1.0), expected, "{text}");
        }
        let failed = expand("x {{ $labels.a | humanize }}", 1.0);
        assert!(
            failed.starts_with("<error expanding template: error calling humanize:"),
            "{failed}"
        );
        let mixed = expand("{{ if gt $value 1 }}x{{ end }}", 1.0);
        assert!(mixed.contains("incompatible types for comparison"), "{mixed}");
    }

    const LABELS: &str = "b 2 map[a:b host:h.example:80]";

    #[test]
    fn what_is_not_known_is_an_error_of_the_file() {
        for (text, part) in [
            ("{{ $value | humanise }}", "function \"humanise\" not defined"),
            ("{{ $lables.a }}", "undefined variable \"$lables\""),
            ("{{ .Labelz.a }}", ".Labelz"),
            ("{{ range query \"up\" }}{{ end }}", "range is not supported"),
            ("{{ if $value }}x", "unexpected end of template"),
            ("{{ end }}", "unexpected {{end}}"),
            ("{{ else }}", "unexpected {{else}}"),
            ("{{ $value", "unclosed action"),
            ("{{ }}", "missing value for command"),
            ("{{ $value | }}", "missing value for command"),
            ("{{ \"a }}", "unterminated"),
            ("{{ $value 3 }}", "can't give argument to non-function"),
            ("{{ 3 | $value }}", "non executable command in pipeline"),
            ("{{ humanize }}", "wrong number of args for humanize"),
            ("{{ (humanize 3 }}", "unclosed left paren"),
            ("{{ $value.x }}", "no field"),
            ("{{ /* x }}", "unclosed comment"),
        ] {
            let error = Template::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
