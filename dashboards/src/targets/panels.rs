//! Panels made of answers: time series and single values where there are queries, a text that names
//! the gap where there are none.

use super::answers::{Answer, Composed, Queries, answer, composed};
use super::subject::{scope, targets_up};
use crate::build::{Draft, Set, stat, text, time_series};
use crate::ir::Panel;
use metric_catalog::def::Unit;
use metric_catalog::engines::Engine;
use metric_catalog::engines::signal::Signal;
use metric_catalog::promql::{Expr, max, sum};

/// A panel that has all that is mandatory.
pub(super) type Ready = Draft<Set, Set, Set>;

/// Name, heading, and what to do about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// Stable name.
    pub(super) slug: &'static str,
    /// Heading.
    pub(super) title: &'static str,
    /// What it shows and what to do about it.
    pub(super) describe: &'static str,
}

/// How processes are put together into one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    /// Summed.
    Sum,
    /// The largest.
    Max,
}

/// Words of a panel.
pub(super) const fn words(
    slug: &'static str,
    title: &'static str,
    describe: &'static str,
) -> Words {
    Words { slug, title, describe }
}

/// A text in place of a panel.
fn gap(words: Words, gap: &str, close: &str) -> Panel {
    let markdown = format!("**Not known.** {gap}\n\n**What would close the gap:** {close}");
    let describe = format!("{} Here there is a gap.", words.describe);
    text(words.slug, &markdown).title(words.title).describe(&describe).into()
}

fn described(words: Words, note: &str) -> String {
    if note.is_empty() { words.describe.to_owned() } else { format!("{} {note}", words.describe) }
}

fn unit_of(queries: &Queries) -> Unit {
    queries.first().map_or(Unit::Count, |(expr, _)| expr.unit())
}

/// A signal over time.
pub(super) fn over_time(
    engine: Engine,
    signal: Signal,
    words: Words,
    look: impl FnOnce(Ready) -> Ready,
) -> Panel {
    match answer(engine, signal) {
        Answer::Gap { gap: missing, close } => gap(words, missing, close),
        Answer::Queries { queries, note } => lines(engine, words, &note, queries, look),
    }
}

/// The same of something composed; `missing` says what it lacks where an engine has none, and what
/// would close the gap.
pub(super) fn composed_over_time(
    engine: Engine,
    what: Composed,
    words: Words,
    missing: (&str, &str),
    look: impl FnOnce(Ready) -> Ready,
) -> Panel {
    let queries = composed(engine, what);
    if queries.is_empty() {
        return gap(words, missing.0, missing.1);
    }
    lines(engine, words, "", queries, look)
}

fn lines(
    engine: Engine,
    words: Words,
    note: &str,
    queries: Queries,
    look: impl FnOnce(Ready) -> Ready,
) -> Panel {
    let draft = time_series(words.slug)
        .title(words.title)
        .describe(&described(words, note))
        .unit(unit_of(&queries))
        .within(scope(engine));
    let draft = queries.into_iter().fold(draft, |draft, (expr, legend)| draft.query(expr, legend));
    look(draft).into()
}

/// A signal as one value over all chosen processes.
pub(super) fn now(
    engine: Engine,
    signal: Signal,
    fold: Fold,
    words: Words,
    look: impl FnOnce(Ready) -> Ready,
) -> Panel {
    match answer(engine, signal) {
        Answer::Gap { gap: missing, close } => gap(words, missing, close),
        Answer::Queries { queries, note } => {
            let first = queries.into_iter().next().map(|(expr, _)| expr);
            let expr = first.expect("a signal that is answered has a query: tests look");
            single(engine, words, &note, folded(fold, expr), look)
        }
    }
}

fn folded(fold: Fold, expr: Expr) -> Expr {
    match fold {
        Fold::Sum => sum(expr).total(),
        Fold::Max => max(expr).total(),
    }
}

/// One value.
pub(super) fn single(
    engine: Engine,
    words: Words,
    note: &str,
    expr: Expr,
    look: impl FnOnce(Ready) -> Ready,
) -> Panel {
    let draft = stat(words.slug)
        .title(words.title)
        .describe(&described(words, note))
        .unit(expr.unit())
        .within(scope(engine))
        .query(expr, words.title);
    look(draft).into()
}

/// Scrape targets that answer, by job.
pub(super) fn targets_over_time(engine: Engine, words: Words) -> Panel {
    lines(engine, words, "", vec![(targets_up(engine), "{{job}}")], |draft| draft.steps())
}
