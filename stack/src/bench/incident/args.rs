//! The options of `sightline bench incident`, and the script that they make.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use metric_catalog::slo;
use server::cli::Span;

use crate::bench::args::BadPlan;

/// Tokens of a forward pass, as the server has them by default.
pub(super) const CHUNK: u64 = 512;
/// What each pass of the prefill worker takes beside its tokens.
pub(super) const PREFILL_STEP: Duration = Duration::from_millis(1);
/// What each pass of the decode worker takes: the gap between two tokens.
const DECODE_STEP: Duration = Duration::from_millis(20);
/// A quiet service comes first: one client at a time, so that its speed is on record.
const CALM: Duration = Duration::from_secs(45);
/// The pause of that client between two requests.
const CALM_PAUSE: Duration = Duration::from_secs(2);
/// Tokens of an answer.
const OUTPUT_TOKENS: u64 = 64;
/// Prompts are so much shorter or longer than their mean, at most.
pub(super) const SPREAD: f64 = 0.2;
/// The rules take no prefill worker for slower than this many tokens a second.
const SLOWEST: f64 = 100.0;
/// A prompt that is not worth a transfer would not show what this is about.
const PROMPT_LEAST: u64 = 128;
/// Longest context of the modelled model.
pub(super) const CONTEXT: u64 = 65_536;

/// Options of `bench incident`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct IncidentArgs {
    /// Clients that ask at the same time, each again as soon as it is answered or gave up.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub clients: u64,
    /// Mean tokens of a prompt; they are up to a fifth shorter or longer.
    #[arg(long, value_name = "N", default_value_t = 15_000)]
    pub prompt_tokens: u64,
    /// Tokens that the prefill worker computes in a second.
    #[arg(long, value_name = "N", default_value_t = 3300.0)]
    pub rate: f64,
    /// Clients give up when there is no first token within this.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub patience: Span,
    /// How long clients go on asking; then those that wait are still answered.
    #[arg(long, value_name = "TIME", default_value = "100s")]
    pub duration: Span,
    /// Run A has no limits, run B the default ones.
    #[arg(long, value_enum, default_value_t = Which::Both)]
    pub run: Which,
    /// Makes everything so many times as short: prompts, patience, objective, duration and the
    /// waits of the rules. For a quick look; what the machine does by itself weighs more then.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub scale: f64,
    /// The same seed makes the same prompts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all results to this file; - for standard output, instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No progress.
    #[arg(long, action = ArgAction::SetTrue)]
    pub quiet: bool,
}

/// Which runs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Without limits: the pile-up.
    A,
    /// With the default limits.
    B,
    /// One after the other.
    Both,
}

impl Which {
    /// The runs, in their order.
    pub(super) const fn runs(self) -> &'static [Limits] {
        match self {
            Self::A => &[Limits::Off],
            Self::B => &[Limits::Default],
            Self::Both => &[Limits::Off, Limits::Default],
        }
    }
}

/// What bounds the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limits {
    /// Nothing: run A.
    Off,
    /// What a server has when nobody says otherwise: run B.
    Default,
}

impl Limits {
    pub(super) const fn letter(self) -> &'static str {
        match self {
            Self::Off => "A",
            Self::Default => "B",
        }
    }
}

const AFTER_HELP: &str = "\
Starts a prefill worker whose passes take the time of the incident's, a decode worker and a router
as processes of their own, scrapes them, evaluates the alert rules, and sends clients; no GPU and
no model is needed. Takes about seven minutes; --scale 10 a good one.

Exit codes: 0 the pile-up shows in A and all promises hold in B; 1 one of them does not, the table
says which; 64 the command line is wrong; 70 internal; 75 a process did not start; 77 a file cannot
be written; 78 options do not fit; 130 stopped by Ctrl-C.";

/// What happens, in the machine's own time: everything is divided by the scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Script {
    pub(super) scale: f64,
    pub(super) seed: u64,
    pub(super) clients: u64,
    /// Mean.
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) rate: f64,
    pub(super) patience: Duration,
    pub(super) objective: Duration,
    pub(super) calm: Duration,
    pub(super) calm_pause: Duration,
    pub(super) duration: Duration,
    pub(super) decode_step: Duration,
}

impl Script {
    /// Fits the options together.
    ///
    /// # Errors
    /// The option that cannot be, with what would do.
    pub(super) fn new(args: &IncidentArgs) -> Result<Self, BadPlan> {
        let scale = args.scale;
        check("--scale", scale, "from 1 to 30", (1.0..=30.0).contains(&scale))?;
        check("--clients", args.clients, "from 1 to 200", (1..=200).contains(&args.clients))?;
        let rate = args.rate;
        check("--rate", rate, "at most 100000", rate <= 100_000.0)?;
        check("--rate", rate, "at least 100 times --scale", rate >= SLOWEST * scale)?;
        let prompt = args.prompt_tokens as f64 / scale;
        let longest = (CONTEXT - OUTPUT_TOKENS) as f64 / (1.0 + SPREAD);
        check("--prompt-tokens", args.prompt_tokens, "at most 54000", {
            args.prompt_tokens as f64 <= longest
        })?;
        check("--prompt-tokens", args.prompt_tokens, "at least 128 times --scale", {
            prompt >= PROMPT_LEAST as f64
        })?;
        let hour = Duration::from_secs(3600);
        let seconds = Duration::from_secs(1);
        for (option, time) in [("--patience", args.patience), ("--duration", args.duration)] {
            check(option, time, "from 1s to 1h", (seconds..=hour).contains(&time.0))?;
        }
        let short = |time: Duration| time.div_f64(scale);
        Ok(Self {
            scale,
            seed: args.seed,
            clients: args.clients,
            prompt_tokens: prompt.round() as u64,
            output_tokens: ((OUTPUT_TOKENS as f64 / scale).round() as u64).max(2),
            rate,
            patience: short(args.patience.0),
            objective: short(Duration::from_secs_f64(slo::TTFT_OBJECTIVE_SECONDS)),
            calm: short(CALM),
            calm_pause: short(CALM_PAUSE),
            duration: short(args.duration.0),
            decode_step: short(DECODE_STEP),
        })
    }

    /// What a token of a prompt takes, so that full passes come to the rate.
    pub(super) fn token_time(&self) -> Duration {
        let pass = CHUNK as f64 / self.rate - PREFILL_STEP.as_secs_f64();
        Duration::from_secs_f64((pass / CHUNK as f64).max(0.0))
    }

    /// A measured time as the incident would have had it.
    pub(super) fn told(&self, time: Duration) -> Duration {
        time.mul_f64(self.scale)
    }
}

fn check<T: std::fmt::Display>(
    option: &'static str,
    value: T,
    wanted: &'static str,
    holds: bool,
) -> Result<(), BadPlan> {
    if holds { Ok(()) } else { Err(BadPlan::Value { option, wanted, value: value.to_string() }) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bench::args::Scenario;
    use crate::cli::{Cli, Command};

    fn script(options: &str) -> Result<Script, String> {
        let line = format!("sightline bench incident {options}");
        let parsed = Cli::try_parse_from(line.split_whitespace()).expect(options);
        let Command::Bench(bench) = parsed.command else { panic!("not bench") };
        let Some(Scenario::Incident(args)) = bench.scenario else { panic!("no scenario") };
        Script::new(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_script_is_the_incident_and_the_scale_divides_its_times() {
        let whole = script("").expect("valid");
        assert_eq!((whole.clients, whole.prompt_tokens, whole.output_tokens), (20, 15_000, 64));
        assert_eq!(whole.objective, Duration::from_secs(30));
        assert_eq!(whole.patience, Duration::from_secs(60));
        let pass = PREFILL_STEP + whole.token_time() * CHUNK as u32;
        assert!((CHUNK as f64 / pass.as_secs_f64() - 3300.0).abs() < 1.0, "{pass:?}");
        let tenth = script("--scale 10 --clients 15").expect("valid");
        assert_eq!((tenth.clients, tenth.prompt_tokens), (15, 1500));
        assert_eq!(tenth.patience, Duration::from_secs(6));
        assert_eq!(tenth.objective, Duration::from_secs(3));
        assert_eq!(tenth.token_time(), whole.token_time(), "the rate is the same");
        assert_eq!(tenth.told(tenth.patience), whole.patience);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_do() {
        for (options, said) in [
            ("--scale 0.5", "--scale must be from 1 to 30, not 0.5"),
            ("--scale NaN", "--scale must be"),
            ("--clients 0", "--clients must be from 1 to 200"),
            ("--rate 1000 --scale 20", "--rate must be at least 100 times --scale"),
            ("--rate inf", "--rate must be at most"),
            ("--prompt-tokens 60000", "--prompt-tokens must be at most 54000"),
            ("--prompt-tokens 200 --scale 10", "--prompt-tokens must be at least 128 times"),
            ("--patience 0s", "--patience must be from 1s to 1h, not 0s"),
        ] {
            let error = script(options).expect_err(options);
            assert!(error.contains(said), "{options}: {error}");
        }
    }
}
