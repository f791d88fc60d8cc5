//! What the build is made of, for the info metric: the commit and the compiler.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SIGHTLINE_GIT_SHA");
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=build.rs");
    let given = option("SIGHTLINE_GIT_SHA");
    let sha = given.or_else(|| first_line("git", &["rev-parse", "--short=12", "HEAD"]));
    // Cargo names the compiler it will use.
    let rustc = option("RUSTC").and_then(|rustc| first_line(&rustc, &["--version"]));
    let rustc = rustc.and_then(|text| text.split(' ').nth(1).map(str::to_owned));
    for (name, value) in [("SIGHTLINE_GIT_SHA", sha), ("SIGHTLINE_RUSTC", rustc)] {
        println!("cargo::rustc-env={name}={}", value.unwrap_or_else(|| "unknown".to_owned()));
    }
}

#[expect(clippy::disallowed_methods, reason = "a build script is told by its environment")]
fn option(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
}
