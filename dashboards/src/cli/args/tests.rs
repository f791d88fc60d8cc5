use super::*;
use metric_catalog::engines::Engine;

fn parse(line: &str) -> Result<Args, String> {
    Args::parse(line.split_whitespace().map(OsString::from))
}

fn everything() -> Vec<Target> {
    Target::ALL.to_vec()
}

#[test]
fn commands_and_options() {
    let plain = |command| Ok(Args { command, root: None });
    assert_eq!(parse("generate"), plain(Command::Generate(everything(), None)));
    let sglang = vec![Target::Engine(Engine::Sglang)];
    assert_eq!(parse("generate --target sglang"), plain(Command::Generate(sglang.clone(), None)));
    assert_eq!(parse("lint --format json"), plain(Command::Lint(everything(), Format::Json)));
    assert_eq!(
        parse("lint --format=sarif --target=sglang"),
        plain(Command::Lint(sglang.clone(), Format::Sarif))
    );
    assert_eq!(parse("--format=json list-metrics"), plain(Command::ListMetrics(Format::Json)));
    assert_eq!(parse("check --help"), plain(Command::Help));
    let rooted = Args { command: Command::Check(everything()), root: Some(PathBuf::from("/x=y")) };
    assert_eq!(parse("check --root=/x=y"), Ok(rooted));
    assert_eq!(parse("diff a b"), plain(Command::Diff("a".into(), "b".into())));
    let out = Some(PathBuf::from("r"));
    assert_eq!(parse("rules --out r --target sglang"), plain(Command::Rules(sglang, out)));
    assert_eq!(parse("provision"), plain(Command::Provision(None)));
}

#[test]
fn other_formats_go_elsewhere() {
    let bundle = |flavors: &[Flavor], compact| {
        let bundle = Bundle { out: "o".into(), flavors: flavors.to_vec(), compact };
        Ok(Args { command: Command::Generate(everything(), Some(bundle)), root: None })
    };
    assert_eq!(parse("generate --out o"), bundle(&[Flavor::Classic], false));
    assert_eq!(parse("generate --out o --flavor v2 --compact"), bundle(&[Flavor::V2], true));
    assert_eq!(parse("generate --flavor all --out o"), bundle(Flavor::ALL, false));
    let classic = Args { command: Command::Generate(everything(), None), root: None };
    assert_eq!(parse("generate --flavor classic"), Ok(classic));
}

#[test]
fn every_mistake_is_one_clear_sentence() {
    for (line, problem) in [
        ("", "no command; there are generate, check, lint, "),
        ("make", "unknown command make; there are generate, check, lint, "),
        ("check now", "unexpected argument now after check"),
        ("diff a", "diff needs two dashboards or two folders of them: OLD NEW"),
        ("diff a b c", "unexpected argument c after diff"),
        ("check --fast", "unknown option --fast; there are --root, --out, "),
        ("check --root", "--root needs a folder"),
        ("check --root a --root b", "--root is given twice"),
        ("generate --compact=1", "--compact is a switch and takes no value: 1"),
        ("lint --format xml", "--format takes text, json or sarif, not xml"),
        ("coverage --format sarif", "--format takes text or json, not sarif"),
        ("check --format json", "--format does not apply to check; it goes with lint, coverage, "),
        ("lint --target llama", "--target takes sightline, sglang, vllm or all, not llama"),
        ("generate --flavor v1 --out o", "--flavor takes classic, shared, v2 or all, not v1"),
        ("generate --flavor v2", "--flavor v2 needs --out DIR: the checkout holds Classic"),
        ("generate --compact", "--compact needs --out DIR: the checkout holds Classic"),
    ] {
        let error = parse(line).expect_err(line);
        assert!(error.starts_with(problem), "{line}: {error}");
    }
}

#[test]
fn the_help_names_every_command_and_option() {
    for (command, _, _) in COMMANDS {
        assert!(USAGE.contains(&format!("\n  {command} ")), "{command}");
    }
    for (option, _, takers) in OPTIONS {
        assert!(USAGE.contains(&format!("\n  {option} ")), "{option}");
        assert!(takers.iter().all(|taker| COMMANDS.iter().any(|command| command.0 == *taker)));
    }
}
