//! Writes the files that the program embeds, compressed: boards, rules and the console's files.

use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Folders of boards and rule files, one for each target; ours lie in the folder itself.
const TARGETS: [&str; 3] = ["", "sglang", "vllm"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let target = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let mut out = String::new();
    let boards = root.join("../dashboards/generated");
    let mut files = Vec::new();
    for folder in TARGETS {
        list(&boards, &boards.join(folder), ".json", false, &mut files)?;
    }
    packed(&mut out, "BOARDS", files, &target)?;
    let mut files = Vec::new();
    list(&root.join("web"), &root.join("web"), "", true, &mut files)?;
    for (name, path) in [
        ("runbook.md", "../prometheus/runbook.md"),
        ("manifest.json", "../dashboards/manifest.json"),
    ] {
        let path = root.join(path);
        changes(&path)?;
        files.push((format!("own/{name}"), path));
    }
    packed(&mut out, "FILES", files, &target)?;
    let rules = root.join("../prometheus/rules");
    let mut files = Vec::new();
    list(&rules, &rules, ".yml", false, &mut files)?;
    files.sort();
    let line =
        |(name, path): (String, PathBuf)| format!("    ({name:?}, include_str!({path:?})),\n");
    let lines: String = files.into_iter().map(line).collect();
    write!(out, "pub(crate) static RULES: &[(&str, &str)] = &[\n{lines}];\n")
        .map_err(io::Error::other)?;
    fs::write(target.join("embedded.rs"), out)
}

/// Writes the compressed files and a table of them.
fn packed(
    out: &mut String,
    table: &str,
    mut files: Vec<(String, PathBuf)>,
    target: &Path,
) -> io::Result<()> {
    files.sort();
    let mut lines = String::new();
    for (at, (name, path)) in files.into_iter().enumerate() {
        let bytes = fs::read(&path)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        let small = target.join(format!("{table}-{at}.gz"));
        fs::write(&small, encoder.finish()?)?;
        let (size, tag) = (bytes.len(), tag(&bytes));
        writeln!(
            lines,
            "    Packed {{ name: {name:?}, size: {size}, tag: {tag:?}, \
             gzip: include_bytes!({small:?}) }},"
        )
        .map_err(io::Error::other)?;
    }
    write!(out, "pub(crate) static {table}: &[Packed] = &[\n{lines}];\n").map_err(io::Error::other)
}

/// A validator that changes with the content: FNV-1a.
fn tag(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("W/\"{:016x}\"", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn changes(path: &Path) -> io::Result<()> {
    let line = format!("cargo:rerun-if-changed={}\n", path.display());
    io::Write::write_all(&mut io::stdout(), line.as_bytes())
}

/// Collects (path under `base`, full path) of the files of `folder` and, where `deep`, of those
/// below it; a missing folder is empty.
fn list(
    base: &Path,
    folder: &Path,
    ending: &str,
    deep: bool,
    files: &mut Vec<(String, PathBuf)>,
) -> io::Result<()> {
    // A folder is named for files that come and go, each file for its content.
    changes(folder)?;
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if deep {
                list(base, &path, ending, deep, files)?;
            }
        } else if name.ends_with(ending) && !name.starts_with('.') {
            changes(&path)?;
            let relative = path.strip_prefix(base).unwrap_or(&path);
            files.push((relative.to_string_lossy().into_owned(), path.canonicalize()?));
        }
    }
    Ok(())
}
