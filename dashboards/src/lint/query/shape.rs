//! Which labels the result of an expression has, found by following them through the tree.

use crate::lint::Lint;
use metric_catalog::def::Kind;
use metric_catalog::promql::{COMMON, recorded};
use metric_catalog::target::Target;
use promql_parser::parser::VectorMatchCardinality;
use promql_parser::parser::{AggregateExpr, BinaryExpr, Call, Expr, LabelModifier};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// What an expression yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// A number or a text.
    Scalar,
    /// Series with these labels; none where it cannot be said.
    Vector(Option<BTreeSet<String>>),
}

/// The shape of a result, and what goes wrong on the way to it.
#[derive(Debug)]
pub(super) struct Result {
    /// The shape.
    pub(super) shape: Shape,
    /// Problems.
    pub(super) problems: Vec<(Lint, String)>,
}

/// Follows labels through an expression.
pub(super) fn of(expr: &Expr) -> Result {
    let mut walk = Walk { problems: Vec::new() };
    let shape = walk.shape(expr);
    Result { shape, problems: walk.problems }
}

/// Labels of every series by its name.
static LABELS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let set = |labels: &[&str]| labels.iter().map(|&label| label.to_owned()).collect();
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    known.insert("up".to_owned(), set(&COMMON[..4]));
    for series in Target::ALL.iter().flat_map(|target| recorded::of(*target)) {
        known.insert(series.name.to_owned(), set(series.labels));
    }
    for info in metric_catalog::all().chain(metric_catalog::engines::all()) {
        let own = info.labels.iter().map(|label| label.name);
        let labels: Vec<&str> = info.common_labels().iter().copied().chain(own).collect();
        match info.kind {
            Kind::Counter | Kind::Gauge => {
                known.insert(info.name.to_owned(), set(&labels));
            }
            Kind::Histogram => {
                known.insert(format!("{}_sum", info.name), set(&labels));
                known.insert(format!("{}_count", info.name), set(&labels));
                let bucket: Vec<&str> = labels.iter().copied().chain(["le"]).collect();
                known.insert(format!("{}_bucket", info.name), set(&bucket));
            }
        }
    }
    known
});

/// Labels of a series by its name; none where it is unknown or has any.
pub(super) fn labels_of(name: &str) -> Option<&'static BTreeSet<String>> {
    LABELS.get(name)
}

struct Walk {
    problems: Vec<(Lint, String)>,
}

impl Walk {
    fn shape(&mut self, expr: &Expr) -> Shape {
        match expr {
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Shape::Scalar,
            Expr::VectorSelector(selector) => {
                Shape::Vector(selector.name.as_deref().and_then(labels_of).cloned())
            }
            Expr::MatrixSelector(matrix) => {
                Shape::Vector(matrix.vs.name.as_deref().and_then(labels_of).cloned())
            }
            Expr::Paren(paren) => self.shape(&paren.expr),
            Expr::Unary(unary) => self.shape(&unary.expr),
            Expr::Subquery(subquery) => self.shape(&subquery.expr),
            Expr::Call(call) => self.call(call),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Extension(_) => Shape::Vector(None),
        }
    }

    fn aggregate(&mut self, aggregate: &AggregateExpr) -> Shape {
        let inner = self.shape(&aggregate.expr);
        let operator = aggregate.op.to_string();
        if matches!(operator.as_str(), "topk" | "bottomk" | "limitk" | "limit_ratio") {
            return inner;
        }
        let Shape::Vector(inner) = inner else { return inner };
        match &aggregate.modifier {
            None => Shape::Vector(Some(BTreeSet::new())),
            Some(LabelModifier::Include(labels)) => {
                for label in &labels.labels {
                    if inner.as_ref().is_some_and(|inner| !inner.contains(label)) {
                        let problem = format!("{operator} by ({label}), which was lost before");
                        self.problems.push((Lint::L17, problem));
                    }
                }
                Shape::Vector(Some(labels.labels.iter().cloned().collect()))
            }
            Some(LabelModifier::Exclude(labels)) => Shape::Vector(inner.map(|inner| {
                inner.into_iter().filter(|label| !labels.labels.contains(label)).collect()
            })),
        }
    }

    fn call(&mut self, call: &Call) -> Shape {
        let shapes: Vec<Shape> = call.args.args.iter().map(|expr| self.shape(expr)).collect();
        match call.func.name {
            "time" | "pi" | "scalar" => Shape::Scalar,
            "vector" => Shape::Vector(Some(BTreeSet::new())),
            "absent" | "absent_over_time" => Shape::Vector(None),
            "label_replace" | "label_join" => {
                let Some(Shape::Vector(Some(mut labels))) = shapes.into_iter().next() else {
                    return Shape::Vector(None);
                };
                if let Some(Expr::StringLiteral(label)) = call.args.args.get(1).map(|expr| &**expr)
                {
                    labels.insert(label.val.clone());
                }
                Shape::Vector(Some(labels))
            }
            "histogram_quantile" => self.quantile(shapes),
            _ => {
                let vector = |shape: &Shape| matches!(shape, Shape::Vector(_));
                shapes.into_iter().find(vector).unwrap_or(Shape::Scalar)
            }
        }
    }

    /// Buckets must be added up by `le` and by nothing that splits one histogram.
    fn quantile(&mut self, shapes: Vec<Shape>) -> Shape {
        let Some(Shape::Vector(Some(mut labels))) = shapes.into_iter().nth(1) else {
            return Shape::Vector(None);
        };
        if !labels.remove("le") {
            let problem = "histogram_quantile over series without le".to_owned();
            self.problems.push((Lint::L03, problem));
        }
        Shape::Vector(Some(labels))
    }

    fn binary(&mut self, binary: &BinaryExpr) -> Shape {
        let (left, right) = (self.shape(&binary.lhs), self.shape(&binary.rhs));
        let operator = binary.op.to_string();
        let (left, right) = match (left, right) {
            (Shape::Scalar, other) | (other, Shape::Scalar) => return other,
            (Shape::Vector(left), Shape::Vector(right)) => (left, right),
        };
        match operator.as_str() {
            "and" | "unless" => return Shape::Vector(left),
            "or" => {
                let both = left.zip(right);
                return Shape::Vector(
                    both.map(|(left, right)| left.union(&right).cloned().collect()),
                );
            }
            _ => {}
        }
        let modifier = binary.modifier.as_ref();
        let (Some(left), Some(right)) = (left, right) else { return Shape::Vector(None) };
        let keyed: BTreeSet<String> = match modifier.and_then(|m| m.matching.as_ref()) {
            None => {
                if left != right {
                    let unpaired: Vec<&String> = left.symmetric_difference(&right).collect();
                    let problem = format!("the sides of {operator} differ in {unpaired:?}");
                    self.problems.push((Lint::L17, problem));
                }
                left.clone()
            }
            Some(LabelModifier::Include(labels)) => labels.labels.iter().cloned().collect(),
            Some(LabelModifier::Exclude(labels)) => {
                left.iter().filter(|label| !labels.labels.contains(label)).cloned().collect()
            }
        };
        match modifier.map(|modifier| &modifier.card) {
            Some(VectorMatchCardinality::ManyToOne(more)) => {
                Shape::Vector(Some(left.into_iter().chain(more.labels.iter().cloned()).collect()))
            }
            Some(VectorMatchCardinality::OneToMany(more)) => {
                Shape::Vector(Some(right.into_iter().chain(more.labels.iter().cloned()).collect()))
            }
            Some(VectorMatchCardinality::OneToOne | VectorMatchCardinality::ManyToMany) | None => {
                Shape::Vector(Some(keyed))
            }
        }
    }
}
