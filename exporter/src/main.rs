//! `sightline-exporter`: the command line.

fn main() {}
