//! The syntax tree of a PromQL expression.
//!
//! Plain data: no positions, no evaluation. Durations and offsets are milliseconds.

use crate::store::Matcher;

/// One expression node.
#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Number(f64),
    String(String),
    Selector(Selector),
    /// A range selector, `metric[5m]`.
    Range {
        selector: Selector,
        range_ms: i64,
    },
    /// `expr[range:step]`; without a step the engine's default is used.
    Subquery(Box<Subquery>),
    Negate(Box<Self>),
    Binary(Box<Binary>),
    Aggregate(Box<Aggregate>),
    Call(Call),
}

/// An instant vector selector with its modifiers.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) offset_ms: i64,
    pub(crate) at: Option<At>,
}

/// The `@` modifier.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    Time(i64),
    Start,
    End,
}

#[derive(Debug, Clone)]
pub(crate) struct Subquery {
    pub(crate) expr: Expr,
    pub(crate) range_ms: i64,
    pub(crate) step_ms: Option<i64>,
    pub(crate) offset_ms: i64,
    pub(crate) at: Option<At>,
}

#[derive(Debug, Clone)]
pub(crate) struct Binary {
    pub(crate) op: BinaryOp,
    pub(crate) left: Expr,
    pub(crate) right: Expr,
    pub(crate) return_bool: bool,
    pub(crate) matching: Matching,
}

/// How the two sides of a vector operation are paired.
#[derive(Debug, Clone, Default)]
pub(crate) struct Matching {
    /// `true` for `on(labels)`, `false` for `ignoring(labels)` (the default, with no labels).
    pub(crate) on: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) group: Group,
    /// Labels copied from the "one" side.
    pub(crate) include: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Group {
    #[default]
    OneToOne,
    Left,
    Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
    And,
    Or,
    Unless,
}

impl BinaryOp {
    pub(crate) fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Gt | Self::Lt | Self::Ge | Self::Le)
    }

    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }

    /// Binding strength; a higher number binds tighter.
    pub(crate) fn precedence(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And | Self::Unless => 2,
            Self::Eq | Self::Ne | Self::Gt | Self::Lt | Self::Ge | Self::Le => 3,
            Self::Add | Self::Sub => 4,
            Self::Mul | Self::Div | Self::Mod | Self::Atan2 => 5,
            Self::Pow => POWER_PRECEDENCE,
        }
    }
}

/// The unary minus binds less than the power operator: `-2^2` is -4.
pub(crate) const POWER_PRECEDENCE: u8 = 6;

#[derive(Debug, Clone)]
pub(crate) struct Aggregate {
    pub(crate) op: AggregateOp,
    pub(crate) expr: Expr,
    /// `k` of topk, the quantile, or the label name of count_values.
    pub(crate) param: Option<Expr>,
    pub(crate) without: bool,
    pub(crate) labels: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateOp {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    TopK,
    BottomK,
    Quantile,
    CountValues,
}

impl AggregateOp {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "count" => Self::Count,
            "group" => Self::Group,
            "stddev" => Self::Stddev,
            "stdvar" => Self::Stdvar,
            "topk" => Self::TopK,
            "bottomk" => Self::BottomK,
            "quantile" => Self::Quantile,
            "count_values" => Self::CountValues,
            _ => return None,
        })
    }

    pub(crate) fn takes_param(self) -> bool {
        matches!(self, Self::TopK | Self::BottomK | Self::Quantile | Self::CountValues)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) args: Vec<Expr>,
}

/// The type of an expression, with the name that error messages use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar,
    String,
    Vector,
    Matrix,
}

impl Type {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
        }
    }
}

impl Expr {
    pub(crate) fn kind(&self) -> Type {
        match self {
            Self::Number(_) => Type::Scalar,
            Self::String(_) => Type::String,
            Self::Selector(_) | Self::Aggregate(_) => Type::Vector,
            Self::Range { .. } | Self::Subquery(_) => Type::Matrix,
            Self::Negate(inner) => inner.kind(),
            Self::Binary(b) => match (b.left.kind(), b.right.kind()) {
                (Type::Scalar, Type::Scalar) => Type::Scalar,
                _ => Type::Vector,
            },
            Self::Call(call) => call.function.returns(),
        }
    }
}

/// Declares the functions once: variant, PromQL name, argument types, how many of them are
/// required, whether the last one repeats, and the type returned.
macro_rules! functions {
    ($(
        $variant:ident $name:literal
        [$($arg:ident),*] $required:literal $repeat:literal $ret:ident
    )*) => {
        /// Every function of the language that this engine knows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Function { $($variant),* }

        impl Function {
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
            pub(crate) fn args(self) -> &'static [Type] {
                match self { $(Self::$variant => &[$(Type::$arg),*]),* }
            }
            pub(crate) fn required(self) -> usize {
                match self { $(Self::$variant => $required),* }
            }
            pub(crate) fn repeats(self) -> bool {
                match self { $(Self::$variant => $repeat),* }
            }
            pub(crate) fn returns(self) -> Type {
                match self { $(Self::$variant => Type::$ret),* }
            }
        }
    };
}

functions! {
    Abs "abs" [Vector] 1 false Vector
    Absent "absent" [Vector] 1 false Vector
    AbsentOverTime "absent_over_time" [Matrix] 1 false Vector
    AvgOverTime "avg_over_time" [Matrix] 1 false Vector
    Ceil "ceil" [Vector] 1 false Vector
    Changes "changes" [Matrix] 1 false Vector
    Clamp "clamp" [Vector, Scalar, Scalar] 3 false Vector
    ClampMax "clamp_max" [Vector, Scalar] 2 false Vector
    ClampMin "clamp_min" [Vector, Scalar] 2 false Vector
    CountOverTime "count_over_time" [Matrix] 1 false Vector
    DayOfMonth "day_of_month" [Vector] 0 false Vector
    DayOfWeek "day_of_week" [Vector] 0 false Vector
    Delta "delta" [Matrix] 1 false Vector
    Deriv "deriv" [Matrix] 1 false Vector
    Exp "exp" [Vector] 1 false Vector
    Floor "floor" [Vector] 1 false Vector
    HistogramQuantile "histogram_quantile" [Scalar, Vector] 2 false Vector
    Hour "hour" [Vector] 0 false Vector
    Idelta "idelta" [Matrix] 1 false Vector
    Increase "increase" [Matrix] 1 false Vector
    Irate "irate" [Matrix] 1 false Vector
    LabelJoin "label_join" [Vector, String, String, String] 3 true Vector
    LabelReplace "label_replace" [Vector, String, String, String, String] 5 false Vector
    LastOverTime "last_over_time" [Matrix] 1 false Vector
    Ln "ln" [Vector] 1 false Vector
    Log10 "log10" [Vector] 1 false Vector
    Log2 "log2" [Vector] 1 false Vector
    MaxOverTime "max_over_time" [Matrix] 1 false Vector
    MinOverTime "min_over_time" [Matrix] 1 false Vector
    Minute "minute" [Vector] 0 false Vector
    Pi "pi" [] 0 false Scalar
    PredictLinear "predict_linear" [Matrix, Scalar] 2 false Vector
    PresentOverTime "present_over_time" [Matrix] 1 false Vector
    QuantileOverTime "quantile_over_time" [Scalar, Matrix] 2 false Vector
    Rate "rate" [Matrix] 1 false Vector
    Resets "resets" [Matrix] 1 false Vector
    Round "round" [Vector, Scalar] 1 false Vector
    Scalar "scalar" [Vector] 1 false Scalar
    Sgn "sgn" [Vector] 1 false Vector
    Sort "sort" [Vector] 1 false Vector
    SortDesc "sort_desc" [Vector] 1 false Vector
    Sqrt "sqrt" [Vector] 1 false Vector
    StddevOverTime "stddev_over_time" [Matrix] 1 false Vector
    StdvarOverTime "stdvar_over_time" [Matrix] 1 false Vector
    SumOverTime "sum_over_time" [Matrix] 1 false Vector
    Time "time" [] 0 false Scalar
    Timestamp "timestamp" [Vector] 1 false Vector
    Vector "vector" [Scalar] 1 false Vector
}
