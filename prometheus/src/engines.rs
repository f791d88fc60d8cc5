//! Other engines, typed like our own catalog: what SGLang and vLLM expose, for boards and rules
//! over clusters that run them.
//!
//! Their names, labels and units are not of our making and follow none of our rules; nothing here
//! is recorded by our processes, and nothing of it is in `all`. `prometheus/signals.json` says
//! which of the families which version exposes; tests hold the two together.

pub mod labels;
pub mod scrape;
pub mod sglang;
pub mod signal;
#[cfg(any(test, feature = "signals"))]
pub mod signals;
#[cfg(any(test, feature = "synth"))]
pub mod synth;
pub mod vllm;

use std::fmt;

use crate::def::Info;

/// An engine that boards and rules are generated for, other than ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// `sgl-project/sglang`.
    Sglang,
    /// `vllm-project/vllm`.
    Vllm,
}

impl Engine {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Sglang, Self::Vllm];

    /// The word for it, on the command line and in names of files and boards.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }

    /// Its name as its authors write it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sglang => "SGLang",
            Self::Vllm => "vLLM",
        }
    }

    /// The label that says whether a process prefills, decodes or does both.
    pub const fn role_label(self) -> &'static str {
        match self {
            Self::Sglang => "engine_type",
            Self::Vllm => "engine_role",
        }
    }

    /// Labels of one process of one model, for `by`.
    pub const fn instance(self) -> &'static [&'static str] {
        match self {
            Self::Sglang => sglang::INSTANCE,
            Self::Vllm => vllm::INSTANCE,
        }
    }

    /// The families that boards and rules use, in order.
    pub fn families(self) -> impl Iterator<Item = &'static Info> {
        let lists: &[&[&Info]] = match self {
            Self::Sglang => sglang::ALL,
            Self::Vllm => vllm::ALL,
        };
        lists.iter().flat_map(|list| list.iter().copied())
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A part of an engine's exposition whose series have the same labels in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Page {
    /// What SGLang's schedulers say, each rank for itself.
    SglangScheduler,
    /// What SGLang's front process says of requests.
    SglangTokenizer,
    /// What SGLang's prefix cache says, without model and role.
    SglangCache,
    /// What SGLang's HTTP server says.
    SglangHttp,
    /// `/v1/loads?format=prometheus` of SGLang, another scrape job than the page.
    SglangLoads,
    /// What a vLLM engine says.
    Vllm,
    /// What vLLM's front process says of admission.
    VllmFront,
    /// What vLLM's HTTP server says.
    VllmHttp,
}

impl Page {
    /// The engine.
    pub const fn engine(self) -> Engine {
        match self {
            Self::SglangScheduler
            | Self::SglangTokenizer
            | Self::SglangCache
            | Self::SglangHttp
            | Self::SglangLoads => Engine::Sglang,
            Self::Vllm | Self::VllmFront | Self::VllmHttp => Engine::Vllm,
        }
    }

    /// What its names start with.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::SglangScheduler
            | Self::SglangTokenizer
            | Self::SglangCache
            | Self::SglangHttp => "sglang:",
            Self::SglangLoads => "sglang_",
            Self::Vllm | Self::VllmFront => "vllm:",
            Self::VllmHttp => "http_",
        }
    }

    /// Labels that its series have beside their own, those of the target first.
    ///
    /// The loads of SGLang have a `job` as all series do; it is left out, since it is never that of
    /// the page, and a choice of the page's job must not hide them.
    pub const fn common(self) -> &'static [&'static str] {
        match self {
            Self::SglangScheduler => &[
                "cluster",
                "node",
                "job",
                "instance",
                "engine_type",
                "model_name",
                "dp_rank",
                "tp_rank",
                "pp_rank",
                "moe_ep_rank",
            ],
            Self::SglangTokenizer => {
                &["cluster", "node", "job", "instance", "engine_type", "model_name"]
            }
            Self::SglangCache => {
                &["cluster", "node", "job", "instance", "dp_rank", "tp_rank", "pp_rank"]
            }
            Self::SglangHttp => &["cluster", "node", "job", "instance"],
            Self::SglangLoads => &["cluster", "node", "instance", "dp_rank"],
            Self::Vllm => {
                &["cluster", "node", "job", "instance", "engine_role", "model_name", "engine"]
            }
            Self::VllmFront => &["cluster", "node", "job", "instance", "engine_role", "model_name"],
            Self::VllmHttp => &["cluster", "node", "job", "instance", "engine_role"],
        }
    }
}

/// Every family of other engines that boards and rules use.
pub fn all() -> impl Iterator<Item = &'static Info> {
    Engine::ALL.iter().flat_map(|engine| engine.families())
}

/// Declares the labels that the series of one page have: a wrapper around the labels of their own,
/// so that a query by a label of another page does not compile.
macro_rules! page {
    ($(#[$doc:meta])+ $name:ident : $($common:ty),+) => {
        $(#[$doc])+
        #[derive(Debug, Clone)]
        pub struct $name<L = ()>(L);

        impl<L: $crate::def::LabelSet> $crate::def::LabelSet for $name<L> {
            const LABELS: &'static [$crate::def::LabelInfo] = L::LABELS;

            fn values(&self) -> Vec<std::borrow::Cow<'static, str>> {
                self.0.values()
            }

            fn all() -> Vec<Self> {
                L::all().into_iter().map($name).collect()
            }

            fn occurs(&self, _role: $crate::labels::Role) -> bool {
                false
            }
        }

        impl<L, X, const N: usize> $crate::def::Has<X, $crate::def::At<N>> for $name<L> where
            L: $crate::def::Has<X, $crate::def::At<N>>
        {
        }

        $(
            impl<L: $crate::def::LabelSet> $crate::def::Has<$common, $crate::promql::Common>
                for $name<L>
            {
            }
        )+
    };
}

/// Declares families of one page: a `const` each, and a list of all. The doc comment is the help
/// text; units are written out, since these names do not tell.
macro_rules! families {
    (
        $(#[$list_doc:meta])+
        $list:ident : $page:ident<$common:ident>;
        $(
            $(#[doc = $help:literal])+
            $name:ident : $kind:ident $(< $($label:ident),+ >)? = $text:literal, $unit:ident
                $(, buckets $buckets:expr)?;
        )+
    ) => {
        $(
            $(#[doc = $help])+
            pub const $name: $crate::def::$kind<$common<($($($label,)+)?)>> =
                $crate::def::$kind::declare(&$crate::def::Info {
                    name: $text,
                    help: concat!($($help),+).trim_ascii(),
                    kind: $crate::def::$kind::<$common<($($($label,)+)?)>>::KIND,
                    labels: <($($($label,)+)?) as $crate::def::LabelSet>::LABELS,
                    buckets: families!(@buckets $($buckets)?),
                    unit: $crate::def::Unit::$unit,
                    source: $crate::def::Source::Engine($crate::engines::Page::$page),
                    roles: $crate::roles::NONE,
                    per: $crate::roles::Per::Model,
                    combinations: |_| Vec::new(),
                });
        )+

        $(#[$list_doc])+
        pub const $list: &[&$crate::def::Info] = &[$($name.info),+];
    };
    (@buckets) => { &[] };
    (@buckets $buckets:expr) => { $buckets };
}

pub(crate) use {families, page};

#[cfg(test)]
mod tests;
